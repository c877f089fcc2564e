//! `POST /api/v1/ack` and `/api/v1/ack/batch`

use super::{Caller, json};
use crate::body;
use crate::coalesce::AckJob;
use crate::error::Problem;
use crate::metrics::Operation;
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use queen_core::{names, payload};
use std::sync::atomic::Ordering::Relaxed;

/// The group of those who name none.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/ack", post(one)).route("/api/v1/ack/batch", post(batch))
}

async fn one(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let text = body::text(&body)?;
    let [group] = body::object(text, &["consumerGroup"])?;
    settle(&app, &caller, group, &format!("[{text}]")).await
}

async fn batch(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let [group, acknowledgments] = body::object(body::text(&body)?, &["consumerGroup", "acknowledgments"])?;
    settle(&app, &caller, group, acknowledgments.unwrap_or("[]")).await
}

async fn settle(app: &Shared, caller: &Caller, group: Option<&str>, raw: &str) -> Result<Response, Problem> {
    let group =
        body::string(group, "consumerGroup")?.filter(|g| !g.is_empty()).unwrap_or_else(|| QUEUE_MODE.to_owned());
    names::check_group(&group).map_err(Problem::bad_body)?;
    let items = payload::parse_acks(raw).map_err(body::bad)?;
    let counts = app.metrics.of(Operation::Ack);
    counts.requests.fetch_add(1, Relaxed);
    counts.messages.fetch_add(items.len() as u64, Relaxed);
    if items.is_empty() {
        return Ok(json(StatusCode::OK, "[]"));
    }
    let answer = app.acks.submit(AckJob::new(caller.tenant, &group, raw, &items)).await?;
    app.metrics.acked(caller.tenant, answer.get());
    Ok(json(StatusCode::OK, answer.get()))
}
