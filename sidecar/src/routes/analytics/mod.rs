//! `/api/v1/analytics/…`: what the dashboard draws. Series are this process's own counts of the last day; what only the
//! database knows is asked of it.

mod database;
mod queues;
mod server;
mod workload;

use crate::state::Shared;
use axum::Router;
use axum::routing::get;

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v1/analytics/system-metrics", get(server::system))
        .route("/api/v1/analytics/worker-metrics", get(server::workers))
        .route("/api/v1/analytics/queue-lag", get(queues::lag))
        .route("/api/v1/analytics/queue-ops", get(queues::ops))
        .route("/api/v1/analytics/queue-parked-replicas", get(queues::parked))
        .route("/api/v1/analytics/retention", get(queues::retention))
        .route("/api/v1/analytics/workload", get(workload::workload))
        .route("/api/v1/analytics/dlq-signatures", get(database::dlq_signatures))
        .route("/api/v1/analytics/partition-liveness", get(database::partition_liveness))
        .route("/api/v1/analytics/postgres-stats", get(database::postgres_stats))
}

/// What such a request gives by default: the last hour.
const DEFAULT_MINUTES: u64 = 60;
