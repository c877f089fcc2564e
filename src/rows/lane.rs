//! Lanes by name, as this backend found them: a queue, its options, and a partition.
//!
//! What changes a queue tells the other backends through the server's relation invalidations, which arrive with the
//! first table that a transaction locks. Partitions go away with their queue only, and locking one notices that.

use crate::error::Result;
use crate::pg::commit;
use crate::pg::relation::{Tables, queue_generation};
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Partitions that a backend remembers at most.
const REMEMBERED: usize = 20_000;

#[derive(Default)]
struct Known {
    generation: u64,
    queues: HashMap<(u128, String), Rc<Queue>>,
    partitions: HashMap<(i64, String), Rc<Partition>>,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

fn with_current<T>(tables: &Tables, f: impl FnOnce(&mut Known) -> T) -> T {
    // Locking a table is what lets invalidations in.
    tables.partition();
    KNOWN.with_borrow_mut(|known| {
        let generation = queue_generation();
        if known.generation != generation || known.partitions.len() > REMEMBERED {
            *known = Known { generation, ..Known::default() };
        }
        f(known)
    })
}

/// The queue of this name, created by a first push.
pub fn queue(tables: &Tables, tenant: u128, name: &str) -> Result<Rc<Queue>> {
    let key = (tenant, name.to_owned());
    if let Some(queue) = with_current(tables, |known| known.queues.get(&key).cloned()) {
        return Ok(queue);
    }
    let certain = commit::nothing_written();
    let queue = Rc::new(queue::find_or_create(tables, tenant, name)?);
    // What this transaction has made itself may yet be undone.
    if certain && commit::nothing_written() {
        with_current(tables, |known| known.queues.insert(key, queue.clone()));
    }
    Ok(queue)
}

/// The partition of this name, if there is one.
pub fn partition(tables: &Tables, qid: i64, name: &str) -> Option<Rc<Partition>> {
    let key = (qid, name.to_owned());
    if let Some(partition) = with_current(tables, |known| known.partitions.get(&key).cloned()) {
        return Some(partition);
    }
    let certain = commit::nothing_written();
    let partition = Rc::new(partition::find(tables, qid, name)?);
    if certain {
        with_current(tables, |known| known.partitions.insert(key, partition.clone()));
    }
    Some(partition)
}

/// Forgets everything: a lane that was remembered is gone.
pub fn forget() {
    KNOWN.with_borrow_mut(|known| *known = Known::default());
}
