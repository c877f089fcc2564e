//! Moving a dead letter back into a queue.

use crate::broker::replay::{Destination, check_approval, replay};
use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb, null_argument};
use crate::pg::value::Value;
use crate::rows::{audit, dead_letter};
use pgrx::pg_sys::Datum;
use queen_core::id;
use queen_core::payload::check_json;

fn destination<'a>(call: &'a Call, queue: usize, partition: usize) -> Result<Destination<'a>> {
    let to = Destination { queue: call.text(queue)?.map(str::trim), partition: call.text(partition)?.map(str::trim) };
    to.check()?;
    Ok(to)
}

/// `queen.dlq_move_v1(dlq_id, to_queue, to_partition) → jsonb`
///
/// Locks the record, appends its message with the transaction id `dlq:<record id>` through the ordinary push path, and
/// deletes the record: one transaction. A message with that id already there keeps the record (`duplicate`), whatever
/// the window. A redacted record is moved from the log; when the log has lost the message it stays (`redacted`).
pub fn dlq_move_v1(call: &Call) -> Result<Datum> {
    let dlq_id = call.uuid(0).ok_or_else(|| null_argument("dlq_id"))?;
    let tenant = guc::tenant()?;
    let to = destination(call, 1, 2)?;
    let Some(record) = dead_letter::lock(tenant, dlq_id) else {
        return Ok(call.value(jsonb(&serde_json::json!({"result": "gone", "dlqId": id::format(dlq_id)}).to_string())));
    };
    check_approval(&record, to, None)?;
    let Some(replayed) = replay(&record, to, None)? else {
        let verdict = serde_json::json!({"result": "redacted", "dlqId": id::format(dlq_id)});
        return Ok(call.value(jsonb(&verdict.to_string())));
    };
    if !replayed.duplicate {
        dead_letter::delete_row(tenant, dlq_id);
        audit::note("moved", Some(dlq_id), Some(&record.queue), &audit::lineage(&record, &replayed));
    }
    let verdict = replayed.json(&record, if replayed.duplicate { "duplicate" } else { "moved" });
    Ok(call.value(jsonb(&verdict.to_string())))
}

/// `queen.dlq_replay_row(dlq_id, to_queue, to_partition, payload) → jsonb`
///
/// As a move, for plans and repairs: the record stays, as evidence, with status `replayed`. A message that is there already
/// decides nothing: anybody who may push can put one there. Of whatever tenant; the callers have looked.
pub fn dlq_replay_row(call: &Call) -> Result<Datum> {
    let dlq_id = call.uuid(0).ok_or_else(|| null_argument("dlq_id"))?;
    let to = destination(call, 1, 2)?;
    let payload = call.text(3)?;
    if let Some(payload) = payload {
        check_json(payload, guc::max_payload_bytes())?;
    }
    let Some(record) = dead_letter::lock_open(dlq_id) else {
        return Ok(call.value(jsonb(&serde_json::json!({"result": "gone", "dlqId": id::format(dlq_id)}).to_string())));
    };
    check_approval(&record, to, payload)?;
    let Some(replayed) = replay(&record, to, payload)? else {
        let verdict = serde_json::json!({
            "result": "refused", "dlqId": id::format(dlq_id), "error": "redacted, and the log has lost the message",
        });
        return Ok(call.value(jsonb(&verdict.to_string())));
    };
    if !replayed.duplicate {
        dead_letter::set_replayed(dlq_id);
    }
    let mut verdict = replayed.json(&record, if replayed.duplicate { "duplicate" } else { "moved" });
    verdict["partitionId"] = id::format(replayed.partition_id).into();
    verdict["detail"] = audit::lineage(&record, &replayed);
    Ok(call.value(jsonb(&verdict.to_string())))
}

/// `queen.dlq_payload(payload, is_encrypted) → (payload_text, payload_json)`: a stored payload in plain text, and as
/// jsonb where jsonb can hold it.
pub fn dlq_payload(call: &Call) -> Result<Datum> {
    let stored = call.bytes(0).ok_or_else(|| error(ErrorKind::InvalidArgument, "payload must not be NULL"))?;
    let (text, sealed) = Opener::new().open(stored, call.bool(1).unwrap_or(false));
    let json = if sealed { Value::Null } else { jsonb(&text) };
    Ok(call.row(&[Value::Text(&text), json]))
}
