//! Hints where a group may find something, in order of time.
//!
//! Under an old snapshot the rows that were used up stay in the index for everybody. Each backend therefore remembers,
//! for each group, a time below which it found nothing: later hints are never due earlier than they were written. Now
//! and then it looks from the beginning all the same, so that a clock that was set back cannot hide a hint for good.

use crate::pg::clock;
use crate::pg::relation::{Tables, Tid};
use crate::pg::scan::{Compare, InProgress, Sight, cmp, eq};
use crate::pg::value::Value;
use std::cell::RefCell;
use std::collections::HashMap;

/// A hint may be written up to this long after the time it carries, in microseconds.
const SLACK: i64 = 100_000;
/// How often a backend looks from the beginning at least, in microseconds; or, when that is slow, so that it takes at
/// most a twentieth of the time.
const LOOK_BACK: i64 = 1_000_000;

#[derive(Clone, Copy, Default)]
struct Bound {
    from: i64,
    look_back_at: i64,
}

/// A reading of a group's hints, from where they can be on.
struct Reading {
    gid: i64,
    started: i64,
    /// The time to read from.
    from: i64,
    bound: Bound,
}

impl Reading {
    fn begin(gid: i64) -> Reading {
        let started = clock::now();
        let bound = BOUNDS.with_borrow(|b| b.get(&gid).copied().unwrap_or_default());
        let from = if started >= bound.look_back_at { i64::MIN } else { bound.from };
        Reading { gid, started, from, bound }
    }

    /// Remembers the lowest time at which a hint is or may come to be.
    fn end(self, lowest: i64) {
        let ended = clock::now();
        let look_back_at = match self.from {
            i64::MIN => ended + LOOK_BACK.max((ended - self.started) * 20),
            _ => self.bound.look_back_at,
        };
        BOUNDS.with_borrow_mut(|b| {
            if b.len() > 10_000 {
                b.clear();
            }
            b.insert(self.gid, Bound { from: lowest, look_back_at });
        });
    }
}

/// A look at all hints of a group is slow from here on, in microseconds.
const SLOW: i64 = 500;
/// How far ahead it is looked where that is slow, in microseconds.
const NEARBY: i64 = 1_000_000;

thread_local! {
    static BOUNDS: RefCell<HashMap<i64, Bound>> = RefCell::default();
    /// Groups where it was slow last: until when a backend does not look at all hints again.
    static FAR: RefCell<HashMap<i64, i64>> = RefCell::default();
}

/// Forgets these times: hints that the transaction had used up are there again once it is rolled back.
pub fn forget_bounds() {
    BOUNDS.with_borrow_mut(HashMap::clear);
}

#[derive(Clone, Copy)]
pub struct Hint {
    pub tid: Tid,
    pub due_at: i64,
    /// The partition, or -1 - the key after which a sweep goes on.
    pub pid: i64,
}

impl Hint {
    /// The partition key after which a sweep goes on, for a sweep.
    pub fn sweep_after(&self) -> Option<i64> {
        (self.pid < 0).then(|| -1 - self.pid)
    }
}

/// Writes a hint that is not due before now.
pub fn insert(tables: &Tables, gid: i64, due_at: i64, pid: i64) {
    let mut table = tables.ready().borrow_mut();
    let mut due_at = due_at;
    loop {
        table.insert(&[Value::Int8(gid), Value::Time(due_at), Value::Int8(pid)]);
        // A reader may have passed this place meanwhile: then its bound is above, and the hint is written again.
        let now = clock::now();
        if now <= due_at.saturating_add(SLACK / 2) {
            break;
        }
        due_at = now;
    }
}

/// Asks the group to look at the partitions of the queue with keys above `after`.
pub fn insert_sweep(tables: &Tables, gid: i64, after: i64) {
    insert(tables, gid, clock::now(), -1 - after);
}

/// Removes the hint of exactly this time, if it is there and nobody else is about to.
pub fn delete_exact(tables: &Tables, gid: i64, due_at: i64, pid: i64) {
    let table = tables.ready().borrow();
    let keys = [eq(1, Value::Int8(gid)), eq(2, Value::Time(due_at)), eq(3, Value::Int8(pid))];
    let mut found = Vec::new();
    {
        let mut scan = table.scan(0, &keys, Sight::Everything);
        while let Some(tid) = scan.forward().map(|row| row.tid) {
            if scan.in_progress().is_none() {
                found.push(tid);
            }
        }
    }
    for tid in found {
        take(&table, tid);
    }
}

fn take(table: &crate::pg::relation::Table, tid: Tid) -> bool {
    use crate::pg::relation::Lock;
    let held = table.lock(tid, true, false) == Lock::Held;
    if held {
        table.delete(tid);
    }
    held
}

/// Removes a hint. False: somebody else has it.
pub fn delete(tables: &Tables, hint: &Hint) -> bool {
    take(&tables.ready().borrow(), hint.tid)
}

/// Offers the due hints of a group in order of time until `visit` has enough (answers false). Hints that somebody is just
/// writing or using up are passed over, but for sweeps: those are offered with `true`, to be followed but not changed.
pub fn each_due<E>(
    tables: &Tables,
    gid: i64,
    now: i64,
    mut visit: impl FnMut(&Hint, bool) -> Result<bool, E>,
) -> Result<(), E> {
    let mut limit = 8;
    let reading = Reading::begin(gid);
    let mut from = (reading.from, i64::MIN);
    // The lowest time at which a hint is or may come to be.
    let mut lowest = reading.started - SLACK;
    let mut enough = false;
    while !enough {
        let mut page: Vec<(Hint, bool)> = Vec::with_capacity(limit);
        {
            let table = tables.ready().borrow();
            let keys = [
                eq(1, Value::Int8(gid)),
                cmp(2, Compare::GreaterOrEqual, Value::Time(from.0)),
                cmp(2, Compare::LessOrEqual, Value::Time(now)),
            ];
            let mut scan = table.scan(0, &keys, Sight::Everything);
            while page.len() < limit {
                let Some(hint) = scan.forward().map(|row| Hint { tid: row.tid, due_at: row.int8(1), pid: row.int8(2) })
                else {
                    break;
                };
                if (hint.due_at, hint.pid) > from || from.1 == i64::MIN {
                    page.push((hint, scan.in_progress().is_some()));
                }
            }
        }
        let Some((last, _)) = page.last() else { break };
        from = (last.due_at, last.pid);
        lowest = lowest.min(page[0].0.due_at);
        let short = page.len() < limit;
        limit = 64;
        for (hint, in_progress) in page {
            if (!in_progress || hint.pid < 0) && !visit(&hint, in_progress)? {
                enough = true;
                break;
            }
        }
        if short {
            break;
        }
    }
    reading.end(lowest);
    Ok(())
}

/// When the earliest hint is due at all.
///
/// Where that was slow twice in a row, a backend looks no further than [`NEARBY`] for twenty times as long, and answers
/// the end of that for a time before which nothing is due.
pub fn earliest_of_all(tables: &Tables, gid: i64) -> Option<i64> {
    let begun = clock::now();
    if begun < FAR.with_borrow(|f| f.get(&gid).copied().unwrap_or_default()) {
        let upto = begun + NEARBY;
        return earliest(tables, gid, upto).or(Some(upto));
    }
    let found = earliest(tables, gid, i64::MAX);
    let ended = clock::now();
    FAR.with_borrow_mut(|f| {
        if ended - begun <= SLOW {
            f.remove(&gid);
        } else if let Some(until) = f.get_mut(&gid) {
            *until = ended + (ended - begun) * 20;
        } else {
            // Once is no reason: the backend may not have run all the while.
            f.insert(gid, ended);
        }
    });
    found
}

/// When the earliest hint is due, if one is due until `upto`.
///
/// Later ones are not looked for here: under an old snapshot those of all leases that have ended are still in the way.
pub fn earliest(tables: &Tables, gid: i64, upto: i64) -> Option<i64> {
    let reading = Reading::begin(gid);
    let mut lowest = reading.started - SLACK;
    let mut found = None;
    {
        let table = tables.ready().borrow();
        let keys = [
            eq(1, Value::Int8(gid)),
            cmp(2, Compare::GreaterOrEqual, Value::Time(reading.from)),
            cmp(2, Compare::LessOrEqual, Value::Time(upto)),
        ];
        let mut scan = table.scan(0, &keys, Sight::Everything);
        while let Some(due_at) = scan.forward().map(|row| row.int8(1)) {
            lowest = lowest.min(due_at);
            // One that is not committed yet says nothing, but may in a moment.
            if !matches!(scan.in_progress(), Some(InProgress::Insert(_))) {
                found = Some(due_at);
                break;
            }
        }
    }
    reading.end(lowest);
    found
}
