//! Runs the replay plans that are started.
//!
//! What moves when is decided in the database, where a plan's rate is the plan's however many run it: this only calls.
//! With tenants by header it runs the plans of all, as the database's own worker does (setting `queen.worker_databases`).

use crate::database::Database;
use crate::error::CallError;
use crate::state::Shared;
use std::time::Duration;
use tokio_postgres::Client;

/// Commits after each batch, and therefore is sent on its own. Comes back at once when no plan is running, and else now
/// and then, so that the end of this server is not held up.
const RUN: &str = "CALL queen.run_replays(1000)";
const RUN_ALL: &str = "CALL queen.run_replays(1000, all_tenants => true)";
/// How often it looks for plans.
const PAUSE: Duration = Duration::from_secs(1);
/// After an error.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Runs plans until the server ends. None while pushes go to the buffer: a replay has to be stored at once.
pub async fn keep(app: Shared) {
    // A connection of its own: the pool's are for short calls.
    let mut client = None;
    let mut call = if app.config.tenancy_header { RUN_ALL } else { RUN };
    loop {
        tokio::time::sleep(PAUSE).await;
        if app.maintenance.pushes_paused() {
            continue;
        }
        match run(&app.database, &mut client, call).await {
            Ok(()) => {}
            Err(CallError::Refused { state, message }) if call == RUN_ALL && state == "42501" => {
                tracing::warn!(error = %message, "only replay plans of the default tenant are run");
                call = RUN;
            }
            Err(error) => {
                tracing::debug!(%error, "replay plans cannot be run");
                client = None;
                tokio::time::sleep(LONG_PAUSE).await;
            }
        }
    }
}

/// Runs what is running now, for a second.
async fn run(database: &Database, client: &mut Option<Client>, call: &str) -> Result<(), CallError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(database.connect().await.map_err(|_| CallError::NoConnection)?),
    };
    client.simple_query(call).await.map_err(crate::database::failed)?;
    Ok(())
}
