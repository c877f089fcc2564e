//! Requests that come together share one call, and so one commit.
//!
//! A line takes jobs in order and fires when it is idle: the first job goes at once, and those that come while it is
//! under way go together in the next call. Nobody waits for a timer.
//!
//! Invariants:
//! - Two calls in flight never share a lane, and jobs of a lane keep their order.
//! - A second call starts beside the first only when it is worth a commit of its own ([`EAGER_ITEMS`]), or when the first
//!   is [`SLOW`]: what one partition waits for (an open transaction that holds it, say) must not stop the others.
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
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Items of one call at most, unless a single job has more.
const MAX_ITEMS: usize = 2000;
/// Bytes of one call at most, unless a single job has more.
const MAX_BYTES: usize = 8 << 20;
/// Items that have to wait before another call starts beside one that is under way.
const EAGER_ITEMS: usize = 64;
/// A call under way for so long is slow: it makes room for another, as long as there are few of its kind.
const SLOW: Duration = Duration::from_millis(250);
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
    /// A line with at most `in_flight` calls at once, and `slow` beside them that take long.
    pub fn new(database: Database, metrics: Arc<Metrics>, in_flight: usize, slow: usize) -> Line<J> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (news_sender, news) = mpsc::unbounded_channel();
        let dispatcher = Dispatcher {
            database,
            metrics,
            max_in_flight: in_flight,
            max_slow: slow,
            in_flight: 0,
            slow: 0,
            busy: HashSet::new(),
            waiting: VecDeque::new(),
            items: 0,
            news: news_sender,
        };
        tokio::spawn(dispatcher.run(receiver, news));
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
    max_slow: usize,
    /// Calls under way, without the slow ones.
    in_flight: usize,
    /// Calls under way that are slow.
    slow: usize,
    /// Lanes of all calls under way.
    busy: HashSet<u64>,
    waiting: VecDeque<Waiting<J>>,
    /// Items of all that wait.
    items: usize,
    news: mpsc::UnboundedSender<News>,
}

/// What a call tells the dispatcher.
enum News {
    /// It takes long.
    Slow,
    /// It has ended.
    Ended {
        /// The lanes it held.
        lanes: Vec<u64>,
        /// It had been told to be slow.
        slow: bool,
    },
}

impl<J: Job> Dispatcher<J> {
    async fn run(mut self, mut receiver: mpsc::UnboundedReceiver<Waiting<J>>, mut news: mpsc::UnboundedReceiver<News>) {
        loop {
            tokio::select! {
                arrived = receiver.recv() => match arrived {
                    Some(waiting) => self.add(waiting),
                    None => return,
                },
                Some(told) = news.recv() => self.hear(told),
            }
            // All that is there already, before anything is sent.
            while let Ok(told) = news.try_recv() {
                self.hear(told);
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

    fn hear(&mut self, news: News) {
        match news {
            News::Slow => {
                self.in_flight -= 1;
                self.slow += 1;
            }
            News::Ended { lanes, slow } => {
                let count = if slow { &mut self.slow } else { &mut self.in_flight };
                *count -= 1;
                for lane in &lanes {
                    self.busy.remove(lane);
                }
            }
        }
    }

    /// The jobs of the next call, if one should start now.
    fn next(&mut self) -> Option<Vec<Waiting<J>>> {
        // Slow ones beyond their number take the places of the others.
        let in_flight = self.in_flight + self.slow.saturating_sub(self.max_slow);
        if in_flight >= self.max_in_flight || (in_flight > 0 && self.items < EAGER_ITEMS) {
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
        let (database, metrics, news) = (self.database.clone(), self.metrics.clone(), self.news.clone());
        tokio::spawn(async move {
            // Told also when this task dies.
            let mut end = End { lanes: lanes.into_iter().collect(), slow: false, news };
            let mut call = std::pin::pin!(carry_out(&database, &metrics, batch));
            if tokio::time::timeout(SLOW, &mut call).await.is_err() {
                end.slow = end.news.send(News::Slow).is_ok();
                call.await;
            }
        });
    }
}

struct End {
    lanes: Vec<u64>,
    slow: bool,
    news: mpsc::UnboundedSender<News>,
}

impl Drop for End {
    fn drop(&mut self) {
        _ = self.news.send(News::Ended { lanes: std::mem::take(&mut self.lanes), slow: self.slow });
    }
}

async fn carry_out<J: Job>(database: &Database, metrics: &Metrics, batch: Vec<Waiting<J>>) {
    let Some(tenant) = batch.first().map(|first| first.job.tenant()) else { return };
    let jobs: Vec<&J> = batch.iter().map(|w| &w.job).collect();
    let items = jobs.iter().map(|job| job.items()).sum();
    let began = Instant::now();
    let answers = J::call(database, tenant, &jobs).await;
    metrics.batch(J::OPERATION, items, began.elapsed());
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

/// Leaves each lane once. By sorting: a request may have a hundred thousand.
fn each_once(lanes: &mut Vec<u64>) {
    lanes.sort_unstable();
    lanes.dedup();
}

/// A lane's hash; two that collide only wait for each other.
fn lane(parts: impl Hash) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Texts of JSON values, none of them empty, as a JSON array.
fn array<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> String {
    let mut array = String::with_capacity(texts.clone().map(|text| text.len() + 1).sum::<usize>() + 2);
    for text in texts {
        array.push(if array.is_empty() { '[' } else { ',' });
        array.push_str(text);
    }
    array.push_str(if array.is_empty() { "[]" } else { "]" });
    array
}
