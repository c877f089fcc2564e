//! Two sessions against each other: every pair of verbs, permuted, observed through locks and not through sleeps.

mod along;
mod crowd;
mod databases;
mod dedup;
mod drained;
mod outbox;
mod pairs;
mod prepared;
mod registration;
mod reviewed;
mod sweep;
mod wait;
