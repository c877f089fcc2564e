//! A bundle of pushes and acks that happens as a whole or not at all.

use crate::api::ack::settle_batch;
use crate::api::arguments;
use crate::api::push::{deadline_of_item, too_large};
use crate::broker::append::{Push, When, append, mint};
use crate::error::{Error, ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb};
use crate::pg::relation::Tables;
use crate::pg::subtransaction::{Failure, attempt};
use crate::pg::value::Value;
use crate::pg::{clock, privilege};
use crate::rows::subscription::QUEUE_MODE;
use pgrx::pg_sys::Datum;
use queen_core::ack::Status;
use queen_core::payload::{AckItem, Operation, parse_operations};
use queen_core::{id, names};
use std::borrow::Cow;

/// Why a bundle was undone, in the wire's words.
struct Undone {
    reason: &'static str,
    error: String,
}

/// `queen.transaction(operations json) → jsonb`
///
/// Takes the wire's body (`{"operations": […], "requiredLeases": […]}`) or a bare array. On failure its own effects are
/// undone, the caller's transaction goes on, and the answer is `success: false` with a reason.
pub fn transaction(call: &Call) -> Result<Datum> {
    for function in ["push", "ack"] {
        if !privilege::may_execute(function) {
            return Err(error(
                ErrorKind::PermissionDenied,
                format!("queen.transaction needs the right to execute queen.{function}"),
            )
            .with_hint("Grant the caller both queen_producer and queen_consumer."));
        }
    }
    let answer = bundle(call.required_text(0, "operations")?, None)?;
    Ok(call.value(jsonb(&answer.to_string())))
}

/// `queen.transaction_json(operations text, producer text) → text`
///
/// The twin for who serves others: may do both by what it is, and says who pushes.
pub fn transaction_json(call: &Call) -> Result<Datum> {
    let producer = call.text(1)?;
    if let Some(p) = producer {
        names::check_producer(p)?;
    }
    let answer = bundle(call.required_text(0, "operations")?, producer)?;
    Ok(call.value(Value::Text(&answer.to_string())))
}

fn bundle(body: &str, producer: Option<&str>) -> Result<serde_json::Value> {
    let (operations, required) = parse_operations(body)?;
    let transaction_id = id::format(mint(clock::now(), 1));
    let tenant = guc::tenant()?;
    let outcome = attempt(|| run(tenant, &operations, &required, producer));
    Ok(match outcome {
        Ok(results) => serde_json::json!({"transactionId": transaction_id, "success": true, "results": results}),
        Err(failure) => {
            let undone = match failure {
                Failure::Ours(Stop::Undone(undone)) => undone,
                Failure::Ours(Stop::Error(e)) => Undone { reason: e.kind.verdict(), error: e.message },
                Failure::Server { message } => Undone { reason: "db_error", error: message },
            };
            serde_json::json!({"transactionId": transaction_id, "success": false, "reason": undone.reason,
                               "error": undone.error, "results": []})
        }
    })
}

enum Stop {
    Undone(Undone),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Error(e)
    }
}

fn run(
    tenant: u128,
    operations: &[Operation<'_>],
    required: &[String],
    producer: Option<&str>,
) -> std::result::Result<Vec<serde_json::Value>, Stop> {
    let tables = Tables::default();
    let mut pushes = Vec::new();
    let mut results: Vec<serde_json::Value> = Vec::new();
    let mut push_at = Vec::new();
    // Acks of one group are settled together, as one call would.
    let mut acks: Vec<(String, Vec<AckItem>, Vec<usize>)> = Vec::new();
    for operation in operations {
        let index = results.len();
        match operation {
            Operation::Push(item) => {
                names::check_queue(&item.queue).map_err(Error::from)?;
                names::check_partition(&item.partition).map_err(Error::from)?;
                if let Some(t) = &item.transaction_id {
                    names::check_transaction_id(t).map_err(Error::from)?;
                }
                too_large(item.payload)?;
                deadline_of_item(&tables, tenant, &item.queue, item.headers)?;
                pushes.push(Push {
                    tenant,
                    queue: Cow::Borrowed(&item.queue),
                    partition: Cow::Borrowed(&item.partition),
                    payload: Cow::Borrowed(item.payload),
                    transaction_id: item.transaction_id.as_deref().map(Cow::Borrowed),
                    trace_id: item.trace_id,
                    headers: item.headers.map(Cow::Borrowed),
                    producer: producer.map(Cow::Borrowed),
                    id: None,
                });
                push_at.push(index);
                results.push(serde_json::Value::Null);
            }
            Operation::Ack { item, consumer_group } => {
                let group = consumer_group.clone().unwrap_or_else(|| QUEUE_MODE.to_owned());
                names::check_group(&group).map_err(Error::from)?;
                let mut item = item.clone();
                if item.lease_id.as_deref().is_none_or(str::is_empty) {
                    item.lease_id = lease_for(&tables, &item, &group, required)?;
                }
                match acks.iter_mut().find(|(g, _, _)| *g == group) {
                    Some((_, items, at)) => {
                        items.push(item);
                        at.push(index);
                    }
                    None => acks.push((group, vec![item], vec![index])),
                }
                results.push(serde_json::Value::Null);
            }
        }
    }
    // Cursors before lanes, as a transaction that acks and pushes takes them: its pushes land at commit.
    acks.sort_by(|a, b| a.0.cmp(&b.0));
    for (group, items, at) in acks {
        for (settled, index) in settle_batch(&tables, tenant, &group, &items)?.into_iter().zip(at) {
            if !settled.verdict.success {
                let why = settled.verdict.error.unwrap_or("rejected");
                let which = names::cut(&settled.transaction_id, 64);
                let unknown =
                    if why.starts_with("unresolvable") { "ack references unknown transactionId; " } else { "" };
                return Err(Stop::Undone(Undone {
                    reason: "ack_rejected",
                    error: format!("QTXN {unknown}ack of \"{which}\" was rejected: {why}; transaction rolled back"),
                }));
            }
            results[index] = serde_json::json!({
                "index": index, "type": "ack", "success": true, "transactionId": settled.transaction_id,
                "error": null, "dlq": settled.verdict.dlq,
            });
        }
    }
    let pushed = append(&tables, &pushes, When::Now)?;
    let mut seen: Vec<u128> = Vec::new();
    for ((push, pushed), index) in pushes.iter().zip(&pushed).zip(push_at) {
        let inside = seen.contains(&pushed.message_id);
        if pushed.duplicate && !inside {
            let which = names::cut(push.transaction_id.as_deref().unwrap_or_default(), 64);
            return Err(Stop::Undone(Undone {
                reason: "duplicate",
                error: format!("QDUP transactionId \"{which}\" is already in its partition; transaction rolled back"),
            }));
        }
        seen.push(pushed.message_id);
        let message_id = id::format(pushed.message_id);
        let mut result = serde_json::json!({
            "index": index, "type": "push", "success": true, "messageId": message_id, "queueName": push.queue,
            "transactionId": push.transaction_id.as_deref().unwrap_or(&message_id),
        });
        if inside {
            result["duplicate"] = true.into();
        }
        results[index] = result;
    }
    Ok(results)
}

/// The lease of an ack that names none: the current holder's when the caller says that it holds it (or says nothing of
/// leases), else the only one it says it holds.
fn lease_for(tables: &Tables, item: &AckItem, group: &str, required: &[String]) -> Result<Option<String>> {
    let mut distinct: Vec<&String> = required.iter().collect();
    distinct.sort();
    distinct.dedup();
    let partition = item
        .partition_id
        .as_deref()
        .and_then(|p| arguments::uuid(p, "partitionId").ok())
        .and_then(|p| crate::rows::partition::by_id(tables, p));
    let live = partition.and_then(|p| {
        let group = crate::rows::subscription::find(tables, p.qid, group)?;
        let cursor = crate::rows::cursor::newest(tables, group.gid, p.pid)?;
        cursor.live_lease(clock::now()).map(|l| id::format(l.id))
    });
    // A lease that the caller does not name may be somebody else's: failures under it must not charge them.
    Ok(match live {
        Some(lease) if distinct.iter().any(|d| **d == lease) => Some(lease),
        Some(lease) if distinct.is_empty() && item.status == Status::Completed => Some(lease),
        _ => match distinct.as_slice() {
            [one] => Some((*one).clone()),
            _ => None,
        },
    })
}
