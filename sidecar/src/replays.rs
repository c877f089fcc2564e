//! Runs the replay plans that are started.
//!
//! What moves when is decided in the database, where a plan's rate is the plan's however many run it: this only calls.
//! Plans of the default tenant; those of others want the server's own worker (setting `queen.worker_databases`).

use crate::database::{Database, Statement};
use crate::error::CallError;
use crate::state::Shared;
use crate::tenant::Tenant;
use std::time::Duration;

const IS_RUNNING: Statement =
    Statement { sql: "SELECT EXISTS (SELECT FROM queen.replay_plans WHERE state = 'running')::text", types: &[] };
/// Commits after each batch, and therefore is sent on its own. Comes back now and then, so that the end of this server
/// is not held up.
const RUN: &str = "CALL queen.run_replays(1000)";
/// How often it looks for plans.
const PAUSE: Duration = Duration::from_secs(1);
/// After an error.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Runs plans until the server ends. None while pushes go to the buffer: a replay has to be stored at once.
pub async fn keep(app: Shared) {
    loop {
        tokio::time::sleep(PAUSE).await;
        if app.maintenance.pushes_paused() {
            continue;
        }
        if let Err(error) = run(&app.database).await {
            tracing::debug!(%error, "replay plans cannot be run");
            tokio::time::sleep(LONG_PAUSE).await;
        }
    }
}

/// Runs what is running now, for a second.
async fn run(database: &Database) -> Result<(), CallError> {
    if database.look(Tenant::default(), IS_RUNNING, &[]).await? != "true" {
        return Ok(());
    }
    // A connection of its own: the pool's are for short calls.
    let client = database.connect().await.map_err(|_| CallError::NoConnection)?;
    client.simple_query(RUN).await.map_err(crate::database::failed)?;
    Ok(())
}
