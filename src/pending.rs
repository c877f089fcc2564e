//! Pushes of the running transaction, kept in this backend until it commits. A rollback leaves nothing behind, a rollback
//! to a savepoint drops what came after it, and no lock is held while the transaction goes on.

use crate::broker::append::{Push, When, append, mint};
use crate::error::Result;
use crate::pg::call::nest_level;
use crate::pg::clock;
use crate::pg::relation::Tables;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

/// Ids are reserved for a lane in runs of this many, so that the ids of one transaction's segment are consecutive.
const RUN: u64 = 1 << 20;

#[derive(Default)]
struct Pending {
    pushes: Vec<Push<'static>>,
    /// Nesting level of the transaction, and how many pushes there were before its first.
    levels: Vec<(i32, usize)>,
    /// Next id of each lane, and how many are left of its run.
    runs: HashMap<(u128, String, String), (u128, u64)>,
    /// Explicit transaction ids, also of what is appended already: the how many-th push has it, and its message id.
    explicit: HashMap<(u128, String, String, String), (usize, u128)>,
    /// How many pushes of the transaction are appended already.
    appended: usize,
    /// Lanes without a deduplication window that the transaction has appended to, and its first offset there.
    lanes: HashMap<i64, i64>,
    /// What was pending at each flush inside a savepoint: it is again if that is rolled back.
    flushed: Vec<Flushed>,
}

struct Flushed {
    level: i32,
    pushes: Rc<Vec<Push<'static>>>,
    levels: Vec<(i32, usize)>,
    appended: usize,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// What a transaction has pushed and not yet appended, with an id that another push of it already carries.
pub enum Added {
    Queued(u128),
    Duplicate(u128),
}

/// Keeps a push until the transaction commits. `level` is the nesting level of the running (sub)transaction.
pub fn add(mut push: Push<'static>, level: i32) -> Added {
    PENDING.with_borrow_mut(|p| {
        let lane = (push.tenant, push.queue.to_string(), push.partition.to_string());
        let explicit = push.transaction_id.as_ref().map(|t| (lane.0, lane.1.clone(), lane.2.clone(), t.to_string()));
        if let Some(key) = &explicit
            && let Some(&(_, id)) = p.explicit.get(key)
        {
            return Added::Duplicate(id);
        }
        let run = p.runs.entry(lane).or_default();
        if run.1 == 0 {
            *run = (mint(clock::now(), RUN), RUN);
        }
        let id = run.0;
        *run = (run.0 + 1, run.1 - 1);
        push.id = Some(id);
        if p.levels.last().is_none_or(|&(l, _)| l < level) {
            p.levels.push((level, p.pushes.len()));
        }
        if let Some(key) = explicit {
            p.explicit.insert(key, (p.appended + p.pushes.len(), id));
        }
        p.pushes.push(push);
        Added::Queued(id)
    })
}

pub fn is_empty() -> bool {
    PENDING.with_borrow(|p| p.pushes.is_empty())
}

/// The subtransaction at `level` ended well: its pushes are its parent's now.
pub fn keep(level: i32) {
    PENDING.with_borrow_mut(|p| {
        while let Some(&(l, start)) = p.levels.last()
            && l >= level
        {
            p.levels.pop();
            if p.levels.last().is_none_or(|&(below, _)| below < level - 1) {
                p.levels.push((level - 1, start));
                break;
            }
        }
        for flushed in &mut p.flushed {
            flushed.level = flushed.level.min(level - 1);
        }
        // Only the whole transaction can take these back now.
        p.flushed.retain(|f| f.level > 1);
    });
}

/// The subtransaction at `level` was rolled back: its pushes are forgotten.
pub fn discard(level: i32) {
    PENDING.with_borrow_mut(|p| {
        // What was appended since is rolled back too, and what had been pushed before is pending once more.
        if let Some(first) = p.flushed.iter().position(|f| f.level >= level)
            && let Some(before) = p.flushed.drain(first..).next()
        {
            p.pushes = Rc::try_unwrap(before.pushes).unwrap_or_default();
            p.levels = before.levels;
            p.appended = before.appended;
        }
        while let Some(&(l, start)) = p.levels.last()
            && l >= level
        {
            p.levels.pop();
            p.pushes.truncate(start);
        }
        // Lanes locked since are free again. (Forgetting the others too costs no more than an id of a window of zero.)
        p.lanes.clear();
        let left = p.appended + p.pushes.len();
        p.explicit.retain(|_, &mut (at, _)| at < left);
    });
}

/// Forgets everything.
pub fn clear() {
    PENDING.with_borrow_mut(|p| {
        if !p.pushes.is_empty() || !p.runs.is_empty() || !p.lanes.is_empty() {
            *p = Pending::default();
        }
    });
}

/// The transaction appends to the lane of partition `pid` from `offset` on. Answers where it did so first, if it did: the
/// lane has been its own since.
pub fn appends_to(pid: i64, offset: i64) -> Option<i64> {
    PENDING.with_borrow_mut(|p| match p.lanes.entry(pid) {
        Entry::Occupied(first) => Some(*first.get()),
        Entry::Vacant(none) => {
            none.insert(offset);
            None
        }
    })
}

/// Appends everything that is pending; answers how many messages were stored. Duplicates that turn up only now are
/// dropped and counted: the first push of that id is in the queue.
pub fn append_all(when: When) -> Result<i64> {
    if is_empty() {
        return Ok(0);
    }
    let level = nest_level();
    let pushes = PENDING.with_borrow_mut(|p| {
        let pushes = Rc::new(std::mem::take(&mut p.pushes));
        let levels = std::mem::take(&mut p.levels);
        if level > 1 {
            p.flushed.push(Flushed { level, pushes: pushes.clone(), levels, appended: p.appended });
        }
        p.appended += pushes.len();
        pushes
    });
    let tables = Tables::default();
    let results = append(&tables, &pushes, when)?;
    let mut duplicates: HashMap<(u128, &str), i64> = HashMap::new();
    for (push, result) in pushes.iter().zip(&results) {
        if result.duplicate {
            *duplicates.entry((push.tenant, &push.queue)).or_default() += 1;
        }
    }
    for ((tenant, queue), n) in &duplicates {
        crate::rows::queue::count_duplicates(&tables, *tenant, queue, *n)?;
    }
    Ok(results.iter().filter(|r| !r.duplicate).count() as i64)
}

/// A push that owns its text.
pub fn owned(push: Push<'_>) -> Push<'static> {
    let own = |c: Cow<'_, str>| Cow::Owned(c.into_owned());
    Push {
        tenant: push.tenant,
        queue: own(push.queue),
        partition: own(push.partition),
        payload: own(push.payload),
        transaction_id: push.transaction_id.map(own),
        trace_id: push.trace_id,
        headers: push.headers.map(own),
        producer: push.producer.map(own),
        id: push.id,
    }
}
