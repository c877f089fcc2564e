//! `POST /api/v1/transaction`

use super::{Caller, json};
use crate::body;
use crate::database::Statement;
use crate::error::{CallError, Problem};
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use serde_json::json as value;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/transaction", post(transaction))
}

const TRANSACTION: Statement =
    Statement { sql: "SELECT queen.transaction_json($1, $2)", types: &[Type::TEXT, Type::TEXT] };

/// Refuses too many operations. What is wrong otherwise is told by the database, in the shape of a transaction's answer.
fn few(text: &str) -> Result<(), Problem> {
    const LISTS: [&str; 2] = ["operations", "requiredLeases"];
    if text.trim_start().starts_with('[') {
        return body::few(text, LISTS[0]);
    }
    let lists = queen_core::payload::read_object(text, &LISTS).unwrap_or_default();
    LISTS.iter().zip(lists).try_for_each(|(name, list)| list.map_or(Ok(()), |list| body::few(list, name)))
}

async fn transaction(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let text = body::text(&body)?;
    // Not JSON at all is told apart from JSON that is no transaction.
    body::check(text)?;
    few(text)?;
    match app.database.call(caller.tenant, TRANSACTION, &[&text, &caller.subject]).await {
        Ok(answer) => {
            app.metrics.transacted(caller.tenant);
            Ok(json(StatusCode::OK, answer))
        }
        Err(error @ CallError::Refused { .. }) => {
            let reason = if error.is_callers() { "bad_request" } else { "db_error" };
            Err(Problem::from(error.clone()).with_body(value!({
                "transactionId": Uuid::now_v7().to_string(),
                "success": false,
                "reason": reason,
                "error": error.to_string(),
                "results": [],
            })))
        }
        Err(error) => Err(error.into()),
    }
}
