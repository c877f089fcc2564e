//! `POST /api/v1/push`

use super::{Caller, json};
use crate::body;
use crate::coalesce::{PushItem, PushJob, push_string};
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
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/push", post(push))
}

async fn push(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let text = body::text(&body)?;
    let [items] = body::object(text, &["items"])?;
    let items =
        payload::parse_wire_items(items.ok_or_else(|| Problem::bad_body("items is missing"))?).map_err(body::bad)?;
    for (n, item) in items.iter().enumerate() {
        check(item).map_err(|detail| match detail {
            // The wire's words.
            names::NameError::TransactionIdTooLong { .. } => {
                Problem::bad_body(format!("transactionId of item {n} exceeds the 65535-byte limit"))
            }
            detail => Problem::bad_body(format!("item {n}: {detail}")),
        })?;
    }
    let counts = app.metrics.of(Operation::Push);
    counts.requests.fetch_add(1, Relaxed);
    counts.messages.fetch_add(items.len() as u64, Relaxed);
    let job = PushJob::new(
        caller.tenant,
        caller.subject.as_deref(),
        items.iter().map(|item| PushItem {
            queue: &item.queue,
            partition: &item.partition,
            payload: item.payload,
            transaction_id: item.transaction_id.as_deref(),
            headers: item.headers,
        }),
    );
    if items.is_empty() {
        return Ok(json(StatusCode::CREATED, "[]"));
    }
    let pushed = app.pushes.submit(job).await?;
    let mut out = String::with_capacity(items.len() * 200);
    for (n, (item, pushed)) in items.iter().zip(&pushed).enumerate() {
        let status = if pushed.duplicate { "duplicate" } else { "queued" };
        _ = write!(
            out,
            "{}{{\"index\":{n},\"message_id\":\"{}\",\"transaction_id\":",
            if n > 0 { "," } else { "[" },
            pushed.message_id
        );
        push_string(&mut out, item.transaction_id.as_deref().unwrap_or(&pushed.message_id));
        out.push_str(",\"queueName\":");
        push_string(&mut out, &item.queue);
        _ = write!(out, ",\"status\":\"{status}\",\"offset\":{}}}", pushed.offset);
    }
    out.push(']');
    Ok(json(StatusCode::CREATED, out))
}

fn check(item: &payload::PushItem<'_>) -> Result<(), names::NameError> {
    names::check_queue(&item.queue)?;
    names::check_partition(&item.partition)?;
    item.transaction_id.as_deref().map_or(Ok(()), names::check_transaction_id)
}
