//! Depths of queues and figures of their dead letters, for monitoring: asked of the database seldom, however often somebody looks.
//!
//! The cost is bounded: one query at a time, of at most [`MAX_QUEUES`] queues, and after each a pause of [`PAUSE`] or of
//! ten times what it took.

use crate::database::{Database, Statement};
use crate::tenant::Tenant;
use serde::Deserialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const DEPTHS: Statement = Statement { sql: include_str!("../sql/depths.sql"), types: &[] };
/// Queues that the query counts.
pub const MAX_QUEUES: usize = 1000;
/// Shortest time between two queries.
const PAUSE: Duration = Duration::from_secs(5);
/// An answer older than this is not shown any more.
const STALE: Duration = Duration::from_secs(300);

/// What the database said.
#[derive(Deserialize, Clone, Default, Debug)]
pub struct Answer {
    /// Queues of the default tenant, by name.
    pub queues: Vec<Depth>,
    /// All dead letters of the tenant.
    pub dead_letters: i64,
    /// Dead letters by queue and consumer group, the most first.
    pub groups: Vec<DeadLetters>,
    /// Records that replay plans came to, by what came of them.
    pub replays: Replays,
    /// Queues that want their evidence redacted or encrypted.
    pub protected: Vec<Protected>,
}

/// Dead letters of a consumer group in a queue: see `queen.dlq_stats`.
#[derive(Deserialize, Clone, Default, Debug)]
#[allow(missing_docs)]
pub struct DeadLetters {
    pub queue: String,
    pub consumer_group: String,
    pub pending: i64,
    pub approved: i64,
    pub replayed: i64,
    pub discarded: i64,
    pub oldest_pending_seconds: f64,
    pub arrivals_per_minute: f64,
    pub net_per_minute: f64,
    pub exhaustion_rate: Option<f64>,
    pub top_fingerprints: Vec<Fingerprint>,
    pub replays_ok: Option<i64>,
    pub replays_failed_again: Option<i64>,
    pub owner: String,
    pub runbook: String,
    pub severity: String,
}

/// A failure and how many records have it.
#[derive(Deserialize, Clone, Default, Debug)]
#[allow(missing_docs)]
pub struct Fingerprint {
    pub fingerprint: String,
    pub class: String,
    pub code: String,
    pub count: i64,
}

/// Sums over all plans.
#[derive(Deserialize, Clone, Default, Debug)]
#[allow(missing_docs)]
pub struct Replays {
    pub moved: i64,
    pub duplicate: i64,
    pub failed: i64,
    pub gone: i64,
    pub refused: i64,
}

/// A queue that protects its evidence.
#[derive(Deserialize, Clone, Default, Debug)]
pub struct Protected {
    /// Its name.
    pub queue: String,
    /// Of its newest open records, those that are kept less protected than the queue wants.
    pub unprotected: i64,
}

/// One queue.
#[derive(Deserialize, Clone, Default, Debug)]
pub struct Depth {
    /// Its name.
    pub queue: String,
    /// Messages that wait for delivery.
    pub pending: i64,
    /// Messages under a lease.
    pub processing: i64,
    /// Dead letters.
    pub dead_letters: i64,
}

/// The newest answer.
#[derive(Clone)]
pub struct Depths(Arc<Inner>);

struct Inner {
    database: Database,
    state: Mutex<State>,
    /// Counts the queries that ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    answer: Option<(Instant, Arc<Answer>)>,
    asking: bool,
    not_before: Option<Instant>,
}

impl Depths {
    /// Asks when somebody looks.
    pub fn new(database: Database) -> Depths {
        Depths(Arc::new(Inner { database, state: Mutex::default(), ended: watch::Sender::new(0) }))
    }

    /// The newest answer; asks anew if it is time to, and waits for that at most so long. None: there is none that is
    /// worth showing.
    pub async fn get(&self, patience: Duration) -> Option<Arc<Answer>> {
        let mut ended = self.0.ended.subscribe();
        let (asking, start) = {
            let mut state = self.state();
            let start = !state.asking && state.not_before.is_none_or(|time| time <= Instant::now());
            state.asking |= start;
            (state.asking, start)
        };
        if start {
            // A task, because whoever looks may leave.
            tokio::spawn(self.clone().ask());
        }
        if asking {
            _ = tokio::time::timeout(patience, ended.changed()).await;
        }
        self.state().answer.as_ref().filter(|(at, _)| at.elapsed() < STALE).map(|(_, answer)| answer.clone())
    }

    async fn ask(self) {
        let began = Instant::now();
        let answer = self.0.database.look(Tenant::default(), DEPTHS, &[]).await;
        let answer = answer.map_err(|error| error.to_string());
        let answer = answer.and_then(|text| serde_json::from_str::<Answer>(&text).map_err(|error| error.to_string()));
        {
            let mut state = self.state();
            state.asking = false;
            state.not_before = Some(Instant::now() + PAUSE.max(began.elapsed() * 10));
            match answer {
                Ok(answer) => state.answer = Some((Instant::now(), Arc::new(answer))),
                Err(error) => {
                    // Figures that stand still look like all is well.
                    state.answer = None;
                    tracing::warn!(error, "the depths of queues cannot be read");
                }
            }
        }
        self.0.ended.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
