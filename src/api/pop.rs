//! Consuming.

use crate::api::arguments;
use crate::broker::claim::{Batch, Wish};
use crate::broker::discover::{Search, start};
use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, iso, jsonb};
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use pgrx::pg_sys::Datum;
use queen_core::segment::Frame;
use queen_core::{id, names};

/// Where the arguments of `pop` and `pop_matching` are that both have.
struct Shared {
    group: usize,
    batch: usize,
    max_partitions: usize,
    lease_seconds: usize,
    auto_ack: usize,
    mode: usize,
    from: usize,
}

const POP: Shared =
    Shared { group: 1, batch: 2, max_partitions: 4, lease_seconds: 5, auto_ack: 6, mode: 7, from: 8 };
const MATCHING: Shared =
    Shared { group: 2, batch: 3, max_partitions: 4, lease_seconds: 5, auto_ack: 6, mode: 7, from: 8 };

fn search<'a>(call: &'a Call, tables: &'a Tables, at: &Shared) -> Result<Search<'a>> {
    let group = arguments::group(call, at.group)?;
    let batch = arguments::at_least_one(call.int4(at.batch), "batch", 1)?;
    let lease_seconds = call.int4(at.lease_seconds).map(arguments::lease_seconds).transpose()?;
    let partitions = call.int4(at.max_partitions).unwrap_or(1);
    Ok(Search {
        tables,
        wish: Wish::new(batch, lease_seconds, call.bool(at.auto_ack).unwrap_or(false)),
        group,
        start: start(group, call.text(at.mode)?, call.text(at.from)?)?,
        partitions: usize::try_from(partitions).ok().filter(|&n| n > 0).unwrap_or(usize::MAX),
        found: Vec::new(),
    })
}

fn popped(call: &Call, tables: &Tables) -> Result<Vec<Batch>> {
    let queue = arguments::queue(call, 0)?;
    let mut search = search(call, tables, &POP)?;
    match call.text(3)? {
        Some(partition) => {
            names::check_partition(partition)?;
            search.named(guc::tenant()?, queue, partition)?;
        }
        None => search.any(guc::tenant()?, queue)?,
    }
    Ok(search.found)
}

fn matched(call: &Call, tables: &Tables) -> Result<Vec<Batch>> {
    let (namespace, task) = (call.text(0)?, call.text(1)?);
    if namespace.is_none() && task.is_none() {
        return Err(error(ErrorKind::InvalidArgument, "namespace or task is required"));
    }
    let mut search = search(call, tables, &MATCHING)?;
    search.matching(guc::tenant()?, namespace, task)?;
    Ok(search.found)
}

/// Calls `show` for each delivered message: its batch, offset, creation time and frame.
fn each_message(batches: &[Batch], mut show: impl FnMut(&Batch, i64, i64, &Frame<'_>) -> Result<()>) -> Result<()> {
    for batch in batches {
        for stored in &batch.segments {
            let opened = stored.open()?;
            for offset in stored.base.max(batch.first)..=stored.end().min(batch.last) {
                let frame = opened
                    .frame((offset - stored.base) as usize)
                    .map_err(|e| stored.damaged(&e.to_string(), e.kind()))?;
                show(batch, offset, stored.created_at, &frame)?;
            }
        }
    }
    Ok(())
}

fn as_rows(call: &Call, batches: &[Batch]) -> Result<Datum> {
    let mut rows = call.rows();
    let opener = Opener::new();
    each_message(batches, |batch, offset, created_at, frame| {
        let (text, _) = opener.open(frame.payload, frame.encrypted);
        let mut buffer = [0u8; 36];
        let transaction_id = match frame.transaction_id {
            Some(t) => t,
            None => {
                id::write(frame.id, &mut buffer);
                std::str::from_utf8(&buffer).unwrap_or_default()
            }
        };
        rows.put(&[
            Value::Text(&batch.queue),
            Value::Text(&batch.partition.name),
            Value::Uuid(batch.partition.id),
            Value::Int8(offset),
            Value::Uuid(frame.id),
            Value::Text(transaction_id),
            jsonb(&text),
            Value::Text(&text),
            frame.headers.and_then(|h| std::str::from_utf8(h).ok()).map_or(Value::Null, jsonb),
            Value::opt_uuid(frame.trace_id),
            Value::opt_text(frame.producer),
            Value::Time(created_at),
            Value::opt_uuid(batch.lease),
            Value::Text(&batch.group),
            Value::Int4(batch.attempt),
        ]);
        Ok(())
    })?;
    rows.done()
}

/// The wire's message objects, as one JSON array; payloads are copied byte for byte.
fn as_json(call: &Call, batches: &[Batch]) -> Result<Datum> {
    let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let opener = Opener::new();
    let mut out = String::from("[");
    each_message(batches, |batch, offset, created_at, frame| {
        let (text, sealed) = opener.open(frame.payload, frame.encrypted);
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&format!("{{\"id\":\"{}\",\"transactionId\":", id::format(frame.id)));
        out.push_str(&quoted(&frame.transaction_id_text()));
        out.push_str(",\"traceId\":");
        out.push_str(&frame.trace_id.map_or_else(|| "null".to_owned(), |t| format!("\"{}\"", id::format(t))));
        out.push_str(",\"data\":");
        out.push_str(&text);
        out.push_str(&format!(
            ",\"producerSub\":{},\"createdAt\":\"{}\",\"queue\":{},\"partition\":{},\"partitionId\":\"{}\",\"offset\":{offset},\"leaseId\":\"{}\",\"consumerGroup\":{},\"deliveryAttempt\":{}",
            frame.producer.map_or_else(|| "null".to_owned(), quoted),
            iso(created_at),
            quoted(&batch.queue),
            quoted(&batch.partition.name),
            id::format(batch.partition.id),
            batch.lease.map_or_else(String::new, id::format),
            quoted(&batch.group),
            batch.attempt,
        ));
        if let Some(headers) = frame.headers.and_then(|h| std::str::from_utf8(h).ok()) {
            out.push_str(",\"headers\":");
            out.push_str(headers);
        }
        if sealed {
            out.push_str(",\"isEncrypted\":true");
        }
        out.push('}');
        Ok(())
    })?;
    out.push(']');
    Ok(call.value(Value::Text(&out)))
}

/// `queen.pop(…) → SETOF message`
pub fn pop(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_rows(call, &popped(call, &tables)?)
}

/// `queen.pop_json(…) → text`
pub fn pop_json(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_json(call, &popped(call, &tables)?)
}

/// `queen.pop_matching(…) → SETOF message`
pub fn pop_matching(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_rows(call, &matched(call, &tables)?)
}

/// `queen.pop_matching_json(…) → text`
pub fn pop_matching_json(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_json(call, &matched(call, &tables)?)
}
