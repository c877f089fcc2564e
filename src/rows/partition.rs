//! Partitions: the lanes of a queue.

use crate::pg::clock;
use crate::pg::creation_lock::{Creation, lock, share, unlock};
use crate::pg::relation::{Lock, Row, Tables, Tid, next_value};
use crate::pg::scan::{Compare, InProgress, Sight, cmp, eq};
use crate::pg::value::Value;

#[derive(Clone)]
pub struct Partition {
    pub pid: i64,
    pub qid: i64,
    pub name: String,
    pub id: u128,
    pub created_at: i64,
    pub tid: Tid,
}

fn from_row(row: &Row<'_>) -> Partition {
    Partition {
        pid: row.int8(0),
        qid: row.int8(1),
        name: row.text(2).to_owned(),
        id: row.uuid(3),
        created_at: row.int8(4),
        tid: row.tid,
    }
}

pub fn find(tables: &Tables, qid: i64, name: &str) -> Option<Partition> {
    let table = tables.partition().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(qid)), eq(2, Value::Text(name))], Sight::Committed);
    scan.forward().map(|row| from_row(&row))
}

pub fn by_pid(tables: &Tables, pid: i64) -> Option<Partition> {
    let table = tables.partition().borrow();
    let mut scan = table.scan(1, &[eq(1, Value::Int8(pid))], Sight::Committed);
    scan.forward().map(|row| from_row(&row))
}

/// By its public id.
pub fn by_id(tables: &Tables, id: u128) -> Option<Partition> {
    let table = tables.partition().borrow();
    let mut scan = table.scan(2, &[eq(1, Value::Uuid(id))], Sight::Committed);
    scan.forward().map(|row| from_row(&row))
}

/// Up to `limit` partitions of a queue with keys above `after`, in order of creation.
pub fn after(tables: &Tables, qid: i64, after: i64, limit: usize) -> Vec<Partition> {
    page(tables, qid, after, limit, Sight::Committed).into_iter().map(|(partition, _)| partition).collect()
}

/// As [`after`], with those that are just being created (true).
pub fn after_unfinished(tables: &Tables, qid: i64, after: i64, limit: usize) -> Vec<(Partition, bool)> {
    page(tables, qid, after, limit, Sight::Everything)
}

fn page(tables: &Tables, qid: i64, after: i64, limit: usize, sight: Sight) -> Vec<(Partition, bool)> {
    let table = tables.partition().borrow();
    let keys = [eq(1, Value::Int8(qid)), cmp(2, Compare::Greater, Value::Int8(after))];
    let mut scan = table.scan(3, &keys, sight);
    let mut found = Vec::new();
    while found.len() < limit {
        let Some(partition) = scan.forward().map(|row| from_row(&row)) else { break };
        found.push((partition, matches!(scan.in_progress(), Some(InProgress::Insert(_)))));
    }
    found
}

/// Whether there is a partition with this key, or one that is just being created.
pub fn is_known(tables: &Tables, pid: i64) -> bool {
    let table = tables.partition().borrow();
    let mut scan = table.scan(1, &[eq(1, Value::Int8(pid))], Sight::Everything);
    scan.forward().is_some()
}

/// Keeps everybody from creating partitions of this queue until the transaction ends; waits for who has.
pub fn prevent_creation(qid: i64) {
    lock(Creation::Partitions(qid), true);
}

/// Keeps the queue from being dropped until the transaction ends. Others create partitions next to this one.
pub fn announce_creation(qid: i64) {
    share(Creation::Partitions(qid));
}

/// The partition of this name; created when there is none. Waits for who is just creating it. The caller has called
/// [`announce_creation`].
///
/// Invariant: rows of a queue are inserted in the order of their keys, committed in any. A sweep goes by keys and sees
/// uncommitted rows: none can come up behind it.
pub fn find_or_create(tables: &Tables, qid: i64, name: &str) -> Partition {
    loop {
        lock(Creation::PartitionKey(qid), true);
        let found = {
            let table = tables.partition().borrow();
            let mut scan = table.scan(0, &[eq(1, Value::Int8(qid)), eq(2, Value::Text(name))], Sight::Everything);
            scan.forward().map(|row| from_row(&row)).map(|partition| (partition, scan.in_progress()))
        };
        let partition = match found {
            Some((_, Some(other))) => Err(other),
            Some((partition, None)) => Ok(partition),
            None => Ok(create(tables, qid, name)),
        };
        unlock(Creation::PartitionKey(qid));
        match partition {
            Ok(partition) => return partition,
            Err(other) => other.wait(),
        }
    }
}

fn create(tables: &Tables, qid: i64, name: &str) -> Partition {
    let pid = next_value(c"partition_pid_seq");
    let id = uuid::Uuid::new_v4().as_u128();
    let created_at = clock::now();
    let tid = tables.partition().borrow_mut().insert(&[
        Value::Int8(pid),
        Value::Int8(qid),
        Value::Text(name),
        Value::Uuid(id),
        Value::Time(created_at),
    ]);
    Partition { pid, qid, name: name.to_owned(), id, created_at, tid }
}

/// Tries to make this transaction the only one that appends to the partition until it ends.
pub fn try_lock_for_append(tables: &Tables, partition: &Partition) -> Lock {
    tables.partition().borrow().lock_key(partition.tid, partition.pid, true, false)
}

/// As [`try_lock_for_append`], but waits for whoever appends. False: the partition is gone.
pub fn lock_for_append(tables: &Tables, partition: &Partition) -> bool {
    tables.partition().borrow().lock_key(partition.tid, partition.pid, true, true) == Lock::Held
}

/// Keeps the partition from being dropped until the transaction ends; pushes are not in the way. False: it is gone, or
/// somebody is about to drop it.
pub fn keep(tables: &Tables, partition: &Partition) -> bool {
    tables.partition().borrow().lock_key(partition.tid, partition.pid, false, false) == Lock::Held
}
