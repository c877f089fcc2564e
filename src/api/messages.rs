//! Looking at what is stored, without a lease and without moving anything.

use crate::api::arguments;
use crate::broker::lookup;
use crate::broker::seal::Opener;
use crate::broker::settle::partition_of;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, Rows, jsonb, null_argument};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::pg::value::Value;
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::segment::{self, Stored};
use crate::rows::subscription::{self, QUEUE_MODE, Subscription};
use crate::rows::{cursor, dead_letter};
use pgrx::pg_sys::Datum;
use queen_core::names;
use queen_core::segment::Frame;
use std::collections::HashSet;

const STATUSES: [&str; 4] = ["pending", "processing", "completed", "dead_letter"];

/// How far the groups of a queue are on one partition: what a message's status depends on.
struct Progress {
    dead: HashSet<i64>,
    /// Everything at or below is done by every named group (or queue mode, when there is none).
    done: i64,
    /// Live leases: (committed, batch_end].
    leased: Vec<(i64, i64)>,
}

impl Progress {
    fn of(tables: &Tables, groups: &[Subscription], partition: &Partition) -> Result<Progress> {
        let now = clock::now();
        let mut leased = Vec::new();
        let mut done: Option<i64> = None;
        let named = groups.iter().any(|g| g.name != QUEUE_MODE);
        for group in groups {
            let committed = match cursor::newest(tables, group.gid, partition.pid) {
                Some(cursor) => {
                    if let Some(lease) = cursor.live_lease(now) {
                        leased.push((cursor.committed, lease.batch_end));
                    }
                    cursor.committed
                }
                None => crate::broker::claim::start_of(tables, group, partition)?,
            };
            if !named || group.name != QUEUE_MODE {
                done = Some(done.map_or(committed, |d| d.min(committed)));
            }
        }
        Ok(Progress { dead: dead_letter::offsets(partition.id), done: done.unwrap_or(-1), leased })
    }

    fn status(&self, offset: i64) -> &'static str {
        if self.dead.contains(&offset) {
            "dead_letter"
        } else if offset <= self.done {
            "completed"
        } else if self.leased.iter().any(|&(from, to)| offset > from && offset <= to) {
            "processing"
        } else {
            "pending"
        }
    }
}

struct Viewer<'a> {
    queue: &'a Queue,
    partition: &'a Partition,
    progress: &'a Progress,
    opener: &'a Opener,
}

impl Viewer<'_> {
    fn put(&self, rows: &mut Rows, stored: &Stored, offset: i64, frame: &Frame<'_>) {
        let (text, sealed) = self.opener.open(frame.payload, frame.encrypted);
        rows.put(&self.columns(stored, offset, frame, &text, sealed));
    }

    fn columns<'v>(
        &'v self,
        stored: &Stored,
        offset: i64,
        frame: &'v Frame<'_>,
        text: &'v str,
        sealed: bool,
    ) -> [Value<'v>; 15] {
        let transaction_id = match frame.transaction_id {
            Some(t) => Value::Text(t),
            None => Value::Raw(Value::Text(&queen_core::id::format(frame.id)).datum().unwrap_or(Datum::null())),
        };
        [
            Value::Text(&self.queue.name),
            Value::Text(&self.partition.name),
            Value::Uuid(self.partition.id),
            Value::Int8(offset),
            Value::Uuid(frame.id),
            transaction_id,
            jsonb(text),
            Value::Text(text),
            frame.headers.and_then(|h| std::str::from_utf8(h).ok()).map_or(Value::Null, jsonb),
            Value::opt_uuid(frame.trace_id),
            Value::opt_text(frame.producer),
            Value::Time(stored.created_at),
            Value::Text(self.progress.status(offset)),
            Value::Bool(sealed),
            Value::Int8(stored.base),
        ]
    }
}

/// `queen.messages(queue, partition, "from", "to", status, max_rows, skip) → SETOF stored_message`
///
/// Newest first. Decodes segments one after the other until enough rows are found; `from` and `to` are index probes.
pub fn messages(call: &Call) -> Result<Datum> {
    let (only_queue, only_partition) = (call.text(0)?, call.text(1)?);
    let (from, to) = (call.int8(2).unwrap_or(i64::MIN), call.int8(3).unwrap_or(i64::MAX));
    let status = call.text(4)?;
    if let Some(s) = status
        && !STATUSES.contains(&s)
    {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!("status must be one of {}, got \"{}\"", STATUSES.join(", "), names::cut(s, 64)),
        ));
    }
    let max_rows = arguments::not_negative(call.int4(5), "max_rows", 200)? as usize;
    let skip = arguments::not_negative(call.int4(6), "skip", 0)? as usize;
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let mut lanes = Vec::new();
    for queue in queue::of_tenant(&tables, tenant)? {
        if only_queue.is_some_and(|q| q != queue.name) {
            continue;
        }
        let groups = subscription::of_queue(&tables, queue.qid);
        let mut after = 0;
        loop {
            let page = partition::after(&tables, queue.qid, after, 256);
            let Some(last) = page.last() else { break };
            after = last.pid;
            for partition in page {
                if only_partition.is_none_or(|p| p == partition.name)
                    && let Some(lane) = Backwards::new(&tables, queue.clone(), groups.clone(), partition, from, to)
                {
                    lanes.push(lane);
                }
            }
        }
    }
    let opener = Opener::new();
    let mut rows = call.rows();
    let (mut skipped, mut shown) = (0, 0);
    let mut heap: std::collections::BinaryHeap<(i64, usize)> =
        lanes.iter().enumerate().map(|(n, lane)| (lane.head.created_at, n)).collect();
    while shown < max_rows
        && let Some((_, n)) = heap.pop()
    {
        let lane = &mut lanes[n];
        if lane.progress.is_none() {
            lane.progress = Some(Progress::of(&tables, &lane.groups, &lane.partition)?);
        }
        if let (Some(stored), Some(progress)) =
            (segment::holding(&tables, lane.partition.pid, lane.head.base), &lane.progress)
        {
            let viewer = Viewer { queue: &lane.queue, partition: &lane.partition, progress, opener: &opener };
            let opened = stored.open()?;
            for i in (0..stored.frames).rev() {
                let offset = stored.base + i;
                if shown == max_rows || status.is_some_and(|s| s != progress.status(offset)) {
                    continue;
                }
                if skipped < skip {
                    skipped += 1;
                    continue;
                }
                let frame = stored.frame_of(&opened, i as usize)?;
                viewer.put(&mut rows, &stored, offset, &frame);
                shown += 1;
            }
        }
        if lane.back(&tables) {
            heap.push((lane.head.created_at, n));
        }
    }
    rows.done()
}

/// The segments of one partition, newest first, within a time range.
struct Backwards {
    queue: Queue,
    groups: Vec<Subscription>,
    partition: Partition,
    progress: Option<Progress>,
    from: i64,
    head: segment::Head,
}

impl Backwards {
    fn new(
        tables: &Tables,
        queue: Queue,
        groups: Vec<Subscription>,
        partition: Partition,
        from: i64,
        to: i64,
    ) -> Option<Self> {
        let last = match to {
            i64::MAX => segment::tail(tables, partition.pid, Sight::Committed).offset,
            _ => segment::first_since(tables, partition.pid, to)
                .map_or_else(|| segment::tail(tables, partition.pid, Sight::Committed).offset, |base| base - 1),
        };
        let head = segment::at_or_before(tables, partition.pid, last).filter(|h| h.created_at >= from)?;
        Some(Backwards { queue, groups, partition, progress: None, from, head })
    }

    /// Goes to the segment before; false at the end of the range.
    fn back(&mut self, tables: &Tables) -> bool {
        match segment::at_or_before(tables, self.partition.pid, self.head.base - 1) {
            Some(head) if head.created_at >= self.from => {
                self.head = head;
                true
            }
            _ => false,
        }
    }
}

/// `queen.message(partition_id, transaction_id) → stored_message`, NULL when there is none.
pub fn message(call: &Call) -> Result<Datum> {
    let partition_id = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    let tables = Tables::default();
    let Some((partition, queue)) = partition_of(&tables, guc::tenant()?, partition_id)? else { return Ok(call.null()) };
    let Some(found) = lookup::find(&tables, partition.pid, transaction_id)?.pop() else { return Ok(call.null()) };
    let Some(stored) = segment::holding(&tables, partition.pid, found.offset) else { return Ok(call.null()) };
    let groups = subscription::of_queue(&tables, queue.qid);
    let progress = Progress::of(&tables, &groups, &partition)?;
    let opener = Opener::new();
    let viewer = Viewer { queue: &queue, partition: &partition, progress: &progress, opener: &opener };
    let frame = stored.frame(found.offset)?;
    let frame = frame.as_frame();
    let (text, sealed) = opener.open(frame.payload, frame.encrypted);
    Ok(call.row(&viewer.columns(&stored, found.offset, &frame, &text, sealed)))
}

/// `queen.read(partition_id, from_offset, max_rows) → SETOF stored_message`, in order of offsets.
pub fn read(call: &Call) -> Result<Datum> {
    let partition_id = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let from = call.int8(1).ok_or_else(|| null_argument("from_offset"))?;
    if from < 0 {
        return Err(error(ErrorKind::InvalidArgument, format!("from_offset must not be negative, got {from}")));
    }
    let max_rows = arguments::not_negative(call.int4(2), "max_rows", 100)? as usize;
    let tables = Tables::default();
    let mut rows = call.rows();
    let Some((partition, queue)) = partition_of(&tables, guc::tenant()?, partition_id)? else { return rows.done() };
    let groups = subscription::of_queue(&tables, queue.qid);
    let progress = Progress::of(&tables, &groups, &partition)?;
    let opener = Opener::new();
    let viewer = Viewer { queue: &queue, partition: &partition, progress: &progress, opener: &opener };
    let from = from.max(segment::trimmed(&tables, partition.pid) + 1);
    let mut shown = 0;
    if max_rows > 0 {
        segment::walk(&tables, partition.pid, from, from.saturating_add(max_rows as i64), |stored| {
            let opened = stored.open()?;
            for i in (from - stored.base).max(0)..stored.frames {
                if shown == max_rows {
                    return Ok(false);
                }
                let frame = stored.frame_of(&opened, i as usize)?;
                viewer.put(&mut rows, &stored, stored.base + i, &frame);
                shown += 1;
            }
            Ok(true)
        })?;
    }
    rows.done()
}
