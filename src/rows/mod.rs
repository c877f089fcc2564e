//! One file a table: how its rows are found, written and locked.

pub mod cursor;
pub mod dead_letter;
pub mod floor;
pub mod lane;
pub mod partition;
pub mod queue;
pub mod ready;
pub mod segment;
pub mod subscription;
pub mod transaction_id;
