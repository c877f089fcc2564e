//! `POST /api/v1/lease/{leaseId}/extend`

use super::{Caller, json};
use crate::body;
use crate::database::Statement;
use crate::error::Problem;
use crate::state::Shared;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/lease/{leaseId}/extend", post(extend))
}

const EXTEND: Statement = Statement { sql: "SELECT queen.renew_lease_json($1, $2)", types: &[Type::UUID, Type::INT4] };
const DEFAULT_SECONDS: i32 = 60;
const MAX_SECONDS: i64 = queen_core::options::MAX_LEASE_SECONDS as i64;

async fn extend(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(lease): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let seconds = seconds(&body);
    let renewed = match Uuid::try_parse(&lease) {
        Ok(id) => Some(app.database.call(caller.tenant, EXTEND, &[&id, &seconds]).await?),
        Err(_) => None,
    };
    let renewed = renewed.as_deref().unwrap_or(NOT_LIVE);
    let rest = renewed.strip_prefix('{').unwrap_or_default();
    Ok(json(StatusCode::OK, format!("{{\"leaseId\":{},{rest}", serde_json::Value::from(lease))))
}

const NOT_LIVE: &str =
    "{\"success\":false,\"renewed\":0,\"newExpiresAt\":null,\"expiresAt\":null,\"lease_expires_at\":null}";

/// What the body asks for; 60 when it says nothing that can be read.
fn seconds(body: &Bytes) -> i32 {
    let asked = body::optional_object(body, &["seconds"]).ok().and_then(|[seconds]| seconds?.parse::<i64>().ok());
    asked.map_or(DEFAULT_SECONDS, |s| s.clamp(1, MAX_SECONDS) as i32)
}
