//! `/api/v1/messages…`: looking at what is stored, and the dead letter of an address.

use super::dlq::{replay_row, replays_paused};
use super::window::Params;
use super::{Caller, json, page, text_param};
use crate::database::{Param, Statement};
use crate::error::Problem;
use crate::state::Shared;
use crate::times;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::json as value;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/messages", get(list))
        .route("/api/v1/messages/{partitionId}/{transactionId}", get(one).delete(delete))
        .route("/api/v1/messages/{partitionId}/{transactionId}/retry", post(retry))
}

const LIST: Statement = Statement {
    sql: include_str!("../../sql/messages.sql"),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
    ],
};
const ONE: Statement = Statement { sql: include_str!("../../sql/message.sql"), types: &[Type::UUID, Type::TEXT] };
const DELETE: Statement = Statement { sql: "SELECT queen.dlq_delete($1, $2)::text", types: &[Type::UUID, Type::TEXT] };
const NEWEST: Statement = Statement { sql: include_str!("../../sql/dlq_newest.sql"), types: &[Type::UUID, Type::TEXT] };

/// What a stored message can be.
const STATUSES: [&str; 4] = ["pending", "processing", "completed", "dead_letter"];

async fn list(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let given = |name| text_param(&params, name);
    let namespace = given("namespace").or_else(|| given("ns"));
    if given("status").is_some_and(|status| !STATUSES.contains(&status.as_str())) {
        return Err(Problem::bad_request(format!("status must be one of {}", STATUSES.join(", "))));
    }
    let (limit, offset) = page(&params, 200);
    let [queue, partition, task, status, from, to] = ["queue", "partition", "task", "status", "from", "to"].map(given);
    for (name, text) in [("from", &from), ("to", &to)] {
        // The database would look only if there was something to compare it with.
        if text.as_ref().is_some_and(|text| times::parse(text).is_none()) {
            return Err(Problem::bad_request(format!("{name} must be a time such as 2026-01-31T12:00:00Z")));
        }
    }
    let (limit, offset) = (i64::from(limit), i64::from(offset));
    let wanted: [Param<'_>; 9] = [&queue, &partition, &namespace, &task, &status, &from, &to, &limit, &offset];
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, LIST, &wanted).await?))
}

async fn one(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((partition, transaction_id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let found = match Uuid::try_parse(&partition) {
        Ok(id) => app.database.find_one(caller.tenant, ONE, &[&id, &transaction_id]).await?,
        Err(_) => None,
    };
    Ok(json(StatusCode::OK, found.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "Message not found"))?))
}

async fn delete(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((partition, transaction_id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let deleted = match Uuid::try_parse(&partition) {
        Ok(id) => app.database.call(caller.tenant, DELETE, &[&id, &transaction_id]).await? != "0",
        Err(_) => false,
    };
    if !deleted {
        let why = "No dead-letter row for this address. Live messages live in immutable segments and cannot be deleted";
        return Err(no_dead_letter(&partition, &transaction_id, why));
    }
    let body = value!({
        "success": true, "partitionId": partition, "transactionId": transaction_id,
        "message": "Message deleted successfully",
    });
    Ok(json(StatusCode::OK, body.to_string()))
}

async fn retry(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((partition, transaction_id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    replays_paused(&app)?;
    let gone = || {
        let why = "No dead-letter row for this address. Only dead-lettered messages can be replayed";
        no_dead_letter(&partition, &transaction_id, why)
    };
    let id = Uuid::try_parse(&partition).map_err(|_| gone())?;
    let newest = app.database.find(caller.tenant, NEWEST, &[&id, &transaction_id]).await?;
    let row = newest.and_then(|id| Uuid::try_parse(&id).ok()).ok_or_else(gone)?;
    replay_row(&app, &caller, row, None, None).await?.ok_or_else(gone)
}

fn no_dead_letter(partition: &str, transaction_id: &str, why: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "Message not found").with_body(value!({
        "success": false, "partitionId": partition, "transactionId": transaction_id,
        "error": "Message not found", "message": why,
    }))
}
