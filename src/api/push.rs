//! Producing.

use crate::api::arguments;
use crate::broker::append::{Push, Pushed, When, append};
use crate::broker::{lookup, seal};
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pending::{self, Added};
use crate::pg::call::{Call, nest_level, null_argument};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::rows::{partition, queue};
use pgrx::pg_sys::{self, Datum};
use queen_core::payload::PushItem;
use queen_core::{deadline, id, names, payload};
use std::borrow::Cow;
use std::fmt::Write;

/// A push that answers `duplicate`, or was queued until commit.
struct Answer {
    message_id: u128,
    partition_id: Option<u128>,
    offset: Option<i64>,
    duplicate: bool,
}

fn row<'a>(index: i32, answer: &Answer, transaction_id: &'a str, queue: &'a str) -> [Value<'a>; 7] {
    [
        Value::Int4(index),
        Value::Uuid(answer.message_id),
        Value::Text(transaction_id),
        Value::Text(queue),
        Value::opt_uuid(answer.partition_id),
        Value::Text(if answer.duplicate { "duplicate" } else { "queued" }),
        Value::opt_int8(answer.offset),
    ]
}

/// Keeps a push until commit, or answers what it is a duplicate of.
///
/// An encrypted queue without a key is refused here, where the caller can still do something about it.
fn defer(tables: &Tables, push: Push<'_>) -> Result<Answer> {
    let explicit = push.transaction_id.as_deref();
    if let Some(queue) = queue::find_recent(tables, push.tenant, &push.queue, explicit.is_none())? {
        seal::sealer(&queue.name, &queue.options)?;
        if queue.options.deadlines {
            readable_deadline(push.headers.as_deref())?;
        }
        let window = i64::from(queue.options.dedup_window_seconds) * 1_000_000;
        if let Some(wanted) = explicit
            && window > 0
            && let Some(partition) = partition::find(tables, queue.qid, &push.partition)
            && let Some(original) = lookup::duplicate(tables, partition.pid, wanted, clock::now() - window)?
        {
            return Ok(Answer {
                message_id: original.message_id,
                partition_id: Some(partition.id),
                offset: Some(original.offset),
                duplicate: true,
            });
        }
    }
    let (message_id, duplicate) = match pending::add(pending::owned(push), nest_level()) {
        Added::Queued(id) => (id, false),
        Added::Duplicate(id) => (id, true),
    };
    Ok(Answer { message_id, partition_id: None, offset: None, duplicate })
}

fn no_payload(name: &str) -> crate::error::Error {
    error(ErrorKind::InvalidPayload, format!("{name} is missing: it must not be NULL (JSON null is a payload)"))
}

pub(super) fn too_large(payload: &str) -> Result<()> {
    let limit = guc::max_payload_bytes();
    if payload.len() > limit {
        return Err(error(
            ErrorKind::PayloadTooLarge,
            format!("the payload has {} bytes, the limit queen.max_payload_bytes is {limit}", payload.len()),
        ));
    }
    Ok(())
}

/// Refuses a deadline that nobody could read, in a queue that honours deadlines.
fn readable_deadline(headers: Option<&str>) -> Result<()> {
    headers.map_or(Ok(()), |headers| deadline::of_headers(headers.as_bytes()).map(drop).map_err(Into::into))
}

/// As [`readable_deadline`], where the queue is not at hand: it is looked up only for headers that have one to be read.
pub(super) fn deadline_of_item(tables: &Tables, tenant: u128, queue: &str, headers: Option<&str>) -> Result<()> {
    match readable_deadline(headers) {
        Err(e) if queue::find_recent(tables, tenant, queue, true)?.is_some_and(|q| q.options.deadlines) => Err(e),
        _ => Ok(()),
    }
}

/// `queen.push(queue, payload jsonb, partition, transaction_id, trace_id, headers) → push_result`
pub fn push(call: &Call) -> Result<Datum> {
    let queue = arguments::queue(call, 0)?;
    let payload = call.jsonb(1)?.ok_or_else(|| no_payload("payload"))?;
    let partition = call.text(2)?.unwrap_or("Default");
    names::check_partition(partition)?;
    let transaction_id = call.text(3)?;
    if let Some(t) = transaction_id {
        names::check_transaction_id(t)?;
    }
    too_large(payload)?;
    let headers = call.jsonb(5)?;
    if headers.is_some_and(|h| !h.starts_with('{')) {
        return Err(error(ErrorKind::InvalidPayload, "headers must be a JSON object"));
    }
    let tables = Tables::default();
    let answer = defer(
        &tables,
        Push {
            tenant: guc::tenant()?,
            queue: Cow::Borrowed(queue),
            partition: Cow::Borrowed(partition),
            payload: Cow::Borrowed(payload),
            transaction_id: transaction_id.map(Cow::Borrowed),
            trace_id: call.uuid(4),
            headers: headers.map(Cow::Borrowed),
            producer: None,
            id: None,
        },
    )?;
    let text = transaction_id.map_or_else(|| Cow::Owned(id::format(answer.message_id)), Cow::Borrowed);
    Ok(call.row(&row(0, &answer, &text, queue)))
}

/// `queen.push_many(queue, payloads jsonb[], partition, transaction_ids text[]) → SETOF push_result`
pub fn push_many(call: &Call) -> Result<Datum> {
    let queue = arguments::queue(call, 0)?;
    let payloads = call.array(1, pg_sys::JSONBOID)?.ok_or_else(|| null_argument("payloads"))?;
    let partition = call.text(2)?.unwrap_or("Default");
    names::check_partition(partition)?;
    let ids = call.array(3, pg_sys::TEXTOID)?;
    if let Some(ids) = &ids
        && ids.len() != payloads.len()
    {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!("transaction_ids has {} elements, payloads has {}", ids.len(), payloads.len()),
        ));
    }
    let tenant = guc::tenant()?;
    let mut pushes = Vec::with_capacity(payloads.len());
    for (n, payload) in payloads.iter().enumerate() {
        let payload = payload.ok_or_else(|| no_payload(&format!("payloads[{}]", n + 1)))?;
        too_large(payload)?;
        let transaction_id = ids.as_ref().and_then(|ids| ids[n]);
        if let Some(t) = transaction_id {
            names::check_transaction_id(t)?;
        }
        pushes.push(Push {
            tenant,
            queue: Cow::Borrowed(queue),
            partition: Cow::Borrowed(partition),
            payload: Cow::Borrowed(payload),
            transaction_id: transaction_id.map(Cow::Borrowed),
            trace_id: None,
            headers: None,
            producer: None,
            id: None,
        });
    }
    let tables = Tables::default();
    let mut answers = Vec::with_capacity(pushes.len());
    for push in pushes {
        let explicit = push.transaction_id.clone().map(Cow::into_owned);
        let answer = defer(&tables, push)?;
        answers.push((explicit.unwrap_or_else(|| id::format(answer.message_id)), answer));
    }
    let mut rows = call.rows();
    for (n, (transaction_id, answer)) in answers.iter().enumerate() {
        rows.put(&row(n as i32, answer, transaction_id, queue));
    }
    rows.done()
}

/// The items of a batch, checked and appended at once.
fn batch(items: Vec<PushItem<'_>>) -> Result<(Vec<Push<'_>>, Vec<Pushed>)> {
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let mut pushes = Vec::with_capacity(items.len());
    for (n, item) in items.into_iter().enumerate() {
        let at = |e: crate::error::Error| {
            let mut e = e;
            e.message = format!("item {n}: {}", e.message);
            e
        };
        names::check_queue(&item.queue).map_err(|e| at(e.into()))?;
        names::check_partition(&item.partition).map_err(|e| at(e.into()))?;
        if let Some(t) = &item.transaction_id {
            names::check_transaction_id(t).map_err(|e| at(e.into()))?;
        }
        if let Some(p) = &item.producer {
            names::check_producer(p).map_err(|e| at(e.into()))?;
        }
        too_large(item.payload).map_err(at)?;
        deadline_of_item(&tables, tenant, &item.queue, item.headers).map_err(at)?;
        pushes.push(Push {
            tenant,
            queue: item.queue,
            partition: item.partition,
            payload: Cow::Borrowed(item.payload),
            transaction_id: item.transaction_id,
            trace_id: item.trace_id,
            headers: item.headers.map(Cow::Borrowed),
            producer: item.producer,
            id: None,
        });
    }
    let results = append(&tables, &pushes, When::Now)?;
    Ok((pushes, results))
}

fn answer_of(pushed: &Pushed) -> Answer {
    Answer {
        message_id: pushed.message_id,
        partition_id: Some(pushed.partition_id),
        offset: Some(pushed.offset),
        duplicate: pushed.duplicate,
    }
}

/// `queen.push_batch(items json) → SETOF push_result`
pub fn push_batch(call: &Call) -> Result<Datum> {
    let items = payload::parse_push_items(call.required_text(0, "items")?)?;
    let (pushes, results) = batch(items)?;
    let mut rows = call.rows();
    for (n, (push, pushed)) in pushes.iter().zip(&results).enumerate() {
        let mut buffer = [0u8; 36];
        let text = match &push.transaction_id {
            Some(t) => t.as_ref(),
            None => {
                id::write(pushed.message_id, &mut buffer);
                std::str::from_utf8(&buffer).unwrap_or_default()
            }
        };
        rows.put(&row(n as i32, &answer_of(pushed), text, &push.queue));
    }
    rows.done()
}

/// `queen.push_batch_json(items text) → text`: one object an item, without what the caller knows already. Who may call
/// it has authenticated who pushes, and says so in each item.
pub fn push_batch_json(call: &Call) -> Result<Datum> {
    let items = payload::parse_signed_items(call.required_text(0, "items")?)?;
    let (_, results) = batch(items)?;
    let mut out = String::with_capacity(results.len() * 80 + 2);
    for pushed in &results {
        out.push_str(if out.is_empty() { "[" } else { "," });
        out.push_str("{\"messageId\":\"");
        let mut buffer = [0u8; 36];
        id::write(pushed.message_id, &mut buffer);
        out.push_str(std::str::from_utf8(&buffer).unwrap_or_default());
        _ = write!(out, "\",\"offset\":{}", pushed.offset);
        out.push_str(if pushed.duplicate { ",\"duplicate\":true}" } else { "}" });
    }
    out.push_str(if out.is_empty() { "[]" } else { "]" });
    Ok(call.value(Value::Text(&out)))
}

/// `queen.flush() → bigint`: appends the transaction's pending pushes now.
pub fn flush(call: &Call) -> Result<Datum> {
    let stored = pending::append_all(When::Now)?;
    Ok(call.value(Value::Int8(stored)))
}
