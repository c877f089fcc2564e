//! Memory for answers: those that are being made, and those that their clients have not read yet.
//!
//! A client that does not read keeps its answer in this process until it is given up; many of them would keep any amount.
//! So there is a budget. An answer takes room in it before it is made, keeps what it really needs until its last byte
//! has been handed to the kernel, and gives it back however it ends.
//!
//! Invariants:
//! - Large answers fill three quarters, so that there is room left for those of ordinary size; small ones need none.
//! - Who holds room waits for nothing but the database, and who waits for room holds nothing: so nobody waits in a circle.
//! - What needs more than half of what large answers may fill gets it when the other half is free, and exceeds it alone.
//!   So the largest message can be delivered with the smallest budget.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// An answer up to this size weighs nothing: a connection has about as much besides.
pub const SMALL: usize = 64 << 10;
/// Up to this size an answer is of ordinary size.
const ORDINARY: usize = 4 << 20;
/// What an answer of unknown size takes at first, at most: enough to make the largest common one.
const MOST: usize = 192 << 20;
/// Bytes that a message needs beside its text in the database's answer: what the wire repeats with each, and reading it.
const MESSAGE: usize = 640;
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

/// What a pop may bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Messages at most.
    pub messages: i32,
    /// Bytes of the database's answer at most.
    pub text: i32,
}

impl Allowance {
    /// What fits into so many bytes, of a pop that wants so many messages.
    fn within(bytes: usize, messages: i32) -> Allowance {
        let most = i32::try_from(bytes / 2 / MESSAGE).unwrap_or(i32::MAX);
        let messages = messages.min(most).max(1);
        let text = bytes.saturating_sub(messages as usize * MESSAGE) / 2;
        Allowance { messages, text: i32::try_from(text).unwrap_or(i32::MAX) }
    }

    /// The same for a text that turned out to have so many bytes; it may have some more the next time.
    #[must_use]
    pub fn for_text(self, bytes: usize) -> Allowance {
        Allowance { text: i32::try_from(bytes + bytes / 8).unwrap_or(i32::MAX), ..self }
    }

    /// What making such an answer needs: the text is there twice, as it comes in and as it goes out.
    fn bytes(self) -> usize {
        2 * self.text as usize + self.messages as usize * MESSAGE
    }
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

    /// Takes what can be had at once for a pop of so many messages: there is always some.
    pub fn at_once(&self, messages: i32) -> (Option<Room>, Allowance) {
        let first = MOST.min(self.share(usize::MAX) / 2);
        // Not before those who know what they need, and wait for it.
        let nobody_waits = self.0.waiting.load(SeqCst) == 0;
        let large = if nobody_waits { self.take(first) } else { None };
        match large.or_else(|| self.take(ORDINARY)) {
            Some(room) => {
                let allowance = Allowance::within(room.bytes, messages);
                (Some(room), allowance)
            }
            None => (None, Allowance::within(SMALL, messages)),
        }
    }

    /// Waits until there is room for this; None when there is not in time, or `stop` says so.
    pub async fn wait_for(&self, allowance: Allowance, until: Instant, stop: impl Fn() -> bool) -> Option<Room> {
        let _waiting = Waiting::new(self);
        loop {
            let freed = self.0.freed.notified();
            if let Some(room) = self.take(allowance.bytes()) {
                return Some(room);
            }
            let left = until.saturating_duration_since(Instant::now());
            if stop() {
                return None;
            }
            if left.is_zero() {
                self.0.refused.fetch_add(1, SeqCst);
                return None;
            }
            _ = tokio::time::timeout(left.min(LOOK), freed).await;
        }
    }

    /// What a finished answer of so many bytes keeps of the room in which it was made. None: nothing, it is small.
    pub fn keep(&self, room: Option<Room>, bytes: usize) -> Option<Room> {
        match room {
            _ if bytes <= SMALL => None,
            Some(room) => Some(room.resized(bytes)),
            None => self.weigh(bytes, true),
        }
    }

    /// Room for an answer that is there already. None: there is none; unless it has to be answered, whatever it takes.
    pub fn weigh(&self, bytes: usize, must: bool) -> Option<Room> {
        let room = self.take(bytes).or_else(|| must.then(|| self.exceed(bytes)));
        if room.is_none() {
            self.0.refused.fetch_add(1, SeqCst);
        }
        room
    }

    /// How far answers of this size may fill the budget.
    fn share(&self, bytes: usize) -> usize {
        if bytes <= ORDINARY { self.0.total } else { self.0.total / 4 * 3 }
    }

    fn take(&self, bytes: usize) -> Option<Room> {
        let share = self.share(bytes);
        let must_be_free = bytes.min(share / 2);
        let more = |used: usize| (used + must_be_free <= share).then_some(used + bytes);
        self.0.used.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Room { budget: self.clone(), bytes })
    }

    fn exceed(&self, bytes: usize) -> Room {
        self.0.used.fetch_add(bytes, SeqCst);
        Room { budget: self.clone(), bytes }
    }
}

impl Room {
    fn resized(mut self, bytes: usize) -> Room {
        self.budget.0.used.fetch_add(bytes, SeqCst);
        let made = std::mem::replace(&mut self.bytes, bytes);
        self.budget.give_back(made);
        self
    }

    /// The answer's bytes, which give the room back when they have been written, or are dropped.
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
        self.0.used.fetch_sub(bytes, SeqCst);
        self.0.freed.notify_waiters();
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
    fn large_answers_leave_room_for_ordinary_ones_and_small_ones_need_none() {
        let budget = Budget::new(64 * MIB);
        let large: Vec<Room> = std::iter::from_fn(|| budget.take(8 * MIB)).collect();
        assert_eq!(large.len(), 6);
        let ordinary: Vec<Room> = std::iter::from_fn(|| budget.take(4 * MIB)).collect();
        assert_eq!((ordinary.len(), budget.used()), (4, 64 * MIB));
        let (room, small) = budget.at_once(1);
        assert!(room.is_none() && small.messages == 1 && small.text > 30_000, "{small:?}");
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
    fn a_finished_answer_keeps_its_size_until_its_bytes_are_gone() {
        let budget = Budget::new(64 * MIB);
        let (room, _) = budget.at_once(200);
        assert_eq!(budget.used(), 24 * MIB);
        let bytes = budget.keep(room, MIB).unwrap().hold(vec![0; MIB]);
        assert_eq!(budget.used(), MIB);
        let rest = bytes.slice(5..);
        drop(bytes);
        assert_eq!(budget.used(), MIB);
        drop(rest);
        assert_eq!(budget.used(), 0);
        assert!(budget.keep(budget.at_once(1).0, SMALL).is_none());
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_allowance_needs_no_more_than_it_was_made_of() {
        for bytes in [SMALL, ORDINARY, MOST] {
            for messages in [1, 200, 1_000_000] {
                let allowance = Allowance::within(bytes, messages);
                assert!(allowance.bytes() <= bytes && allowance.messages >= 1, "{allowance:?}");
                assert!(allowance.bytes() + 2 >= bytes, "{allowance:?}");
            }
        }
    }

    #[tokio::test]
    async fn who_waits_gets_what_others_give_back_before_those_who_do_not_know_what_they_need() {
        let budget = Budget::new(64 * MIB);
        let taken: Vec<Room> = std::iter::from_fn(|| budget.take(8 * MIB)).collect();
        let need = Allowance { messages: 1, text: (10 * MIB) as i32 };
        let waiter = budget.clone();
        let until = Instant::now() + Duration::from_secs(20);
        let waiting = tokio::spawn(async move { waiter.wait_for(need, until, || false).await });
        while budget.0.waiting.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(taken);
        assert_eq!(budget.at_once(1).0.unwrap().bytes, ORDINARY);
        assert!(waiting.await.unwrap().is_some());
        assert_eq!(budget.0.waiting.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let budget = Budget::new(16 * MIB);
        let _monster = budget.take(100 * MIB);
        let need = Allowance { messages: 1, text: (10 * MIB) as i32 };
        assert!(budget.wait_for(need, Instant::now() + LOOK / 10, || false).await.is_none());
        assert!(budget.wait_for(need, Instant::now() + LOOK * 1000, || true).await.is_none());
        assert_eq!(budget.0.waiting.load(SeqCst), 0);
    }
}
