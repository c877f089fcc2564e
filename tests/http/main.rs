//! The HTTP door, from outside: the server as a process, requests over TCP.

mod ack;
mod bodies;
mod cli;
mod coalesce;
mod configure;
mod crash;
mod dead_letters;
mod departures;
mod door;
mod ending;
mod fitness;
mod lease;
mod maintenance;
mod operate;
mod polls;
mod pop;
mod push;
mod raw;
mod tenancy;
mod transaction;
mod vectors;
mod vectors_operate;

use queen_tests::shared_cluster;
use queen_tests::sidecar::{Sidecar, Value};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A server with a database of its own.
async fn sidecar() -> Sidecar {
    sidecar_with(&[]).await
}

/// The same with these environment variables.
async fn sidecar_with(environment: &[(&str, &str)]) -> Sidecar {
    let database = shared_cluster().fresh_database().await;
    Sidecar::start_with(shared_cluster(), &database, environment)
}

/// A server that tests share which need nothing of it but queues of their own: see [`queue`].
fn shared() -> &'static Sidecar {
    static SHARED: LazyLock<Sidecar> =
        LazyLock::new(|| Sidecar::start(shared_cluster(), &shared_cluster().fresh_database_blocking()));
    &SHARED
}

/// The name of a queue that no other test has.
fn queue() -> String {
    static QUEUES: AtomicU32 = AtomicU32::new(0);
    format!("q{}", QUEUES.fetch_add(1, Relaxed))
}

/// The payloads of popped messages.
fn data(messages: &[Value]) -> Vec<&Value> {
    messages.iter().map(|message| &message["data"]).collect()
}
