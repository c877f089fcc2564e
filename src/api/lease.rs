//! Whole leases.

use crate::api::arguments;
use crate::broker::settle;
use crate::error::Result;
use crate::guc;
use crate::pg::call::{Call, null_argument};
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

/// `queen.renew_lease(lease_id, seconds) → timestamptz`: the earliest new expiry, NULL when the lease is not live.
pub fn renew_lease(call: &Call) -> Result<Datum> {
    let seconds = arguments::lease_seconds(call.int4(1).unwrap_or(60))?;
    let (tables, tenant, lease) = (Tables::default(), guc::tenant()?, lease_id(call)?);
    let mut earliest = None;
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
        earliest = Some(earliest.map_or(until, |e: i64| e.min(until)));
    }
    Ok(call.value(Value::opt_time(earliest)))
}
