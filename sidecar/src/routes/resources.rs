//! `/api/v1/resources/…`: queues, namespaces, tasks, and what there is altogether.

use super::window::{Params, Window};
use super::{Caller, json, status};
use crate::database::Statement;
use crate::error::Problem;
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::json as value;
use tokio_postgres::types::Type;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/resources/queues", get(queues))
        .route("/api/v1/resources/queues/{queue}", get(queue).delete(drop_queue))
        .route("/api/v1/resources/queues/{queue}/depth", get(depth))
        .route("/api/v1/resources/overview", get(overview))
        .route("/api/v1/resources/namespaces", get(namespaces))
        .route("/api/v1/resources/tasks", get(tasks))
}

const QUEUES: Statement = Statement { sql: include_str!("../../sql/queues.sql"), types: &[] };
const NAMESPACES: Statement = Statement { sql: include_str!("../../sql/namespaces.sql"), types: &[] };
const TASKS: Statement = Statement { sql: include_str!("../../sql/tasks.sql"), types: &[] };
const QUEUE: Statement = Statement { sql: include_str!("../../sql/queue.sql"), types: &[Type::TEXT] };
const DEPTH: Statement = Statement { sql: include_str!("../../sql/depth.sql"), types: &[Type::TEXT, Type::TEXT] };
const OVERVIEW: Statement =
    Statement { sql: include_str!("../../sql/overview.sql"), types: &[Type::FLOAT8, Type::FLOAT8] };
const DROP: Statement = Statement { sql: "SELECT queen.drop_queue($1)::text", types: &[Type::TEXT] };

/// 404 for a queue that does not exist.
pub fn no_queue() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "Queue not found")
}

async fn list(app: &Shared, caller: &Caller, statement: Statement) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, statement, &[]).await?))
}

async fn queues(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    list(&app, &caller, QUEUES).await
}

async fn namespaces(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    list(&app, &caller, NAMESPACES).await
}

async fn tasks(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    list(&app, &caller, TASKS).await
}

async fn queue(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(queue): Path<String>,
) -> Result<Response, Problem> {
    let found = app.database.find(caller.tenant, QUEUE, &[&queue]).await?;
    Ok(json(StatusCode::OK, found.ok_or_else(no_queue)?))
}

async fn depth(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(queue): Path<String>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let group = params.get("group").filter(|g| !g.is_empty());
    let found = app.database.find(caller.tenant, DEPTH, &[&queue, &group]).await?;
    Ok(json(StatusCode::OK, found.ok_or_else(no_queue)?))
}

async fn overview(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    let window = Window::of(&Params::new(), 1);
    let sum = status::total(&app.metrics, caller.tenant, &window);
    let minutes = (window.to - window.from + 1) as f64;
    let a_second = |count: u32| status::round(f64::from(count) / (minutes * 60.0));
    let (ingested, processed) = (a_second(sum.push_messages), a_second(sum.ack_success));
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, OVERVIEW, &[&ingested, &processed]).await?))
}

async fn drop_queue(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(queue): Path<String>,
) -> Result<Response, Problem> {
    let existed = app.database.act(caller.tenant, caller.subject.as_deref(), DROP, &[&queue]).await? == "true";
    let mut body = value!({ "deleted": existed, "queue": queue, "existed": existed });
    if !existed {
        body["message"] = "Queue not found, nothing was deleted".into();
    }
    Ok(json(StatusCode::OK, body.to_string()))
}
