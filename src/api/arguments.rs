//! Checks that several verbs share.

use crate::error::{ErrorKind, Result, error};
use crate::pg::call::Call;
use queen_core::names;

/// Longest lease, in seconds: seven days.
pub const LONGEST_LEASE: i32 = 7 * 24 * 3600;

/// A queue name argument.
pub fn queue(call: &Call, n: usize) -> Result<&str> {
    let name = call.required_text(n, "queue")?;
    names::check_queue(name)?;
    Ok(name)
}

/// A consumer group argument; NULL means group-less.
pub fn group(call: &Call, n: usize) -> Result<&str> {
    let name = call.text(n)?.unwrap_or(crate::rows::subscription::QUEUE_MODE);
    names::check_group(name)?;
    Ok(name)
}

/// A number of things wanted: at least 1.
pub fn at_least_one(n: Option<i32>, name: &str, default: i32) -> Result<i32> {
    let n = n.unwrap_or(default);
    if n < 1 {
        return Err(error(ErrorKind::InvalidArgument, format!("{name} must be at least 1, got {n}")));
    }
    Ok(n)
}

/// A number of things to pass over, or a row limit: not negative.
pub fn not_negative(n: Option<i32>, name: &str, default: i32) -> Result<i32> {
    let n = n.unwrap_or(default);
    if n < 0 {
        return Err(error(ErrorKind::InvalidArgument, format!("{name} must not be negative, got {n}")));
    }
    Ok(n)
}

/// Lease seconds: 1 to seven days.
pub fn lease_seconds(n: i32) -> Result<i32> {
    if !(1..=LONGEST_LEASE).contains(&n) {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!("a lease lasts 1 to {LONGEST_LEASE} seconds (seven days), got {n}"),
        ));
    }
    Ok(n)
}

/// A UUID in text form, as the wire carries ids.
pub fn uuid(text: &str, name: &str) -> Result<u128> {
    uuid::Uuid::parse_str(text)
        .map(|u| u.as_u128())
        .map_err(|_| error(ErrorKind::InvalidId, format!("{name} must be a UUID, got \"{}\"", names::cut(text, 64))))
}

/// A point in time in any form that timestamptz reads.
pub fn timestamp(text: &str, name: &str) -> Result<i64> {
    crate::pg::call::timestamp(text).ok_or_else(|| {
        error(
            ErrorKind::InvalidTimestamp,
            format!("{name} must be a point in time such as 2026-01-31T12:00:00Z, got \"{}\"", names::cut(text, 64)),
        )
    })
}
