//! `POST /api/v1/push`

use super::{Caller, json};
use crate::body;
use crate::coalesce::{Job, PushItem, PushJob, push_string};
use crate::error::Problem;
use crate::maintenance::{Record, Turn};
use crate::metrics::Operation;
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use queen_core::{names, payload};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use uuid::Uuid;

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
    if items.is_empty() {
        return Ok(json(StatusCode::CREATED, "[]"));
    }
    if let Some(turn) = app.maintenance.divert() {
        return Ok(buffer(&app, &caller, items, turn).await);
    }
    let pushed = app.pushes.submit(job(&caller, &items)).await?;
    app.metrics.pushed(caller.tenant, items.iter().map(|item| &*item.queue));
    let mut out = String::with_capacity(items.len() * 200);
    for (n, (item, pushed)) in items.iter().zip(&pushed).enumerate() {
        let status = if pushed.duplicate { "duplicate" } else { "queued" };
        append(&mut out, n, item, &pushed.message_id, status, Some(pushed.offset));
    }
    out.push(']');
    Ok(json(StatusCode::CREATED, out))
}

fn check(item: &payload::PushItem<'_>) -> Result<(), names::NameError> {
    names::check_queue(&item.queue)?;
    names::check_partition(&item.partition)?;
    item.transaction_id.as_deref().map_or(Ok(()), names::check_transaction_id)
}

fn job(caller: &Caller, items: &[payload::PushItem<'_>]) -> PushJob {
    PushJob::new(
        caller.tenant,
        caller.subject.as_deref(),
        items.iter().map(|item| PushItem {
            queue: &item.queue,
            partition: &item.partition,
            payload: item.payload,
            transaction_id: item.transaction_id.as_deref(),
            headers: item.headers,
        }),
    )
    .holding(caller.upload.clone())
}

/// Appends the answer for one item; the array has to be closed.
fn append(out: &mut String, index: usize, item: &payload::PushItem<'_>, id: &str, status: &str, offset: Option<i64>) {
    _ = write!(
        out,
        "{}{{\"index\":{index},\"message_id\":\"{id}\",\"transaction_id\":",
        if index > 0 { "," } else { "[" }
    );
    push_string(out, item.transaction_id.as_deref().unwrap_or(id));
    out.push_str(",\"queueName\":");
    push_string(out, &item.queue);
    _ = write!(out, ",\"status\":\"{status}\"");
    if let Some(offset) = offset {
        _ = write!(out, ",\"offset\":{offset}");
    }
    out.push('}');
}

/// Puts a request into the buffer. Each item gets a transaction id, so that replaying twice stores it once.
async fn buffer(app: &Shared, caller: &Caller, mut items: Vec<payload::PushItem<'_>>, turn: Turn) -> Response {
    let ids: Vec<String> = items.iter().map(|_| Uuid::now_v7().to_string()).collect();
    for (item, id) in items.iter_mut().zip(&ids) {
        item.transaction_id.get_or_insert_with(|| Cow::Owned(id.clone()));
    }
    let job = job(caller, &items);
    let record =
        Record { tenant: caller.tenant, items: u32::try_from(job.items()).unwrap_or(u32::MAX), array: job.array() };
    drop(job);
    let stored = app.maintenance.store(turn, &record).await;
    if stored {
        app.metrics.pushed(caller.tenant, items.iter().map(|item| &*item.queue));
    }
    let status = if stored { StatusCode::CREATED } else { StatusCode::INTERNAL_SERVER_ERROR };
    json(status, buffered(&items, &ids, stored))
}

/// The answer for a buffered request. The ids are provisional, but for those that became transaction ids: a message gets
/// its id when it is replayed. An item that repeats one of the request is a duplicate of that.
fn buffered(items: &[payload::PushItem<'_>], ids: &[String], stored: bool) -> String {
    let mut first: HashMap<(&str, &str, &str), &str> = HashMap::new();
    let mut out = String::with_capacity(items.len() * 180);
    for (n, (item, id)) in items.iter().zip(ids).enumerate() {
        let key = (&*item.queue, &*item.partition, item.transaction_id.as_deref().unwrap_or(id));
        let leader = *first.entry(key).or_insert(id);
        let status = match stored {
            false => "failed",
            true if leader == id => "buffered",
            true => "duplicate",
        };
        append(&mut out, n, item, leader, status, None);
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_item_is_a_duplicate_with_the_first_ones_id_and_another_partition_is_another_message() {
        let items = r#"[{"queue":"q","payload":1,"transactionId":"t"},{"queue":"q","payload":2,"transactionId":"t"},
                        {"queue":"q","payload":3,"transactionId":"t","partition":"p"}]"#;
        let items = payload::parse_push_items(items).unwrap();
        let ids = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(
            buffered(&items, &ids, true),
            r#"[{"index":0,"message_id":"a","transaction_id":"t","queueName":"q","status":"buffered"},{"index":1,"message_id":"a","transaction_id":"t","queueName":"q","status":"duplicate"},{"index":2,"message_id":"c","transaction_id":"t","queueName":"q","status":"buffered"}]"#
        );
        assert_eq!(buffered(&items, &ids, false).matches("\"failed\"").count(), 3);
    }
}
