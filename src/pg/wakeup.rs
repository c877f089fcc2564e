//! Waking consumers that wait: commits set the latches of exactly the backends that wait for one of their queues. Needs
//! the library to be loaded at server start (shared memory); without it waiters look again every 50 ms.
#![allow(unsafe_code)]

use super::shared_memory::{backends, my_slot, set_latch, wait_latch};
use pgrx::pg_sys;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Queues share this many places; a collision wakes somebody who then looks and sleeps on.
const PLACES: usize = 1024;

/// How long a waiter sleeps at most before it looks again: prepared transactions commit in another backend, and hints
/// can fall due without a commit.
pub const LOOK_AGAIN_MS: i64 = 1000;
/// The same without shared memory.
const POLL_MS: i64 = 50;

#[repr(C)]
struct Shared {
    /// Waiters of each place.
    waiting: [AtomicU32; PLACES],
    /// Commits that touched each place.
    commits: [AtomicU64; PLACES],
    backends: u32,
    /// For each backend, 1 + the place it waits for, or 0. As many as `backends`.
    places: [AtomicI64; 0],
}

static mut SHARED: *mut Shared = std::ptr::null_mut();

fn shared() -> Option<&'static Shared> {
    // SAFETY: set once at server start, inherited by every backend, never unmapped; all fields are atomics.
    unsafe { SHARED.as_ref() }
}

pub(super) fn size() -> usize {
    std::mem::size_of::<Shared>() + backends() * std::mem::size_of::<AtomicI64>()
}

/// # Safety
/// `area` must be `size()` bytes of shared memory, zeroed when new.
pub(super) unsafe fn attach(area: *mut u8) {
    // SAFETY: all-zero is a valid state of the atomics; called once, at server start.
    unsafe {
        SHARED = area.cast();
        (*SHARED).backends = backends() as u32;
    }
}

fn place(qid: i64) -> usize {
    // SAFETY: a global of this backend.
    let database = unsafe { pg_sys::MyDatabaseId.to_u32() };
    let mixed = (qid as u64 ^ (u64::from(database) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize % PLACES
}

fn slots(s: &Shared) -> &[AtomicI64] {
    // SAFETY: `startup` laid out `backends` entries behind the struct.
    unsafe { std::slice::from_raw_parts(s.places.as_ptr(), s.backends as usize) }
}

/// Wakes whoever waits for one of these queues. Called after the commit is visible.
pub fn wake(queues: &[i64]) {
    let Some(s) = shared() else { return };
    for &qid in queues {
        let place = place(qid);
        s.commits[place].fetch_add(1, SeqCst);
        if s.waiting[place].load(SeqCst) == 0 {
            continue;
        }
        for (n, slot) in slots(s).iter().enumerate() {
            if slot.load(SeqCst) == place as i64 + 1 {
                set_latch(n);
            }
        }
    }
}

/// A waiter of one queue. Register first, then look, then sleep: a commit in between is not missed.
pub struct Waiter {
    place: usize,
    slot: Option<usize>,
    seen: u64,
}

impl Waiter {
    pub fn new(qid: i64) -> Waiter {
        let place = place(qid);
        let slot = shared().and_then(|s| {
            let n = my_slot();
            let slot = slots(s).get(n)?;
            leave_at_exit();
            s.waiting[place].fetch_add(1, SeqCst);
            slot.store(place as i64 + 1, SeqCst);
            Some(n)
        });
        let mut waiter = Waiter { place, slot, seen: 0 };
        waiter.arm();
        waiter
    }

    /// A waiter that no commit wakes: for a queue that does not exist yet.
    pub fn unregistered() -> Waiter {
        Waiter { place: 0, slot: None, seen: 0 }
    }

    /// Notes the commits so far; look for messages after this.
    pub fn arm(&mut self) {
        if let Some(s) = shared() {
            self.seen = s.commits[self.place].load(SeqCst);
        }
    }

    /// Sleeps until a commit touches the queue, `timeout_ms` passes, or it is time to look again.
    pub fn sleep(&self, timeout_ms: i64) {
        let longest = if self.slot.is_some() { LOOK_AGAIN_MS } else { POLL_MS };
        let timeout = timeout_ms.clamp(0, longest);
        let end = super::clock::now() + timeout * 1000;
        loop {
            if let (Some(s), Some(_)) = (shared(), self.slot)
                && s.commits[self.place].load(SeqCst) != self.seen
            {
                return;
            }
            let left = (end - super::clock::now() + 999) / 1000;
            if left <= 0 {
                return;
            }
            wait_latch(left);
            pgrx::check_for_interrupts!();
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.slot.is_some() {
            leave();
        }
    }
}

/// This backend waits no more; does nothing if it did not.
fn leave() {
    if let Some(s) = shared()
        && let Some(slot) = slots(s).get(my_slot())
        && let Ok(place) = usize::try_from(slot.swap(0, SeqCst) - 1)
    {
        s.waiting[place].fetch_sub(1, SeqCst);
    }
}

/// A backend that is terminated exits from within its wait, and drops nothing.
fn leave_at_exit() {
    static ONCE: Once = Once::new();
    unsafe extern "C-unwind" fn at_exit(_code: std::ffi::c_int, _arg: pg_sys::Datum) {
        leave();
    }
    // SAFETY: called before the backend gives up its place among the server's processes.
    ONCE.call_once(|| unsafe { pg_sys::before_shmem_exit(Some(at_exit), pg_sys::Datum::null()) });
}
