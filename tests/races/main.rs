//! Two sessions against each other: every pair of verbs, permuted, observed through locks and not through sleeps.

mod along;
mod broken;
mod cancelled;
mod changes;
mod conflation;
mod creation;
mod crowd;
mod databases;
mod dedup;
mod drained;
mod drops;
mod hints;
mod lock_order;
mod outbox;
mod pairs;
mod pause;
mod prepared;
mod registration;
mod replaced;
mod reviewed;
mod sweep;
mod verify;
mod wait;
