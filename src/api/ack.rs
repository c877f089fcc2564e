//! Settling by transaction id.

use crate::api::arguments;
use crate::broker::settle::{self, Ack};
use crate::error::{Error, ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, null_argument};
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::rows::partition::Partition;
use crate::rows::subscription::{QUEUE_MODE, Subscription};
use crate::rows::{cursor, partition};
use pgrx::pg_sys::Datum;
use queen_core::ack::{INVALID_LEASE, Status, UNRESOLVABLE, Verdict};
use queen_core::names;
use queen_core::payload::{self, AckRequest};
use std::collections::BTreeMap;

fn row<'a>(index: i32, transaction_id: &'a str, verdict: &Verdict) -> [Value<'a>; 8] {
    [
        Value::Int4(index),
        Value::Text(transaction_id),
        Value::Bool(verdict.success),
        Value::opt_text(verdict.error),
        Value::Bool(verdict.lease_released),
        Value::Bool(verdict.dlq),
        Value::Bool(verdict.dropped),
        Value::Bool(verdict.noop),
    ]
}

/// `queen.ack(partition_id, transaction_id, status, consumer_group, lease_id, error, reason) → ack_result`
pub fn ack(call: &Call) -> Result<Datum> {
    let partition_id = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    let group = arguments::group(call, 3)?;
    let ack = Ack { transaction_id, status: Status::parse(call.text(2)?), error: call.text(5)?, reason: call.text(6)? };
    let tables = Tables::default();
    let verdicts = settle::acks(&tables, guc::tenant()?, partition_id, group, call.uuid(4), &[ack])?;
    let verdict = verdicts.first().copied().unwrap_or_default();
    Ok(call.row(&row(0, transaction_id, &verdict)))
}

/// `queen.nack(lease_id, transaction_id, error, status, reason) → ack_result`
pub fn nack(call: &Call) -> Result<Datum> {
    let lease = call.uuid(0).ok_or_else(|| null_argument("lease_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    let status = Status::parse(Some(call.text(3)?.unwrap_or("failed")));
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let (mut fits, mut others) = (Vec::new(), Vec::new());
    for (gid, pid) in cursor::of_lease(&tables, lease) {
        let Some(partition) = partition::by_pid(&tables, pid) else { continue };
        let Some(group) = crate::rows::subscription::by_gid(&tables, gid) else { continue };
        let Some((_, queue)) = settle::partition_of(&tables, tenant, partition.id)? else { continue };
        let Some(cursor) = cursor::newest(&tables, gid, pid) else { continue };
        if settle::in_span(&tables, &cursor, &group, transaction_id)? {
            fits.push((partition, group, queue));
        } else {
            others.push((partition, group));
        }
    }
    let settle = |partition: &Partition, group: &Subscription| {
        let ack = Ack { transaction_id, status, error: call.text(2)?, reason: call.text(4)? };
        let verdicts = settle::acks(&tables, tenant, partition.id, &group.name, Some(lease), &[ack])?;
        Ok::<_, Error>(verdicts.first().copied().unwrap_or_default())
    };
    let verdict = match fits.as_slice() {
        // Nothing moves: the answer says why, as ack does. Done already, or else not there, or else no lease.
        [] => {
            let rank = |v: &Verdict| match v.error {
                Some(INVALID_LEASE) => 0,
                Some(UNRESOLVABLE) => 1,
                _ => 2,
            };
            let mut best = settle::refused(INVALID_LEASE);
            for (partition, group) in &others {
                let verdict = settle(partition, group)?;
                if rank(&verdict) > rank(&best) {
                    best = verdict;
                }
            }
            best
        }
        [(partition, group, _)] => settle(partition, group)?,
        several => {
            return Err(error(
                ErrorKind::AmbiguousNack,
                format!(
                    "the lease holds transaction id \"{}\" in {} partitions",
                    names::cut(transaction_id, 64),
                    several.len()
                ),
            )
            .with_hint("Say which one with queen.ack(partition_id, transaction_id, 'failed', ...)."));
        }
    };
    Ok(call.row(&row(0, transaction_id, &verdict)))
}

/// One item of a batch with its answer.
pub struct Settled {
    pub transaction_id: String,
    pub verdict: Verdict,
}

/// A wire batch for one group, its items sorted by what is settled together.
struct Batch<'a> {
    group: &'a str,
    items: &'a [payload::AckItem],
    /// In order of the items; those that name nothing to settle have their answer already.
    settled: Vec<Settled>,
    /// (partition key, partition, lease) → items
    lanes: BTreeMap<(i64, u128, Option<u128>), Vec<usize>>,
}

impl<'a> Batch<'a> {
    fn new(tables: &Tables, group: &'a str, items: &'a [payload::AckItem]) -> Batch<'a> {
        let mut settled: Vec<Settled> = Vec::with_capacity(items.len());
        let mut lanes: BTreeMap<(i64, u128, Option<u128>), Vec<usize>> = BTreeMap::new();
        for (n, item) in items.iter().enumerate() {
            let transaction_id = item.transaction_id.clone().unwrap_or_default();
            let mut verdict = Verdict::default();
            let partition = item.partition_id.as_deref().map(|p| arguments::uuid(p, "partitionId"));
            let lease = match item.lease_id.as_deref().filter(|l| !l.is_empty()) {
                Some(text) => arguments::uuid(text, "leaseId").map(Some),
                None => Ok(None),
            };
            match (partition, lease) {
                (None, _) => verdict.error = Some("partitionId is required"),
                (Some(Err(_)), _) => verdict.error = Some("partitionId is not a UUID"),
                (_, Err(_)) => verdict.error = Some(INVALID_LEASE),
                (Some(Ok(id)), Ok(lease)) => match partition::by_id(tables, id) {
                    Some(partition) => lanes.entry((partition.pid, id, lease)).or_default().push(n),
                    None => verdict.error = Some(settle::NO_PARTITION),
                },
            }
            settled.push(Settled { transaction_id, verdict });
        }
        Batch { group, items, settled, lanes }
    }

    /// Settles lane by lane, in order of the partition keys, but for those that are refused already.
    fn settle(mut self, tables: &Tables, tenant: u128, refusals: &Refusals<'_>) -> Result<Vec<Settled>> {
        for ((pid, partition_id, lease), members) in self.lanes {
            if let Some(Some(why)) = refusals.get(&(self.group, pid)) {
                members.into_iter().for_each(|n| self.settled[n].verdict = settle::refused(why));
                continue;
            }
            let acks: Vec<Ack<'_>> = members
                .iter()
                .map(|&n| Ack {
                    transaction_id: self.items[n].transaction_id.as_deref().unwrap_or_default(),
                    status: self.items[n].status,
                    error: self.items[n].error.as_deref(),
                    reason: self.items[n].reason.as_deref(),
                })
                .collect();
            let verdicts = settle::acks(tables, tenant, partition_id, self.group, lease, &acks)?;
            for (n, verdict) in members.into_iter().zip(verdicts) {
                self.settled[n].verdict = verdict;
            }
        }
        Ok(self.settled)
    }
}

/// By (group name, partition key), the order in which cursors are taken: None where the cursor was taken, else why not.
type Refusals<'a> = BTreeMap<(&'a str, i64), Option<&'static str>>;

/// Settles the items of a wire batch for one group; partitions are taken in one order, so that two batches cannot deadlock.
pub fn settle_batch(tables: &Tables, tenant: u128, group: &str, items: &[payload::AckItem]) -> Result<Vec<Settled>> {
    Batch::new(tables, group, items).settle(tables, tenant, &Refusals::new())
}

/// Settles several requests, each by itself, in their order.
///
/// All cursors are taken before the first is changed, in the order in which everybody takes several. What could not be
/// taken then is not settled, even if it is there a moment later: it would be taken out of turn.
fn settle_many(tables: &Tables, tenant: u128, requests: &[AckRequest]) -> Result<Vec<Vec<Settled>>> {
    let numbered = |n: usize| {
        move |mut e: Error| {
            e.message = format!("request {n}: {}", e.message);
            e
        }
    };
    let mut batches = Vec::with_capacity(requests.len());
    let mut cursors: BTreeMap<(&str, i64), (usize, u128)> = BTreeMap::new();
    for (n, request) in requests.iter().enumerate() {
        let group = request.consumer_group.as_deref().unwrap_or(QUEUE_MODE);
        names::check_group(group).map_err(|e| numbered(n)(e.into()))?;
        let batch = Batch::new(tables, group, &request.items);
        for &(pid, partition_id, _) in batch.lanes.keys() {
            cursors.entry((group, pid)).or_insert((n, partition_id));
        }
        batches.push(batch);
    }
    let mut refusals = Refusals::new();
    for ((group, pid), (n, partition_id)) in cursors {
        let reached = settle::reach(tables, tenant, partition_id, group).map_err(numbered(n))?;
        refusals.insert((group, pid), reached.err());
    }
    let settle = |(n, batch): (usize, Batch<'_>)| batch.settle(tables, tenant, &refusals).map_err(numbered(n));
    batches.into_iter().enumerate().map(settle).collect()
}

fn batch(call: &Call) -> Result<Vec<Settled>> {
    let items = payload::parse_acks(call.required_text(0, "acknowledgments")?)?;
    let group = arguments::group(call, 1)?;
    settle_batch(&Tables::default(), guc::tenant()?, group, &items)
}

/// `queen.ack_batch(acknowledgments json, consumer_group) → SETOF ack_result`
pub fn ack_batch(call: &Call) -> Result<Datum> {
    let settled = batch(call)?;
    let mut rows = call.rows();
    for (n, s) in settled.iter().enumerate() {
        // An id as JSON may hold a NUL; a text of the server may not.
        let shown = s.transaction_id.replace('\0', "\u{fffd}");
        rows.put(&row(n as i32, &shown, &s.verdict));
    }
    rows.done()
}

/// The wire's array.
fn wire(settled: &[Settled]) -> serde_json::Value {
    let item = |(n, s): (usize, &Settled)| {
        let mut item = serde_json::json!({
            "index": n, "transactionId": s.transaction_id, "success": s.verdict.success, "error": s.verdict.error,
            "leaseReleased": s.verdict.lease_released, "dlq": s.verdict.dlq, "noop": s.verdict.noop,
        });
        if s.verdict.dropped {
            item["dropped"] = true.into();
        }
        if let Some(superseded) = s.verdict.conflated {
            item["conflated"] = superseded.into();
        }
        item
    };
    settled.iter().enumerate().map(item).collect()
}

/// `queen.ack_batch_json(acknowledgments text, consumer_group) → text`: the wire's array.
pub fn ack_batch_json(call: &Call) -> Result<Datum> {
    Ok(call.value(Value::Text(&wire(&batch(call)?).to_string())))
}

/// `queen.ack_many_json(requests text) → text`: one of the wire's arrays for each request.
pub fn ack_many_json(call: &Call) -> Result<Datum> {
    let requests = payload::parse_ack_requests(call.required_text(0, "requests")?)?;
    let settled = settle_many(&Tables::default(), guc::tenant()?, &requests)?;
    let answers: serde_json::Value = settled.iter().map(|s| wire(s)).collect();
    Ok(call.value(Value::Text(&answers.to_string())))
}
