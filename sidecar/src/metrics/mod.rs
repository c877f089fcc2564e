//! Counters of this process since its start, and what happened minute by minute.

pub mod dead_letters;
pub mod exposition;
pub mod minutes;
pub mod process;
mod reservoir;
pub mod sampler;
pub mod tally;

use crate::error::CallError;
use crate::polls::{Popped, Target, Wanted};
use crate::tenant::Tenant;
use minutes::Minutes;
use reservoir::Reservoir;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tally::Tally;

/// What is coalesced, and popped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Pushes.
    Push,
    /// Pops.
    Pop,
    /// Acknowledgements.
    Ack,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 3] = [Operation::Push, Operation::Pop, Operation::Ack];

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Push => "push",
            Operation::Pop => "pop",
            Operation::Ack => "ack",
        }
    }
}

/// Counters of one operation.
#[derive(Default, Debug)]
pub struct Counts {
    /// HTTP requests.
    pub requests: AtomicU64,
    /// Messages in them.
    pub messages: AtomicU64,
    /// Calls to the database.
    pub batches: AtomicU64,
    /// Messages in those calls.
    pub batch_items: AtomicU64,
    newest: Reservoir,
}

impl Counts {
    /// Median and 99th percentile of the newest calls, in milliseconds. None before the first.
    pub fn round_trip(&self) -> Option<[f64; 2]> {
        self.newest.milliseconds([0.5, 0.99])
    }

    /// Messages of a call, on average; 0 before the first.
    pub fn items_per_batch(&self) -> f64 {
        ratio(&self.batch_items, &self.batches)
    }
}

fn ratio(of: &AtomicU64, by: &AtomicU64) -> f64 {
    match by.load(Relaxed) {
        0 => 0.0,
        by => of.load(Relaxed) as f64 / by as f64,
    }
}

/// All counters of this process.
#[derive(Default, Debug)]
pub struct Metrics {
    counts: [Counts; 3],
    /// Pops that named a partition.
    pub targeted: AtomicU64,
    /// Pops that did not.
    pub wildcard: AtomicU64,
    /// Pops that let their batch fill.
    pub fill_waits: AtomicU64,
    /// Microseconds they did.
    pub fill_wait_micros: AtomicU64,
    /// Calls that failed though the request was not at fault.
    pub database_errors: AtomicU64,
    /// What happened minute by minute.
    pub minutes: Minutes,
    /// Of the newest sample, in microseconds.
    loop_lag: AtomicU64,
}

impl Metrics {
    /// Counters of an operation.
    pub fn of(&self, operation: Operation) -> &Counts {
        &self.counts[operation as usize]
    }

    /// A call to the database was made for so many messages.
    pub fn batch(&self, operation: Operation, items: usize, took: Duration) {
        let counts = self.of(operation);
        counts.batches.fetch_add(1, Relaxed);
        counts.batch_items.fetch_add(items as u64, Relaxed);
        counts.newest.add(took);
    }

    /// A pop was made.
    pub fn pop(&self, wanted: &Wanted, messages: usize, took: Duration) {
        let kind = if matches!(wanted.target, Target::Partition { .. }) { &self.targeted } else { &self.wildcard };
        kind.fetch_add(1, Relaxed);
        self.batch(Operation::Pop, messages, took);
    }

    /// A call failed.
    pub fn failed(&self, error: &CallError) {
        if !error.is_callers() {
            self.database_errors.fetch_add(1, Relaxed);
        }
    }

    /// A push request was answered; the queues of its items, in any order.
    pub fn pushed<'a>(&self, tenant: Tenant, queues: impl Iterator<Item = &'a str>) {
        let mut counts: Vec<(&str, u32)> = Vec::new();
        for queue in queues {
            match counts.iter_mut().find(|(name, _)| *name == queue) {
                Some((_, count)) => *count += 1,
                None => counts.push((queue, 1)),
            }
        }
        for (queue, push_messages) in counts {
            self.minutes.count(tenant, queue, &Tally { push_requests: 1, push_messages, ..Tally::default() });
        }
    }

    /// A pop was answered.
    pub fn popped(&self, tenant: Tenant, target: &Target, popped: &Popped) {
        let queue = match target {
            Target::Queue(queue) | Target::Partition { queue, .. } => queue,
            Target::Matching { .. } => popped.queue.as_deref().unwrap_or_default(),
        };
        let mut tally = Tally {
            pop_requests: 1,
            pop_messages: u32::try_from(popped.messages).unwrap_or(u32::MAX),
            pop_empty: u32::from(popped.messages == 0),
            ..Tally::default()
        };
        if let Some(lag) = popped.lag {
            let ms = u32::try_from(lag.as_millis()).unwrap_or(u32::MAX);
            (tally.lag_count, tally.lag_sum_ms, tally.lag_max_ms) = (1, u64::from(ms), ms);
        }
        self.minutes.count(tenant, queue, &tally);
    }

    /// An ack request was answered with this array.
    pub fn acked(&self, tenant: Tenant, answer: &str) {
        #[derive(serde::Deserialize)]
        struct Settled {
            #[serde(default)]
            success: bool,
            #[serde(default)]
            dlq: Option<bool>,
        }
        let mut tally = Tally { ack_requests: 1, ..Tally::default() };
        for settled in serde_json::from_str::<Vec<Settled>>(answer).unwrap_or_default() {
            if settled.success {
                tally.ack_success += 1;
            } else {
                tally.ack_failed += 1;
            }
            tally.dead_letters += u32::from(settled.dlq == Some(true));
        }
        self.minutes.count(tenant, "", &tally);
    }

    /// A transaction was committed.
    pub fn transacted(&self, tenant: Tenant) {
        self.minutes.count(tenant, "", &Tally { transactions: 1, ..Tally::default() });
    }

    /// How late the runtime woke up, on average of the newest sample, in milliseconds.
    pub fn loop_lag(&self) -> f64 {
        self.loop_lag.load(Relaxed) as f64 / 1000.0
    }

    fn set_loop_lag(&self, ms: f64) {
        self.loop_lag.store((ms * 1000.0) as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minutes::this_minute;

    fn tally(metrics: &Metrics, queue: &str) -> Tally {
        let now = this_minute();
        let mut sum = Tally::default();
        for bucket in metrics.minutes.buckets(Tenant::default(), now - 1, now, 1) {
            sum.add(bucket.queues.get(queue).unwrap_or(&Tally::default()));
        }
        sum
    }

    #[test]
    fn a_request_counts_once_for_each_queue_it_pushes_to() {
        let metrics = Metrics::default();
        metrics.pushed(Tenant::default(), ["a", "b", "a"].into_iter());
        assert_eq!((tally(&metrics, "a").push_requests, tally(&metrics, "a").push_messages), (1, 2));
        assert_eq!((tally(&metrics, "b").push_requests, tally(&metrics, "b").push_messages), (1, 1));
    }

    #[test]
    fn acknowledgements_are_told_apart_by_what_became_of_them() {
        let metrics = Metrics::default();
        let answer = r#"[{"success":true,"dlq":true},{"success": true,"dlq":null},{"success":false,"error":"\"success\":true"}]"#;
        metrics.acked(Tenant::default(), answer);
        let tally = tally(&metrics, "");
        assert_eq!((tally.ack_requests, tally.ack_success, tally.ack_failed, tally.dead_letters), (1, 2, 1, 1));
    }
}
