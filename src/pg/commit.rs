//! What happens at the end of a transaction: pending pushes are appended before the commit, the commit record of a
//! transaction that did nothing but push is flushed after its locks are gone, waiting consumers are woken.
//!
//! **Early lock release.** A lane's lock is held until the end of the transaction. Were it held through the flush of the
//! commit record, every producer of a lane would wait for one flush each. So a pure push that had to wait for a lane
//! commits asynchronously and waits for the flush when its locks are released, before the client gets its answer (one
//! that did not wait commits as usual: it saves waking the WAL writer). WAL is sequential: whatever was built
//! on such a commit is durable only if that commit is. A transaction that wrote anything else commits as usual, so
//! nobody can see business data that a crash may still take back. The caller's `synchronous_commit` level and
//! synchronous standbys are respected: the wait is the same, only later.
//!
//! **Pops.** A transaction that did nothing but lease messages needs no flush at all: losing a lease in a crash means
//! a redelivery.
#![allow(unsafe_code)]

use super::relation::Tables;
use super::shared_append;
use crate::broker::append::When;
use crate::broker::pause;
use crate::error::{Error, Result};
use pgrx::pg_sys;
use std::cell::RefCell;

/// What the current transaction has done so far, as far as its commit is concerned.
#[derive(Default)]
struct State {
    /// Inside a transaction that called one of our functions.
    active: bool,
    /// WAL records written by this backend when our last function returned; records after that are somebody else's.
    mark: i64,
    /// Something other than the broker wrote.
    foreign: bool,
    /// Messages were appended: lanes are locked.
    appended: bool,
    /// A lane was locked by somebody else first: others are likely waiting behind us, too.
    contended: bool,
    /// Cursors moved: the commit must be durable before it is answered.
    settled: bool,
    /// Lanes that this transaction has locked.
    lanes: Vec<i64>,
    /// Messages of other sessions that it appends.
    written: Vec<shared_append::Written>,
    /// Queues whose consumers may find something.
    wake: Vec<i64>,
    /// The commit record has to be flushed once the locks are released.
    flush: bool,
    /// What `synchronous_commit` was before the commit was made asynchronous.
    saved: Option<i32>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|s| f(&mut s.borrow_mut()))
}

fn wal_records() -> i64 {
    // SAFETY: a counter of this backend.
    unsafe { pg_sys::pgWalUsage.wal_records }
}

/// A function of ours begins: notes whether anybody else has written in this transaction.
pub fn enter() {
    with(|s| {
        if !s.active {
            s.active = true;
            // SAFETY: reads this backend's transaction state.
            s.foreign = unsafe { pg_sys::GetTopTransactionIdIfAny() } != pg_sys::TransactionId::INVALID;
        } else if wal_records() != s.mark {
            s.foreign = true;
        }
    });
}

/// A function of ours ends.
pub fn leave() {
    with(|s| s.mark = wal_records());
}

/// The lane of partition `pid` of queue `qid` is locked, and messages are appended to it.
pub fn appended(qid: i64, pid: i64) {
    with(|s| {
        s.appended = true;
        s.lanes.push(pid);
        push_unique(&mut s.wake, qid);
    });
}

/// Other sessions' messages are part of what this transaction appends: they hear of its end.
pub fn appended_for(written: impl Iterator<Item = shared_append::Written>) {
    with(|s| s.written.extend(written));
}

/// Whether the running transaction keeps looking at the state of its beginning (REPEATABLE READ and above).
pub fn old_snapshot() -> bool {
    // SAFETY: a setting of this backend.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Whether the running transaction may write, and sees what others have committed by now.
pub fn may_tidy() -> bool {
    // SAFETY: settings and state of this backend.
    !old_snapshot() && unsafe { !pg_sys::XactReadOnly && !pg_sys::RecoveryInProgress() }
}

/// Whether something may still fail between our part of the commit and the commit itself, in a transaction that has
/// written nothing: what NOTIFY and LISTEN have pending, and temporary tables that are emptied or dropped.
pub fn may_still_fail() -> bool {
    unsafe extern "C-unwind" {
        fn AtPrepare_Notify();
    }
    // SAFETY: flags of this backend; the function only checks, and raises when something is pending.
    unsafe {
        pg_sys::MyXactFlags & pg_sys::XACT_FLAGS_ACCESSEDTEMPNAMESPACE as i32 != 0
            || pgrx::PgTryBuilder::new(|| {
                pg_sys::ffi::pg_guard_ffi_boundary(|| AtPrepare_Notify());
                false
            })
            .catch_others(|_| true)
            .execute()
    }
}

/// Whether the running transaction has written nothing at all so far.
pub fn nothing_written() -> bool {
    // SAFETY: reads this backend's transaction state.
    let no_xid = unsafe { pg_sys::GetTopTransactionIdIfAny() } == pg_sys::TransactionId::INVALID;
    no_xid && with(|s| !s.foreign && !s.appended && !s.settled)
}

/// Somebody else had a lane that this transaction wants.
pub fn contended() {
    with(|s| s.contended = true);
}

/// A cursor moved in a way that must survive a crash.
pub fn settled() {
    with(|s| s.settled = true);
}

/// Consumers of queue `qid` may find something once this transaction has committed.
pub fn wake(qid: i64) {
    with(|s| push_unique(&mut s.wake, qid));
}

fn push_unique(list: &mut Vec<i64>, qid: i64) {
    if list.last() != Some(&qid) && !list.contains(&qid) {
        list.push(qid);
    }
}

/// Registers the callbacks; called once, when the library is loaded.
pub fn register() {
    // SAFETY: the callbacks are guarded functions that live for ever.
    unsafe {
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
        pg_sys::RegisterResourceReleaseCallback(Some(on_release), std::ptr::null_mut());
    }
}

/// Runs `work` at the top of a callback: an error of ours is raised after every Rust frame is gone.
fn guarded(work: impl FnOnce() -> Result<()>) {
    // SAFETY: called only from the outermost frame of a callback; destructors live inside the closure.
    let outcome: std::result::Result<(), Error> = unsafe { pg_sys::submodules::panic::pgrx_extern_c_guard(work) };
    if let Err(error) = outcome {
        super::entry::raise(error);
    }
}

unsafe extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    use pg_sys::XactEvent::*;
    match event {
        XACT_EVENT_PRE_COMMIT => guarded(|| {
            count_causes();
            append_pending(When::Commit)?;
            choose_commit();
            Ok(())
        }),
        XACT_EVENT_PRE_PREPARE => guarded(|| {
            count_causes();
            append_pending(When::Prepare)
        }),
        XACT_EVENT_COMMIT => {
            with(|s| {
                restore(s);
                shared_append::finish(&s.written, true);
                shared_append::wake_next(&s.lanes);
                super::wakeup::wake(&s.wake);
                super::changes::note(&s.wake);
            });
            end();
        }
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => {
            crate::rows::rolled_back();
            with(|s| {
                restore(s);
                s.flush = false;
                shared_append::finish(&s.written, false);
                shared_append::wake_next(&s.lanes);
            });
            end();
        }
        _ => {}
    }
}

/// Forgets the transaction, but not that its commit record is still to be flushed.
fn end() {
    crate::pending::clear();
    pause::forget();
    with(|s| *s = State { flush: s.flush, ..State::default() });
}

fn append_pending(when: When) -> Result<()> {
    if crate::pending::is_empty() {
        return Ok(());
    }
    at_the_end(|| crate::pending::append_all(when).map(|_| ()))
}

/// Groups that have filed dead letters may pause themselves.
fn count_causes() {
    if pause::is_noted() {
        at_the_end(|| pause::count(&Tables::default()));
    }
}

/// Runs `work` as a call of its own when all others are over.
fn at_the_end<T>(work: impl FnOnce() -> T) -> T {
    enter();
    // SAFETY: the transaction is still running; TOAST and SPI need a snapshot, and it is popped again.
    unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
    let outcome = work();
    // SAFETY: pushed above.
    unsafe { pg_sys::PopActiveSnapshot() };
    leave();
    outcome
}

/// Decides how the commit record gets to disk.
fn choose_commit() {
    with(|s| {
        if !s.active || s.foreign || wal_records() != s.mark {
            return;
        }
        // SAFETY: a setting of this backend, put back at the end of this transaction.
        unsafe {
            let level = pg_sys::synchronous_commit;
            if level == pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32 {
                return;
            }
            let durable = s.appended || s.settled;
            if durable && !(s.appended && s.contended && crate::guc::early_lock_release()) {
                return;
            }
            s.flush = durable;
            s.saved = Some(level);
            pg_sys::synchronous_commit = pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32;
        }
    });
}

fn restore(s: &mut State) {
    if let Some(level) = s.saved.take() {
        // SAFETY: as in choose_commit.
        unsafe { pg_sys::synchronous_commit = level };
    }
}

unsafe extern "C-unwind" fn on_release(
    phase: pg_sys::ResourceReleasePhase::Type,
    is_commit: bool,
    is_top_level: bool,
    _arg: *mut std::ffi::c_void,
) {
    if !is_top_level || phase != pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS {
        return;
    }
    if with(|s| std::mem::take(&mut s.flush)) && is_commit {
        guarded(|| {
            // SAFETY: the commit record was written; its locks are gone. The same two waits that a synchronous commit
            // does before releasing them; errors inside are a PANIC of the server's own or a warning.
            unsafe {
                pg_sys::XLogFlush(pg_sys::XactLastCommitEnd);
                pg_sys::SyncRepWaitForLSN(pg_sys::XactLastCommitEnd, true);
            }
            Ok(())
        });
    }
}

unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _subid: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    // SAFETY: reads the nesting level of this backend.
    let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => crate::pending::keep(level),
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => {
            crate::rows::rolled_back();
            crate::pending::discard(level);
        }
        _ => {}
    }
}
