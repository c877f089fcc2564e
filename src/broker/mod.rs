//! What the verbs do, on top of the rows: appending, claiming, settling.

pub mod append;
pub mod claim;
pub mod dead;
pub mod discover;
pub mod due;
pub mod lookup;
pub mod pause;
pub mod recent;
pub mod replay;
pub mod seal;
pub mod settle;
