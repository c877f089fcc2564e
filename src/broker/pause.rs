//! Pausing a group in a queue: its pops bring nothing and charge nothing, until somebody resumes it.

use crate::pg::commit;
use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::Tables;
use crate::rows::audit;
use crate::rows::dead_letter::{self, Cause, Record};
use crate::rows::queue::Queue;
use crate::rows::ready;
use crate::rows::subscription::{self, Subscription};
use serde_json::json;
use std::cell::RefCell;

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
        audit::note("group_paused", None, Some(&queue.name), &json!({"consumerGroup": group.name, "reason": reason}));
    }
    changed
}

/// Lets a group go on. False: it is not paused. The caller holds [`subscription::lock_creation`].
pub fn resume(tables: &Tables, queue: &Queue, group: &Subscription) -> bool {
    let changed = subscription::resume(tables, group.gid);
    if changed {
        // An append may have missed the group while its row was replaced.
        if group.registered {
            ready::insert_sweep(tables, group.gid, 0);
        }
        commit::settled();
        commit::wake(queue.qid);
        audit::note("group_resumed", None, Some(&queue.name), &json!({"consumerGroup": group.name}));
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

/// A dead letter that may be the last straw for its group.
struct Straw {
    queue: Queue,
    group: Subscription,
    cause: Cause,
}

thread_local! {
    static STRAWS: RefCell<Vec<Straw>> = const { RefCell::new(Vec::new()) };
}

/// A dead letter is filed: where the queue's groups pause themselves, it is counted when the transaction commits.
pub fn note(queue: &Queue, group: &Subscription, record: Record) {
    if queue.options.auto_pause_count > 0 {
        let straw = Straw { queue: queue.clone(), group: group.clone(), cause: Cause::of(record) };
        STRAWS.with_borrow_mut(|straws| straws.push(straw));
    }
}

/// Whether the transaction has filed what is to be counted.
pub fn is_noted() -> bool {
    STRAWS.with_borrow(|straws| !straws.is_empty())
}

/// The transaction has ended.
pub fn forget() {
    STRAWS.with_borrow_mut(Vec::clear);
}

/// Pauses the groups that have filed too many dead letters of one cause; called when the transaction is about to commit.
///
/// Two sessions that file at the same time would each count without the other's, so they take turns from here to the end
/// of their transactions. Not from the filing on: whoever settles several partitions takes further cursors after it, and
/// might wait for somebody who has one and waits for its turn.
pub fn count(tables: &Tables) {
    let mut straws = STRAWS.with_borrow_mut(std::mem::take);
    straws.sort_by_key(|straw| straw.group.gid);
    for of_group in straws.chunk_by(|a, b| a.group.gid == b.group.gid) {
        lock(Creation::Count(of_group[0].group.gid), true);
    }
    for straw in &straws {
        straw.count(tables);
    }
}

impl Straw {
    fn count(&self, tables: &Tables) {
        // Paused already, or dropped.
        let Some(resumed_at) = subscription::counts_since(tables, self.group.gid) else { return };
        let (queue, options) = (&self.queue, &self.queue.options);
        let window = self.cause.failed_at.saturating_sub(i64::from(options.auto_pause_seconds) * 1_000_000);
        let since = resumed_at.map_or(window, |at| at.max(window));
        let enough = options.auto_pause_count;
        // 0: filed in a savepoint that was rolled back.
        let count = dead_letter::count_cause(&self.cause, since, enough);
        if count < i64::from(enough) {
            return;
        }
        let fingerprint = &self.cause.fingerprint;
        let reason = format!("{count} dead letters with fingerprint {fingerprint}");
        if subscription::pause(tables, self.group.gid, Some(&reason)) {
            commit::settled();
            commit::wake(queue.qid);
            audit::note_own(
                "group_auto_paused",
                &queue.name,
                &json!({"consumerGroup": self.group.name, "fingerprint": fingerprint, "count": count,
                        "seconds": options.auto_pause_seconds, "reason": reason}),
            );
        }
    }
}
