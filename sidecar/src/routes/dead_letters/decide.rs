//! Deciding about records one by one: repair, discard.

use super::super::{Caller, dlq, json};
use super::{act, field, problem, record_id};
use crate::body;
use crate::dead_letters::{DISCARD, REPAIR};
use crate::error::Problem;
use crate::state::Shared;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use serde_json::json as value;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/dlq/discard", post(discard)).route("/api/v1/dlq/{id}/repair", post(repair))
}

async fn discard(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let [ids, cause, note] = body::strict_object(&body, &["ids", "cause", "note"])?;
    let ids: Option<Vec<Uuid>> = field(ids, "ids", "a list of UUIDs")?;
    let (cause, note) = (body::string(cause, "cause")?, body::string(note, "note")?);
    let subject = caller.subject.as_deref();
    let count = app.database.act(caller.tenant, subject, DISCARD, &[&ids, &cause, &note]).await.map_err(problem)?;
    let count: i64 = count.parse().unwrap_or(0);
    Ok(json(StatusCode::OK, value!({ "discarded": count }).to_string()))
}

async fn repair(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    const KEYS: [&str; 4] = ["payload", "reason", "queue", "partition"];
    // Here null is a payload.
    let raw = queen_core::payload::read_object(body::text(&body)?, &KEYS).map_err(body::bad)?;
    body::only(body::text(&body)?, &KEYS)?;
    let [payload, reason, queue, partition] = raw;
    let Some(payload) = payload else {
        return Err(Problem::bad_body("payload is missing (null is a payload)"));
    };
    let text = |raw: Option<&str>, name| body::string(queen_core::payload::not_null(raw), name);
    let (reason, queue, partition) = (text(reason, "reason")?, text(queue, "queue")?, text(partition, "partition")?);
    dlq::replays_paused(&app)?;
    act(&app, &caller, StatusCode::OK, REPAIR, &[&record_id(&id)?, &payload, &reason, &queue, &partition]).await
}
