//! `/api/v1/dlq…`: listing, replaying and purging dead letters.

use super::window::Params;
use super::{Caller, json, page, text_param};
use crate::body;
use crate::database::Statement;
use crate::error::{CallError, Problem};
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use queen_core::names;
use serde_json::{Value, json as value};
use tokio_postgres::types::Type;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/dlq", get(list).delete(purge)).route("/api/v1/dlq/{id}/replay", post(replay))
}

const LIST: Statement =
    Statement { sql: include_str!("../../sql/dlq.sql"), types: &[Type::TEXT, Type::TEXT, Type::INT4, Type::INT4] };
const PURGE: Statement = Statement { sql: "SELECT queen.dlq_purge($1, $2)::text", types: &[Type::TEXT, Type::TEXT] };
const MOVE: Statement =
    Statement { sql: "SELECT queen.dlq_move_v1($1, $2, $3)::text", types: &[Type::UUID, Type::TEXT, Type::TEXT] };

async fn list(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (limit, offset) = page(&params, 100);
    let (queue, group) = (text_param(&params, "queue"), text_param(&params, "consumerGroup"));
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, LIST, &[&queue, &group, &limit, &offset]).await?))
}

async fn purge(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let Some(queue) = text_param(&params, "queue") else {
        return Err(Problem::bad_request("queue is required").with_body(value!({
            "success": false, "error": "queue is required", "message": "Bulk DLQ purge requires an exact queue name",
        })));
    };
    let group = text_param(&params, "consumerGroup");
    let deleted: i64 = app
        .database
        .act(caller.tenant, caller.subject.as_deref(), PURGE, &[&queue, &group])
        .await?
        .parse()
        .unwrap_or(0);
    let body = value!({ "success": true, "deleted": deleted, "queue": queue, "consumerGroup": group });
    Ok(json(StatusCode::OK, body.to_string()))
}

async fn replay(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let (queue, partition) = destination(&body)?;
    replays_paused(&app)?;
    let gone = || {
        Problem::new(StatusCode::NOT_FOUND, "Message not found").with_body(value!({
            "success": false, "result": "gone", "dlqId": id, "error": "Message not found",
            "message": "No dead-letter row with this id — it was already replayed or purged",
        }))
    };
    let row = Uuid::try_parse(&id).map_err(|_| gone())?;
    replay_row(&app, &caller, row, queue.as_deref(), partition.as_deref()).await?.ok_or_else(gone)
}

/// Where to: by default, where it was. Blank is refused rather than guessed.
fn destination(bytes: &Bytes) -> Result<(Option<String>, Option<String>), Problem> {
    let refused = |error: String| {
        Problem::bad_request(&error).with_body(value!({
            "success": false, "error": error,
            "message": "The body is optional: {\"queue\": …, \"partition\": …}, each a name",
        }))
    };
    let refuse = |problem: Problem| refused(problem.text().to_owned());
    let [queue, partition] = body::optional_object(bytes, &["queue", "partition"]).map_err(refuse)?;
    let name = |raw, what: &str| -> Result<Option<String>, Problem> {
        Ok(body::string(raw, what).map_err(refuse)?.map(|text| text.trim().to_owned()))
    };
    let (queue, partition) = (name(queue, "queue")?, name(partition, "partition")?);
    queue.as_deref().map_or(Ok(()), names::check_queue).map_err(|e| refused(e.to_string()))?;
    partition.as_deref().map_or(Ok(()), names::check_partition).map_err(|e| refused(e.to_string()))?;
    Ok((queue, partition))
}

/// 503 while pushes go to the buffer: a replay is a push that has to be stored at once.
pub fn replays_paused(app: &Shared) -> Result<(), Problem> {
    if !app.maintenance.pushes_paused() {
        return Ok(());
    }
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "push maintenance is on").with_body(value!({
        "success": false, "result": "maintenance", "error": "push maintenance is on", "dlqRowRemoved": false,
        "message": "Nothing was replayed; try again when push maintenance is off",
    })))
}

/// Moves one dead letter back into a queue; None: there is no such dead letter.
pub async fn replay_row(
    app: &Shared,
    caller: &Caller,
    row: Uuid,
    queue: Option<&str>,
    partition: Option<&str>,
) -> Result<Option<Response>, Problem> {
    let answer = app.database.act(caller.tenant, caller.subject.as_deref(), MOVE, &[&row, &queue, &partition]).await;
    let verdict = answer.map_err(refused)?;
    let verdict: Value = serde_json::from_str(&verdict).map_err(|_| refused(CallError::Lost))?;
    let result = verdict["result"].as_str().unwrap_or_default();
    let moved = match result {
        "moved" => true,
        "duplicate" => false,
        _ => return Ok(None),
    };
    let body = value!({
        "success": true,
        "result": result,
        "queue": verdict["queue"],
        "partition": verdict["partition"],
        "consumerGroup": verdict["consumerGroup"],
        "dlqId": verdict["dlqId"],
        "originalTransactionId": verdict["originalTransactionId"],
        "replayedAs": {
            "index": 0,
            "message_id": if moved { verdict["messageId"].clone() } else { Uuid::nil().to_string().into() },
            "transaction_id": verdict["transactionId"],
            "queueName": verdict["queue"],
            "status": if moved { "queued" } else { "duplicate" },
            "offset": verdict["offset"],
        },
        "dlqRowRemoved": moved,
    });
    Ok(Some(json(StatusCode::OK, body.to_string())))
}

/// What is answered when a replay failed: what became of the dead letter is part of it.
fn refused(error: CallError) -> Problem {
    let (removed, message) = match error {
        CallError::Lost => {
            (Value::Null, "The outcome of this replay is unknown: look whether the dead letter is still there")
        }
        _ => (Value::from(false), "Nothing was replayed — the dead-letter row is untouched"),
    };
    if matches!(error, CallError::NoConnection) {
        return error.into();
    }
    let text = error.to_string();
    Problem::from(error)
        .with_body(value!({ "success": false, "error": text, "dlqRowRemoved": removed, "message": message }))
}
