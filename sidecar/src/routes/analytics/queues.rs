//! Queues over time: `queue-lag`, `queue-ops`, `queue-parked-replicas` and `retention`.

use super::super::status::round;
use super::super::window::{Params, Window};
use super::super::{Caller, json};
use super::DEFAULT_MINUTES;
use crate::error::Problem;
use crate::metrics::process;
use crate::metrics::tally::{Bucket, Tally};
use crate::state::Shared;
use crate::times;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json as value};
use std::collections::BTreeSet;

/// A window and the queues of its buckets, those that were asked for.
struct Series {
    window: Window,
    buckets: Vec<Bucket>,
    queue: Option<String>,
}

impl Series {
    fn of(app: &Shared, caller: &Caller, params: &Params) -> Series {
        let window = Window::of(params, DEFAULT_MINUTES);
        let buckets = app.metrics.minutes.buckets(caller.tenant, window.from, window.to, window.bucket);
        Series { window, buckets, queue: params.get("queue").filter(|queue| !queue.is_empty()).cloned() }
    }

    /// Every bucket with each of its queues.
    fn rows(&self) -> impl Iterator<Item = (&Bucket, &str, &Tally)> {
        let wanted = move |queue: &str| !queue.is_empty() && self.queue.as_deref().is_none_or(|wanted| wanted == queue);
        self.buckets
            .iter()
            .flat_map(|bucket| bucket.queues.iter().map(move |(queue, tally)| (bucket, queue.as_str(), tally)))
            .filter(move |(_, queue, _)| wanted(queue))
    }
}

/// `GET /api/v1/analytics/queue-lag`
pub async fn lag(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Response {
    let series = Series::of(&app, &caller, &params);
    let rows = series.rows().filter(|(_, _, tally)| tally.pop_messages > 0);
    let rows: Vec<Value> = rows
        .map(|(bucket, queue, tally)| {
            value!({
                "queueName": queue,
                "popCount": tally.pop_messages,
                "avgLagMs": tally.lag_avg_ms(),
                "maxLagMs": tally.lag_max_ms,
                "bucketMinutes": bucket.length,
                "bucketTime": times::format_minute(bucket.start),
            })
        })
        .collect();
    json(StatusCode::OK, Value::Array(rows).to_string())
}

/// `GET /api/v1/analytics/queue-ops`. Acknowledgements name no queue, and what the database does by itself is not heard
/// of: these are 0.
pub async fn ops(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Response {
    let series = Series::of(&app, &caller, &params);
    let queues: BTreeSet<&str> = series.rows().map(|(_, queue, _)| queue).collect();
    let rows: Vec<Value> = series.rows().map(|(bucket, queue, tally)| op(bucket, queue, tally)).collect();
    let body = value!({
        "timeRange": series.window.range(),
        "bucketMinutes": series.window.bucket,
        "series": rows,
        "queues": queues,
    });
    json(StatusCode::OK, body.to_string())
}

fn op(bucket: &Bucket, queue: &str, tally: &Tally) -> Value {
    value!({
        "bucket": times::format_minute(bucket.start),
        "queueName": queue,
        "pushRequests": tally.push_requests,
        "pushMessages": tally.push_messages,
        "popMessages": tally.pop_messages,
        "popEmpty": tally.pop_empty,
        "ackRequests": tally.ack_requests,
        "ackSuccess": tally.ack_success,
        "ackFailed": tally.ack_failed,
        "transactions": tally.transactions,
        "partitionsCreated": 0,
        "partitionsDeleted": 0,
        "partitionCount": 0,
        "avgLagMs": tally.lag_avg_ms(),
        "maxLagMs": tally.lag_max_ms,
        "pushPerSecond": bucket.per_second(tally.push_messages),
        "popPerSecond": bucket.per_second(tally.pop_messages),
        "ackPerSecond": bucket.per_second(tally.ack_success),
        "emptyPerSecond": bucket.per_second(tally.pop_empty),
        "parkedCount": round(bucket.parked(tally)),
    })
}

/// `GET /api/v1/analytics/queue-parked-replicas`
pub async fn parked(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Response {
    let series = Series::of(&app, &caller, &params);
    let hostname = process::hostname();
    let rows: Vec<Value> = series
        .rows()
        .filter(|(_, _, tally)| tally.parked_sum > 0)
        .map(|(bucket, queue, tally)| {
            value!({
                "bucket": times::format_minute(bucket.start),
                "queueName": queue,
                "hostname": hostname,
                "workerId": 0,
                "parkedCount": round(bucket.parked(tally)),
            })
        })
        .collect();
    let body = value!({
        "timeRange": series.window.range(),
        "bucketMinutes": series.window.bucket,
        "series": rows,
        "replicas": [{ "hostname": hostname, "workerId": 0 }],
    });
    json(StatusCode::OK, body.to_string())
}

/// `GET /api/v1/analytics/retention`: the database removes what is over by itself and keeps no account of when.
pub async fn retention(Query(params): Query<Params>) -> Result<Response, Problem> {
    let window = Window::of(&params, DEFAULT_MINUTES);
    let group = params.get("groupBy").map(String::as_str).filter(|group| !group.is_empty());
    if group.is_some_and(|group| !super::workload::GROUPS.contains(&group)) {
        return Err(Problem::bad_request("bad groupBy"));
    }
    let mut body = value!({
        "timeRange": window.range(),
        "bucketMinutes": window.bucket,
        "series": [],
        "totals": {
            "retentionMsgs": 0,
            "completedRetentionMsgs": 0,
            "evictionMsgs": 0,
            "totalMsgs": 0,
            "eventCount": 0,
        },
    });
    if group.is_some() {
        body["rows"] = value!([]);
    }
    Ok(json(StatusCode::OK, body.to_string()))
}
