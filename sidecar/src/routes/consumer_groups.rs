//! `/api/v1/consumer-groups…`

use super::window::Params;
use super::{Caller, flag, json};
use crate::body;
use crate::database::Statement;
use crate::dead_letters::{GROUP, PAUSE_GROUP, RESUME_GROUP};
use crate::error::{CallError, Problem};
use crate::state::Shared;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use serde_json::json as value;
use tokio_postgres::types::Type;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/consumer-groups", get(list))
        .route("/api/v1/consumer-groups/lagging", get(lagging))
        .route("/api/v1/consumer-groups/{group}", get(one).delete(drop_everywhere))
        .route("/api/v1/consumer-groups/{group}/subscription", post(subscription))
        .route("/api/v1/consumer-groups/{group}/queues/{queue}", delete(drop_in_queue))
        .route("/api/v1/consumer-groups/{group}/queues/{queue}/seek", post(seek_queue))
        .route("/api/v1/consumer-groups/{group}/queues/{queue}/pause", post(pause))
        .route("/api/v1/consumer-groups/{group}/queues/{queue}/resume", post(resume))
        .route("/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek", post(seek_partition))
}

const LIST: Statement = Statement { sql: include_str!("../../sql/consumer_groups.sql"), types: &[] };
const LAGGING: Statement = Statement { sql: include_str!("../../sql/lagging.sql"), types: &[Type::FLOAT8] };
const ONE: Statement = Statement { sql: include_str!("../../sql/consumer_group.sql"), types: &[Type::TEXT] };
const DROP: Statement = Statement {
    sql: "SELECT queen.drop_consumer_group($1, $2, $3)::text",
    types: &[Type::TEXT, Type::TEXT, Type::BOOL],
};
const SUBSCRIBE: Statement = Statement {
    sql: "SELECT queen.set_subscription($1, $2::text::timestamptz)::text",
    types: &[Type::TEXT, Type::TEXT],
};
const SEEK: Statement = Statement {
    sql: "SELECT queen.seek($1, $2, to_end => $3, to_timestamp => $4::text::timestamptz, partition => $5)::text",
    types: &[Type::TEXT, Type::TEXT, Type::BOOL, Type::TEXT, Type::TEXT],
};
/// Seconds behind that count as lagging.
const LAG_SECONDS: f64 = 3600.0;

async fn list(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, LIST, &[]).await?))
}

async fn lagging(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let asked = params.get("minLagSeconds").and_then(|s| s.parse().ok()).filter(|s: &f64| s.is_finite());
    let seconds = asked.unwrap_or(LAG_SECONDS);
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, LAGGING, &[&seconds]).await?))
}

async fn one(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(group): Path<String>,
) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, ONE, &[&group]).await?))
}

async fn drop_everywhere(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(group): Path<String>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    drop(&app, &caller, &group, None, &params).await
}

async fn drop_in_queue(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((group, queue)): Path<(String, String)>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    drop(&app, &caller, &group, Some(&queue), &params).await
}

async fn drop(
    app: &Shared,
    caller: &Caller,
    group: &str,
    queue: Option<&str>,
    params: &Params,
) -> Result<Response, Problem> {
    let metadata = flag(params.get("deleteMetadata").map(String::as_str), "deleteMetadata")?.unwrap_or(true);
    let dropped: i64 = app.database.call(caller.tenant, DROP, &[&group, &queue, &metadata]).await?.parse().unwrap_or(0);
    let mut body =
        value!({ "success": true, "consumerGroup": group, "deletedPartitions": dropped, "metadataDeleted": metadata });
    if let Some(queue) = queue {
        body["queueName"] = queue.into();
    }
    Ok(json(StatusCode::OK, body.to_string()))
}

async fn subscription(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(group): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let [time] = body::optional_object(&body, &["subscriptionTimestamp"])?;
    let time = body::string(time, "subscriptionTimestamp")?.filter(|t| !t.is_empty());
    let time = time.ok_or_else(|| Problem::bad_request("subscriptionTimestamp is required"))?;
    let rows: i64 = app.database.call(caller.tenant, SUBSCRIBE, &[&group, &time]).await?.parse().unwrap_or(0);
    let body = value!({ "success": true, "consumerGroup": group, "newTimestamp": time, "rowsUpdated": rows });
    Ok(json(StatusCode::OK, body.to_string()))
}

/// Where to: the end, or a time.
struct SeekTo {
    end: bool,
    time: Option<String>,
}

fn seek_to(body: &Bytes, no_body: Option<SeekTo>) -> Result<SeekTo, Problem> {
    let [end, time] = body::optional_object(body, &["toEnd", "timestamp"])?;
    let time = body::string(time, "timestamp")?.filter(|t| !t.is_empty());
    match end {
        Some("true") => Ok(SeekTo { end: true, time: None }),
        None | Some("false") if time.is_some() => Ok(SeekTo { end: false, time }),
        None | Some("false") => match no_body {
            Some(target) if body.is_empty() => Ok(target),
            _ => Err(Problem::bad_request("Must specify toEnd=true or a timestamp")),
        },
        Some(_) => Err(Problem::bad_body("toEnd must be true or false")),
    }
}

async fn seek(
    app: &Shared,
    caller: &Caller,
    group: &str,
    queue: &str,
    partition: Option<&str>,
    to: &SeekTo,
) -> Result<i64, CallError> {
    let end = to.end.then_some(true);
    let moved = app.database.call(caller.tenant, SEEK, &[&queue, &group, &end, &to.time, &partition]).await?;
    Ok(moved.parse().unwrap_or(0))
}

async fn seek_queue(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((group, queue)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Problem> {
    let to = seek_to(&body, None)?;
    let moved = match seek(&app, &caller, &group, &queue, None, &to).await {
        Err(error) if error.status() == StatusCode::NOT_FOUND => 0,
        moved => moved?,
    };
    if moved == 0 {
        return Err(Problem::new(StatusCode::NOT_FOUND, "").with_body(value!({
            "success": false, "error": "Queue not found or has no partitions", "consumerGroup": group,
            "queueName": queue, "partitionsUpdated": 0,
        })));
    }
    let body = value!({
        "success": true, "consumerGroup": group, "queueName": queue, "seekToEnd": to.end, "targetTimestamp": to.time,
        "partitionsUpdated": moved,
    });
    Ok(json(StatusCode::OK, body.to_string()))
}

async fn seek_partition(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((group, queue, partition)): Path<(String, String, String)>,
    body: Bytes,
) -> Result<Response, Problem> {
    let to = seek_to(&body, Some(SeekTo { end: true, time: None }))?;
    let moved = match seek(&app, &caller, &group, &queue, Some(&partition), &to).await {
        Err(error) if error.status() == StatusCode::NOT_FOUND => 0,
        moved => moved?,
    };
    if moved == 0 {
        return Err(Problem::new(StatusCode::NOT_FOUND, "")
            .with_body(value!({ "success": false, "error": "Partition not found" })));
    }
    let body = value!({
        "success": true, "consumerGroup": group, "queueName": queue, "partitionName": partition, "seekToEnd": to.end,
        "targetTimestamp": to.time, "updated": true,
    });
    Ok(json(StatusCode::OK, body.to_string()))
}

async fn pause(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((group, queue)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Problem> {
    let [reason] = body::optional_object(&body, &["reason"])?;
    let reason = body::string(reason, "reason")?;
    exists(&app, &caller, &queue, &group).await?;
    let subject = caller.subject.as_deref();
    let changed = app.database.act(caller.tenant, subject, PAUSE_GROUP, &[&queue, &group, &reason]).await?;
    Ok(turned(&queue, &group, true, &changed))
}

async fn resume(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((group, queue)): Path<(String, String)>,
) -> Result<Response, Problem> {
    exists(&app, &caller, &queue, &group).await?;
    let subject = caller.subject.as_deref();
    let changed = app.database.act(caller.tenant, subject, RESUME_GROUP, &[&queue, &group]).await?;
    Ok(turned(&queue, &group, false, &changed))
}

/// 404 for a group that the queue does not have: a name with a slip in it would look paused.
async fn exists(app: &Shared, caller: &Caller, queue: &str, group: &str) -> Result<(), Problem> {
    let found = app.database.find(caller.tenant, GROUP, &[&queue, &group]).await?;
    let none = || Problem::new(StatusCode::NOT_FOUND, "the queue has no such consumer group");
    found.map(|_| ()).ok_or_else(none)
}

fn turned(queue: &str, group: &str, pause: bool, changed: &str) -> Response {
    let body = value!({ "consumerGroup": group, "queueName": queue, "pause": pause, "changed": changed == "true" });
    json(StatusCode::OK, body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(body: &str) -> Result<(bool, Option<String>), String> {
        let to = seek_to(&Bytes::copy_from_slice(body.as_bytes()), None);
        to.map(|to| (to.end, to.time)).map_err(|p| p.text().to_owned())
    }

    #[test]
    fn a_seek_has_one_target() {
        assert_eq!(to(r#"{"toEnd":true}"#), Ok((true, None)));
        assert_eq!(to(r#"{"toEnd":false,"timestamp":"t"}"#), Ok((false, Some("t".to_owned()))));
        for none in ["", "{}", r#"{"toEnd":false}"#, r#"{"timestamp":null}"#, r#"{"timestamp":""}"#] {
            assert_eq!(to(none), Err("Must specify toEnd=true or a timestamp".to_owned()), "{none}");
        }
        assert!(to(r#"{"toEnd":1}"#).is_err());
        let end = seek_to(&Bytes::new(), Some(SeekTo { end: true, time: None }));
        assert!(end.is_ok_and(|to| to.end));
    }
}
