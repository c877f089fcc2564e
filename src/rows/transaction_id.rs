//! Where an explicit transaction id is stored: (partition, hash) → offset. A hit is a candidate; the frame decides.

use crate::pg::relation::Tables;
use crate::pg::scan::{Sight, eq};
use crate::pg::value::Value;

/// Offsets whose transaction id has this hash.
pub fn candidates(tables: &Tables, pid: i64, hash: u64) -> Vec<i64> {
    let table = tables.transaction_id().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(pid)), eq(2, Value::Int8(hash as i64))], Sight::Committed);
    let mut found = Vec::new();
    while let Some(row) = scan.forward() {
        found.push(row.int8(2));
    }
    found
}

pub fn insert(tables: &Tables, pid: i64, hash: u64, offset: i64) {
    tables.transaction_id().borrow_mut().insert(&[Value::Int8(pid), Value::Int8(hash as i64), Value::Int8(offset)]);
}

/// Forgets the entry of one offset.
pub fn delete(tables: &Tables, pid: i64, hash: u64, offset: i64) {
    let table = tables.transaction_id().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(pid)), eq(2, Value::Int8(hash as i64))], Sight::Committed);
    let mut found = Vec::new();
    while let Some(row) = scan.forward() {
        if row.int8(2) == offset {
            found.push(row.tid);
        }
    }
    drop(scan);
    for tid in found {
        table.delete(tid);
    }
}
