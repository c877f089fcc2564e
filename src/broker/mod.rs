//! What the verbs do, on top of the rows: appending, claiming, settling.

pub mod append;
pub mod claim;
pub mod discover;
pub mod due;
pub mod failure;
pub mod lookup;
pub mod pause;
pub mod recent;
pub mod seal;
pub mod settle;
