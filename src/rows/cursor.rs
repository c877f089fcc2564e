//! Cursors: how far a group is on a partition, and its lease. Every change is a new row; the newest (highest seq) counts.

use crate::pg::creation_lock::{Creation, lock, unlock};
use crate::pg::relation::{Lock, Row, Table, Tables, Tid};
use crate::pg::scan::{Compare, InProgress, Scan, Sight, cmp, eq};
use crate::pg::value::Value;
use crate::rows::floor::Floor;
use queen_core::ack::{Deliveries, Lease};

/// State of one (group, partition).
#[derive(Clone, Debug)]
pub struct Cursor {
    pub gid: i64,
    pub pid: i64,
    pub seq: i64,
    pub committed: i64,
    pub retries: i32,
    pub lease: Option<Lease>,
    pub deliveries: Deliveries,
    /// First failure since the retry budget was last full.
    pub failing_since: Option<i64>,
    /// Not delivered again before this time. Only without a lease, and with something left to deliver.
    pub not_before: Option<i64>,
    /// The stored row, None before the first.
    tid: Option<Tid>,
}

impl Cursor {
    /// Before anything was delivered.
    pub fn initial(gid: i64, pid: i64, committed: i64) -> Cursor {
        Cursor {
            gid,
            pid,
            seq: 0,
            committed,
            retries: 0,
            lease: None,
            deliveries: Deliveries::default(),
            failing_since: None,
            not_before: None,
            tid: None,
        }
    }

    pub fn as_ack_state(&self) -> queen_core::ack::Cursor {
        queen_core::ack::Cursor { committed: self.committed, lease: self.lease.clone(), retries: self.retries }
    }

    pub fn live_lease(&self, now: i64) -> Option<&Lease> {
        self.lease.as_ref().filter(|l| l.expires_at > now)
    }

    /// When there is something to do by time alone: its lease ends, or the pause after a failure.
    pub fn hinted_at(&self) -> Option<i64> {
        self.lease.as_ref().map(|lease| lease.expires_at).or(self.not_before)
    }

    /// Before this time there is nothing to deliver, if it is still to come.
    pub fn busy_until(&self, now: i64) -> Option<i64> {
        self.hinted_at().filter(|&time| time > now)
    }

    /// A message is given up that nobody holds: everything up to it is done, and what comes next begins anew.
    pub fn give_up(&mut self, offset: i64) {
        self.committed = offset;
        self.retries = 0;
        self.failing_since = None;
        self.deliveries.advance(offset);
    }
}

fn from_row(row: &Row<'_>) -> Cursor {
    let lease = row.opt_uuid(5).map(|id| Lease { id, batch_end: row.int8(6), expires_at: row.int8(7) });
    Cursor {
        gid: row.int8(0),
        pid: row.int8(1),
        seq: row.int8(2),
        committed: row.int8(3),
        retries: row.int4(4),
        lease,
        deliveries: row.opt_bytes(8).map(Deliveries::from_bytes).unwrap_or_default(),
        failing_since: row.opt_int8(9),
        not_before: row.opt_int8(10),
        tid: Some(row.tid),
    }
}

/// The outcome of trying to take a cursor for a change.
pub enum Taken {
    /// Ours until the transaction ends.
    Held(Box<Cursor>),
    /// There is none yet; the right to create it is ours.
    Missing,
    /// Somebody else has it.
    Busy,
}

/// Takes the newest row of (group, partition) for a change. `wait`: until whoever has it is done.
///
/// Whoever takes several takes them in order of group name, then of partition key, and so never deadlocks with others:
/// a lease is one group's, over queues in which that group has several keys.
pub fn take(tables: &Tables, gid: i64, pid: i64, wait: bool) -> Taken {
    let mut may_create = false;
    loop {
        let found = {
            let table = tables.cursor().borrow();
            from_newest(&table, gid, pid, |scan, cursor| (cursor, scan.in_progress()))
        };
        match found {
            None if may_create => return Taken::Missing,
            None => {
                if !lock(Creation::Cursor(gid, pid), wait) {
                    return Taken::Busy;
                }
                may_create = true;
            }
            Some((_, Some(other))) => {
                if !wait {
                    return Taken::Busy;
                }
                other.wait();
            }
            Some((cursor, None)) => {
                let Some(tid) = cursor.tid else { return Taken::Missing };
                let outcome = tables.cursor().borrow().lock(tid, true, wait);
                match outcome {
                    Lock::Held => return Taken::Held(Box::new(cursor)),
                    Lock::Busy => return Taken::Busy,
                    Lock::Gone => {}
                }
            }
        }
    }
}

thread_local! {
    static LAST_SEQ: Floor<(i64, i64)> = const { Floor::new() };
}

/// A transaction or subtransaction was rolled back: places that it wrote are not to be relied on.
pub fn forget_places() {
    LAST_SEQ.with(Floor::clear);
}

fn scan_from(table: &Table, gid: i64, pid: i64, from: i64, sight: Sight) -> Scan<'_> {
    let keys = [eq(1, Value::Int8(gid)), eq(2, Value::Int8(pid)), cmp(3, Compare::GreaterOrEqual, Value::Int8(from))];
    table.scan(0, &keys, sight)
}

/// Calls `read` with the newest row of (group, partition), uncommitted ones included, and the scan, to go on to older
/// ones. None: there is no row that is committed now, nor was there one in progress when this began.
fn from_newest<T>(table: &Table, gid: i64, pid: i64, mut read: impl FnMut(&mut Scan<'_>, Cursor) -> T) -> Option<T> {
    let known = LAST_SEQ.with(|floor| floor.get((gid, pid)));
    let places = known.into_iter().chain([0]).map(|from| (from, Sight::Everything));
    for (from, sight) in places.chain([(0, Sight::Moment)]) {
        let mut scan = scan_from(table, gid, pid, from, sight);
        if let Some(cursor) = scan.backward().map(|row| from_row(&row)) {
            if scan.in_progress().is_none() {
                LAST_SEQ.with(|floor| floor.set((gid, pid), cursor.seq));
            }
            return Some(read(&mut scan, cursor));
        }
    }
    None
}

/// The newest committed state, for reading.
pub fn newest(tables: &Tables, gid: i64, pid: i64) -> Option<Cursor> {
    let table = tables.cursor().borrow();
    let certain = from_newest(&table, gid, pid, |scan, newest| {
        let mut certain = Some(newest);
        while certain.is_some() && matches!(scan.in_progress(), Some(InProgress::Insert(_))) {
            certain = scan.backward().map(|row| from_row(&row));
        }
        certain
    })?;
    // Whose row was in progress may have committed before the older one was looked at.
    certain.or_else(|| scan_from(&table, gid, pid, 0, Sight::Moment).backward().map(|row| from_row(&row)))
}

/// Whether a cursor exists, and whether any of its possible states (the committed one, and those that transactions in
/// progress may leave) has nothing to do at `tail`: at the end of the lane, and without a lease.
pub fn drained_at(tables: &Tables, gid: i64, pid: i64, tail: i64) -> Option<bool> {
    let drained = |cursor: &Cursor| cursor.lease.is_none() && cursor.committed >= tail;
    from_newest(&tables.cursor().borrow(), gid, pid, |scan, newest| {
        let mut any = drained(&newest);
        // Below a row that is certain nothing counts any more.
        while matches!(scan.in_progress(), Some(InProgress::Insert(_))) {
            match scan.backward().map(|row| from_row(&row)) {
                Some(older) => any |= drained(&older),
                None => break,
            }
        }
        any
    })
}

/// Writes `cursor` as the newest state, in place of the one it was taken from.
pub fn replace(tables: &Tables, cursor: &Cursor) {
    let mut table = tables.cursor().borrow_mut();
    let deliveries = cursor.deliveries.to_bytes();
    let lease = cursor.lease.as_ref();
    table.insert(&[
        Value::Int8(cursor.gid),
        Value::Int8(cursor.pid),
        Value::Int8(cursor.seq + 1),
        Value::Int8(cursor.committed),
        Value::Int4(cursor.retries),
        Value::opt_uuid(lease.map(|l| l.id)),
        Value::opt_int8(lease.map(|l| l.batch_end)),
        Value::opt_time(lease.map(|l| l.expires_at)),
        if deliveries.is_empty() { Value::Null } else { Value::Bytes(&deliveries) },
        Value::opt_time(cursor.failing_since),
        Value::opt_time(cursor.not_before),
    ]);
    match cursor.tid {
        Some(tid) => table.delete(tid),
        None => leave(cursor.gid, cursor.pid),
    }
}

/// Gives the right to create a cursor back, unused or because its row is there now: that is seen before it is committed.
/// A lock for each first contact until the end of the transaction would fill the shared lock table.
pub fn leave(gid: i64, pid: i64) {
    unlock(Creation::Cursor(gid, pid));
}

/// The (group, partition) pairs that carry this lease, or may: [`take`] decides. In the order in which cursors are locked.
pub fn of_lease(tables: &Tables, lease: u128) -> Vec<(i64, i64)> {
    let mut found = pairs(tables, 1, Value::Uuid(lease));
    found.sort_unstable_by_key(|&(gid, pid)| (pid, gid));
    found.dedup();
    found
}

/// The partitions that a group has a cursor for, or that somebody is just making one for or removing.
pub fn of_group(tables: &Tables, gid: i64) -> Vec<i64> {
    let mut found: Vec<i64> = pairs(tables, 0, Value::Int8(gid)).into_iter().map(|(_, pid)| pid).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// (group, partition) of each row with this key, uncommitted ones included.
fn pairs(tables: &Tables, index: usize, key: Value<'_>) -> Vec<(i64, i64)> {
    let table = tables.cursor().borrow();
    let mut found = Vec::new();
    for sight in [Sight::Everything, Sight::Moment] {
        let mut scan = table.scan(index, &[eq(1, key)], sight);
        while let Some(row) = scan.forward() {
            found.push((row.int8(0), row.int8(1)));
        }
    }
    found
}

/// Removes a cursor that was taken.
pub fn remove(tables: &Tables, cursor: &Cursor) {
    if let Some(tid) = cursor.tid {
        tables.cursor().borrow().delete(tid);
    }
}
