//! Procedures that commit while they run, so that they hold no snapshot while they sleep.
#![allow(unsafe_code)]

use pgrx::pg_sys;

/// The right to commit in between.
pub struct Commits(());

impl Commits {
    /// Ends the running transaction and begins another; nothing of the first may be used any more.
    pub fn commit(&self) {
        // SAFETY: we are connected non-atomically.
        unsafe {
            pg_sys::SPI_commit();
        }
    }

    /// Runs `work` with a snapshot: the server wants one for what a row keeps in TOAST, and a commit has ended the
    /// CALL's own.
    pub fn with_snapshot<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: pushed here and popped here; after an error the end of the transaction pops it.
        unsafe {
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            let result = work();
            pg_sys::PopActiveSnapshot();
            result
        }
    }
}

/// Runs the body of a procedure that was called outside a transaction block.
pub fn with_commits<T>(body: impl FnOnce(&Commits) -> T) -> T {
    // SAFETY: connect and finish are paired; on error the server cleans up.
    unsafe {
        pg_sys::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as i32);
        let result = body(&Commits(()));
        pg_sys::SPI_finish();
        result
    }
}
