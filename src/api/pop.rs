//! Consuming.

use crate::api::arguments;
use crate::broker::claim::{Batch, Wish};
use crate::broker::discover::{Search, conflation_and_auto_ack, start};
use crate::broker::recent;
use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, iso, jsonb};
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::rows::subscription::QUEUE_MODE;
use pgrx::pg_sys::Datum;
use queen_core::segment::Frame;
use queen_core::{id, names};
use std::fmt::Write;

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

const POP: Shared = Shared { group: 1, batch: 2, max_partitions: 4, lease_seconds: 5, auto_ack: 6, mode: 7, from: 8 };
const MATCHING: Shared =
    Shared { group: 2, batch: 3, max_partitions: 4, lease_seconds: 5, auto_ack: 6, mode: 7, from: 8 };

/// Where those that answer rows take `jsonb_payload`.
const JSONB_PAYLOAD: usize = 9;
/// Where they take `conflation`, and where those that answer JSON do.
const CONFLATION: usize = 10;
const CONFLATION_JSON: usize = 9;
/// Where those that answer JSON take `max_bytes`.
const MAX_BYTES: usize = 10;

/// What the caller gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Rows,
    Json,
}

fn search<'a>(call: &'a Call, tables: &'a Tables, at: &Shared, shape: Shape) -> Result<Search<'a>> {
    let group = arguments::group(call, at.group)?;
    let batch = arguments::at_least_one(call.int4(at.batch), "batch", 1)?;
    let lease_seconds = call.int4(at.lease_seconds).map(arguments::lease_seconds).transpose()?;
    let partitions = call.int4(at.max_partitions).unwrap_or(1);
    let auto_ack = call.bool(at.auto_ack).unwrap_or(false);
    let (conflation, max_bytes) = match shape {
        Shape::Rows => (call.bool(CONFLATION), None),
        Shape::Json => (call.bool(CONFLATION_JSON), call.int4(MAX_BYTES)),
    };
    let max_bytes = max_bytes.map(|n| arguments::at_least_one(Some(n), "max_bytes", 1)).transpose()?;
    if conflation == Some(true) {
        if group == QUEUE_MODE {
            return Err(error(ErrorKind::InvalidArgument, "conflation requires a consumer group"));
        }
        if auto_ack {
            return Err(conflation_and_auto_ack());
        }
    }
    Ok(Search {
        tables,
        wish: Wish::new(batch, lease_seconds, auto_ack, max_bytes.map(|n| n as usize)),
        group,
        start: start(group, call.text(at.mode)?, call.text(at.from)?)?,
        partitions: usize::try_from(partitions).ok().filter(|&n| n > 0).unwrap_or(usize::MAX),
        conflation,
        found: Vec::new(),
        conflating: None,
        conflict: false,
    })
}

fn popped<'a>(call: &'a Call, tables: &'a Tables, shape: Shape) -> Result<Search<'a>> {
    let queue = arguments::queue(call, 0)?;
    let mut search = search(call, tables, &POP, shape)?;
    match call.text(3)? {
        Some(partition) => {
            names::check_partition(partition)?;
            search.named(guc::tenant()?, queue, partition)?;
        }
        None => search.any(guc::tenant()?, queue)?,
    }
    Ok(search)
}

fn matched<'a>(call: &'a Call, tables: &'a Tables, shape: Shape) -> Result<Search<'a>> {
    let (namespace, task) = (call.text(0)?, call.text(1)?);
    if namespace.is_none() && task.is_none() {
        return Err(error(ErrorKind::InvalidArgument, "namespace or task is required"));
    }
    let mut search = search(call, tables, &MATCHING, shape)?;
    search.matching(guc::tenant()?, namespace, task)?;
    Ok(search)
}

/// Calls `show` for each delivered message: its batch, offset, creation time and frame.
fn each_message(batches: &[Batch], mut show: impl FnMut(&Batch, i64, i64, &Frame<'_>) -> Result<()>) -> Result<()> {
    for batch in batches {
        for piece in &batch.pieces {
            recent::each_frame(batch.partition.pid, piece, batch.first, batch.last, |offset, frame| {
                show(batch, offset, piece.created_at, frame)
            })?;
        }
    }
    Ok(())
}

fn as_rows(call: &Call, batches: &[Batch]) -> Result<Datum> {
    let with_jsonb = call.bool(JSONB_PAYLOAD).unwrap_or(true);
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
            if with_jsonb { jsonb(&text) } else { Value::Null },
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

/// Everything a call claimed as one JSON text, with what messages share said once: what the sidecar renders the wire's
/// answer from. Payloads are copied byte for byte.
fn as_json(call: &Call, search: &Search<'_>) -> Result<Datum> {
    let batches = &search.found;
    let opener = Opener::new();
    let mut out = String::with_capacity(4096);
    out.push_str("{\"leaseId\":");
    push_id(&mut out, batches.first().and_then(|b| b.lease));
    out.push_str(",\"batches\":[");
    for (n, batch) in batches.iter().enumerate() {
        out.push_str(if n > 0 { ",{\"queue\":" } else { "{\"queue\":" });
        push_string(&mut out, &batch.queue);
        out.push_str(",\"partition\":");
        push_string(&mut out, &batch.partition.name);
        out.push_str(",\"partitionId\":");
        push_id(&mut out, Some(batch.partition.id));
        out.push_str(",\"consumerGroup\":");
        push_string(&mut out, &batch.group);
        _ = write!(out, ",\"deliveryAttempt\":{},\"segments\":[", batch.attempt);
        let mut segment = None;
        each_message(std::slice::from_ref(batch), |_, offset, created_at, frame| {
            if segment != Some(created_at) {
                out.push_str(if segment.is_some() { "]},{" } else { "{" });
                segment = Some(created_at);
                _ = write!(out, "\"createdAt\":\"{}\",\"offset\":{offset},\"messages\":[", iso(created_at));
            } else {
                out.push(',');
            }
            out.push_str("{\"id\":");
            push_id(&mut out, Some(frame.id));
            if let Some(t) = frame.transaction_id {
                out.push_str(",\"transactionId\":");
                push_string(&mut out, t);
            }
            if frame.trace_id.is_some() {
                out.push_str(",\"traceId\":");
                push_id(&mut out, frame.trace_id);
            }
            if let Some(producer) = frame.producer {
                out.push_str(",\"producerSub\":");
                push_string(&mut out, producer);
            }
            if let Some(headers) = frame.headers.and_then(|h| std::str::from_utf8(h).ok()) {
                out.push_str(",\"headers\":");
                out.push_str(headers);
            }
            let (text, sealed) = opener.open(frame.payload, frame.encrypted);
            if sealed {
                out.push_str(",\"isEncrypted\":true");
            }
            out.push_str(",\"data\":");
            out.push_str(&text);
            out.push('}');
            Ok(())
        })?;
        out.push_str(if segment.is_some() { "]}]}" } else { "]}" });
    }
    out.push(']');
    if search.conflates() {
        out.push_str(",\"conflation\":true");
    }
    if search.conflict {
        out.push_str(",\"conflationConflict\":true");
    }
    out.push('}');
    Ok(call.value(Value::Text(&out)))
}

fn push_id(out: &mut String, id: Option<u128>) {
    match id {
        None => out.push_str("null"),
        Some(id) => {
            let mut buffer = [0u8; 36];
            id::write(id, &mut buffer);
            out.push('"');
            out.push_str(std::str::from_utf8(&buffer).unwrap_or_default());
            out.push('"');
        }
    }
}

fn push_string(out: &mut String, text: &str) {
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// `queen.pop(…) → SETOF message`
pub fn pop(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_rows(call, &popped(call, &tables, Shape::Rows)?.found)
}

/// `queen.pop_json(…) → text`
pub fn pop_json(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_json(call, &popped(call, &tables, Shape::Json)?)
}

/// `queen.pop_matching(…) → SETOF message`
pub fn pop_matching(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_rows(call, &matched(call, &tables, Shape::Rows)?.found)
}

/// `queen.pop_matching_json(…) → text`
pub fn pop_matching_json(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    as_json(call, &matched(call, &tables, Shape::Json)?)
}
