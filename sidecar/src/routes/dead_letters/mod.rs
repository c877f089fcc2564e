//! `/api/v1/dlq/…`: dead letters for those who operate queues. Look at them, plan replays, decide.

mod decide;
mod look;
mod plans;

use super::Caller;
use super::window::Params;
use crate::database::{Param, Statement};
use crate::dead_letters::is_unreadable;
use crate::error::{CallError, Problem};
use crate::state::Shared;
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use queen_core::ErrorKind;
use serde::de::DeserializeOwned;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new().merge(look::routes()).merge(plans::routes()).merge(decide::routes())
}

/// 400 for a value that the database cannot read; else by the table of errors.
fn problem(error: CallError) -> Problem {
    match &error {
        CallError::Refused { state, .. } if is_unreadable(state) => Problem::bad_request(error.to_string()),
        _ => error.into(),
    }
}

/// Calls a function in the caller's name, and answers its JSON.
async fn act(
    app: &Shared,
    caller: &Caller,
    status: StatusCode,
    statement: Statement,
    params: &[Param<'_>],
) -> Result<Response, Problem> {
    let answer = app.database.act(caller.tenant, caller.subject.as_deref(), statement, params).await;
    Ok(super::json(status, answer.map_err(problem)?))
}

/// Answers the JSON of a query.
async fn look(app: &Shared, caller: &Caller, statement: Statement, params: &[Param<'_>]) -> Result<Response, Problem> {
    let answer = app.database.look(caller.tenant, statement, params).await;
    Ok(super::json(StatusCode::OK, answer.map_err(problem)?))
}

/// The id of a plan in a path; what is no id is the id of none.
fn plan_id(text: &str) -> Result<Uuid, Problem> {
    Uuid::try_parse(text).map_err(|_| none(ErrorKind::PlanNotFound))
}

/// The id of a record in a path.
fn record_id(text: &str) -> Result<Uuid, Problem> {
    Uuid::try_parse(text).map_err(|_| none(ErrorKind::DeadLetterNotFound))
}

/// There is no such thing.
fn none(kind: ErrorKind) -> Problem {
    let what = if kind == ErrorKind::PlanNotFound { "replay plan" } else { "dead letter" };
    let status = StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::NOT_FOUND);
    Problem::new(status, format!("there is no such {what}"))
}

/// A parameter that is an id when it is there.
fn id_param(params: &Params, name: &str) -> Result<Option<Uuid>, Problem> {
    let id = params.get(name).filter(|text| !text.is_empty()).map(|text| Uuid::try_parse(text));
    id.transpose().map_err(|_| Problem::bad_request(format!("{name} must be a UUID")))
}

/// A parameter that is a number when it is there.
fn number_param<T: std::str::FromStr>(params: &Params, name: &str) -> Result<Option<T>, Problem> {
    let number = params.get(name).filter(|text| !text.is_empty()).map(|text| text.parse());
    number.transpose().map_err(|_| Problem::bad_request(format!("{name} must be a number")))
}

/// A field of a body, when it is there.
fn field<T: DeserializeOwned>(raw: Option<&str>, name: &str, what: &str) -> Result<Option<T>, Problem> {
    // The reader's own error would quote the value.
    let refuse = |_| Problem::bad_body(format!("{name} must be {what}"));
    raw.map(serde_json::from_str).transpose().map_err(refuse)
}
