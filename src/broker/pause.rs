//! Pausing a group in a queue: its pops bring nothing and charge nothing, until somebody resumes it.

use crate::pg::commit;
use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::Tables;
use crate::rows::queue::Queue;
use crate::rows::subscription::{self, Subscription};
use crate::rows::{audit, dead_letter};
use serde_json::json;

/// Bytes of a reason that are kept.
const REASON_BYTES: usize = 500;

/// Pauses a group for somebody. False: there is no such group, or it is paused already. The caller holds
/// [`subscription::lock_creation`].
pub fn pause(tables: &Tables, queue: &Queue, group: &Subscription, reason: Option<&str>) -> bool {
    let reason = reason.map(|reason| cut(reason).to_owned());
    let changed = subscription::pause(tables, group.gid, reason.as_deref());
    if changed {
        commit::settled();
        // Who waits looks again, and sleeps.
        commit::wake(queue.qid);
        audit::write("pause_group", &queue.name, &json!({"consumerGroup": group.name, "reason": reason}));
    }
    changed
}

/// Lets a group go on. False: it is not paused. The caller holds [`subscription::lock_creation`].
pub fn resume(tables: &Tables, queue: &Queue, group: &Subscription) -> bool {
    let changed = subscription::resume(tables, group.gid);
    if changed {
        commit::settled();
        commit::wake(queue.qid);
        audit::write("resume_group", &queue.name, &json!({"consumerGroup": group.name}));
    }
    changed
}

fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// Filing a dead letter of a group that pauses itself when too many of one cause come.
pub struct Counted<'a> {
    queue: &'a Queue,
    group: &'a Subscription,
}

impl<'a> Counted<'a> {
    /// Before the dead letter is filed; None where nothing is counted. Two sessions that file at the same time would each
    /// count without the other's: so they take turns, until the end of the transaction.
    pub fn begin(queue: &'a Queue, group: &'a Subscription) -> Option<Counted<'a>> {
        if queue.options.auto_pause_count <= 0 {
            return None;
        }
        lock(Creation::Count(group.gid), true);
        Some(Counted { queue, group })
    }

    /// The dead letter of this message is filed: pauses the group if it is the last straw.
    pub fn filed(self, tables: &Tables, partition_id: u128, offset: i64, now: i64) {
        let Some(resumed_at) = subscription::counts_since(tables, self.group.gid) else { return };
        let options = &self.queue.options;
        let window = now.saturating_sub(i64::from(options.auto_pause_seconds) * 1_000_000);
        let since = resumed_at.map_or(window, |at| at.max(window));
        let Some(same) = dead_letter::same_cause(
            self.queue,
            &self.group.name,
            partition_id,
            offset,
            since,
            options.auto_pause_count,
        ) else {
            return;
        };
        if same.count < i64::from(options.auto_pause_count) {
            return;
        }
        let reason = format!("{} dead letters with fingerprint {}", same.count, same.fingerprint);
        if subscription::pause(tables, self.group.gid, Some(&reason)) {
            commit::settled();
            commit::wake(self.queue.qid);
            audit::write_as(
                "queen",
                "auto_pause",
                &self.queue.name,
                &json!({"consumerGroup": self.group.name, "fingerprint": same.fingerprint, "count": same.count,
                        "seconds": options.auto_pause_seconds, "reason": reason}),
            );
        }
    }
}
