//! The level of every route of the wire.

use crate::auth::Level::{self, Admin, Public, ReadOnly, ReadWrite, WriteOnly};
use crate::auth::required;
use axum::http::Method;

/// Method, path and level; `q`, `g`, `p`, `t`, `k`, `i` stand for parameters.
pub const ROUTES: &[(&str, &str, Level)] = &[
    ("POST", "/api/v1/push", WriteOnly),
    ("GET", "/api/v1/pop", ReadWrite),
    ("GET", "/api/v1/pop/queue/q", ReadWrite),
    ("GET", "/api/v1/pop/queue/q/partition/p", ReadWrite),
    ("POST", "/api/v1/ack", ReadWrite),
    ("POST", "/api/v1/ack/batch", ReadWrite),
    ("POST", "/api/v1/lease/i/extend", ReadWrite),
    ("POST", "/api/v1/transaction", ReadWrite),
    ("POST", "/api/v1/configure", ReadWrite),
    ("GET", "/api/v1/resources/queues", ReadOnly),
    ("GET", "/api/v1/resources/queues/q", ReadOnly),
    ("DELETE", "/api/v1/resources/queues/q", Admin),
    ("GET", "/api/v1/resources/queues/q/depth", ReadOnly),
    ("GET", "/api/v1/resources/overview", ReadOnly),
    ("GET", "/api/v1/resources/namespaces", ReadOnly),
    ("GET", "/api/v1/resources/tasks", ReadOnly),
    ("GET", "/api/v1/resources/kv/namespaces", ReadOnly),
    ("POST", "/api/v1/resources/kv/list", ReadOnly),
    ("GET", "/api/v1/messages", ReadOnly),
    ("GET", "/api/v1/messages/p/t", ReadOnly),
    ("DELETE", "/api/v1/messages/p/t", ReadWrite),
    ("POST", "/api/v1/messages/p/t/retry", ReadWrite),
    ("GET", "/api/v1/dlq", ReadOnly),
    ("DELETE", "/api/v1/dlq", Admin),
    ("POST", "/api/v1/dlq/i/replay", ReadWrite),
    ("GET", "/api/v1/dlq/list", ReadOnly),
    ("GET", "/api/v1/dlq/i", ReadOnly),
    ("GET", "/api/v1/dlq/plans/i", ReadOnly),
    ("POST", "/api/v1/dlq/plans", ReadWrite),
    ("POST", "/api/v1/dlq/plans/i/approve", ReadWrite),
    ("POST", "/api/v1/dlq/i/repair", ReadWrite),
    ("POST", "/api/v1/dlq/discard", ReadWrite),
    ("POST", "/api/v1/consumer-groups/g/queues/q/pause", ReadWrite),
    ("GET", "/api/v1/consumer-groups", ReadOnly),
    ("GET", "/api/v1/consumer-groups/lagging", ReadOnly),
    ("GET", "/api/v1/consumer-groups/g", ReadOnly),
    ("DELETE", "/api/v1/consumer-groups/g", Admin),
    ("POST", "/api/v1/consumer-groups/g/subscription", ReadWrite),
    ("DELETE", "/api/v1/consumer-groups/g/queues/q", Admin),
    ("POST", "/api/v1/consumer-groups/g/queues/q/seek", ReadWrite),
    ("POST", "/api/v1/consumer-groups/g/queues/q/partitions/p/seek", ReadWrite),
    ("POST", "/api/v1/traces", ReadWrite),
    ("GET", "/api/v1/traces/names", ReadOnly),
    ("GET", "/api/v1/traces/by-name/i", ReadOnly),
    ("GET", "/api/v1/traces/p/t", ReadOnly),
    ("GET", "/api/v1/status", ReadOnly),
    ("GET", "/api/v1/status/analytics", ReadOnly),
    ("GET", "/api/v1/status/buffers", ReadOnly),
    ("GET", "/api/v1/status/queues", ReadOnly),
    ("GET", "/api/v1/status/queues/q", ReadOnly),
    ("GET", "/api/v1/analytics/system-metrics", ReadOnly),
    ("GET", "/api/v1/analytics/worker-metrics", ReadOnly),
    ("GET", "/api/v1/analytics/queue-lag", ReadOnly),
    ("GET", "/api/v1/analytics/queue-ops", ReadOnly),
    ("GET", "/api/v1/analytics/queue-parked-replicas", ReadOnly),
    ("GET", "/api/v1/analytics/retention", ReadOnly),
    ("GET", "/api/v1/analytics/postgres-stats", ReadOnly),
    ("GET", "/api/v1/analytics/workload", ReadOnly),
    ("GET", "/api/v1/analytics/dlq-signatures", ReadOnly),
    ("GET", "/api/v1/analytics/partition-liveness", ReadOnly),
    ("POST", "/api/v1/stats/refresh", Admin),
    ("GET", "/health", Public),
    ("GET", "/metrics", Public),
    ("GET", "/metrics/prometheus", Public),
    ("GET", "/", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/assets/index.js", Public),
    ("GET", "/favicon.ico", Public),
    ("GET", "/status", ReadOnly),
    ("GET", "/api/v1/system/maintenance", Admin),
    ("POST", "/api/v1/system/maintenance", Admin),
    ("GET", "/api/v1/system/maintenance/pop", Admin),
    ("POST", "/api/v1/system/maintenance/pop", Admin),
    ("GET", "/api/v1/system/shared-state", Admin),
    ("GET", "/api/v1/system/kv-timers", Admin),
    ("POST", "/api/v1/system/kv-timers", Admin),
    ("GET", "/api/v1/system/ephemeral", Admin),
    ("POST", "/api/v1/system/ephemeral", Admin),
    ("POST", "/internal/api/notify", Admin),
    ("GET", "/internal/api/shared-state/stats", Admin),
    ("GET", "/internal/api/inter-instance/stats", Admin),
    ("GET", "/auth/me", Public),
    ("GET", "/auth/login", Public),
    ("POST", "/auth/logout", Public),
    ("POST", "/api/v1/kv", ReadWrite),
    ("GET", "/api/v1/kv/i/a/b", ReadOnly),
    ("PUT", "/api/v1/kv/i/a/b", ReadWrite),
    ("DELETE", "/api/v1/kv/i/a/b", ReadWrite),
    ("POST", "/api/v1/timers", WriteOnly),
    ("GET", "/api/v1/timers/q", ReadOnly),
    ("GET", "/api/v1/timers/q/a/b", ReadOnly),
    ("DELETE", "/api/v1/timers/q/a/b", ReadWrite),
    ("POST", "/api/v1/ephemeral/push", WriteOnly),
    ("GET", "/api/v1/ephemeral/pop", ReadWrite),
    ("POST", "/api/v1/ephemeral/ack", ReadWrite),
    ("POST", "/api/v1/ephemeral/configure", ReadWrite),
    ("POST", "/api/v1/ephemeral/reset", ReadWrite),
    ("GET", "/api/v1/ephemeral/queues", ReadOnly),
    ("GET", "/api/v1/ephemeral/queues/q/depth", ReadOnly),
    ("DELETE", "/api/v1/ephemeral/queue/q", ReadWrite),
    ("POST", "/streams/v1/queries", ReadWrite),
    ("POST", "/streams/v1/state/get", ReadOnly),
    ("POST", "/streams/v1/cycle", ReadWrite),
    ("POST", "/api/v1/fetch", ReadOnly),
    ("POST", "/api/v1/partitions/changed", ReadOnly),
];

#[test]
fn every_route_has_its_level() {
    for (method, path, level) in ROUTES {
        assert_eq!(required(&method.parse().unwrap(), path), *level, "{method} {path}");
    }
}

#[test]
fn what_answers_get_has_the_same_level_for_head() {
    for (_, path, level) in ROUTES.iter().filter(|(method, ..)| *method == "GET") {
        assert_eq!(required(&Method::HEAD, path), *level, "HEAD {path}");
    }
}

#[test]
fn a_path_that_only_begins_alike_is_another_one() {
    for path in ["/api/v1/statusx", "/api/v1/dlqx", "/statusx", "/healthx", "/asset", "/API/V1/STATUS", "//health"] {
        assert_eq!(required(&Method::GET, path), ReadWrite, "{path}");
    }
}

#[test]
fn unknown_paths_are_read_write_whatever_the_method() {
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert_eq!(required(&method.parse().unwrap(), "/api/v1/nope"), ReadWrite, "{method}");
    }
}
