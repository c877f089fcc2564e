//! Counters.

use crate::polls::{Target, Wanted};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
    /// Requests in those calls.
    pub batch_requests: AtomicU64,
    /// Messages in those calls.
    pub batch_items: AtomicU64,
    /// Microseconds in those calls.
    pub micros: AtomicU64,
}

/// All counters of this process.
#[derive(Default, Debug)]
pub struct Metrics {
    counts: [Counts; 3],
    /// Pops that named a partition.
    pub targeted: AtomicU64,
    /// Pops that did not.
    pub wildcard: AtomicU64,
}

impl Metrics {
    /// Counters of an operation.
    pub fn of(&self, operation: Operation) -> &Counts {
        &self.counts[operation as usize]
    }

    /// A call to the database was made for these requests.
    pub fn batch(&self, operation: Operation, requests: usize, items: usize, took: Duration) {
        let counts = self.of(operation);
        counts.batches.fetch_add(1, Relaxed);
        counts.batch_requests.fetch_add(requests as u64, Relaxed);
        counts.batch_items.fetch_add(items as u64, Relaxed);
        counts.micros.fetch_add(took.as_micros() as u64, Relaxed);
    }

    /// A pop was made.
    pub fn pop(&self, wanted: &Wanted, messages: usize, took: Duration) {
        let kind = if matches!(wanted.target, Target::Partition { .. }) { &self.targeted } else { &self.wildcard };
        kind.fetch_add(1, Relaxed);
        self.batch(Operation::Pop, 1, messages, took);
    }
}
