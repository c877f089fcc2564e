//! Time as the server counts it: microseconds since 2000-01-01 UTC.
#![allow(unsafe_code)]

use pgrx::pg_sys;

/// Microseconds from the Unix epoch to the server's.
pub const EPOCH_SHIFT: i64 = 946_684_800_000_000;

/// The wall clock now (not the start of the transaction), in server microseconds.
pub fn now() -> i64 {
    // SAFETY: reads the clock only.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// Server microseconds as Unix microseconds, as message ids carry them. Times before 1970 become 0.
pub fn to_unix(micros: i64) -> u64 {
    u64::try_from(micros.saturating_add(EPOCH_SHIFT)).unwrap_or(0)
}

/// Unix microseconds as server microseconds.
pub fn from_unix(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX).saturating_sub(EPOCH_SHIFT)
}
