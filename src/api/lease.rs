//! Whole leases.

use crate::api::arguments;
use crate::broker::settle;
use crate::error::Result;
use crate::guc;
use crate::pg::call::{Call, iso, null_argument};
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::pg::{clock, commit};
use crate::rows::cursor;
use pgrx::pg_sys::Datum;

fn lease_id(call: &Call) -> Result<u128> {
    call.uuid(0).ok_or_else(|| null_argument("lease_id"))
}

/// `queen.ack_lease(lease_id) → bigint`: completes everything the lease holds.
pub fn ack_lease(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    let completed = settle::whole_lease(&tables, guc::tenant()?, lease_id(call)?)?;
    Ok(call.value(Value::Int8(completed)))
}

/// `queen.release(lease_id) → bigint`: gives the lease back, charges nothing.
pub fn release(call: &Call) -> Result<Datum> {
    let (tables, tenant, lease) = (Tables::default(), guc::tenant()?, lease_id(call)?);
    let mut released = 0;
    for (gid, pid) in cursor::of_lease(&tables, lease) {
        let Some(held) = settle::held(&tables, tenant, lease, gid, pid)? else { continue };
        let mut cursor = held.cursor.clone();
        cursor.lease = None;
        settle::write(&tables, &held.cursor, &cursor, &held.group);
        commit::settled();
        commit::wake(held.queue.qid);
        released += 1;
    }
    Ok(call.value(Value::Int8(released)))
}

/// Holds a lease for longer: of how many partitions that was, and the earliest of their ends.
fn renewed(call: &Call) -> Result<(i64, Option<i64>)> {
    let seconds = arguments::lease_seconds(call.int4(1).unwrap_or(60))?;
    let (tables, tenant, lease) = (Tables::default(), guc::tenant()?, lease_id(call)?);
    let (mut partitions, mut earliest) = (0, None);
    for (gid, pid) in cursor::of_lease(&tables, lease) {
        let Some(held) = settle::held(&tables, tenant, lease, gid, pid)? else { continue };
        let wanted = clock::now() + i64::from(seconds) * 1_000_000;
        let mut cursor = held.cursor.clone();
        let Some(current) = cursor.lease.as_mut() else { continue };
        let until = current.expires_at.max(wanted);
        if until > current.expires_at {
            current.expires_at = until;
            settle::write(&tables, &held.cursor, &cursor, &held.group);
        }
        partitions += 1;
        earliest = Some(earliest.map_or(until, |e: i64| e.min(until)));
    }
    Ok((partitions, earliest))
}

/// `queen.renew_lease(lease_id, seconds) → timestamptz`: the earliest new end, NULL when the lease is not live.
pub fn renew_lease(call: &Call) -> Result<Datum> {
    let (_, earliest) = renewed(call)?;
    Ok(call.value(Value::opt_time(earliest)))
}

/// `queen.renew_lease_json(lease_id, seconds) → text`: the wire's object, without the lease id.
pub fn renew_lease_json(call: &Call) -> Result<Datum> {
    let (partitions, earliest) = renewed(call)?;
    let end = earliest.map_or_else(|| "null".to_owned(), |e| format!("\"{}\"", iso(e)));
    let live = earliest.is_some();
    let text = format!(
        "{{\"success\":{live},\"renewed\":{partitions},\"newExpiresAt\":{end},\"expiresAt\":{end},\"lease_expires_at\":{end}}}"
    );
    Ok(call.value(Value::Text(&text)))
}
