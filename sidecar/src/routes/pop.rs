//! `GET /api/v1/pop…`: from a queue, a partition, or whatever matches a namespace or task.

use super::ack::QUEUE_MODE;
use super::{Caller, held, json};
use crate::error::{CallError, NO_ROOM, Problem};
use crate::metrics::Operation;
use crate::peer::Left;
use crate::polls::{Target, Wanted};
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use queen_core::names;
use serde_json::json as value;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const DEFAULT_BATCH: i32 = 200;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/pop", get(matching).head(no_head))
        .route("/api/v1/pop/queue/{queue}", get(queue).head(no_head))
        .route("/api/v1/pop/queue/{queue}/partition/{partition}", get(partition).head(no_head))
}

/// Else HEAD would be GET without the body: it would take messages and show them to nobody.
async fn no_head() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")]).into_response()
}

type Params = Query<HashMap<String, String>>;

async fn queue(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(queue): Path<String>,
    Query(params): Params,
) -> Result<Response, Problem> {
    names::check_queue(&queue).map_err(refused)?;
    pop(&app, &caller, Target::Queue(queue), &params).await
}

async fn partition(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((queue, partition)): Path<(String, String)>,
    Query(params): Params,
) -> Result<Response, Problem> {
    names::check_queue(&queue).map_err(refused)?;
    names::check_partition(&partition).map_err(refused)?;
    pop(&app, &caller, Target::Partition { queue, partition }, &params).await
}

async fn matching(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Params,
) -> Result<Response, Problem> {
    let given = |name: &str| params.get(name).filter(|v| !v.is_empty()).cloned();
    let (namespace, task) = (given("namespace"), given("task"));
    if namespace.is_none() && task.is_none() {
        return Err(refused("namespace or task is required"));
    }
    pop(&app, &caller, Target::Matching { namespace, task }, &params).await
}

async fn pop(
    app: &Shared,
    caller: &Caller,
    target: Target,
    params: &HashMap<String, String>,
) -> Result<Response, Problem> {
    let wanted = wanted(app, caller, target, params)?;
    let wait = flag(params, "wait")?.unwrap_or(false);
    let timeout: Option<i64> = number(params, "timeout")?;
    let timeout = timeout
        .map_or(app.config.pop_timeout_ms, |ms| u64::try_from(ms).unwrap_or(0))
        .min(app.config.pop_max_timeout_ms);
    let timeout = Duration::from_millis(timeout);
    let counts = app.metrics.of(Operation::Pop);
    counts.requests.fetch_add(1, Relaxed);
    if app.maintenance.pops_paused() {
        if wait {
            // A consumer that waits would ask again at once.
            tokio::time::sleep(timeout.min(Duration::from_secs(1))).await;
        }
        return Ok(paused(wanted.conflation));
    }
    let (target, conflation) = (wanted.target.clone(), wanted.conflation);
    let peer = caller.peer.clone();
    let popped = async {
        match wait {
            true => app.polls.wait(wanted, peer, timeout, app.maintenance.pops()).await,
            false => app.polls.pop(wanted, peer).await,
        }
    };
    let popped = tokio::select! {
        biased;
        popped = popped => popped,
        // Dropping the pop is how it learns that nobody waits any more.
        () = caller.peer.left() => return Ok(Left.into_response()),
    };
    let popped = popped.map_err(|error| {
        let (status, no_room) = (error.status(), matches!(error, CallError::NoRoom));
        let problem = refused(error).with_status(status);
        if no_room { problem.with_code(NO_ROOM) } else { problem }
    })?;
    if popped.messages == 0 && app.maintenance.pops_paused() {
        return Ok(paused(conflation));
    }
    counts.messages.fetch_add(popped.messages as u64, Relaxed);
    app.metrics.popped(caller.tenant, &target, &popped);
    Ok(match (popped.body, popped.room) {
        (Some(body), Some(room)) => held(room.hold(body)),
        (Some(body), None) => json(StatusCode::OK, body),
        (None, _) => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The answer while pop maintenance is on.
fn paused(conflation: Option<bool>) -> Response {
    if conflation == Some(true) {
        json(StatusCode::OK, "{\"messages\":[],\"paused\":true,\"conflation\":true}")
    } else {
        StatusCode::NO_CONTENT.into_response()
    }
}

fn wanted(app: &Shared, caller: &Caller, target: Target, params: &HashMap<String, String>) -> Result<Wanted, Problem> {
    let named = params.get("consumerGroup").filter(|g| !g.is_empty());
    if let Some(group) = named {
        names::check_group(group).map_err(refused)?;
    }
    let conflation = flag(params, "conflation")?;
    let auto_ack = flag(params, "autoAck")?.unwrap_or(false);
    if conflation == Some(true) {
        if named.is_none() {
            return Err(refused("conflation requires consumerGroup: the last value is kept for a group"));
        }
        if auto_ack {
            return Err(refused(
                "conflation cannot be combined with autoAck: what is superseded is settled by the ack",
            ));
        }
    }
    let batch = number(params, "batch")?.unwrap_or(DEFAULT_BATCH).max(1);
    let partitions = match number(params, "partitions")? {
        Some(n) => n,
        None if conflation == Some(true) => batch.clamp(1, 64),
        None => 1,
    };
    let mode = params.get("subscriptionMode").map_or(app.config.default_subscription_mode.as_str(), String::as_str);
    let lease: Option<i32> = number(params, "leaseSeconds")?;
    Ok(Wanted {
        tenant: caller.tenant,
        target,
        group: named.cloned().unwrap_or_else(|| QUEUE_MODE.to_owned()),
        batch,
        partitions,
        lease_seconds: lease.filter(|s| *s > 0),
        auto_ack,
        mode: mode_of(mode),
        from: params.get("subscriptionFrom").filter(|f| !f.is_empty()).cloned(),
        conflation,
    })
}

/// Where a group starts: every word that does not say `new` means `all`.
fn mode_of(text: &str) -> &'static str {
    match text.trim().to_ascii_lowercase().as_str() {
        "new" | "new-only" | "new_only" | "newonly" => "new",
        _ => "all",
    }
}

fn flag(params: &HashMap<String, String>, name: &str) -> Result<Option<bool>, Problem> {
    super::flag(params.get(name).map(String::as_str), name).map_err(|problem| refused(problem.text()))
}

fn number<T: FromStr>(params: &HashMap<String, String>, name: &str) -> Result<Option<T>, Problem> {
    match params.get(name).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(text) => text.trim().parse().map(Some).map_err(|_| refused(format!("{name} must be an integer"))),
    }
}

/// A pop's own shape of a refusal.
fn refused(error: impl std::fmt::Display) -> Problem {
    let error = error.to_string();
    Problem::bad_request(&error).with_body(value!({ "success": false, "error": error, "messages": [] }))
}
