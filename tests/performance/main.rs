//! Costs as ratios of two measurements of one run, so that they hold on any machine. `-- --nocapture` shows them.

mod backlog;
mod dead_letters;
mod dedup;
mod maintain;
mod partitions;
mod poison;
mod read;
mod snapshot;
mod support;
mod wait;
