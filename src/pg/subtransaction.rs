//! Work that is undone as a whole when it fails, while the caller's transaction goes on.
#![allow(unsafe_code)]

use pgrx::pg_sys;
use std::panic::AssertUnwindSafe;

/// What went wrong inside: an error of ours, or one that the server raised.
pub enum Failure<E> {
    Ours(E),
    Server { message: String },
}

/// Runs `work` in a subtransaction: kept when it succeeds, rolled back when it fails. A cancelled query is not caught.
pub fn attempt<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, Failure<E>> {
    // SAFETY: begin and release/rollback are paired on every path; memory context and resource owner are put back, as
    // the server's own languages do around their exception blocks.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = context;
        let back = || {
            pg_sys::CurrentMemoryContext = context;
            pg_sys::CurrentResourceOwner = owner;
        };
        let undo = || {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            back();
        };
        let caught = pgrx::PgTryBuilder::new(AssertUnwindSafe(|| work().map_err(Failure::Ours)))
            .catch_others(|cause| match &cause {
                pg_sys::panic::CaughtError::PostgresError(e)
                    if !matches!(
                        e.sql_error_code(),
                        pgrx::PgSqlErrorCode::ERRCODE_QUERY_CANCELED | pgrx::PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN
                    ) =>
                {
                    Err(Failure::Server { message: e.message().to_owned() })
                }
                // A cancelled query goes on as an error, but not past what is left half done here.
                _ => {
                    undo();
                    cause.rethrow()
                }
            })
            .execute();
        match caught {
            Ok(value) => {
                pg_sys::ReleaseCurrentSubTransaction();
                back();
                Ok(value)
            }
            Err(failure) => {
                undo();
                Err(failure)
            }
        }
    }
}
