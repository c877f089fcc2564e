//! One file a table: how its rows are found, written and locked.

pub mod audit;
pub mod cursor;
pub mod dead_letter;
pub mod floor;
pub mod lane;
pub mod partition;
pub mod queue;
pub mod ready;
pub mod segment;
pub mod subscription;
pub mod trace;
pub mod transaction_id;

/// A transaction or subtransaction was rolled back: what this backend remembers of rows that it wrote is forgotten.
pub fn rolled_back() {
    ready::forget_bounds();
    cursor::forget_places();
    segment::forget_places();
}
