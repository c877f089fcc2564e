//! Looking: lists, one record, figures, the audit.

use super::super::window::Params;
use super::super::{Caller, MAX_PAGE, flag, json, text_param};
use super::{id_param, none, number_param, problem, record_id};
use crate::dead_letters::{EVENTS, LIST, RECORD, STATS};
use crate::error::Problem;
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use queen_core::ErrorKind;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/dlq/list", get(list))
        .route("/api/v1/dlq/stats", get(stats))
        .route("/api/v1/dlq/events", get(events))
        .route("/api/v1/dlq/{id}", get(record))
}

/// Rows that a page has at most, and by default.
fn limit(params: &Params) -> Result<i32, Problem> {
    Ok(number_param::<i32>(params, "limit")?.unwrap_or(100).min(MAX_PAGE))
}

/// Evidence that is kept encrypted is shown redacted to who may only look, and to who asks for that.
fn redacted(caller: &Caller, params: &Params) -> Result<bool, Problem> {
    Ok(!caller.may_change || flag(params.get("redacted").map(String::as_str), "redacted")?.unwrap_or(false))
}

async fn list(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let [queue, group, class, fingerprint, status, from, to, after] =
        ["queue", "consumerGroup", "class", "fingerprint", "status", "from", "to", "after"]
            .map(|name| text_param(&params, name));
    // Empty asks for records without one.
    let code = params.get("code").map(|code| code.replace('\0', "\u{fffd}"));
    let (limit, redacted) = (limit(&params)?, redacted(&caller, &params)?);
    let filter: [crate::database::Param<'_>; 11] =
        [&queue, &group, &class, &code, &fingerprint, &status, &from, &to, &after, &limit, &redacted];
    super::look(&app, &caller, LIST, &filter).await
}

async fn record(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (id, redacted) = (record_id(&id)?, redacted(&caller, &params)?);
    let found = app.database.find_one(caller.tenant, RECORD, &[&id, &redacted]).await.map_err(problem)?;
    Ok(json(StatusCode::OK, found.ok_or_else(|| none(ErrorKind::DeadLetterNotFound))?))
}

async fn stats(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (queue, group) = (text_param(&params, "queue"), text_param(&params, "consumerGroup"));
    let minutes = number_param::<i32>(&params, "minutes")?;
    super::look(&app, &caller, STATS, &[&queue, &group, &minutes]).await
}

async fn events(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (queue, plan, record) =
        (text_param(&params, "queue"), id_param(&params, "planId")?, id_param(&params, "dlqId")?);
    let (after, limit) = (number_param::<i64>(&params, "after")?.unwrap_or(0), limit(&params)?);
    super::look(&app, &caller, EVENTS, &[&queue, &plan, &record, &after, &limit]).await
}
