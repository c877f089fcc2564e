//! Queues: (tenant, name) and their options.

use crate::error::Result;
use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::{Row, Tables, next_value, queues_changed};
use crate::pg::scan::{Sight, eq};
use crate::pg::value::Value;
use crate::pg::{clock, commit, spi};
use queen_core::options::{Mode, QueueOptions};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Clone)]
pub struct Queue {
    pub qid: i64,
    pub tenant: u128,
    pub name: String,
    pub options: Rc<QueueOptions>,
}

/// How long [`find_recent`] may answer from memory, in microseconds.
const RECENT: i64 = 1_000_000;

/// A queue and when it was read; or that there was none.
type Seen = (u128, String, i64, Option<Queue>);

thread_local! {
    // The queue that was looked at last.
    static LAST: RefCell<Option<Seen>> = const { RefCell::new(None) };
    // Parsed options by their text. Equal text means equal options, so nothing is ever stale.
    static PARSED: RefCell<HashMap<String, Rc<QueueOptions>>> = RefCell::default();
}

fn parse(text: &str) -> Result<Rc<QueueOptions>> {
    PARSED.with_borrow_mut(|parsed| {
        if let Some(options) = parsed.get(text) {
            return Ok(options.clone());
        }
        if parsed.len() >= 1000 {
            parsed.clear();
        }
        let options = Rc::new(QueueOptions::configured_default().merge(text, Mode::Replace)?);
        parsed.insert(text.to_owned(), options.clone());
        Ok(options)
    })
}

fn from_row(row: &Row<'_>) -> Result<Queue> {
    Ok(Queue { qid: row.int8(0), tenant: row.uuid(1), name: row.text(2).to_owned(), options: parse(row.text(4))? })
}

/// The queue of this name, if there is one.
pub fn find(tables: &Tables, tenant: u128, name: &str) -> Result<Option<Queue>> {
    let table = tables.queue().borrow();
    table.find(0, &[eq(1, Value::Uuid(tenant)), eq(2, Value::Text(name))], from_row).transpose()
}

/// The queue of this name as it was within the last second, when `recent` will do: for checks that are made again when
/// it counts.
pub fn find_recent(tables: &Tables, tenant: u128, name: &str, recent: bool) -> Result<Option<Queue>> {
    if !recent {
        return find(tables, tenant, name);
    }
    let now = clock::now();
    let known = LAST.with_borrow(|last| match last {
        Some((t, n, at, queue)) if *t == tenant && n == name && (0..RECENT).contains(&(now - at)) => {
            Some(queue.clone())
        }
        _ => None,
    });
    if let Some(queue) = known {
        return Ok(queue);
    }
    let queue = find(tables, tenant, name)?;
    LAST.set(Some((tenant, name.to_owned(), now, queue.clone())));
    Ok(queue)
}

/// The queue with this key.
pub fn by_qid(tables: &Tables, qid: i64) -> Result<Option<Queue>> {
    let table = tables.queue().borrow();
    table.find(1, &[eq(1, Value::Int8(qid))], from_row).transpose()
}

/// Tenant and name of the queue with this key.
pub fn name_of(tables: &Tables, qid: i64) -> Option<(u128, String)> {
    let table = tables.queue().borrow();
    table.find(1, &[eq(1, Value::Int8(qid))], |row| (row.uuid(1), row.text(2).to_owned()))
}

/// Keeps everybody else from creating or dropping this queue until the transaction ends.
pub fn lock_name(tenant: u128, name: &str) {
    let hash = queen_core::segment::transaction_hash(name) ^ (tenant as u64) ^ ((tenant >> 64) as u64);
    lock(Creation::Queue(hash), true);
}

/// The queue of this name; created with the options of a first push or pop when there is none.
pub fn find_or_create(tables: &Tables, tenant: u128, name: &str) -> Result<Queue> {
    match find(tables, tenant, name)? {
        Some(queue) => Ok(queue),
        None => {
            lock_name(tenant, name);
            match find(tables, tenant, name)? {
                Some(queue) => Ok(queue),
                None => create(tables, tenant, name, QueueOptions::pushed_default(name)),
            }
        }
    }
}

/// Creates a queue. The caller holds [`lock_name`] and has looked.
pub fn create(tables: &Tables, tenant: u128, name: &str, options: QueueOptions) -> Result<Queue> {
    commit::settled();
    let qid = next_value(c"queue_qid_seq");
    tables.queue().borrow_mut().insert(&[
        Value::Int8(qid),
        Value::Uuid(tenant),
        Value::Text(name),
        Value::Time(clock::now()),
        Value::Text(&options.to_json()),
    ]);
    Ok(Queue { qid, tenant, name: name.to_owned(), options: Rc::new(options) })
}

/// Replaces the options of a queue.
pub fn set_options(qid: i64, options: &QueueOptions) {
    queues_changed();
    let text = options.to_json();
    spi::as_owner(|client| {
        client
            .update("UPDATE queen.queue SET options = $2 WHERE qid = $1", None, &[qid.into(), text.as_str().into()])
            .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("updating queue options: {e}"));
}

/// Counts pushes that were found to be duplicates only when their transaction committed.
pub fn count_duplicates(tables: &Tables, tenant: u128, name: &str, pushes: i64) -> Result<()> {
    if let Some(queue) = find(tables, tenant, name)? {
        tables.dropped_duplicate().borrow_mut().insert(&[Value::Int8(queue.qid), Value::Int8(pushes)]);
    }
    Ok(())
}

/// Every queue of a tenant, by name.
pub fn of_tenant(tables: &Tables, tenant: u128) -> Result<Vec<Queue>> {
    let table = tables.queue().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Uuid(tenant))], Sight::Moment);
    let mut found = Vec::new();
    while let Some(row) = scan.forward() {
        found.push(from_row(&row)?);
    }
    Ok(found)
}
