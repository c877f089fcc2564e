//! When a pop may find something, without taking anything.

use crate::broker::append::due_at;
use crate::broker::claim::{WINDOW_FULL, start_of};
use crate::error::Result;
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::rows::partition::Partition;
use crate::rows::queue::Queue;
use crate::rows::{cursor, ready, segment, subscription};

/// When a pop may find something: not before this time. None: nothing is known that time alone would bring.
pub type Due = Option<i64>;

/// A pop of any partition of the queue.
pub fn of_group(tables: &Tables, queue: &Queue, group: &str) -> Due {
    match subscription::find(tables, queue.qid, group).filter(|g| g.registered) {
        Some(group) if group.paused => None,
        Some(group) => ready::earliest_of_all(tables, group.gid),
        // It would subscribe, and a group is promised what comes after that.
        None => Some(clock::now()),
    }
}

/// A pop of this partition: the same steps as [`claim`](super::claim::claim), read only.
///
/// # Errors
/// As of reading a subscription's start.
pub fn of_partition(tables: &Tables, queue: &Queue, partition: &Partition, group: &str) -> Result<Due> {
    let now = clock::now();
    let Some(group) = subscription::find(tables, queue.qid, group) else {
        return Ok(holds_any(tables, partition).then_some(now));
    };
    if group.paused {
        return Ok(None);
    }
    let committed = match cursor::newest(tables, group.gid, partition.pid) {
        Some(cursor) => match cursor.busy_until(now) {
            Some(time) => return Ok(Some(time)),
            None => cursor.committed,
        },
        None => start_of(tables, &group, partition)?,
    };
    let from = (committed + 1).max(segment::trimmed(tables, partition.pid) + 1);
    let mut written_at = None;
    segment::walk_heads(tables, partition.pid, from, from, |head, _| {
        written_at = Some(head.created_at);
        Ok(false)
    })?;
    let Some(written_at) = written_at else { return Ok(None) };
    let delay = i64::from(queue.options.delayed_processing) * 1_000_000;
    if delay > 0 && written_at + delay > now {
        return Ok(Some(written_at + delay));
    }
    if queue.options.window_buffer > 0 {
        let waiting = segment::tail(tables, partition.pid, Sight::Committed).offset - committed;
        if waiting < i64::from(WINDOW_FULL) {
            return Ok(Some(due_at(queue, written_at)));
        }
    }
    Ok(Some(now))
}

fn holds_any(tables: &Tables, partition: &Partition) -> bool {
    segment::tail(tables, partition.pid, Sight::Committed).offset > segment::trimmed(tables, partition.pid)
}
