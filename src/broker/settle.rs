//! Settling: acks of one (partition, group) resolved to offsets, run through the state machine, and written down, with
//! the dead letter in the same transaction.

use crate::broker::claim::hint_rest;
use crate::broker::dead::{self, Failure, Found};
use crate::broker::{lookup, recent};
use crate::error::{Error, Result};
use crate::pg::relation::Tables;
use crate::pg::{clock, commit};
use crate::rows::cursor::{self, Cursor, Taken};
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::ready;
use crate::rows::segment::{self, Stored};
use crate::rows::subscription::{self, Subscription};
use queen_core::ack::{Item, Place, Policy, Settled, Status, Verdict, settle};
use queen_core::classify::{Class, Rules, classify, stated};
use queen_core::segment::{Opened, Segment, transaction_hash};
use queen_core::{id, retry};
use std::cell::OnceCell;
use std::collections::HashMap;

/// Answer to an ack of a (partition, group) that never popped.
pub const NO_CONSUMER: &str = "consumer not found";
/// Answer to a partition id that does not exist for this tenant.
pub const NO_PARTITION: &str = "partition not found";

/// One acknowledgement as the caller gave it.
pub struct Ack<'a> {
    pub transaction_id: &'a str,
    pub status: Status,
    pub error: Option<&'a str>,
    pub reason: Option<&'a str>,
}

impl Ack<'_> {
    /// The status, unless the failure is of a kind that trying again cannot help.
    fn effective_status(&self, rules: Option<&Rules>) -> Status {
        if self.status != Status::Failed {
            return self.status;
        }
        let said = stated(self.reason, self.error);
        let reason = said.reason.as_deref().unwrap_or_default();
        let (class, _) = classify(&said, reason, self.error.unwrap_or_default(), rules);
        if retry::is_hopeless(reason, class) { Status::Hopeless } else { Status::Failed }
    }
}

/// The partition with this id and its queue, when they are the tenant's.
pub fn partition_of(tables: &Tables, tenant: u128, partition_id: u128) -> Result<Option<(Partition, Queue)>> {
    let Some(partition) = partition::by_id(tables, partition_id) else { return Ok(None) };
    let queue = queue::by_qid(tables, partition.qid)?.filter(|q| q.tenant == tenant);
    Ok(queue.map(|queue| (partition, queue)))
}

/// Settles acks of one partition and group that were sent with one lease id (or none). Answers are in order.
///
/// # Errors
/// Damaged segments; everything else is an answer of the item.
pub fn acks(
    tables: &Tables,
    tenant: u128,
    partition_id: u128,
    group: &str,
    lease: Option<u128>,
    acks: &[Ack<'_>],
) -> Result<Vec<Verdict>> {
    let Held { cursor, partition, queue, group } = match reach(tables, tenant, partition_id, group)? {
        Ok(held) => held,
        Err(why) => return Ok(vec![refused(why); acks.len()]),
    };
    let lane = Lane { tables, queue: &queue, partition: &partition, group: &group };
    // A lease that is not the live one settles nothing: no need to look anything up.
    let dead = lease.is_some_and(|l| cursor.live_lease(clock::now()).is_none_or(|live| live.id != l));
    let (after, end) = match &cursor.lease {
        Some(leased) if !dead => (delivered_after(&cursor, &group), leased.batch_end),
        _ => (cursor.committed, cursor.committed),
    };
    let stored = span_segments(tables, partition.pid, after, end)?;
    let span = Span::new(&stored, after, end, acks.len())?;
    let places = if dead { vec![Place::Nowhere; acks.len()] } else { lane.resolve(&cursor, &span, acks)? };
    let failed = acks.iter().any(|ack| ack.status == Status::Failed);
    let compiled = if failed { dead::compiled(&queue.options) } else { None };
    let rules = compiled.as_ref().map(|compiled| &compiled.0);
    let items: Vec<Item> =
        places.into_iter().zip(acks).map(|(place, ack)| Item { place, status: ack.effective_status(rules) }).collect();
    lane.settle(cursor, lease, &items, Some(&span), |offset| {
        // The signal's own error, else the first one given, as the wire does.
        let at = items.iter().position(|i| i.place == Place::At(offset) && i.status != Status::Completed);
        let own = at.and_then(|i| acks.get(i));
        let text = own.and_then(|a| a.error).or_else(|| acks.iter().find_map(|a| a.error));
        let at_once = at.is_some_and(|i| matches!(items[i].status, Status::DeadLetter | Status::Hopeless));
        let said = stated(own.and_then(|a| a.reason), text);
        let reason = said.reason.as_deref().unwrap_or(if at_once { "fatal" } else { "retries_exhausted" });
        let text = text.unwrap_or("Retries exhausted").to_owned();
        Why { text, reason: reason.to_owned(), class: said.class, code: said.code }
    })
}

/// The answer to an item that cannot be settled.
pub fn refused(why: &'static str) -> Verdict {
    Verdict { error: Some(why), ..Verdict::default() }
}

/// Takes the cursor that acks of this partition and group change, waiting for whoever has it; or says why there is none.
pub fn reach(
    tables: &Tables,
    tenant: u128,
    partition_id: u128,
    group: &str,
) -> Result<std::result::Result<Held, &'static str>> {
    let Some((partition, queue)) = partition_of(tables, tenant, partition_id)? else { return Ok(Err(NO_PARTITION)) };
    let Some(group) = subscription::find(tables, queue.qid, group) else { return Ok(Err(NO_CONSUMER)) };
    if cursor::newest(tables, group.gid, partition.pid).is_none() {
        return Ok(Err(NO_CONSUMER));
    }
    Ok(match cursor::take(tables, group.gid, partition.pid, true) {
        Taken::Held(cursor) => Ok(Held { cursor: *cursor, partition, queue, group }),
        Taken::Missing | Taken::Busy => Err(NO_CONSUMER),
    })
}

/// Completes everything a lease holds; answers how many messages that were (0 when it is not live).
pub fn whole_lease(tables: &Tables, tenant: u128, lease: u128) -> Result<i64> {
    let mut completed = 0;
    for (gid, pid) in cursor::of_lease(tables, lease) {
        let Some(held) = held(tables, tenant, lease, gid, pid)? else { continue };
        let end = held.cursor.lease.as_ref().map_or(held.cursor.committed, |l| l.batch_end);
        completed += end - held.cursor.committed;
        let lane = Lane { tables, queue: &held.queue, partition: &held.partition, group: &held.group };
        let item = Item { place: Place::At(end), status: Status::Completed };
        lane.settle(held.cursor, Some(lease), &[item], None, |_| Why::default())?;
    }
    Ok(completed)
}

/// A cursor that is taken for a change, and what it belongs to.
pub struct Held {
    pub cursor: Cursor,
    pub partition: Partition,
    pub queue: Queue,
    pub group: Subscription,
}

/// The cursor of (group, partition) if `lease` is its live lease and the tenant's; taken for a change.
pub fn held(tables: &Tables, tenant: u128, lease: u128, gid: i64, pid: i64) -> Result<Option<Held>> {
    let Some(partition) = partition::by_pid(tables, pid) else { return Ok(None) };
    let Some(queue) = queue::by_qid(tables, partition.qid)?.filter(|q| q.tenant == tenant) else { return Ok(None) };
    let Some(group) = subscription::by_gid(tables, gid) else { return Ok(None) };
    let Taken::Held(cursor) = cursor::take(tables, gid, pid, true) else { return Ok(None) };
    if cursor.live_lease(clock::now()).is_none_or(|live| live.id != lease) {
        return Ok(None);
    }
    Ok(Some(Held { cursor: *cursor, partition, queue, group }))
}

/// Writes a cursor after its lease or pause ended or changed, and keeps the hints in step.
pub fn write(tables: &Tables, before: &Cursor, after: &Cursor, group: &Subscription) {
    cursor::replace(tables, after);
    if !group.registered || (before.lease == after.lease && before.not_before == after.not_before) {
        return;
    }
    if let Some(time) = before.hinted_at() {
        ready::delete_exact(tables, group.gid, time, after.pid);
    }
    match after.hinted_at() {
        Some(time) => ready::insert(tables, group.gid, time, after.pid),
        None => hint_rest(tables, after),
    }
}

/// What a dead letter says about its cause.
#[derive(Default)]
struct Why {
    text: String,
    reason: String,
    class: Option<Class>,
    code: Option<String>,
}

/// Milliseconds: a hundred years. Without a cap pauses double for ever, and the server's time does not go on for ever.
const LONGEST_PAUSE: i64 = 100 * 365 * 86_400_000;

struct Lane<'a> {
    tables: &'a Tables,
    queue: &'a Queue,
    partition: &'a Partition,
    group: &'a Subscription,
}

impl Lane<'_> {
    fn settle(
        &self,
        mut cursor: Cursor,
        lease: Option<u128>,
        items: &[Item],
        span: Option<&Span<'_>>,
        why: impl Fn(i64) -> Why,
    ) -> Result<Vec<Verdict>> {
        let now = clock::now();
        let options = &self.queue.options;
        let retries = retry::Policy::of(options);
        let policy = Policy {
            // Once failing has gone on for too long, there is no budget left.
            retry_limit: if retries.is_over(cursor.failing_since, now) { 0 } else { options.retry_limit },
            dead_letter: options.dead_letter_enabled(),
            conflating: self.group.conflation,
        };
        let before = cursor.clone();
        let Settled { cursor: next, file, retries_recorded, charged, changed, verdicts, .. } =
            settle(&cursor.as_ack_state(), lease, now, items, &policy);
        if !changed {
            return Ok(verdicts);
        }
        let failing_since = cursor.failing_since.unwrap_or(now);
        if let Some(offset) = file {
            let why = why(offset);
            let failure = Failure {
                offset,
                text: why.text.into(),
                reason: why.reason.into(),
                class: why.class,
                code: why.code,
                retries: retries_recorded,
                attempts: cursor.deliveries.attempts_of(offset),
                first_failed_at: failing_since,
                now,
            };
            let found = span.map(|span| span.message(offset)).transpose()?.flatten();
            dead::file(self.tables, self.queue, self.partition, self.group, &failure, found)?;
        }
        cursor.failing_since = (next.retries > 0).then_some(failing_since);
        cursor.committed = next.committed;
        cursor.retries = next.retries;
        cursor.lease = next.lease;
        cursor.not_before = if charged { self.pause(&retries, cursor.retries, now) } else { None };
        // A message beyond the batch that an earlier, longer delivery brought keeps its count.
        cursor.deliveries.advance(cursor.committed);
        write(self.tables, &before, &cursor, self.group);
        commit::settled();
        if before.hinted_at().is_some() && cursor.lease.is_none() {
            commit::wake(self.queue.qid);
        }
        Ok(verdicts)
    }

    /// Until when a message that has just failed for the `failures`th time rests; None: not at all.
    fn pause(&self, retries: &retry::Policy, failures: i32, now: i64) -> Option<i64> {
        let random = || {
            // Which one matters to nobody: sessions that fail together only have to differ.
            let seed = format!("{now} {} {} {}", self.group.gid, self.partition.pid, std::process::id());
            (transaction_hash(&seed) >> 11) as f64 / (1u64 << 53) as f64
        };
        let pause = retries.delay(failures, if retries.jitter > 0.0 { random() } else { 0.5 });
        (pause > 0).then(|| now + pause.min(LONGEST_PAUSE) * 1000)
    }

    /// Offsets of the acked ids: inside the leased span first; then, below the cursor, for an honest answer.
    fn resolve(&self, cursor: &Cursor, span: &Span<'_>, acks: &[Ack<'_>]) -> Result<Vec<Place>> {
        let after = span.committed;
        acks.iter()
            .map(|ack| {
                if let Some(offset) = span.find(ack.transaction_id)? {
                    return Ok(Place::At(offset));
                }
                let found = lookup::find(self.tables, self.partition.pid, ack.transaction_id)?;
                // Above the cursor without a lease, or superseded in a conflating one.
                let free = if cursor.lease.is_none() { i64::MAX } else { after };
                let above = found.iter().map(|f| f.offset).find(|&o| o > cursor.committed && o <= free);
                let below = found.iter().map(|f| f.offset).find(|&o| o <= cursor.committed);
                Ok(above.or(below).map_or(Place::Nowhere, Place::At))
            })
            .collect()
    }
}

/// Offsets by message id, where that is the transaction id, and by the hash of an explicit transaction id.
type SpanMap = (HashMap<u128, i64>, HashMap<u64, Vec<i64>>);

/// The segments of a leased span, ready to find ids in. Several ids are looked up in a map, a few by walking.
struct Span<'s> {
    committed: i64,
    end: i64,
    segments: Vec<(i64, &'s Stored, Segment<'s>, OnceCell<Opened<'s>>)>,
    map: Option<SpanMap>,
}

impl<'s> Span<'s> {
    const MAP_FROM: usize = 4;

    fn new(stored: &'s [Stored], committed: i64, end: i64, ids: usize) -> Result<Span<'s>> {
        let mut segments = Vec::with_capacity(stored.len());
        for s in stored {
            segments.push((s.base, s, s.parse()?, OnceCell::new()));
        }
        let mut span = Span { committed, end, segments, map: None };
        if ids >= Self::MAP_FROM {
            let (mut by_id, mut by_hash): SpanMap = Default::default();
            for (base, _, segment, _) in &span.segments {
                for i in 0..segment.len() {
                    let offset = base + i as i64;
                    if !span.inside(offset) {
                        continue;
                    }
                    match (segment.hash(i).filter(|&h| h != 0), segment.id(i)) {
                        (Some(hash), _) => by_hash.entry(hash).or_default().push(offset),
                        (None, Some(id)) => _ = by_id.insert(id, offset),
                        (None, None) => {}
                    }
                }
            }
            span.map = Some((by_id, by_hash));
        }
        Ok(span)
    }

    fn inside(&self, offset: i64) -> bool {
        offset > self.committed && offset <= self.end
    }

    /// The lowest offset of the span with this transaction id.
    fn find(&self, wanted: &str) -> Result<Option<i64>> {
        if let Some((by_id, by_hash)) = &self.map {
            if let Some(&offset) = id::parse_canonical(wanted).and_then(|id| by_id.get(&id)) {
                return Ok(Some(offset));
            }
            for &offset in by_hash.get(&transaction_hash(wanted)).into_iter().flatten() {
                if self.confirm(offset, wanted)? {
                    return Ok(Some(offset));
                }
            }
            return Ok(None);
        }
        for (base, _, segment, _) in &self.segments {
            for i in segment.find_candidates(wanted) {
                let offset = base + i as i64;
                if self.inside(offset) && self.confirm(offset, wanted)? {
                    return Ok(Some(offset));
                }
            }
        }
        Ok(None)
    }

    /// The segment that holds `offset`.
    fn at(&self, offset: i64) -> Option<&(i64, &'s Stored, Segment<'s>, OnceCell<Opened<'s>>)> {
        self.segments.iter().find(|(_, s, _, _)| (s.base..=s.end()).contains(&offset))
    }

    /// The message at `offset`, and when it was stored; None where the span has no such segment. What was decompressed to
    /// find it is not decompressed again.
    fn message(&self, offset: i64) -> Result<Option<Found>> {
        let Some((base, stored, _, cell)) = self.at(offset) else { return Ok(None) };
        let frame = match cell.get() {
            Some(opened) => stored.frame_of(opened, (offset - base) as usize)?.to_owned_frame(),
            None => match recent::remembered(stored.pid, *base, stored.created_at, offset) {
                Some(frame) => frame,
                None => stored.frame(offset)?,
            },
        };
        Ok(Some(Found { frame, stored_at: stored.created_at }))
    }

    /// Whether the frame at `offset` really has this transaction id: the hash only says that it may.
    fn confirm(&self, offset: i64, wanted: &str) -> Result<bool> {
        let Some((base, stored, segment, cell)) = self.at(offset) else { return Ok(false) };
        let opened = match cell.get() {
            Some(opened) => opened,
            None => {
                let opened = segment.open().map_err(|e| stored.damaged(&e.to_string(), e.kind()))?;
                cell.get_or_init(|| opened)
            }
        };
        let frame = stored.frame_of(opened, (offset - base) as usize)?;
        Ok(frame.transaction_id_text() == wanted)
    }
}

/// Whether the leased span of a cursor holds this transaction id.
pub fn in_span(tables: &Tables, cursor: &Cursor, group: &Subscription, transaction_id: &str) -> Result<bool> {
    let Some(lease) = &cursor.lease else { return Ok(false) };
    let after = delivered_after(cursor, group);
    let stored = span_segments(tables, cursor.pid, after, lease.batch_end)?;
    if Span::new(&stored, after, lease.batch_end, 1)?.find(transaction_id)?.is_some() {
        return Ok(true);
    }
    let superseded = cursor.committed + 1..=after;
    Ok(!superseded.is_empty()
        && lookup::find(tables, cursor.pid, transaction_id)?.iter().any(|f| superseded.contains(&f.offset)))
}

/// The messages after this offset, up to the lease's end, were delivered: their segments are searched first. Of a
/// conflating lease that is the last one. What it supersedes may be any number of segments, and is looked up by id: once
/// the newest has been looked for, so that an id that is there several times means the message that was delivered.
fn delivered_after(cursor: &Cursor, group: &Subscription) -> i64 {
    match &cursor.lease {
        Some(lease) if group.conflation => cursor.committed.max(lease.batch_end - 1),
        _ => cursor.committed,
    }
}

/// The segments that hold offsets of `(committed, end]`.
fn span_segments(tables: &Tables, pid: i64, committed: i64, end: i64) -> Result<Vec<Stored>> {
    let mut stored: Vec<Stored> = Vec::new();
    if end > committed {
        // Retention may have removed the front of a leased batch.
        let from = committed.max(segment::trimmed(tables, pid)) + 1;
        let mut walk = |start| {
            stored.clear();
            segment::walk(tables, pid, start, end, |segment| {
                let more = segment.end() < end;
                stored.push(segment);
                Ok(more)
            })?;
            Ok::<_, Error>(stored.last().is_some_and(|last| last.end() >= from))
        };
        // A hint may be of a segment that is there no more, or never was: its transaction was rolled back.
        let hinted = match recent::base_of(pid, from) {
            Some(base) => walk(base)?,
            None => false,
        };
        if !hinted {
            walk(from)?;
        }
    }
    Ok(stored)
}
