//! `/api/v1/traces…`: notes that consumers leave about a message.

use super::ack::QUEUE_MODE;
use super::window::Params;
use super::{Caller, json, page};
use crate::body;
use crate::database::{Param, Statement};
use crate::error::Problem;
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use serde_json::json as value;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/traces", post(record))
        .route("/api/v1/traces/names", get(names))
        .route("/api/v1/traces/by-name/{traceName}", get(by_name))
        .route("/api/v1/traces/{partitionId}/{transactionId}", get(of_message))
}

const RECORD: Statement = Statement {
    sql: "SELECT queen.record_trace($1, $2, $3::text::json, $4, $5, $6)::text",
    types: &[Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT_ARRAY],
};
const OF_MESSAGE: Statement = Statement { sql: include_str!("../../sql/traces.sql"), types: &[Type::UUID, Type::TEXT] };
const BY_NAME: Statement =
    Statement { sql: include_str!("../../sql/traces_by_name.sql"), types: &[Type::TEXT, Type::INT4, Type::INT4] };
const NAMES: Statement = Statement { sql: include_str!("../../sql/trace_names.sql"), types: &[Type::INT4, Type::INT4] };

async fn record(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    const KEYS: [&str; 6] = ["transactionId", "partitionId", "data", "consumerGroup", "eventType", "traceNames"];
    let [transaction_id, partition, data, group, event, names] = body::object(body::text(&body)?, &KEYS)?;
    let transaction_id = body::string(transaction_id, "transactionId")?.filter(|t| !t.is_empty());
    let partition = body::string(partition, "partitionId")?.filter(|p| !p.is_empty());
    let (Some(transaction_id), Some(partition)) = (transaction_id, partition) else {
        return Err(Problem::bad_request("transactionId and partitionId are required"));
    };
    let data = data.ok_or_else(|| Problem::bad_request("data is required"))?;
    let group = body::string(group, "consumerGroup")?.filter(|g| !g.is_empty());
    let group = group.unwrap_or_else(|| QUEUE_MODE.to_owned());
    let event = body::string(event, "eventType")?.unwrap_or_else(|| "info".to_owned());
    let names = trace_names(names)?;
    let no_message = || {
        Problem::new(StatusCode::NOT_FOUND, "Message not found")
            .with_body(value!({ "success": false, "error": "Message not found" }))
    };
    let partition = Uuid::try_parse(&partition).map_err(|_| no_message())?;
    let trace: [Param<'_>; 6] = [&partition, &transaction_id, &data, &group, &event, &names];
    match app.database.call(caller.tenant, RECORD, &trace).await {
        Ok(id) => Ok(json(StatusCode::CREATED, value!({ "success": true, "traceId": id }).to_string())),
        Err(error) if error.status() == StatusCode::NOT_FOUND => Err(no_message()),
        Err(error) => Err(error.into()),
    }
}

/// A list of names, or one.
fn trace_names(raw: Option<&str>) -> Result<Option<Vec<String>>, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    let list = serde_json::from_str::<Vec<String>>(raw).ok();
    let names = list.or_else(|| serde_json::from_str::<String>(raw).ok().map(|name| vec![name]));
    names.map(Some).ok_or_else(|| Problem::bad_body("traceNames must be a list of strings"))
}

async fn of_message(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((partition, transaction_id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    // A partition that cannot be has no traces.
    let partition = Uuid::try_parse(&partition).unwrap_or_default();
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, OF_MESSAGE, &[&partition, &transaction_id]).await?))
}

async fn by_name(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (limit, offset) = page(&params, 100);
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, BY_NAME, &[&name, &limit, &offset]).await?))
}

async fn names(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (limit, offset) = page(&params, 50);
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, NAMES, &[&limit, &offset]).await?))
}
