//! The HTTP door, from outside: the server as a process, requests over TCP.

mod vectors;

use queen_tests::shared_cluster;
use queen_tests::sidecar::Sidecar;

/// A server with a database of its own.
async fn sidecar() -> Sidecar {
    let database = shared_cluster().fresh_database().await;
    Sidecar::start(shared_cluster(), &database)
}
