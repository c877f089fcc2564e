//! `GET /metrics` and `/metrics/prometheus`

use super::json;
use super::system::buffer_status;
use crate::depths;
use crate::maintenance::BufferStatus;
use crate::metrics::dead_letters;
use crate::metrics::exposition::{CONTENT_TYPE, Exposition, Kind};
use crate::metrics::{Counts, Operation, process};
use crate::state::{App, Shared};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json as value;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub fn routes() -> Router<Shared> {
    Router::new().route("/metrics", get(summary)).route("/metrics/prometheus", get(prometheus))
}

/// How long a scrape waits for the database.
const PATIENCE: Duration = Duration::from_secs(2);

async fn summary(State(app): State<Shared>) -> Response {
    let sum = |of: fn(&Counts) -> u64| Operation::ALL.iter().map(|o| of(app.metrics.of(*o))).sum::<u64>();
    let (size, idle, waiting) = app.database.pool_status();
    let (user, system) = process::cpu_micros();
    let body = value!({
        "uptime": app.started.elapsed().as_secs(),
        "requests": { "total": sum(|c| c.requests.load(Relaxed)), "rate": 0 },
        "messages": { "total": sum(|c| c.messages.load(Relaxed)), "rate": 0 },
        "database": { "poolSize": size, "idleConnections": idle, "waitingRequests": waiting },
        "memory": {
            "rss": process::resident_bytes(),
            "heapTotal": 0,
            "heapUsed": 0,
            "external": 0,
            "arrayBuffers": 0,
        },
        "cpu": { "user": user, "system": system },
    });
    json(StatusCode::OK, body.to_string())
}

async fn prometheus(State(app): State<Shared>) -> Response {
    let up = tokio::time::timeout(PATIENCE, app.database.is_up());
    let (buffer, depths, up) = tokio::join!(buffer_status(&app), app.depths.get(PATIENCE), up);
    let mut text = Exposition::default();
    process_families(&app, &mut text);
    operation_families(&app, &mut text);
    queue_families(&app, &mut text);
    maintenance_families(&app, &buffer, &mut text);
    let up = if up.unwrap_or(false) { 1.0 } else { 0.0 };
    text.gauge("queen_database_up", "1 if the database answers within two seconds.", up);
    if let Some(depths) = depths {
        depth_families(&depths, &mut text);
        dead_letters::families(&depths, &mut text);
    }
    let headers = [(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-cache")];
    (StatusCode::OK, headers, text.finish()).into_response()
}

fn process_families(app: &App, text: &mut Exposition) {
    let (size, idle, _) = app.database.pool_status();
    text.gauge("queen_uptime_seconds", "Seconds since the server began.", app.started.elapsed().as_secs_f64().floor());
    text.gauge(
        "queen_process_resident_memory_bytes",
        "Resident memory of the server.",
        process::resident_bytes() as f64,
    );
    text.gauge(
        "queen_event_loop_lag_avg_milliseconds",
        "How late timers fire, on average over ten seconds.",
        app.metrics.loop_lag(),
    );
    text.gauge(
        "queen_answer_budget_bytes",
        "Memory for answers (QUEEN_ANSWER_BUDGET_BYTES).",
        app.answers.total() as f64,
    );
    text.gauge(
        "queen_answer_bytes_in_flight",
        "Of it, what answers take that are being made or have not been read yet.",
        app.answers.used() as f64,
    );
    text.counter(
        "queen_answers_refused_total",
        "How often there was no memory for an answer in time.",
        app.answers.refused(),
    );
    text.gauge(
        "queen_request_budget_bytes",
        "Memory for bodies of requests (QUEEN_REQUEST_BUDGET_BYTES).",
        app.uploads.total() as f64,
    );
    text.gauge(
        "queen_request_bytes_in_flight",
        "Of it, what bodies take that are arriving or being dealt with.",
        app.uploads.used() as f64,
    );
    text.counter("queen_requests_refused_total", "Requests for whose body there was no memory.", app.uploads.refused());
    text.gauge("queen_db_pool_size", "Connections to the database.", size as f64);
    text.gauge("queen_db_pool_idle", "Connections that are not in use.", idle as f64);
    text.gauge("queen_db_pool_active", "Connections in use.", size.saturating_sub(idle) as f64);
}

fn operation_families(app: &App, text: &mut Exposition) {
    let metrics = &app.metrics;
    let [push, pop, ack] = Operation::ALL.map(|operation| metrics.of(operation));
    let totals = [
        ("queen_process_push_requests_total", "Push requests.", &push.requests),
        ("queen_process_push_messages_total", "Messages in push requests.", &push.messages),
        ("queen_process_pop_requests_total", "Pop requests.", &pop.requests),
        ("queen_process_pop_messages_total", "Messages delivered.", &pop.messages),
        ("queen_process_ack_requests_total", "Ack requests.", &ack.requests),
        ("queen_process_ack_messages_total", "Acknowledgements in ack requests.", &ack.messages),
        ("queen_pop_targeted_total", "Pops of one partition that asked the database.", &metrics.targeted),
        ("queen_pop_wildcard_total", "Other pops that asked the database.", &metrics.wildcard),
        ("queen_pop_fill_wait_total", "Waiting pops that let their batch fill (minPopWaitTime).", &metrics.fill_waits),
        ("queen_pop_fill_wait_microseconds_total", "How long they did.", &metrics.fill_wait_micros),
    ];
    for (name, help, count) in totals {
        text.counter(name, help, count.load(Relaxed));
    }
    let all = Operation::ALL.map(|operation| (operation.name(), metrics.of(operation)));
    let mut family = text.family("queen_batches_fired_total", Kind::Counter, "Calls to the database.");
    for (op, counts) in all {
        family.value(&[("op", op)], counts.batches.load(Relaxed) as f64);
    }
    let mut family = text.family("queen_batch_items_fired_total", Kind::Counter, "Messages in calls to the database.");
    for (op, counts) in all {
        family.value(&[("op", op)], counts.batch_items.load(Relaxed) as f64);
    }
    let mut family = text.family("queen_fusion_items_per_batch", Kind::Gauge, "Messages of a call, on average.");
    for (op, counts) in all {
        family.value(&[("op", op)], counts.items_per_batch());
    }
    let mut family =
        text.family("queen_batch_rtt_milliseconds", Kind::Gauge, "How long the newest thousand calls took.");
    for (op, counts) in all {
        let Some(times) = counts.round_trip() else { continue };
        for (quantile, time) in ["0.5", "0.99"].into_iter().zip(times) {
            family.value(&[("op", op), ("quantile", quantile)], time);
        }
    }
}

fn queue_families(app: &App, text: &mut Exposition) {
    let mut parked: BTreeMap<String, usize> = BTreeMap::new();
    for (_, queue, count) in app.polls.parked() {
        *parked.entry(queue).or_default() += count;
    }
    let mut family = text.family(
        "queen_parked_long_polls",
        Kind::Gauge,
        "Pops that wait, by queue; those of a namespace or task have the empty name.",
    );
    for (queue, count) in &parked {
        family.value(&[("queue", queue)], *count as f64);
    }
    let minute = app.metrics.minutes.last_minute();
    let mut of = |name, help, value: fn(&crate::metrics::tally::Tally) -> u32| {
        let mut family = text.family(name, Kind::Gauge, help);
        for (queue, tally) in &minute {
            family.value(&[("queue", queue)], f64::from(value(tally)));
        }
    };
    of("queen_queue_push_requests_per_minute", "Push requests in the last whole minute.", |t| t.push_requests);
    of("queen_queue_push_messages_per_minute", "Messages pushed in the last whole minute.", |t| t.push_messages);
    of("queen_queue_pop_messages_per_minute", "Messages delivered in the last whole minute.", |t| t.pop_messages);
    of("queen_queue_pop_empty_per_minute", "Pops that found nothing in the last whole minute.", |t| t.pop_empty);
    let mut family = text.family(
        "queen_queue_pop_lag_milliseconds",
        Kind::Gauge,
        "Age of messages when they were delivered in the last whole minute.",
    );
    for (queue, tally) in minute.iter().filter(|(_, tally)| tally.lag_count > 0) {
        family.value(&[("queue", queue), ("stat", "avg")], tally.lag_avg_ms() as f64);
        family.value(&[("queue", queue), ("stat", "max")], f64::from(tally.lag_max_ms));
    }
}

fn maintenance_families(app: &App, buffer: &BufferStatus, text: &mut Exposition) {
    let flag = |on: bool| if on { 1.0 } else { 0.0 };
    text.gauge(
        "queen_maintenance_mode_enabled",
        "1 while push maintenance is on.",
        flag(app.maintenance.pushes_paused()),
    );
    text.gauge(
        "queen_pop_maintenance_mode_enabled",
        "1 while pop maintenance is on.",
        flag(app.maintenance.pops_paused()),
    );
    text.gauge("queen_file_buffer_pending", "Messages in the buffer, to be replayed.", buffer.pending as f64);
    text.gauge("queen_file_buffer_failed", "Files of the buffer that were kept aside.", buffer.failed_files as f64);
    text.gauge("queen_file_buffer_healthy", "1 if the buffer can be written to.", flag(buffer.healthy));
    text.counter(
        "queen_process_db_errors_total",
        "Calls to the database that failed though the request was not at fault.",
        app.metrics.database_errors.load(Relaxed),
    );
}

fn depth_families(depths: &depths::Answer, text: &mut Exposition) {
    text.family("queen_dlq_depth", Kind::Gauge, "Dead letters.")
        .value(&[("scope", "cluster")], depths.dead_letters as f64);
    let mut family = text.family("queen_dlq_depth_by_queue", Kind::Gauge, "Dead letters of a queue.");
    for queue in &depths.queues {
        family.value(&[("queue", &queue.queue)], queue.dead_letters as f64);
    }
    let mut family = text.family(
        "queen_queue_depth",
        Kind::Gauge,
        "Messages of a queue that wait (pending) or are leased (processing), for the named group that is furthest behind.",
    );
    for queue in &depths.queues {
        family.value(&[("queue", &queue.queue), ("state", "pending")], queue.pending as f64);
        family.value(&[("queue", &queue.queue), ("state", "processing")], queue.processing as f64);
    }
}
