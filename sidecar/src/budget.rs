//! A budget of memory for what clients send or are sent: a client that stalls keeps its part of it until it is given up, and
//! many of them would keep any amount.
//!
//! There are two, one for bodies of requests ([`crate::uploads`]) and one for answers ([`crate::answers`]).
//!
//! Invariants:
//! - What is large fills three quarters, so that there is room left for what is of ordinary size; small things need none.
//! - Who holds room waits for none, and who waits for room holds none: so nobody waits in a circle.
//! - What needs more than half of what large things may fill gets it when the other half is free, and exceeds it alone. So
//!   the largest thing that there can be fits through the smallest budget.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Up to this size a thing weighs nothing: a connection has about as much besides.
pub const SMALL: usize = 64 << 10;
/// Up to this size it is of ordinary size.
pub const ORDINARY: usize = 4 << 20;
/// How long it is worth waiting for room.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Between looks whether somebody still waits for room.
const LOOK: Duration = Duration::from_millis(250);

/// The budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    used: AtomicUsize,
    /// How many wait for room.
    waiting: AtomicUsize,
    freed: Notify,
    refused: AtomicU64,
}

/// Room that has been taken; given back when dropped.
#[derive(Debug)]
pub struct Room {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(total: usize) -> Budget {
        let inner = Inner {
            total,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            refused: AtomicU64::new(0),
        };
        Budget(Arc::new(inner))
    }

    /// Bytes that there are.
    pub fn total(&self) -> usize {
        self.0.total
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.0.used.load(SeqCst)
    }

    /// How often there was no room in time.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(SeqCst)
    }

    /// Takes so many bytes, if they can be had now.
    pub fn take(&self, bytes: usize) -> Option<Room> {
        let mut room = Room { budget: self.clone(), bytes: 0 };
        room.grow(bytes).then_some(room)
    }

    /// Takes as much of this as something large may have, if nobody waits who knows what it needs.
    pub fn take_up_to(&self, most: usize) -> Option<Room> {
        let nobody_waits = self.0.waiting.load(SeqCst) == 0;
        nobody_waits.then(|| self.take(most.min(self.share(usize::MAX) / 2))).flatten()
    }

    /// Waits until there is room for this; None when there is not in time, or `stop` says so.
    pub async fn wait_for(&self, bytes: usize, until: Instant, stop: impl Fn() -> bool) -> Option<Room> {
        let _waiting = Waiting::new(self);
        loop {
            let freed = self.0.freed.notified();
            if let Some(room) = self.take(bytes) {
                return Some(room);
            }
            let left = until.saturating_duration_since(Instant::now());
            if stop() {
                return None;
            }
            if left.is_zero() {
                self.refuse();
                return None;
            }
            _ = tokio::time::timeout(left.min(LOOK), freed).await;
        }
    }

    /// What a finished thing of so many bytes keeps of the room in which it was made. None: nothing, it is small.
    pub fn keep(&self, room: Option<Room>, bytes: usize) -> Option<Room> {
        match room {
            _ if bytes <= SMALL => None,
            Some(room) => Some(room.resized(bytes)),
            None => self.weigh(bytes, true),
        }
    }

    /// Room for a thing that is there already. None: there is none; unless it must be kept, whatever it takes.
    pub fn weigh(&self, bytes: usize, must: bool) -> Option<Room> {
        let room = self.take(bytes).or_else(|| must.then(|| self.exceed(bytes)));
        if room.is_none() {
            self.refuse();
        }
        room
    }

    fn refuse(&self) {
        self.0.refused.fetch_add(1, SeqCst);
    }

    /// How far things of this size may fill the budget.
    fn share(&self, bytes: usize) -> usize {
        if bytes <= ORDINARY { self.0.total } else { self.0.total / 4 * 3 }
    }

    fn exceed(&self, bytes: usize) -> Room {
        self.0.used.fetch_add(bytes, SeqCst);
        Room { budget: self.clone(), bytes }
    }
}

impl Room {
    /// Bytes that it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more. False: there is no room for so much, and it stays as it was.
    pub fn grow(&mut self, more: usize) -> bool {
        let bytes = self.bytes + more;
        let share = self.budget.share(bytes);
        let must_be_free = bytes.min(share / 2);
        let fits = |used: usize| (used - self.bytes + must_be_free <= share).then_some(used + more);
        let grown = self.budget.0.used.fetch_update(SeqCst, SeqCst, fits).is_ok();
        if grown {
            self.bytes = bytes;
        }
        grown
    }

    /// As [`Room::grow`]; a refusal is counted.
    pub fn must_grow(&mut self, more: usize) -> bool {
        let grown = self.grow(more);
        if !grown {
            self.budget.refuse();
        }
        grown
    }

    fn resized(mut self, bytes: usize) -> Room {
        self.budget.0.used.fetch_add(bytes, SeqCst);
        let made = std::mem::replace(&mut self.bytes, bytes);
        self.budget.give_back(made);
        self
    }

    /// Bytes which give the room back when they have been written, or are dropped.
    pub fn hold(self, body: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        struct Held<T>(T, #[allow(dead_code)] Room);
        impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
            fn as_ref(&self) -> &[u8] {
                self.0.as_ref()
            }
        }
        Bytes::from_owner(Held(body, self))
    }
}

impl Budget {
    fn give_back(&self, bytes: usize) {
        // Of nothing nobody is told: who waits has taken nothing and dropped it just now.
        if bytes > 0 {
            self.0.used.fetch_sub(bytes, SeqCst);
            self.0.freed.notify_waiters();
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// One who waits for room.
struct Waiting<'a>(&'a Budget);

impl<'a> Waiting<'a> {
    fn new(budget: &'a Budget) -> Waiting<'a> {
        budget.0.waiting.fetch_add(1, SeqCst);
        Waiting(budget)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn large_things_leave_room_for_ordinary_ones() {
        let budget = Budget::new(64 * MIB);
        let large: Vec<Room> = std::iter::from_fn(|| budget.take(8 * MIB)).collect();
        assert_eq!(large.len(), 6);
        let ordinary: Vec<Room> = std::iter::from_fn(|| budget.take(4 * MIB)).collect();
        assert_eq!((ordinary.len(), budget.used()), (4, 64 * MIB));
        drop((large, ordinary));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_larger_than_the_budget_is_let_in_when_half_is_free_and_only_once() {
        let budget = Budget::new(16 * MIB);
        let monster = budget.take(100 * MIB).expect("room");
        assert!(budget.take(100 * MIB).is_none() && budget.take(5 * MIB).is_none());
        drop(monster);
        assert!(budget.take(100 * MIB).is_some());
    }

    #[test]
    fn a_finished_thing_keeps_its_size_until_its_bytes_are_gone() {
        let budget = Budget::new(64 * MIB);
        let room = budget.take_up_to(usize::MAX);
        assert_eq!(budget.used(), 24 * MIB);
        let bytes = budget.keep(room, MIB).unwrap().hold(vec![0; MIB]);
        assert_eq!(budget.used(), MIB);
        let rest = bytes.slice(5..);
        drop(bytes);
        assert_eq!(budget.used(), MIB);
        drop(rest);
        assert_eq!(budget.used(), 0);
        assert!(budget.keep(budget.take(MIB), SMALL).is_none());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_grows_keeps_what_it_has_when_there_is_no_more() {
        let budget = Budget::new(16 * MIB);
        let (mut a, mut b) = (budget.take(MIB).unwrap(), budget.take(MIB).unwrap());
        assert!(a.grow(99 * MIB));
        assert!(!b.grow(MIB) && !b.must_grow(50 * MIB));
        assert_eq!((budget.used(), budget.refused()), (101 * MIB, 1));
        drop(a);
        assert!(b.grow(50 * MIB));
        drop(b);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn who_waits_gets_what_others_give_back_before_those_who_do_not_know_what_they_need() {
        let budget = Budget::new(64 * MIB);
        let taken: Vec<Room> = std::iter::from_fn(|| budget.take(8 * MIB)).collect();
        let waiter = budget.clone();
        let until = Instant::now() + Duration::from_secs(20);
        let waiting = tokio::spawn(async move { waiter.wait_for(20 * MIB, until, || false).await });
        while budget.0.waiting.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(taken);
        assert!(budget.take_up_to(usize::MAX).is_none());
        assert!(waiting.await.unwrap().is_some());
        assert_eq!(budget.0.waiting.load(SeqCst), 0);
    }

    // Else who waits would wake itself and the others, again and again.
    #[tokio::test]
    async fn what_finds_no_room_wakes_nobody() {
        let budget = Budget::new(16 * MIB);
        let monster = budget.take(100 * MIB);
        let mut freed = std::pin::pin!(budget.0.freed.notified());
        assert!(budget.take(5 * MIB).is_none());
        assert!(tokio::time::timeout(LOOK / 10, &mut freed).await.is_err());
        drop(monster);
        assert!(tokio::time::timeout(LOOK * 100, freed).await.is_ok());
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let budget = Budget::new(16 * MIB);
        let _monster = budget.take(100 * MIB);
        assert!(budget.wait_for(20 * MIB, Instant::now() + LOOK / 10, || false).await.is_none());
        assert!(budget.wait_for(20 * MIB, Instant::now() + LOOK * 1000, || true).await.is_none());
        assert_eq!(budget.0.waiting.load(SeqCst), 0);
    }
}
