//! `GET /health` and `/status`.

use super::json;
use crate::state::Shared;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::json as value;

pub fn routes() -> Router<Shared> {
    Router::new().route("/health", get(health)).route("/status", get(status))
}

/// The version of the wire.
pub const WIRE_VERSION: &str = "1.6.0";

async fn health(State(app): State<Shared>) -> Response {
    let up = app.database.is_up().await;
    let (status, health, database) = if up {
        (StatusCode::OK, "healthy", "connected")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unhealthy", "disconnected")
    };
    let body = value!({
        "status": health, "database": database, "engine": "queen-postgres", "version": WIRE_VERSION,
        "extension": env!("CARGO_PKG_VERSION"),
    });
    json(status, body.to_string())
}

async fn status() -> Response {
    json(StatusCode::OK, value!({ "status": "ok", "engine": "queen-postgres" }).to_string())
}
