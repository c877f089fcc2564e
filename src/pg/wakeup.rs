//! Waking consumers that wait: commits set the latches of exactly the backends that wait for one of their queues. Needs
//! the library to be loaded at server start (shared memory); without it waiters look again every 50 ms.
#![allow(unsafe_code)]

use pgrx::pg_sys;
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
static mut NEXT_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut NEXT_STARTUP: pg_sys::shmem_startup_hook_type = None;

fn shared() -> Option<&'static Shared> {
    // SAFETY: set once at server start, inherited by every backend, never unmapped; all fields are atomics.
    unsafe { SHARED.as_ref() }
}

/// Whether the library was loaded at server start.
pub fn preloaded() -> bool {
    shared().is_some()
}

fn backends() -> usize {
    // Backend slots that can run SQL: MaxBackends; it is settled before shared memory is requested.
    // SAFETY: a global of the server.
    unsafe { pg_sys::MaxBackends as usize + 64 }
}

fn size() -> usize {
    std::mem::size_of::<Shared>() + backends() * std::mem::size_of::<AtomicI64>()
}

/// Asks for shared memory; only while the server starts.
pub fn register() {
    // SAFETY: hooks are chained as the server expects; called once, before any backend exists.
    unsafe {
        if !pg_sys::process_shared_preload_libraries_in_progress {
            return;
        }
        NEXT_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        NEXT_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: the next hook, then our share.
    unsafe {
        if let Some(next) = NEXT_REQUEST {
            next();
        }
        pg_sys::RequestAddinShmemSpace(size());
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: ShmemInitStruct returns `size()` bytes; all-zero is a valid initial state for the atomics.
    unsafe {
        if let Some(next) = NEXT_STARTUP {
            next();
        }
        let mut found = false;
        let p = pg_sys::ShmemInitStruct(c"queen wake-ups".as_ptr(), size(), &mut found).cast::<Shared>();
        if !found {
            std::ptr::write_bytes(p.cast::<u8>(), 0, size());
            (*p).backends = backends() as u32;
        }
        SHARED = p;
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
                // SAFETY: n is an index of a live PGPROC entry; a latch may be set by anybody at any time.
                unsafe { pg_sys::SetLatch(&mut (*(*pg_sys::ProcGlobal).allProcs.add(n)).procLatch) };
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
            // SAFETY: MyProc is this backend's entry of allProcs.
            let n = unsafe { pg_sys::MyProc.offset_from((*pg_sys::ProcGlobal).allProcs) } as usize;
            let slot = slots(s).get(n)?;
            slot.store(place as i64 + 1, SeqCst);
            s.waiting[place].fetch_add(1, SeqCst);
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
            // SAFETY: this backend's own latch; interrupts are served after each wake-up.
            unsafe {
                let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
                pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, left as _, pg_sys::PG_WAIT_EXTENSION);
                pg_sys::ResetLatch(pg_sys::MyLatch);
            }
            pgrx::check_for_interrupts!();
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let (Some(s), Some(n)) = (shared(), self.slot) {
            slots(s)[n].store(0, SeqCst);
            s.waiting[self.place].fetch_sub(1, SeqCst);
        }
    }
}
