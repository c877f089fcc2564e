//! Notes of consumers about messages: recording, reading, deleting.

use crate::api::arguments;
use crate::broker::append::mint;
use crate::broker::settle::partition_of;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, null_argument};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::rows::trace::{self, Trace};
use pgrx::pg_sys::{self, Datum};
use queen_core::names;

/// `queen.record_trace(partition_id, transaction_id, data, consumer_group, event_type, trace_names) → uuid`
pub fn record_trace(call: &Call) -> Result<Datum> {
    let partition_id = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    names::check_transaction_id(transaction_id)?;
    let data = call.required_text(2, "data")?;
    let limit = guc::max_payload_bytes();
    if data.len() > limit {
        return Err(error(
            ErrorKind::PayloadTooLarge,
            format!("the data has {} bytes, the limit queen.max_payload_bytes is {limit}", data.len()),
        ));
    }
    let group = arguments::group(call, 3)?;
    let event_type = call.text(4)?.unwrap_or("info");
    names::check_event_type(event_type)?;
    let trace_names = names_of(call)?;
    let Some((partition, queue)) = partition_of(&Tables::default(), guc::tenant()?, partition_id)? else {
        return Err(error(ErrorKind::PartitionNotFound, "there is no such partition"));
    };
    let created_at = clock::now();
    let trace = Trace {
        id: mint(created_at, 1),
        queue: queue.name,
        partition: partition.name,
        partition_id,
        transaction_id: transaction_id.to_owned(),
        group: group.to_owned(),
        event_type: event_type.to_owned(),
        data: data.to_owned(),
        names: trace_names,
        created_at,
    };
    trace::insert(queue.tenant, &trace);
    Ok(call.value(Value::Uuid(trace.id)))
}

/// The names, each once, in the order given.
fn names_of(call: &Call) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    for name in call.array(5, pg_sys::TEXTOID)?.unwrap_or_default() {
        let name = name.ok_or_else(|| null_argument("an element of trace_names"))?;
        names::check_trace_name(name)?;
        if !found.iter().any(|f| f == name) {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

fn put(call: &Call, traces: &[Trace]) -> Result<Datum> {
    let mut rows = call.rows();
    for t in traces {
        rows.put(&[
            Value::Uuid(t.id),
            Value::Text(&t.queue),
            Value::Text(&t.partition),
            Value::Uuid(t.partition_id),
            Value::Text(&t.transaction_id),
            Value::Text(&t.group),
            Value::Text(&t.event_type),
            Value::Text(&t.data),
            Value::texts(&t.names),
            Value::Time(t.created_at),
        ]);
    }
    rows.done()
}

/// `queen.traces(partition_id, transaction_id) → SETOF trace_event`
pub fn traces(call: &Call) -> Result<Datum> {
    let partition_id = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    put(call, &trace::of_message(guc::tenant()?, partition_id, transaction_id))
}

/// `queen.traces_by_name(name, max_rows, skip) → SETOF trace_event`
pub fn traces_by_name(call: &Call) -> Result<Datum> {
    let name = call.required_text(0, "name")?;
    let max_rows = arguments::not_negative(call.int4(1), "max_rows", 100)?;
    let skip = arguments::not_negative(call.int4(2), "skip", 0)?;
    put(call, &trace::of_name(guc::tenant()?, name, max_rows, skip))
}

/// `queen.trace_names(max_rows, skip, name) → TABLE (trace_name, trace_count, message_count, last_seen_at, total)`
pub fn trace_names(call: &Call) -> Result<Datum> {
    let max_rows = arguments::not_negative(call.int4(0), "max_rows", 50)?;
    let skip = arguments::not_negative(call.int4(1), "skip", 0)?;
    let found = trace::names(guc::tenant()?, call.text(2)?, max_rows, skip);
    let mut rows = call.rows();
    for n in &found {
        rows.put(&[
            Value::Text(&n.name),
            Value::Int8(n.traces),
            Value::Int8(n.messages),
            Value::Time(n.last_seen_at),
            Value::Int8(n.total),
        ]);
    }
    rows.done()
}

/// `queen.delete_traces(older_than) → bigint`
pub fn delete_traces(call: &Call) -> Result<Datum> {
    let before = call.before(0, clock::now()).ok_or_else(|| null_argument("older_than"))?;
    Ok(call.value(Value::Int8(trace::delete_before(guc::tenant()?, before))))
}
