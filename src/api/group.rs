//! Consumer groups: seek and drop.

use crate::api::arguments;
use crate::broker::settle::write;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, null_argument};
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::pg::spi;
use crate::pg::value::Value;
use crate::pg::{clock, commit};
use crate::rows::cursor::{self, Cursor, Taken};
use crate::rows::partition::{self, Partition};
use crate::rows::subscription::{self, Start, Subscription};
use crate::rows::{queue, ready, segment};
use pgrx::pg_sys::Datum;
use queen_core::ack::Deliveries;
use queen_core::names;

/// Where a seek goes.
#[derive(Clone, Copy)]
enum Target {
    End,
    Time(i64),
}

/// `queen.seek(queue, consumer_group, to_end, to_timestamp, partition) → bigint`: cursors set.
///
/// Sets the cursor of every partition (or of one), ends leases, and forgets retries and deliveries. Cursors are taken
/// in order of partition.
pub fn seek(call: &Call) -> Result<Datum> {
    let queue_name = arguments::queue(call, 0)?;
    let group_name = arguments::group(call, 1)?;
    let target = match (call.bool(2).unwrap_or(false), call.int8(3)) {
        (true, None) => Target::End,
        (false, Some(time)) => Target::Time(time),
        (true, Some(_)) => {
            return Err(error(ErrorKind::SeekTarget, "seek wants to_end => true or to_timestamp, not both"));
        }
        (false, None) => {
            return Err(error(ErrorKind::SeekTarget, "seek wants a target: to_end => true or to_timestamp"));
        }
    };
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let Some(queue) = queue::find(&tables, tenant, queue_name)? else {
        return Err(error(ErrorKind::QueueNotFound, format!("there is no queue \"{}\"", names::cut(queue_name, 64))));
    };
    let one = match call.text(4)? {
        None => None,
        Some(name) => match partition::find(&tables, queue.qid, name) {
            Some(partition) => Some(partition),
            None => {
                return Err(error(
                    ErrorKind::PartitionNotFound,
                    format!("queue \"{}\" has no partition \"{}\"", names::cut(queue_name, 64), names::cut(name, 64)),
                ));
            }
        },
    };
    let group = match subscription::find(&tables, queue.qid, group_name) {
        Some(group) => group,
        None => {
            subscription::lock_creation(queue.qid);
            let start = match target {
                Target::End => Start::New,
                Target::Time(i64::MIN) => Start::All,
                Target::Time(time) => Start::At(time),
            };
            subscription::find(&tables, queue.qid, group_name)
                .unwrap_or_else(|| subscription::create(&tables, queue.qid, group_name, one.is_none(), start, false))
        }
    };
    let mut moved = 0;
    match one {
        Some(partition) => {
            set(&tables, &group, &partition, target);
            moved = 1;
        }
        None => {
            let mut after = 0;
            loop {
                let page = partition::after_unfinished(&tables, queue.qid, after, 256);
                let Some((last, _)) = page.last() else { break };
                after = last.pid;
                for (partition, unfinished) in &page {
                    if *unfinished {
                        // Whoever creates it may not have seen the group, and then hints nobody.
                        if group.registered {
                            ready::insert(&tables, group.gid, clock::now(), partition.pid);
                        }
                        continue;
                    }
                    set(&tables, &group, partition, target);
                    moved += 1;
                }
            }
        }
    }
    commit::settled();
    commit::wake(queue.qid);
    Ok(call.value(Value::Int8(moved)))
}

fn set(tables: &Tables, group: &Subscription, partition: &Partition, target: Target) {
    let before = match cursor::take(tables, group.gid, partition.pid, true) {
        Taken::Held(cursor) => *cursor,
        Taken::Missing | Taken::Busy => Cursor::initial(group.gid, partition.pid, -1),
    };
    let trimmed = segment::trimmed(tables, partition.pid);
    let end = segment::tail(tables, partition.pid, Sight::Committed).offset;
    let committed = match target {
        Target::End => end,
        Target::Time(time) => {
            segment::first_since(tables, partition.pid, time).map_or(end, |base| base - 1).max(trimmed)
        }
    };
    let mut after = before.clone();
    after.committed = committed;
    after.lease = None;
    after.retries = 0;
    after.failing_since = None;
    after.not_before = None;
    after.deliveries = Deliveries::default();
    write(tables, &before, &after, group);
    if before.hinted_at().is_none()
        && group.registered
        && segment::tail(tables, partition.pid, Sight::Everything).offset > committed
    {
        ready::insert(tables, group.gid, clock::now(), partition.pid);
    }
}

/// `queen.set_subscription(consumer_group, start_at) → bigint`: subscriptions changed.
pub fn set_subscription(call: &Call) -> Result<Datum> {
    let group_name = call.required_text(0, "consumer_group")?;
    names::check_group(group_name)?;
    let start_at = call.int8(1).ok_or_else(|| null_argument("start_at"))?;
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let mut changed = 0;
    for queue in queue::of_tenant(&tables, tenant)? {
        if subscription::find(&tables, queue.qid, group_name).is_none() {
            continue;
        }
        subscription::lock_creation(queue.qid);
        let Some(group) = subscription::find(&tables, queue.qid, group_name) else { continue };
        if !subscription::set_start(&tables, group.gid, start_at) {
            continue;
        }
        // What lies behind the new start has never been hinted at.
        if group.registered {
            ready::insert_sweep(&tables, group.gid, 0);
        }
        commit::settled();
        commit::wake(queue.qid);
        changed += 1;
    }
    Ok(call.value(Value::Int8(changed)))
}

/// `queen.drop_consumer_group(consumer_group, queue, delete_metadata) → bigint`: cursors removed.
///
/// Without `delete_metadata` the subscription stays: the group starts again where it would have started.
pub fn drop_consumer_group(call: &Call) -> Result<Datum> {
    let group_name = call.required_text(0, "consumer_group")?;
    names::check_group(group_name)?;
    let only = call.text(1)?;
    let delete_metadata = call.bool(2).unwrap_or(true);
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let mut groups = Vec::new();
    for queue in queue::of_tenant(&tables, tenant)? {
        if only.is_some_and(|name| name != queue.name) || subscription::find(&tables, queue.qid, group_name).is_none() {
            continue;
        }
        subscription::lock_creation(queue.qid);
        groups.extend(subscription::find(&tables, queue.qid, group_name));
    }
    let removed = remove_cursors(&tables, &groups);
    for group in &groups {
        spi::as_owner(|client| {
            client.update("DELETE FROM queen.ready WHERE gid = $1", None, &[group.gid.into()]).map(|_| ())
        })
        .unwrap_or_else(|e| pgrx::error!("dropping a consumer group: {e}"));
        // Whoever pops for it next begins again.
        commit::wake(group.qid);
        if delete_metadata {
            subscription::remove(&tables, group);
        } else if group.registered {
            ready::insert_sweep(&tables, group.gid, 0);
        }
        commit::settled();
    }
    Ok(call.value(Value::Int8(removed)))
}

/// Removes the cursors of these groups, which have one name; answers how many that were. Each is taken first: whoever has
/// it may leave another row. And again until there is none, since some may just be made.
fn remove_cursors(tables: &Tables, groups: &[Subscription]) -> i64 {
    let mut removed = 0;
    loop {
        let mut cursors: Vec<(i64, i64)> = Vec::new();
        for group in groups {
            cursors.extend(cursor::of_group(tables, group.gid).into_iter().map(|pid| (pid, group.gid)));
        }
        if cursors.is_empty() {
            return removed;
        }
        cursors.sort_unstable();
        for (pid, gid) in cursors {
            match cursor::take(tables, gid, pid, true) {
                Taken::Held(cursor) => {
                    cursor::remove(tables, &cursor);
                    removed += 1;
                }
                Taken::Missing => cursor::leave(gid, pid),
                Taken::Busy => {}
            }
        }
    }
}
