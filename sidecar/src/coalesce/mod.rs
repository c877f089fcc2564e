//! Requests that come together share one call, and so one commit.
//!
//! A line takes jobs in order and fires when it is idle: the first job goes at once, and those that come while it is
//! under way go together in the next call. Nobody waits for a timer.
//!
//! Invariants:
//! - Two calls in flight never share a lane, and jobs of a lane keep their order.
//! - A second call starts beside the first only when it is worth a commit of its own ([`EAGER_ITEMS`]).
//! - Each job gets its own answer. When a call of several is refused, each is tried alone: one that is at fault fails
//!   nobody else. A call of which nothing is known is never repeated here; clients repeat it, with their transaction ids.

mod ack;
mod push;

pub use ack::{AckJob, Acks};
pub use push::{PushItem, PushJob, Pushed, Pushes, push_string};

use crate::database::Database;
use crate::error::CallError;
use crate::metrics::{Metrics, Operation};
use crate::tenant::Tenant;
use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// Items of one call at most, unless a single job has more.
const MAX_ITEMS: usize = 2000;
/// Bytes of one call at most, unless a single job has more.
const MAX_BYTES: usize = 8 << 20;
/// Items that have to wait before another call starts beside one that is under way.
const EAGER_ITEMS: usize = 64;
/// Waiting jobs that are looked at to fill a call.
const LOOK_AHEAD: usize = 4096;

/// What a line packs.
pub trait Job: Send + Sync + 'static {
    /// What one job is answered.
    type Answer: Send + 'static;
    /// For the counters.
    const OPERATION: Operation;

    /// Whose it is; a call has one tenant.
    fn tenant(&self) -> Tenant;
    /// Hashes of what no two calls in flight may share.
    fn lanes(&self) -> &[u64];
    /// How many items it has.
    fn items(&self) -> usize;
    /// About how long it is.
    fn bytes(&self) -> usize;
    /// Carries several out in one transaction; the answers are in their order.
    fn call(
        database: &Database,
        tenant: Tenant,
        jobs: &[&Self],
    ) -> impl Future<Output = Result<Vec<Self::Answer>, CallError>> + Send;
}

struct Waiting<J: Job> {
    job: J,
    reply: oneshot::Sender<Result<J::Answer, CallError>>,
}

/// A line of jobs.
pub struct Line<J: Job> {
    sender: mpsc::UnboundedSender<Waiting<J>>,
}

impl<J: Job> Line<J> {
    /// A line with at most `in_flight` calls at once.
    pub fn new(database: Database, metrics: Arc<Metrics>, in_flight: usize) -> Line<J> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (done_sender, done) = mpsc::unbounded_channel();
        let dispatcher = Dispatcher {
            database,
            metrics,
            max_in_flight: in_flight,
            in_flight: 0,
            busy: HashSet::new(),
            waiting: VecDeque::new(),
            items: 0,
            done: done_sender,
        };
        tokio::spawn(dispatcher.run(receiver, done));
        Line { sender }
    }

    /// Carries a job out, together with others. When the caller is gone before its job was sent, it is not sent.
    ///
    /// # Errors
    /// As [`Database::call`].
    pub async fn submit(&self, job: J) -> Result<J::Answer, CallError> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Waiting { job, reply }).map_err(|_| CallError::NoConnection)?;
        // The sender is dropped unanswered only if the task of its call died.
        answer.await.unwrap_or(Err(CallError::Lost))
    }
}

struct Dispatcher<J: Job> {
    database: Database,
    metrics: Arc<Metrics>,
    max_in_flight: usize,
    in_flight: usize,
    /// Lanes of the calls in flight.
    busy: HashSet<u64>,
    waiting: VecDeque<Waiting<J>>,
    /// Items of all that wait.
    items: usize,
    done: mpsc::UnboundedSender<Vec<u64>>,
}

impl<J: Job> Dispatcher<J> {
    async fn run(
        mut self,
        mut receiver: mpsc::UnboundedReceiver<Waiting<J>>,
        mut done: mpsc::UnboundedReceiver<Vec<u64>>,
    ) {
        loop {
            tokio::select! {
                arrived = receiver.recv() => match arrived {
                    Some(waiting) => self.add(waiting),
                    None => return,
                },
                Some(lanes) = done.recv() => self.end(&lanes),
            }
            // All that is there already, before anything is sent.
            while let Ok(lanes) = done.try_recv() {
                self.end(&lanes);
            }
            while let Ok(waiting) = receiver.try_recv() {
                self.add(waiting);
            }
            while let Some(batch) = self.next() {
                self.fire(batch);
            }
        }
    }

    fn add(&mut self, waiting: Waiting<J>) {
        self.items += waiting.job.items();
        self.waiting.push_back(waiting);
    }

    fn end(&mut self, lanes: &[u64]) {
        self.in_flight -= 1;
        for lane in lanes {
            self.busy.remove(lane);
        }
    }

    /// The jobs of the next call, if one should start now.
    fn next(&mut self) -> Option<Vec<Waiting<J>>> {
        if self.in_flight >= self.max_in_flight || (self.in_flight > 0 && self.items < EAGER_ITEMS) {
            return None;
        }
        let mut batch: Vec<Waiting<J>> = Vec::new();
        let (mut items, mut bytes) = (0, 0);
        // Lanes of jobs that are passed over: what comes later in them has to wait as well.
        let mut blocked: HashSet<u64> = HashSet::new();
        let mut at = 0;
        while let Some(candidate) = self.waiting.get(at) {
            let job = &candidate.job;
            if candidate.reply.is_closed() {
                self.items -= job.items();
                self.waiting.remove(at);
                continue;
            }
            let fits = batch.is_empty() || (items + job.items() <= MAX_ITEMS && bytes + job.bytes() <= MAX_BYTES);
            if !fits || at >= LOOK_AHEAD {
                break;
            }
            let other_tenant = batch.first().is_some_and(|first| first.job.tenant() != job.tenant());
            let held = |lane: &u64| self.busy.contains(lane) || blocked.contains(lane);
            if other_tenant || job.lanes().iter().any(held) {
                blocked.extend(job.lanes());
                at += 1;
                continue;
            }
            items += job.items();
            bytes += job.bytes();
            self.items -= job.items();
            batch.extend(self.waiting.remove(at));
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn fire(&mut self, batch: Vec<Waiting<J>>) {
        let lanes: HashSet<u64> = batch.iter().flat_map(|w| w.job.lanes()).copied().collect();
        self.busy.extend(&lanes);
        self.in_flight += 1;
        let (database, metrics, done) = (self.database.clone(), self.metrics.clone(), self.done.clone());
        tokio::spawn(async move {
            // Told also when this task dies.
            let _end = End { lanes: lanes.into_iter().collect(), done };
            carry_out(&database, &metrics, batch).await;
        });
    }
}

struct End {
    lanes: Vec<u64>,
    done: mpsc::UnboundedSender<Vec<u64>>,
}

impl Drop for End {
    fn drop(&mut self) {
        _ = self.done.send(std::mem::take(&mut self.lanes));
    }
}

async fn carry_out<J: Job>(database: &Database, metrics: &Metrics, batch: Vec<Waiting<J>>) {
    let Some(tenant) = batch.first().map(|first| first.job.tenant()) else { return };
    let jobs: Vec<&J> = batch.iter().map(|w| &w.job).collect();
    let items = jobs.iter().map(|job| job.items()).sum();
    let began = Instant::now();
    let answers = J::call(database, tenant, &jobs).await;
    metrics.batch(J::OPERATION, jobs.len(), items, began.elapsed());
    if let Err(error) = &answers {
        metrics.failed(error);
    }
    match answers {
        Ok(answers) => {
            for (waiting, answer) in batch.into_iter().zip(answers) {
                _ = waiting.reply.send(Ok(answer));
            }
        }
        Err(CallError::Refused { .. }) if batch.len() > 1 => {
            for waiting in batch {
                let alone = J::call(database, tenant, &[&waiting.job]).await;
                _ = waiting.reply.send(alone.and_then(|answers| answers.into_iter().next().ok_or(CallError::Lost)));
            }
        }
        Err(error) => {
            for waiting in batch {
                _ = waiting.reply.send(Err(error.clone()));
            }
        }
    }
}

/// A lane's hash; two that collide only wait for each other.
fn lane(parts: impl Hash) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}
