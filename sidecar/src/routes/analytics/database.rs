//! What only the database knows: `dlq-signatures`, `partition-liveness` and `postgres-stats`.

use super::super::window::Params;
use super::super::{Caller, json};
use crate::database::Statement;
use crate::error::Problem;
use crate::state::Shared;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use tokio_postgres::types::Type;

const DLQ_SIGNATURES: Statement =
    Statement { sql: include_str!("../../../sql/dlq_signatures.sql"), types: &[Type::TEXT, Type::TEXT] };
const PARTITION_LIVENESS: Statement =
    Statement { sql: include_str!("../../../sql/partition_liveness.sql"), types: &[Type::TEXT, Type::INT8] };
const POSTGRES_STATS: Statement = Statement { sql: include_str!("../../../sql/postgres_stats.sql"), types: &[] };

/// `GET /api/v1/analytics/dlq-signatures?queue=&consumerGroup=`
pub async fn dlq_signatures(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let given = |name: &str| params.get(name).filter(|value| !value.is_empty());
    let queue = given("queue").ok_or_else(|| Problem::bad_request("queue required"))?;
    let group = given("consumerGroup");
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, DLQ_SIGNATURES, &[queue, &group]).await?))
}

/// `GET /api/v1/analytics/partition-liveness?queue=&limit=100`
pub async fn partition_liveness(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let queue = params.get("queue").filter(|queue| !queue.is_empty());
    let limit: Option<i64> = params.get("limit").and_then(|limit| limit.parse().ok());
    let limit = limit.unwrap_or(100).clamp(1, 1000);
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, PARTITION_LIVENESS, &[&queue, &limit]).await?))
}

/// `GET /api/v1/analytics/postgres-stats`
pub async fn postgres_stats(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, POSTGRES_STATS, &[]).await?))
}
