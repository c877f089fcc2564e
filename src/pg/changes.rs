//! The last changes of all queues in order: a ring in shared memory, for a listener that hears of every commit.
//!
//! Each touched queue of a commit takes the next number and writes its entry; nobody locks, and nobody waits for readers.
//! A reader that comes too late finds entries of a later lap, and knows that it cannot tell what happened.
//!
//! ```text
//!        lap 2                lap 1
//! [ db │ qid ][ db │ qid ]▲[ db │ qid ][ db │ qid ]     entry of number n: place n % ENTRIES, lap 1 + n / ENTRIES
//!                         └ next
//! ```
//!
//! Both words of an entry carry its lap, so an entry half written, or written over by a writer that was held up for a
//! lap, is never taken for another one. Until the first position is handed out nothing is written at all.
#![allow(unsafe_code)]

use super::shared_memory::{backends, my_slot, set_latch, wait_latch};
use pgrx::pg_sys;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Changes that are kept.
const ENTRIES: u64 = 8192;
/// Counters of sleeping listeners; databases share them.
const COUNTERS: usize = 64;
/// The bits of a queue's key that an entry holds. Sequences do not get that far; a key beyond is kept as [`ANY`].
const QID_BITS: u32 = 48;
/// Stands for a queue that an entry cannot name.
const ANY: u64 = 0;
/// How long a reader waits for an entry whose number is taken, in milliseconds.
const UNWRITTEN_MS: usize = 200;
/// How long a listener sleeps at most before it reads on, so that other databases' changes do not overrun it.
const READ_ON_MS: i64 = 1000;
/// How long to sleep without shared memory.
const POLL_MS: i64 = 50;

/// One change: lap (32 bits) and database, lap (16 bits) and queue.
#[repr(C)]
struct Entry(AtomicU64, AtomicU64);

#[repr(C)]
struct Shared {
    /// Random for each start of shared memory: positions of an earlier one are not ours.
    server: AtomicU64,
    /// The number of the next change.
    next: AtomicU64,
    /// Somebody has asked for a position.
    followed: AtomicBool,
    /// Listeners that sleep, by database: how many flags stand in `asleep`, or are about to.
    sleeping: [AtomicU32; COUNTERS],
    entries: [Entry; ENTRIES as usize],
    backends: u32,
    /// For each backend, the database that it sleeps for, or 0. As many as `backends`.
    asleep: [AtomicU32; 0],
}

static mut SHARED: *mut Shared = std::ptr::null_mut();

fn shared() -> Option<&'static Shared> {
    // SAFETY: set once at server start, inherited by every backend, never unmapped; all fields are atomics.
    unsafe { SHARED.as_ref() }
}

pub(super) fn size() -> usize {
    std::mem::size_of::<Shared>() + backends() * std::mem::size_of::<AtomicU32>()
}

/// # Safety
/// `area` must be `size()` bytes of shared memory, zeroed when new.
pub(super) unsafe fn attach(area: *mut u8) {
    // SAFETY: all-zero is a valid state of the atomics; called once, at server start.
    unsafe {
        SHARED = area.cast();
        (*SHARED).backends = backends() as u32;
        (*SHARED).server.store(uuid::Uuid::new_v4().as_u128() as u64, SeqCst);
    }
}

fn asleep(s: &Shared) -> &[AtomicU32] {
    // SAFETY: `startup` laid out `backends` entries behind the struct.
    unsafe { std::slice::from_raw_parts(s.asleep.as_ptr(), s.backends as usize) }
}

fn database() -> u32 {
    // SAFETY: a global of this backend.
    unsafe { pg_sys::MyDatabaseId.to_u32() }
}

fn counter(s: &Shared, database: u32) -> &AtomicU32 {
    &s.sleeping[database as usize % COUNTERS]
}

/// The words of change `number`, as they are written and expected.
fn words(number: u64, database: u32, qid: u64) -> (u64, u64) {
    let lap = number / ENTRIES + 1;
    (lap << 32 | u64::from(database), lap << QID_BITS | qid)
}

/// Notes that a commit has touched these queues, and wakes who listens. Called after the commit is visible.
pub(super) fn note(queues: &[i64]) {
    let Some(s) = shared().filter(|s| !queues.is_empty() && s.followed.load(SeqCst)) else { return };
    let (database, n) = (database(), queues.len() as u64);
    let first = s.next.fetch_add(n, SeqCst);
    for (number, &qid) in (first..).zip(queues) {
        let qid = u64::try_from(qid).ok().filter(|q| q >> QID_BITS == 0).unwrap_or(ANY);
        let (one, two) = words(number, database, qid);
        let entry = &s.entries[(number % ENTRIES) as usize];
        entry.0.store(one, SeqCst);
        entry.1.store(two, SeqCst);
    }
    // A listener of another database that is nearly overrun reads on, too.
    let quarter = |number: u64| number / (ENTRIES / 4);
    if quarter(first) != quarter(first + n) {
        wake(s, |_| true);
    } else if counter(s, database).load(SeqCst) > 0 {
        wake(s, |listens| listens == database);
    }
}

/// Wakes the sleeping listeners of these databases, each once.
fn wake(s: &Shared, wanted: impl Fn(u32) -> bool) {
    for (n, flag) in asleep(s).iter().enumerate() {
        let listens = flag.load(SeqCst);
        if listens != 0 && wanted(listens) && flag.compare_exchange(listens, 0, SeqCst, SeqCst).is_ok() {
            counter(s, listens).fetch_sub(1, SeqCst);
            set_latch(n);
        }
    }
}

/// What a reader has found.
pub enum Found {
    /// These queues were touched, each once; none: nothing happened.
    Queues(Vec<i64>),
    /// Anything may have happened.
    Anything,
}

/// A place among the changes of this database: everything before it has been read.
pub struct Position(Option<(u64, u64)>);

impl Position {
    /// The end: whoever looks at the tables after this has seen everything before it.
    pub fn end() -> Position {
        Position(shared().map(|s| {
            s.followed.store(true, SeqCst);
            (s.server.load(SeqCst), s.next.load(SeqCst))
        }))
    }

    /// As [`Position::text`] has written it; None: of an earlier start of the server, or nothing that was written here.
    pub fn parse(text: &str) -> Option<Position> {
        let Some(s) = shared() else { return (text == Position(None).text()).then_some(Position(None)) };
        let (server, number) = text.split_once('-')?;
        let (server, number) = (u64::from_str_radix(server, 16).ok()?, number.parse().ok()?);
        let known = server == s.server.load(SeqCst) && s.followed.load(SeqCst) && number <= s.next.load(SeqCst);
        known.then_some(Position(Some((server, number))))
    }

    pub fn text(&self) -> String {
        self.0.map_or_else(|| "none".to_owned(), |(server, number)| format!("{server:016x}-{number}"))
    }

    /// Nothing is ever heard from here: there is no shared memory.
    pub fn is_deaf(&self) -> bool {
        self.0.is_none()
    }

    /// Reads up to `limit` different queues, and moves behind what it has read. Without shared memory: nothing.
    pub fn read(&mut self, limit: usize) -> Found {
        let mut queues: Vec<i64> = Vec::new();
        let (Some(s), Some((_, number))) = (shared(), &mut self.0) else { return Found::Queues(queues) };
        let (database, mut known) = (database(), std::collections::HashSet::new());
        let mut patience = UNWRITTEN_MS;
        while *number < s.next.load(SeqCst) {
            let entry = &s.entries[(*number % ENTRIES) as usize];
            let (one, two) = (entry.0.load(SeqCst), entry.1.load(SeqCst));
            let (of, qid) = (one as u32, two & ((1 << QID_BITS) - 1));
            if (one, two) != words(*number, of, qid) {
                // Not written yet, and there is something to tell: it is told next time.
                if !queues.is_empty() {
                    break;
                }
                let overrun = s.next.load(SeqCst) - *number > ENTRIES;
                if overrun || patience == 0 {
                    *self = Position::end();
                    return Found::Anything;
                }
                patience -= 1;
                wait_latch(1);
                pgrx::check_for_interrupts!();
                continue;
            }
            if of == database {
                if qid == ANY {
                    *self = Position::end();
                    return Found::Anything;
                }
                if !known.contains(&qid) {
                    if queues.len() == limit {
                        break;
                    }
                    known.insert(qid);
                    queues.push(qid as i64);
                }
            }
            *number += 1;
        }
        Found::Queues(queues)
    }

    /// Sleeps until something happens after this position, at most `timeout_ms`. May wake early.
    pub fn sleep(&self, timeout_ms: i64) {
        let (Some(s), Some((_, number)), Some(_)) = (shared(), self.0, flag()) else {
            wait_latch(timeout_ms.clamp(1, POLL_MS));
            pgrx::check_for_interrupts!();
            return;
        };
        // Counted and flagged first, then looked, then slept: a change in between is seen here, or wakes.
        let listening = Listening::begin(s);
        if s.next.load(SeqCst) == number {
            wait_latch(timeout_ms.clamp(1, READ_ON_MS));
        }
        // Before interrupts: a backend that is terminated there exits, and drops nothing.
        drop(listening);
        pgrx::check_for_interrupts!();
    }
}

/// This backend's place in `asleep`.
fn flag() -> Option<&'static AtomicU32> {
    asleep(shared()?).get(my_slot())
}

/// This backend sleeps until it is dropped, or somebody has woken it.
struct Listening;

impl Listening {
    fn begin(s: &Shared) -> Listening {
        let database = database();
        // The count is never below the number of flags.
        counter(s, database).fetch_add(1, SeqCst);
        if let Some(flag) = flag() {
            flag.store(database, SeqCst);
        }
        Listening
    }
}

impl Drop for Listening {
    /// Does nothing if somebody has woken this backend.
    fn drop(&mut self) {
        if let (Some(s), Some(flag)) = (shared(), flag()) {
            let database = flag.swap(0, SeqCst);
            if database != 0 {
                counter(s, database).fetch_sub(1, SeqCst);
            }
        }
    }
}
