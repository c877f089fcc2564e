//! What each route asks of a role.
//!
//! Paths are compared as they came, percent signs and all, which is how the router compares them.

use axum::http::Method;

/// What a route asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// Nothing.
    Public,
    /// Looking.
    ReadOnly,
    /// Pushing.
    WriteOnly,
    /// Consuming and everything that changes something.
    ReadWrite,
    /// Administration.
    Admin,
}

const PUBLIC: [&str; 8] =
    ["/", "/health", "/metrics", "/metrics/prometheus", "/openapi.json", "/auth/me", "/auth/login", "/auth/logout"];

/// Whatever the method.
const ADMIN: [&str; 3] = ["/api/v1/system", "/internal", "/api/v1/stats/refresh"];

/// `DELETE` of these and what is below them.
const ADMIN_DELETES: [&str; 3] = ["/api/v1/consumer-groups", "/api/v1/resources/queues", "/api/v1/dlq"];

/// `GET` of these and what is below them.
const LOOKED_AT: [&str; 11] = [
    "/status",
    "/api/v1/status",
    "/api/v1/analytics",
    "/api/v1/resources",
    "/api/v1/messages",
    "/api/v1/consumer-groups",
    "/api/v1/dlq",
    "/api/v1/traces",
    "/api/v1/kv",
    "/api/v1/timers",
    "/api/v1/ephemeral/queues",
];

/// `POST` that only looks: what to look for does not fit into a URL.
const LOOKING_POSTS: [&str; 4] =
    ["/api/v1/fetch", "/api/v1/partitions/changed", "/api/v1/resources/kv/list", "/streams/v1/state/get"];

const WRITING_POSTS: [&str; 3] = ["/api/v1/push", "/api/v1/timers", "/api/v1/ephemeral/push"];

/// The level of a request; of an unknown path, read-write.
pub fn required(method: &Method, path: &str) -> Level {
    if PUBLIC.contains(&path) || path.starts_with("/assets/") || path.starts_with("/favicon") {
        return Level::Public;
    }
    let below = |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if ADMIN.iter().any(below) {
        return Level::Admin;
    }
    match *method {
        Method::DELETE if ADMIN_DELETES.iter().any(below) => Level::Admin,
        // What answers GET answers HEAD too.
        Method::GET | Method::HEAD if LOOKED_AT.iter().any(below) => Level::ReadOnly,
        Method::POST if LOOKING_POSTS.contains(&path) => Level::ReadOnly,
        Method::POST if WRITING_POSTS.contains(&path) => Level::WriteOnly,
        _ => Level::ReadWrite,
    }
}
