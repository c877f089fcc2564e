//! The process itself: `system-metrics` and `worker-metrics`.

use super::super::status::{self, round};
use super::super::window::{Params, Window};
use super::super::{Caller, json};
use super::DEFAULT_MINUTES;
use crate::metrics::process;
use crate::metrics::tally::{Bucket, Stat, Tally};
use crate::state::Shared;
use crate::times;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json as value};
use std::collections::BTreeMap;

/// `GET /api/v1/analytics/system-metrics`
pub async fn system(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Response {
    let window = Window::of(&params, DEFAULT_MINUTES);
    let buckets = app.metrics.minutes.buckets(caller.tenant, window.from, window.to, window.bucket);
    let series: Vec<Value> = buckets.iter().filter(|bucket| bucket.health.uptime.count > 0).map(system_point).collect();
    let body = value!({
        "timeRange": window.range(),
        "bucketMinutes": window.bucket,
        "pointCount": series.len(),
        "replicaCount": 1,
        "replicas": [{
            "hostname": process::hostname(),
            "port": app.config.port,
            "workerId": 0,
            "timeSeries": series,
        }],
    });
    json(StatusCode::OK, body.to_string())
}

fn system_point(bucket: &Bucket) -> Value {
    let leaf = |stat: &Stat| value!({ "avg": round(stat.avg()), "min": stat.min, "max": stat.max, "last": stat.last });
    let health = &bucket.health;
    value!({
        "timestamp": times::format_minute(bucket.start),
        "sampleCount": health.uptime.count,
        "metrics": {
            "cpu": { "user_us": leaf(&health.cpu_user), "system_us": leaf(&health.cpu_system) },
            "memory": { "rss_bytes": leaf(&health.resident) },
            "database": {
                "pool_size": leaf(&health.pool_size),
                "pool_idle": leaf(&health.pool_idle),
                "pool_active": leaf(&health.pool_active),
            },
            "uptime_seconds": leaf(&health.uptime),
        },
    })
}

/// `GET /api/v1/analytics/worker-metrics`
pub async fn workers(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Response {
    let window = Window::of(&params, DEFAULT_MINUTES);
    let buckets = app.metrics.minutes.buckets(caller.tenant, window.from, window.to, window.bucket);
    let series: Vec<Value> = buckets.iter().map(worker_point).collect();
    let mut queues: BTreeMap<&str, Tally> = BTreeMap::new();
    for (queue, tally) in buckets.iter().flat_map(|bucket| &bucket.queues).filter(|(queue, _)| !queue.is_empty()) {
        queues.entry(queue).or_default().add(tally);
    }
    let queues: Vec<Value> = queues
        .iter()
        .map(|(queue, tally)| {
            value!({
                "queueName": queue,
                "pushMessages": tally.push_messages,
                "popCount": tally.pop_messages,
                "popMessages": tally.pop_messages,
                "avgLagMs": tally.lag_avg_ms(),
                "maxLagMs": tally.lag_max_ms,
            })
        })
        .collect();
    let sum = status::total(&app.metrics, caller.tenant, &window);
    let body = value!({
        "timeRange": window.range(),
        "bucketMinutes": window.bucket,
        "pointCount": series.len(),
        "summary": {
            "totalPushMessages": sum.push_messages,
            "totalPopMessages": sum.pop_messages,
            "totalAckMessages": sum.ack_success.saturating_add(sum.ack_failed),
            "totalPushRequests": sum.push_requests,
            "totalPopRequests": sum.pop_requests,
            "totalAckRequests": sum.ack_requests,
            "ackSuccess": sum.ack_success,
            "ackFailed": sum.ack_failed,
            "dlqCount": sum.dead_letters,
            "avgLagMs": sum.lag_avg_ms(),
            "maxLagMs": sum.lag_max_ms,
        },
        "timeSeries": series,
        "workers": status::workers(&app, caller.tenant, &window),
        "queues": queues,
    });
    json(StatusCode::OK, body.to_string())
}

fn worker_point(bucket: &Bucket) -> Value {
    let (tally, health) = (&bucket.total, &bucket.health);
    let acks = tally.ack_success.saturating_add(tally.ack_failed);
    let jobs = tally.push_requests.saturating_add(tally.pop_requests).saturating_add(tally.ack_requests);
    value!({
        "timestamp": times::format_minute(bucket.start),
        "pushMessages": tally.push_messages,
        "popMessages": tally.pop_messages,
        "ackMessages": acks,
        "pushRequests": tally.push_requests,
        "popRequests": tally.pop_requests,
        "ackRequests": tally.ack_requests,
        "jobsDone": jobs,
        "pushMessagesPerSecond": bucket.per_second(tally.push_messages),
        "popMessagesPerSecond": bucket.per_second(tally.pop_messages),
        "ackMessagesPerSecond": bucket.per_second(acks),
        "pushRequestsPerSecond": bucket.per_second(tally.push_requests),
        "popRequestsPerSecond": bucket.per_second(tally.pop_requests),
        "ackRequestsPerSecond": bucket.per_second(tally.ack_requests),
        "jobsPerSecond": bucket.per_second(jobs),
        "avgEventLoopLagMs": round(health.loop_lag.avg()),
        "maxEventLoopLagMs": round(health.loop_lag.max),
        "avgFreeSlots": round(health.pool_idle.avg()),
        "minFreeSlots": health.pool_idle.min,
        "dbConnections": round(health.pool_size.avg()),
        "avgJobQueueSize": round(health.pool_waiting.avg()),
        "maxJobQueueSize": health.pool_waiting.max,
        "backoffSize": 0,
        "avgLagMs": tally.lag_avg_ms(),
        "maxLagMs": tally.lag_max_ms,
        "lagCount": tally.lag_count,
        "dbErrors": health.database_errors,
        "ackSuccess": tally.ack_success,
        "ackFailed": tally.ack_failed,
        "dlqCount": tally.dead_letters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_each_has_the_keys_of_the_wire() {
        let bucket = Bucket { start: 60, length: 5, ..Bucket::default() };
        let point = worker_point(&bucket);
        for key in ["jobsDone", "avgFreeSlots", "maxJobQueueSize", "backoffSize", "lagCount", "ackSuccess", "dlqCount"]
        {
            assert_eq!(point[key].as_f64(), Some(0.0), "{key}");
        }
        let point = system_point(&bucket);
        for path in ["/metrics/cpu/user_us/avg", "/metrics/memory/rss_bytes/last", "/metrics/database/pool_idle/min"] {
            assert!(point.pointer(path).is_some(), "{path}");
        }
        assert_eq!(point["timestamp"], "1970-01-01T01:00:00.000Z");
    }
}
