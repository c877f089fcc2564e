//! What the server itself knows for the status routes, `/api/v1/status/analytics`, `/status/buffers` and
//! `/api/v1/stats/refresh`.

use super::system::buffer_status;
use super::window::{Params, Window};
use super::{Caller, json, page, text_param};
use crate::database::Statement;
use crate::error::{CallError, Problem};
use crate::metrics::minutes::KEPT_MINUTES;
use crate::metrics::tally::{Bucket, Tally};
use crate::metrics::{Metrics, Operation, process};
use crate::state::{App, Shared};
use crate::tenant::Tenant;
use crate::times;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde_json::{Value, json as value};
use tokio_postgres::types::Type;

/// The routes of this file.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/status", get(overall))
        .route("/api/v1/status/queues", get(queues))
        .route("/api/v1/status/queues/{queue}", get(queue))
        .route("/api/v1/status/analytics", get(analytics))
        .route("/api/v1/status/buffers", get(buffers))
        .route("/api/v1/stats/refresh", post(refresh))
}

/// `throughput`, newest first: what this process did. With a queue it is about that alone; acknowledgements name no
/// queue, so what was delivered from it counts as processed.
pub fn throughput(metrics: &Metrics, tenant: Tenant, window: &Window, queue: Option<&str>) -> Vec<Value> {
    let point = |bucket: &Bucket| {
        let of_queue = queue.map(|queue| bucket.queues.get(queue).copied().unwrap_or_default());
        let tally = of_queue.unwrap_or(bucket.total);
        let processed = if queue.is_some() { tally.pop_messages } else { tally.ack_success };
        let health = &bucket.health;
        value!({
            "timestamp": times::format_minute(bucket.start),
            "ingested": tally.push_messages,
            "processed": processed,
            "popMessages": tally.pop_messages,
            "ingestedPerSecond": bucket.per_second(tally.push_messages),
            "processedPerSecond": bucket.per_second(processed),
            "popPerSecond": bucket.per_second(tally.pop_messages),
            "avgLagMs": tally.lag_avg_ms(),
            "maxLagMs": tally.lag_max_ms,
            "avgEventLoopLagMs": round(health.loop_lag.avg()),
            "maxEventLoopLagMs": round(health.loop_lag.max),
            "minFreeSlots": health.pool_idle.min,
            "dbErrors": health.database_errors,
            "ackFailed": tally.ack_failed,
            "dlqCount": tally.dead_letters,
            "queenCpuUserPct": round(health.cpu_user_percent.avg()),
            "queenCpuSysPct": round(health.cpu_system_percent.avg()),
            "queenRssMb": round(health.resident.avg() / f64::from(1 << 20)),
            "dbPoolActive": round(health.pool_active.avg()),
            "dbPoolIdle": round(health.pool_idle.avg()),
            "dbPoolSize": round(health.pool_size.avg()),
        })
    };
    metrics.minutes.buckets(tenant, window.from, window.to, window.bucket).iter().rev().map(point).collect()
}

/// `messages.requests`: requests of the window.
pub fn requests(metrics: &Metrics, tenant: Tenant, window: &Window) -> Value {
    let sum = total(metrics, tenant, window);
    value!({ "push": sum.push_requests, "pop": sum.pop_requests, "ack": sum.ack_requests })
}

/// `messages.batchEfficiency`: messages that a call to the database carried, on average since the start.
pub fn batch_efficiency(metrics: &Metrics) -> Value {
    let of = |operation| round(metrics.of(operation).items_per_batch());
    value!({ "push": of(Operation::Push), "pop": of(Operation::Pop), "ack": of(Operation::Ack) })
}

/// `errors`: of the window.
pub fn errors(metrics: &Metrics, tenant: Tenant, window: &Window) -> Value {
    let sum = total(metrics, tenant, window);
    let buckets = metrics.minutes.buckets(tenant, window.from, window.to, window.bucket);
    let database: u64 = buckets.iter().map(|bucket| u64::from(bucket.health.database_errors)).sum();
    value!({ "dbErrors": database, "ackFailed": sum.ack_failed, "dlqMessages": sum.dead_letters })
}

/// `workers`: this process, over the window.
pub fn workers(app: &App, tenant: Tenant, window: &Window) -> Value {
    let mut health = crate::metrics::tally::Health::default();
    for bucket in app.metrics.minutes.buckets(tenant, window.from, window.to, window.bucket) {
        health.add(&bucket.health);
    }
    let (size, idle, waiting) = app.database.pool_status();
    let sum = total(&app.metrics, tenant, window);
    value!([{
        "hostname": process::hostname(),
        "workerId": 0,
        "avgEventLoopLagMs": round(health.loop_lag.avg()),
        "maxEventLoopLagMs": round(health.loop_lag.max),
        "freeSlots": idle,
        "dbConnections": size,
        "jobQueueSize": waiting,
        "messagesProcessed": sum.push_messages.saturating_add(sum.pop_messages),
    }])
}

/// All counts of a window.
pub fn total(metrics: &Metrics, tenant: Tenant, window: &Window) -> Tally {
    let mut sum = Tally::default();
    for bucket in metrics.minutes.buckets(tenant, window.from, window.to, window.bucket) {
        sum.add(&bucket.total);
    }
    sum
}

/// To three digits.
pub fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

const OVERALL: Statement =
    Statement { sql: include_str!("../../sql/status.sql"), types: &[Type::TEXT, Type::TEXT, Type::TEXT] };
const QUEUES: Statement =
    Statement { sql: include_str!("../../sql/status_queues.sql"), types: &[Type::INT8, Type::INT8] };
const QUEUE: Statement = Statement { sql: include_str!("../../sql/status_queue.sql"), types: &[Type::TEXT] };

async fn overall(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let given = |name| text_param(&params, name);
    let queue = given("queue");
    let stored = app.database.look(caller.tenant, OVERALL, &[&queue, &given("namespace"), &given("task")]).await?;
    let mut body: Value = serde_json::from_str(&stored).map_err(|_| CallError::Lost)?;
    let window = Window::of(&params, 60);
    let points = throughput(&app.metrics, caller.tenant, &window, queue.as_deref());
    body["messages"]["requests"] = requests(&app.metrics, caller.tenant, &window);
    body["messages"]["batchEfficiency"] = batch_efficiency(&app.metrics);
    body["timeRange"] = window.range();
    body["bucketMinutes"] = window.bucket.into();
    body["pointCount"] = points.len().into();
    body["throughput"] = points.into();
    body["workers"] = workers(&app, caller.tenant, &window);
    body["errors"] = errors(&app.metrics, caller.tenant, &window);
    // Everything is counted when it is asked for.
    body["statsAge"] = 0.into();
    Ok(json(StatusCode::OK, body.to_string()))
}

async fn queues(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let (limit, offset) = page(&params, 100);
    let found = app.database.look(caller.tenant, QUEUES, &[&i64::from(limit), &i64::from(offset)]).await?;
    Ok(json(StatusCode::OK, found))
}

async fn queue(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(queue): Path<String>,
) -> Result<Response, Problem> {
    let found = app.database.find(caller.tenant, QUEUE, &[&queue]).await?;
    Ok(json(StatusCode::OK, found.ok_or_else(super::resources::no_queue)?))
}

async fn analytics(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Response {
    let (interval, bucket) = match params.get("interval").map(String::as_str) {
        Some("minute") => ("minute", 1),
        Some("day") => ("day", 24 * 60),
        _ => ("hour", 60),
    };
    let window = Window { bucket, ..Window::of(&params, KEPT_MINUTES) };
    let queue = params.get("queue").filter(|queue| !queue.is_empty());
    let point = |bucket: &Bucket| {
        let of_queue = queue.map(|queue| bucket.queues.get(queue).copied().unwrap_or_default());
        let messages = of_queue.unwrap_or(bucket.total).push_messages;
        value!({ "timestamp": times::format_minute(bucket.start), "messages": messages })
    };
    let buckets = app.metrics.minutes.buckets(caller.tenant, window.from, window.to, window.bucket);
    let points: Vec<Value> = buckets.iter().map(point).collect();
    let body = value!({
        "dataPoints": points,
        "interval": interval,
        "from": times::format_minute(window.from),
        "to": times::format_minute(window.to),
    });
    json(StatusCode::OK, body.to_string())
}

async fn buffers(State(app): State<Shared>) -> Response {
    let (buffer, up) = tokio::join!(buffer_status(&app), app.database.is_up());
    let body = value!({ "pending": buffer.pending, "failed": buffer.failed_files, "dbHealthy": up, "worker": 0 });
    json(StatusCode::OK, body.to_string())
}

const COUNT: Statement = Statement { sql: include_str!("../../sql/stats_refresh.sql"), types: &[] };

/// There are no stored statistics here that could be old: answers what there is.
async fn refresh(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, app.database.look(caller.tenant, COUNT, &[]).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::minutes::this_minute;

    #[test]
    fn throughput_has_the_keys_of_the_wire_newest_first_and_a_queue_sees_only_its_own() {
        let metrics = Metrics::default();
        metrics.pushed(Tenant::default(), ["a", "a", "b"].into_iter());
        metrics.acked(Tenant::default(), r#"[{"success":true},{"success":false}]"#);
        let now = this_minute();
        let window = Window { from: now - 5, to: now + 1, bucket: 1 };
        let points = throughput(&metrics, Tenant::default(), &window, None);
        let keys = [
            "timestamp",
            "ingested",
            "processed",
            "popMessages",
            "ingestedPerSecond",
            "processedPerSecond",
            "popPerSecond",
            "avgLagMs",
            "maxLagMs",
            "avgEventLoopLagMs",
            "maxEventLoopLagMs",
            "minFreeSlots",
            "dbErrors",
            "ackFailed",
            "dlqCount",
            "queenCpuUserPct",
            "queenCpuSysPct",
            "queenRssMb",
            "dbPoolActive",
            "dbPoolIdle",
            "dbPoolSize",
        ];
        for key in keys {
            assert!(points[0].get(key).is_some(), "{key}");
        }
        let sum = |points: &[Value], key: &str| points.iter().filter_map(|p| p[key].as_u64()).sum::<u64>();
        assert_eq!((sum(&points, "ingested"), sum(&points, "processed"), sum(&points, "ackFailed")), (3, 1, 1));
        assert!(points[0]["timestamp"].as_str() > points[1]["timestamp"].as_str());
        let of_a = throughput(&metrics, Tenant::default(), &window, Some("a"));
        assert_eq!(sum(&of_a, "ingested"), 2);
        assert_eq!(requests(&metrics, Tenant::default(), &window), value!({ "push": 2, "pop": 0, "ack": 1 }));
    }
}
