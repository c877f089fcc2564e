//! Housekeeping: retention, orphans, counters. Idempotent, and safe anywhere and at any time: it takes no lock that a
//! push, a pop or an ack waits for, even when its transaction stays open.

use crate::broker::claim::start_of;
use crate::broker::lookup;
use crate::error::Result;
use crate::guc;
use crate::pg::call::{Call, jsonb};
use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::Tables;
use crate::pg::{clock, spi};
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::subscription::{self, QUEUE_MODE, Subscription};
use crate::rows::{cursor, dlq_tally, segment, transaction_id};
use pgrx::pg_sys::Datum;
use queen_core::id;
use queen_core::segment::transaction_hash;

/// Segments that one call removes from one partition at most: steps stay bounded, the next call goes on.
const SEGMENTS_AT_ONCE: usize = 10_000;

#[derive(Default)]
struct Done {
    segments: i64,
    messages: i64,
    orphans: i64,
    processed: i64,
}

/// `queen.maintain() → jsonb`: what was done.
pub fn maintain(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    let tenant = guc::tenant()?;
    let mut done = Done::default();
    // One at a time; whoever comes second has nothing to do.
    let alone = lock(Creation::Maintenance, false);
    if alone {
        for queue in queue::of_tenant(&tables, tenant)? {
            retain(&tables, &queue, &mut done)?;
        }
        done.orphans = orphans();
        fold_counters();
        dlq_tally::fold();
        done.processed = forget_processed();
        end_expired_plans();
    }
    let answer = serde_json::json!({
        "segmentsRemoved": done.segments, "messagesRemoved": done.messages, "orphansRemoved": done.orphans,
        "processedForgotten": done.processed, "skipped": !alone,
    });
    Ok(call.value(jsonb(&answer.to_string())))
}

/// Removes whole segments from the front of each partition, as the queue's retention says.
fn retain(tables: &Tables, queue: &Queue, done: &mut Done) -> Result<()> {
    let o = &queue.options;
    let seconds = |n: i32| (n > 0).then(|| clock::now() - i64::from(n) * 1_000_000);
    let age = if o.retention_enabled { seconds(o.retention_seconds) } else { None };
    let completed = if o.retention_enabled { seconds(o.completed_retention_seconds) } else { None };
    let evict = seconds(o.max_wait_time_seconds);
    // Whatever is older than this goes, consumed or not.
    let any = age.into_iter().chain(evict).max();
    if any.is_none() && completed.is_none() {
        return Ok(());
    }
    let groups = subscription::of_queue(tables, queue.qid);
    let mut after = 0;
    loop {
        let page = partition::after(tables, queue.qid, after, 256);
        let Some(last) = page.last() else { return Ok(()) };
        after = last.pid;
        for partition in &page {
            let passed = match completed {
                Some(_) => passed_by_all(tables, &groups, partition)?,
                None => None,
            };
            trim(tables, partition, any, completed.zip(passed), done)?;
        }
    }
}

/// The offset that every group which reads the partition has passed; None when nobody reads it.
fn passed_by_all(tables: &Tables, groups: &[Subscription], partition: &Partition) -> Result<Option<i64>> {
    let mut lowest = None;
    let named = groups.iter().any(|g| g.name != QUEUE_MODE);
    for group in groups {
        let passed = match cursor::newest(tables, group.gid, partition.pid) {
            Some(cursor) => cursor.committed,
            // One that has only named other partitions does not read this one.
            None if !group.registered => continue,
            // Queue mode that was only looked at once, next to named groups, does not hold their log back.
            None if named && group.name == QUEUE_MODE => continue,
            None => start_of(tables, group, partition)?,
        };
        lowest = Some(lowest.map_or(passed, |l: i64| l.min(passed)));
    }
    Ok(lowest)
}

fn trim(
    tables: &Tables,
    partition: &Partition,
    any: Option<i64>,
    completed: Option<(i64, i64)>,
    done: &mut Done,
) -> Result<()> {
    let mut upto = None;
    let mut ends: Vec<i64> = Vec::new();
    segment::heads(tables, partition.pid, |head| {
        let old = any.is_some_and(|t| head.created_at < t)
            || completed.is_some_and(|(t, passed)| head.created_at < t && head.end <= passed);
        if old && ends.len() < SEGMENTS_AT_ONCE {
            ends.push(head.base);
            upto = Some(head.end);
            true
        } else {
            false
        }
    });
    let Some(upto) = upto else { return Ok(()) };
    if !partition::keep(tables, partition) {
        return Ok(());
    }
    for base in ends {
        let Some(stored) = segment::holding(tables, partition.pid, base) else { continue };
        // A damaged segment goes like any other; its ids stay behind and resolve to nothing.
        if let Ok(parsed) = stored.parse() {
            for i in 0..parsed.len() {
                let offset = stored.base + i as i64;
                match (parsed.hash(i).filter(|&h| h != 0), parsed.id(i)) {
                    (Some(hash), _) => transaction_id::delete(tables, partition.pid, hash, offset),
                    (None, Some(message_id)) if !lookup::self_locating(message_id, stored.created_at) => {
                        let hash = transaction_hash(&id::format(message_id));
                        transaction_id::delete(tables, partition.pid, hash, offset);
                    }
                    _ => {}
                }
            }
        }
        done.segments += 1;
        done.messages += stored.frames;
    }
    segment::trim(tables, partition.pid, upto);
    Ok(())
}

/// Rows whose group is gone: a registration that was rolled back next to others. A registration that is still open has
/// hints already, from pushes that saw it.
fn orphans() -> i64 {
    spi::as_owner(|client| {
        let mut n = 0;
        for table in ["ready", "cursor"] {
            let gone = format!(
                "SELECT DISTINCT gid FROM queen.{table} t WHERE NOT EXISTS (SELECT FROM queen.subscription s WHERE s.gid = t.gid)"
            );
            let mut gids = Vec::new();
            for row in client.select(&gone, None, &[])? {
                gids.extend(row["gid"].value::<i64>()?);
            }
            for gid in gids {
                // Tables of their own: what they keep of a scan lives in the memory of this SPI connection.
                if !subscription::is_known(&Tables::default(), gid) {
                    n += client.update(&format!("DELETE FROM queen.{table} WHERE gid = $1"), None, &[gid.into()])?.len();
                }
            }
        }
        Ok::<_, pgrx::spi::Error>(n as i64)
    })
    .unwrap_or_else(|e| pgrx::error!("removing orphans: {e}"))
}

fn fold_counters() {
    spi::as_owner(|client| {
        client
            .update(
                "WITH many AS (SELECT qid FROM queen.dropped_duplicate GROUP BY qid HAVING count(*) > 1), \
                      gone AS (DELETE FROM queen.dropped_duplicate d USING many m WHERE d.qid = m.qid RETURNING d.*) \
                 INSERT INTO queen.dropped_duplicate SELECT qid, sum(pushes) FROM gone GROUP BY qid",
                None,
                &[],
            )
            .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("folding counters: {e}"));
}

/// Messages that `process_once` need not remember any more; a bounded step.
fn forget_processed() -> i64 {
    spi::as_owner(|client| {
        client
            .update(
                "DELETE FROM queen.processed_message m USING (SELECT tenant, consumer, message_id \
                   FROM queen.processed_message WHERE at < now() - make_interval(days => $1) LIMIT 100000) old \
                  WHERE m.tenant = old.tenant AND m.consumer = old.consumer AND m.message_id = old.message_id",
                None,
                &[guc::processed_message_days().into()],
            )
            .map(|done| done.len() as i64)
    })
    .unwrap_or_else(|e| pgrx::error!("forgetting processed messages: {e}"))
}

/// Approvals that are past their time go back to pending.
fn end_expired_plans() {
    spi::as_owner(|client| client.update("SELECT queen.replay_plans_expire(NULL)", None, &[]).map(|_| ()))
        .unwrap_or_else(|e| pgrx::error!("ending expired plans: {e}"));
}
