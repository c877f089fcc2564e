//! What each route asks of a role.

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

/// The level of a request; of an unknown path, read-write.
pub fn required(method: &Method, path: &str) -> Level {
    let public =
        ["/health", "/metrics", "/metrics/prometheus", "/", "/openapi.json", "/auth/me", "/auth/login", "/auth/logout"];
    if public.contains(&path) || path.starts_with("/assets/") || path.starts_with("/favicon") {
        return Level::Public;
    }
    let below = |prefix: &str| path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    if below("/api/v1/system") || below("/internal") || path == "/api/v1/stats/refresh" {
        return Level::Admin;
    }
    match *method {
        Method::DELETE => {
            let admin = below("/api/v1/consumer-groups") || below("/api/v1/resources/queues") || path == "/api/v1/dlq";
            if admin { Level::Admin } else { Level::ReadWrite }
        }
        Method::GET | Method::HEAD => {
            let looked_at = [
                "/status",
                "/api/v1/status",
                "/api/v1/analytics",
                "/api/v1/resources",
                "/api/v1/messages",
                "/api/v1/consumer-groups",
                "/api/v1/dlq",
                "/api/v1/traces",
            ];
            if looked_at.into_iter().any(below) { Level::ReadOnly } else { Level::ReadWrite }
        }
        Method::POST if path == "/api/v1/push" => Level::WriteOnly,
        _ => Level::ReadWrite,
    }
}
