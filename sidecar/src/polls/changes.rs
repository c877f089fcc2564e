//! Hearing of commits, whoever makes them.

use super::Polls;
use crate::tenant::Tenant;
use serde::Deserialize;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// How long one call listens. A server that lost us keeps its backend so long at most.
const LISTEN_MS: i32 = 10_000;
/// Pause after an answer, so that a busy database answers once for many commits.
const PAUSE: Duration = Duration::from_millis(1);
/// Pauses between attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

#[derive(Deserialize)]
struct Changes {
    position: String,
    #[serde(default)]
    queues: Vec<Touched>,
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
struct Touched {
    tenant: Uuid,
    queue: String,
}

/// Listens for ever, reconnecting when it has to.
pub async fn listen(polls: Polls) {
    let mut pause = RETRY.0;
    loop {
        if *polls.0.closing.borrow() {
            return;
        }
        if let Err(error) = listen_once(&polls, &mut pause).await {
            polls.0.database.report("cannot listen for commits; trying again", &error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

async fn listen_once(polls: &Polls, pause: &mut Duration) -> Result<(), tokio_postgres::Error> {
    let client = polls.0.database.connect().await?;
    let mut position: Option<String> = None;
    loop {
        // Nobody waits: commits may pass unheard, and are told with the next call.
        while polls.rows().is_empty() {
            polls.0.parked.notified().await;
        }
        let call = "CALL queen.wait_changes($1, $2)";
        let row = match client.query_typed_one(call, &[(&position, Type::TEXT), (&LISTEN_MS, Type::INT4)]).await {
            // The login has a statement_timeout: what was missed comes with the next call.
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            row => row?,
        };
        let text: String = row.try_get(0)?;
        let Ok(changes) = serde_json::from_str::<Changes>(&text) else {
            tracing::warn!("what is told of commits cannot be read; connecting anew");
            return Ok(());
        };
        *pause = RETRY.0;
        position = Some(changes.position);
        if changes.all {
            super::clock::look(polls, true).await;
        }
        if changes.queues.is_empty() {
            continue;
        }
        for touched in changes.queues {
            let keys = polls.rows().touched(Tenant(touched.tenant), touched.queue);
            polls.start(keys);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
