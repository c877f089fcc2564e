//! Replay plans: make, approve, run, stop.

use super::super::window::Params;
use super::super::{Caller, MAX_PAGE, text_param};
use super::{act, field, look, number_param, plan_id, problem};
use crate::body;
use crate::database::{Param, Statement};
use crate::dead_letters as statements;
use crate::error::Problem;
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/dlq/plans", get(list).post(make))
        .route("/api/v1/dlq/plans/{id}", get(one))
        .route("/api/v1/dlq/plans/{id}/approve", post(approve))
        .route("/api/v1/dlq/plans/{id}/run", post(run))
        .route("/api/v1/dlq/plans/{id}/widen", post(widen))
        .route("/api/v1/dlq/plans/{id}/pause", post(pause))
        .route("/api/v1/dlq/plans/{id}/resume", post(resume))
        .route("/api/v1/dlq/plans/{id}/cancel", post(cancel))
}

async fn list(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let limit = number_param::<i32>(&params, "limit")?.unwrap_or(100).clamp(0, MAX_PAGE);
    look(&app, &caller, statements::PLANS, &[&text_param(&params, "state"), &limit]).await
}

async fn one(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    look(&app, &caller, statements::PLAN, &[&plan_id(&id)?]).await
}

async fn make(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    const KEYS: [&str; 13] = [
        "reason",
        "remediation",
        "ids",
        "filter",
        "toQueue",
        "toPartition",
        "rate",
        "canary",
        "autoWiden",
        "expiresIn",
        "maxRecords",
        "dryRun",
        "repair",
    ];
    let raw = body::strict_object(&body, &KEYS)?;
    let [reason, remediation, ids, filter, queue, partition, rate, canary, auto_widen, expires, max, dry_run, repair] =
        raw;
    let (reason, remediation) = (body::string(reason, "reason")?, body::string(remediation, "remediation")?);
    let ids: Option<Vec<Uuid>> = field(ids, "ids", "a list of UUIDs")?;
    let (queue, partition) = (body::string(queue, "toQueue")?, body::string(partition, "toPartition")?);
    let rate: Option<serde_json::Number> = field(rate, "rate", "a number")?;
    let rate = rate.map(|rate| rate.to_string());
    let canary: Option<i32> = field(canary, "canary", "a whole number")?;
    let auto_widen: Option<bool> = field(auto_widen, "autoWiden", "true or false")?;
    let expires = expires_in(expires)?;
    let max: Option<i32> = field(max, "maxRecords", "a whole number")?;
    let dry_run: Option<bool> = field(dry_run, "dryRun", "true or false")?;
    let status = if dry_run == Some(true) { StatusCode::OK } else { StatusCode::CREATED };
    let plan: [Param<'_>; 13] = [
        &reason,
        &remediation,
        &ids,
        &filter,
        &queue,
        &partition,
        &rate,
        &canary,
        &auto_widen,
        &expires,
        &max,
        &dry_run,
        &repair,
    ];
    act(&app, &caller, status, statements::MAKE_PLAN, &plan).await
}

/// A text such as `2 hours`, or a number of seconds.
fn expires_in(raw: Option<&str>) -> Result<Option<String>, Problem> {
    Ok(match field(raw, "expiresIn", "a text such as \"2 hours\", or seconds")? {
        None => None,
        Some(Value::String(text)) => Some(text),
        Some(Value::Number(seconds)) => Some(format!("{seconds} seconds")),
        Some(_) => return Err(Problem::bad_body("expiresIn must be a text such as \"2 hours\", or seconds")),
    })
}

fn note(body: &Bytes) -> Result<Option<String>, Problem> {
    let [note] = body::strict_optional_object(body, &["note"])?;
    body::string(note, "note")
}

async fn approve(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let (id, note) = (plan_id(&id)?, note(&body)?);
    if caller.subject.is_none() {
        // Else the server's own login would be the second person, whoever asked.
        let why =
            "approving needs an authenticated subject: a token with the claim sub, or SQL with a login of one's own";
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    act(&app, &caller, StatusCode::OK, statements::APPROVE, &[&id, &note]).await
}

async fn cancel(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    act(&app, &caller, StatusCode::OK, statements::CANCEL, &[&plan_id(&id)?, &note(&body)?]).await
}

/// What takes nothing but the plan.
async fn turn(
    app: &Shared,
    caller: &Caller,
    id: &str,
    body: &Bytes,
    statement: Statement,
) -> Result<Response, Problem> {
    let [] = body::strict_optional_object(body, &[])?;
    act(app, caller, StatusCode::OK, statement, &[&plan_id(id)?]).await
}

async fn run(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    turn(&app, &caller, &id, &body, statements::RUN).await
}

async fn widen(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let [force] = body::strict_optional_object(&body, &["force"])?;
    let id = plan_id(&id)?;
    if field::<bool>(force, "force", "true or false")? != Some(true) {
        let status = app.database.look(caller.tenant, statements::PLAN, &[&id]).await.map_err(problem)?;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        if let Some(why) = statements::unproven(&status).filter(|_| status["state"] == "canary_done") {
            let why = format!("of the canary {why}: look first, or send {{\"force\": true}}");
            return Err(Problem::new(StatusCode::CONFLICT, why));
        }
    }
    act(&app, &caller, StatusCode::OK, statements::WIDEN, &[&id]).await
}

async fn pause(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    turn(&app, &caller, &id, &body, statements::PAUSE).await
}

async fn resume(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    turn(&app, &caller, &id, &body, statements::RESUME).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_expires_after_an_interval_or_after_seconds() {
        assert_eq!(expires_in(None), Ok(None));
        assert_eq!(expires_in(Some(r#""2 hours""#)), Ok(Some("2 hours".to_owned())));
        assert_eq!(expires_in(Some("90")), Ok(Some("90 seconds".to_owned())));
        assert!(expires_in(Some("[]")).is_err());
    }
}
