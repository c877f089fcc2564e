//! `GET /health` and `/status`.

use super::json;
use crate::error::Problem;
use crate::state::Shared;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json as value;

pub fn routes() -> Router<Shared> {
    Router::new().route("/health", get(health)).route("/status", get(status))
}

/// The version of the wire.
pub const WIRE_VERSION: &str = "1.6.0";

async fn health(State(app): State<Shared>) -> Response {
    let fitness = app.database.fitness().await;
    let (status, health) = match fitness.is_fit() {
        true => (StatusCode::OK, "healthy"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "unhealthy"),
    };
    let mut body = value!({
        "status": health,
        "database": if fitness.connected { "connected" } else { "disconnected" },
        "engine": "queen-postgres",
        "version": WIRE_VERSION,
        "server": env!("CARGO_PKG_VERSION"),
    });
    if let Some(version) = fitness.extension {
        body["extension"] = version.into();
    }
    match fitness.problem {
        Some(problem) => {
            body["error"] = problem.into();
            Problem::new(status, problem).with_body(body).into_response()
        }
        None => json(status, body.to_string()),
    }
}

async fn status() -> Response {
    json(StatusCode::OK, value!({ "status": "ok", "engine": "queen-postgres" }).to_string())
}
