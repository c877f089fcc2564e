//! One append for the pushes of several sessions.
//!
//! A lane is appended to by one transaction at a time, so with many producers of one lane each would wait for its turn,
//! and for every commit before it. Instead, a session that finds the lane taken offers its message in shared memory; the
//! session that gets the lane next takes all offers, writes them with its own push as one segment, and says so when its
//! transaction has committed. A session whose message was stored that way has nothing left to commit, and waits only for
//! the flush of the other's commit, as its own `synchronous_commit` asks.
//!
//! Only messages whose transaction has written nothing else are offered, so each is still stored exactly when its
//! transaction commits. Only transactions that are just committing take offers. If the taker fails, its offers go back
//! to their owners. Needs the library to be loaded at server start; without it everybody waits for the lane.
//!
//! ```text
//! FREE ──offer──► WAITING ──take──► TAKEN ──commit──► DONE ──► FREE
//!   ▲               │                 └────abort────► RETURNED ─► FREE
//!   └───withdraw────┘
//! ```
#![allow(unsafe_code)]

use super::shared_memory::{backends, my_slot, set_latch, wait_latch};
use pgrx::pg_sys;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Largest payload that is offered, in bytes.
pub const LARGEST: usize = 4096 - 48;
/// Offers that one append takes at most.
const TAKE_AT_MOST: usize = 128;
/// How long an offer waits for a taker before its session waits for the lane like everybody, in milliseconds.
const PATIENCE_MS: i64 = 500;

const WAITING: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;
const RETURNED: u64 = 4;
const STATE: u64 = 7;

/// What an offer says; written by its owner before it waits, read by the taker.
#[repr(C)]
struct Slot {
    id: UnsafeCell<u128>,
    pid: AtomicI64,
    database: AtomicU32,
    offset: AtomicI64,
    /// Where the taker's commit record ends.
    lsn: AtomicU64,
    length: AtomicU32,
    payload: UnsafeCell<[u8; LARGEST]>,
}

#[derive(Clone, Copy)]
struct Shared {
    /// Offers that wait.
    waiting: &'static AtomicU32,
    /// Lane and state of each backend's offer; 0: none.
    heads: &'static [AtomicU64],
    slots: *const Slot,
}

static mut AREA: *mut u8 = std::ptr::null_mut();

pub(super) fn size() -> usize {
    64 + backends() * (8 + std::mem::size_of::<Slot>()) + 64
}

/// # Safety
/// `area` must be `size()` bytes of shared memory, zeroed when new.
pub(super) unsafe fn attach(area: *mut u8) {
    // SAFETY: called once, at server start.
    unsafe { AREA = area }
}

fn shared() -> Option<Shared> {
    // SAFETY: the area is laid out as: counter in the first 64 bytes, heads, then slots at a multiple of 64. All-zero is
    // a valid state of each; the area is never unmapped.
    unsafe {
        if AREA.is_null() {
            return None;
        }
        let n = backends();
        let heads = AREA.add(64);
        let slots = heads.add((n * 8).next_multiple_of(64));
        Some(Shared { waiting: &*AREA.cast(), heads: std::slice::from_raw_parts(heads.cast(), n), slots: slots.cast() })
    }
}

impl Shared {
    fn slot(&self, n: usize) -> &Slot {
        // SAFETY: n is below the number of backends.
        unsafe { &*self.slots.add(n) }
    }
}

fn database() -> u32 {
    // SAFETY: a global of this backend.
    unsafe { pg_sys::MyDatabaseId.to_u32() }
}

/// A lane as heads carry it, mixed into 61 bits: the slot says which one it really is.
fn tag(pid: i64) -> u64 {
    (u64::from(database()) << 32 ^ pid as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !STATE
}

/// What became of an offer.
pub enum Offer {
    /// Stored at this offset by a transaction that has committed; its commit record ends at `lsn`.
    Stored { offset: i64, lsn: u64 },
    /// The lane is ours: nobody took the offer.
    Ours,
    /// The partition is gone.
    Gone,
    /// Nobody took it in time, or it cannot be offered: wait for the lane.
    Wait,
}

/// What trying to lock the lane brought.
pub use super::relation::Lock;

/// An offer that is out. Dropped early, by an error, it is taken back: a push that fails is not stored.
struct Out<'s> {
    shared: &'s Shared,
    head: &'s AtomicU64,
    lane: u64,
}

impl Out<'_> {
    fn state(&self) -> u64 {
        self.head.load(SeqCst) & STATE
    }

    /// False: somebody has taken it.
    fn withdraw(&self) -> bool {
        let mine = self.head.compare_exchange(self.lane | WAITING, 0, SeqCst, SeqCst).is_ok();
        if mine {
            self.shared.waiting.fetch_sub(1, SeqCst);
        }
        mine
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        while self.head.load(SeqCst) != 0 && !self.withdraw() {
            match self.state() {
                // Its taker is committing, or finds that it is of another lane.
                TAKEN | WAITING => std::thread::yield_now(),
                _ => self.head.store(0, SeqCst),
            }
        }
    }
}

/// Offers a message to whoever appends to the lane next. `try_lock` tries to lock the lane without waiting.
pub fn offer(pid: i64, id: u128, payload: &[u8], mut try_lock: impl FnMut() -> Lock) -> Offer {
    let Some(s) = shared().filter(|_| payload.len() <= LARGEST) else { return Offer::Wait };
    let (n, lane) = (my_slot(), tag(pid));
    let (Some(head), slot) = (s.heads.get(n), s.slot(n)) else { return Offer::Wait };
    // SAFETY: the head is free, so nobody else reads or writes this slot.
    unsafe {
        *slot.id.get() = id;
        (&mut *slot.payload.get())[..payload.len()].copy_from_slice(payload);
    }
    slot.length.store(payload.len() as u32, SeqCst);
    slot.pid.store(pid, SeqCst);
    slot.database.store(database(), SeqCst);
    head.store(lane | WAITING, SeqCst);
    s.waiting.fetch_add(1, SeqCst);
    let out = Out { shared: &s, head, lane };
    let until = super::clock::now() + PATIENCE_MS * 1000;
    let mut locked = false;
    loop {
        match out.state() {
            DONE => return Offer::Stored { offset: slot.offset.load(SeqCst), lsn: slot.lsn.load(SeqCst) },
            RETURNED => return if locked { Offer::Ours } else { Offer::Wait },
            // The taker is committing: no interrupt may come between its commit and our knowing of it.
            TAKEN if locked => std::hint::spin_loop(),
            TAKEN => wait_latch(10),
            // Not taken. Whoever ends with the lane looks for offers afterwards; one made before that look is seen by
            // it, one made after it finds the lane free here.
            _ => match try_lock() {
                Lock::Held if out.withdraw() => return Offer::Ours,
                Lock::Held => locked = true,
                Lock::Gone if out.withdraw() => return Offer::Gone,
                Lock::Gone => {}
                // SAFETY: a flag of this backend.
                Lock::Busy if unsafe { pg_sys::InterruptPending } != 0 || super::clock::now() > until => {
                    if out.withdraw() {
                        pgrx::check_for_interrupts!();
                        return Offer::Wait;
                    }
                }
                Lock::Busy => wait_latch(10),
            },
        }
    }
}

/// An offer taken by this transaction.
pub struct Taken {
    slot: usize,
    pub id: u128,
    pub payload: Vec<u8>,
}

/// Whether anything is offered at all.
pub fn any() -> bool {
    shared().is_some_and(|s| s.waiting.load(SeqCst) > 0)
}

/// Takes what is offered for a lane that this transaction has locked and is about to commit.
pub fn take(pid: i64) -> Vec<Taken> {
    let Some(s) = shared() else { return Vec::new() };
    let mut taken = Vec::new();
    if s.waiting.load(SeqCst) == 0 {
        return taken;
    }
    let lane = tag(pid);
    for (n, head) in s.heads.iter().enumerate() {
        if taken.len() < TAKE_AT_MOST && head.compare_exchange(lane | WAITING, lane | TAKEN, SeqCst, SeqCst).is_ok() {
            let slot = s.slot(n);
            if slot.pid.load(SeqCst) != pid || slot.database.load(SeqCst) != database() {
                head.store(lane | WAITING, SeqCst);
                continue;
            }
            s.waiting.fetch_sub(1, SeqCst);
            let length = (slot.length.load(SeqCst) as usize).min(LARGEST);
            // SAFETY: its owner wrote the slot before it waited, and does not touch it until the state changes.
            let (id, payload) = unsafe { (*slot.id.get(), (&*slot.payload.get())[..length].to_vec()) };
            taken.push(Taken { slot: n, id, payload });
        }
    }
    taken
}

/// A taken offer that was written at `offset`.
pub struct Written {
    slot: usize,
    offset: i64,
}

impl Taken {
    pub fn written(&self, offset: i64) -> Written {
        Written { slot: self.slot, offset }
    }
}

/// Tells the owners of taken offers how the transaction ended.
pub fn finish(written: &[Written], committed: bool) {
    let Some(s) = shared() else { return };
    for w in written {
        let slot = s.slot(w.slot);
        slot.offset.store(w.offset, SeqCst);
        // SAFETY: the end of this backend's last commit record.
        slot.lsn.store(unsafe { pg_sys::XactLastCommitEnd }, SeqCst);
        let head = &s.heads[w.slot];
        head.store(head.load(SeqCst) & !STATE | if committed { DONE } else { RETURNED }, SeqCst);
        set_latch(w.slot);
    }
}

/// The lanes of these partitions are free again: wakes one session that waits with an offer for each.
pub fn wake_next(lanes: &[i64]) {
    let Some(s) = shared() else { return };
    if s.waiting.load(SeqCst) == 0 {
        return;
    }
    for &pid in lanes {
        let waiting = tag(pid) | WAITING;
        if let Some(n) = s.heads.iter().position(|h| h.load(SeqCst) == waiting) {
            set_latch(n);
        }
    }
}

/// Waits until a commit of another session is as durable as this session's `synchronous_commit` asks.
pub fn wait_durable(lsn: u64) {
    // SAFETY: the same two waits that a synchronous commit does; interrupts are held as there.
    unsafe {
        if pg_sys::synchronous_commit > pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32 {
            pg_sys::InterruptHoldoffCount += 1;
            pg_sys::XLogFlush(lsn);
            pg_sys::SyncRepWaitForLSN(lsn, true);
            pg_sys::InterruptHoldoffCount -= 1;
        }
    }
}
