//! `/api/v1/system/…`, `/internal/…` and `/auth/…`: the switches, and what a cluster of brokers would say.

use super::{Caller, json};
use crate::body;
use crate::error::Problem;
use crate::maintenance::BufferStatus;
use crate::state::Shared;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use serde_json::{Value, json as value};
use std::io;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/system/maintenance", get(maintenance).post(turn_pushes))
        .route("/api/v1/system/maintenance/pop", get(pop_maintenance).post(turn_pops))
        .route("/api/v1/system/shared-state", get(shared_state))
        .route("/internal/api/notify", post(notify))
        .route("/internal/api/shared-state/stats", get(no_peers))
        .route("/internal/api/inter-instance/stats", get(no_peers))
        .route("/auth/me", get(me))
        .route("/auth/login", get(|| async { Redirect::to("/") }))
        .route("/auth/logout", post(|| async { ok(value!({ "ok": true })) }))
}

fn ok(body: Value) -> Response {
    json(StatusCode::OK, body.to_string())
}

/// How the buffer is; its folder is read off the runtime's threads.
pub async fn buffer_status(app: &Shared) -> BufferStatus {
    let app = app.clone();
    tokio::task::spawn_blocking(move || app.maintenance.status()).await.unwrap_or_default()
}

async fn maintenance(State(app): State<Shared>) -> Response {
    let (buffer, up) = tokio::join!(buffer_status(&app), app.database.is_up());
    ok(value!({
        "maintenanceMode": app.maintenance.pushes_paused(),
        "popMaintenanceMode": app.maintenance.pops_paused(),
        "bufferedMessages": buffer.pending,
        "bufferHealthy": buffer.healthy,
        "bufferStats": {
            "pendingCount": buffer.pending,
            "failedCount": buffer.failed_files,
            "dbHealthy": up,
            "failedFiles": {
                "count": buffer.failed_files,
                "totalBytes": buffer.failed_bytes,
                "totalMB": buffer.failed_bytes as f64 / f64::from(1 << 20),
                "failoverCount": buffer.failed_files,
                "qos0Count": 0,
            },
        },
    }))
}

async fn turn_pushes(State(app): State<Shared>, body: Bytes) -> Result<Response, Problem> {
    let on = enabled(&body)?;
    turn(&app, move |app| app.maintenance.turn_pushes(on)).await?;
    tracing::info!(on, "push maintenance");
    let buffer = buffer_status(&app).await;
    Ok(ok(value!({
        "maintenanceMode": on,
        "bufferedMessages": buffer.pending,
        "bufferHealthy": buffer.healthy,
        "message": if on {
            "Maintenance mode ENABLED. All PUSHes routing to file buffer."
        } else {
            "Maintenance mode DISABLED. Background processor will drain buffer to DB."
        },
    })))
}

async fn pop_maintenance(State(app): State<Shared>) -> Response {
    let on = app.maintenance.pops_paused();
    ok(value!({
        "popMaintenanceMode": on,
        "message": if on {
            "Pop maintenance mode is ON. All POP operations return empty arrays."
        } else {
            "Pop maintenance mode is OFF. Normal operation."
        },
    }))
}

async fn turn_pops(State(app): State<Shared>, body: Bytes) -> Result<Response, Problem> {
    let on = enabled(&body)?;
    turn(&app, move |app| app.maintenance.turn_pops(on)).await?;
    tracing::info!(on, "pop maintenance");
    Ok(ok(value!({
        "popMaintenanceMode": on,
        "message": if on {
            "Pop maintenance mode ENABLED. All POP operations will return empty arrays."
        } else {
            "Pop maintenance mode DISABLED. Normal operation resumed."
        },
    })))
}

fn enabled(body: &Bytes) -> Result<bool, Problem> {
    let [raw] = body::text(body).and_then(|text| body::object(text, &["enabled"])).unwrap_or_default();
    let enabled = raw.and_then(|raw| raw.parse::<bool>().ok());
    enabled.ok_or_else(|| Problem::bad_request("enabled (boolean) is required"))
}

async fn turn(app: &Shared, turn: impl FnOnce(&Shared) -> io::Result<()> + Send + 'static) -> Result<(), Problem> {
    let app = app.clone();
    let turned = tokio::task::spawn_blocking(move || {
        turn(&app).map_err(|error| (app.config.buffer_dir.display().to_string(), error))
    });
    let turned = turned.await.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "not switched"))?;
    turned.map_err(|(folder, error)| {
        tracing::error!(folder, %error, "cannot switch maintenance");
        let sentence = format!("maintenance cannot be switched: the buffer's folder cannot be used: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, &sentence)
            .with_body(value!({ "error": sentence, "bufferHealthy": false }))
    })
}

async fn shared_state(State(app): State<Shared>) -> Response {
    not_shared(&app, "single_node_segments_broker")
}

async fn no_peers(State(app): State<Shared>) -> Response {
    not_shared(&app, "no_peers")
}

fn not_shared(app: &Shared, reason: &str) -> Response {
    ok(value!({
        "enabled": false,
        "reason": reason,
        "maintenance_mode": app.maintenance.pushes_paused(),
        "pop_maintenance_mode": app.maintenance.pops_paused(),
    }))
}

async fn notify(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let [queue] = body::object(body::text(&body)?, &["queue"])?;
    let queue = body::string(queue, "queue")?.ok_or_else(|| Problem::bad_request("queue is required"))?;
    app.polls.touch(caller.tenant, &queue);
    Ok(ok(value!({ "status": "ok" })))
}

/// Who one is. The route is public, so the token is looked at here: by where it would be let in.
async fn me(State(app): State<Shared>, headers: HeaderMap) -> Response {
    for (role, method, path) in ROLES {
        if let Ok(identity) = app.auth.admit(&method, path, &headers).await {
            let subject = identity.subject.unwrap_or_else(|| "standalone".to_owned());
            return ok(value!({
                "user_id": subject,
                "name": subject,
                "role": role,
                "clusters": [],
                "standalone": true,
            }));
        }
    }
    json(StatusCode::UNAUTHORIZED, value!({ "error": "auth_required", "code": "auth_required" }).to_string())
}

/// A route of each level, the highest first.
const ROLES: [(&str, Method, &str); 4] = [
    ("admin", Method::GET, "/api/v1/system/maintenance"),
    ("read-write", Method::POST, "/api/v1/ack"),
    ("read-only", Method::GET, "/api/v1/resources/overview"),
    ("write-only", Method::POST, "/api/v1/push"),
];
