//! Moving a dead letter back into a queue.

use crate::broker::append::{Push, When, append};
use crate::broker::dead::{self, Unplayable};
use crate::broker::lookup;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb, null_argument};
use crate::pg::relation::Tables;
use crate::rows::dead_letter;
use crate::rows::{partition, queue};
use pgrx::pg_sys::Datum;
use queen_core::{id, names};
use std::borrow::Cow;

/// `queen.dlq_move_v1(dlq_id, to_queue, to_partition) → jsonb`
///
/// Locks the record, appends its message with the transaction id `dlq:<record id>` through the ordinary push path, and
/// deletes the record: one transaction. A message with that id already there keeps the record (`duplicate`), whatever
/// the window. A redacted record is moved from the log; when the log has lost the message it stays (`redacted`).
pub fn dlq_move_v1(call: &Call) -> Result<Datum> {
    let dlq_id = call.uuid(0).ok_or_else(|| null_argument("dlq_id"))?;
    let tenant = guc::tenant()?;
    let (to_queue, to_partition) = (call.text(1)?.map(str::trim), call.text(2)?.map(str::trim));
    if let Some(q) = to_queue {
        names::check_queue(q)?;
    }
    if let Some(p) = to_partition {
        names::check_partition(p)?;
    }
    let Some(record) = dead_letter::lock(tenant, dlq_id) else {
        return Ok(call.value(jsonb(&serde_json::json!({"result": "gone", "dlqId": id::format(dlq_id)}).to_string())));
    };
    let tables = Tables::default();
    let original = match dead::replayable_payload(&tables, &record)? {
        Ok(original) => original,
        Err(Unplayable::Redacted) => {
            let verdict = serde_json::json!({"result": "redacted", "dlqId": id::format(dlq_id)});
            return Ok(call.value(jsonb(&verdict.to_string())));
        }
        Err(Unplayable::Sealed) => {
            return Err(error(
                ErrorKind::EncryptionUnavailable,
                "the dead letter is sealed with a key that is not configured: it cannot be moved",
            )
            .with_hint("Add the key it was sealed with to queen.encryption_keys."));
        }
    };
    let queue_name = to_queue.unwrap_or(&record.queue);
    let partition_name = to_partition.unwrap_or(&record.partition);
    let transaction_id = format!("dlq:{}", id::format(dlq_id));
    let already =
        match queue::find(&tables, tenant, queue_name)?.and_then(|q| partition::find(&tables, q.qid, partition_name)) {
            Some(partition) => lookup::find(&tables, partition.pid, &transaction_id)?.first().copied(),
            None => None,
        };
    let (result, message_id, offset) = match already {
        Some(found) => ("duplicate", found.message_id, found.offset),
        None => {
            let pushed = append(
                &tables,
                &[Push {
                    tenant,
                    queue: Cow::Borrowed(queue_name),
                    partition: Cow::Borrowed(partition_name),
                    payload: Cow::Borrowed(&original.text),
                    transaction_id: Some(Cow::Borrowed(&transaction_id)),
                    trace_id: None,
                    headers: original.headers.as_deref().map(Cow::Borrowed),
                    producer: None,
                    id: None,
                }],
                When::Now,
            )?;
            let pushed =
                pushed.first().ok_or_else(|| error(ErrorKind::Internal, "the moved message was not appended"))?;
            if !pushed.duplicate {
                dead_letter::delete_row(tenant, dlq_id);
            }
            (if pushed.duplicate { "duplicate" } else { "moved" }, pushed.message_id, pushed.offset)
        }
    };
    let verdict = serde_json::json!({
        "result": result,
        "queue": queue_name,
        "partition": partition_name,
        "consumerGroup": record.group,
        "dlqId": id::format(dlq_id),
        "originalTransactionId": record.transaction_id,
        "messageId": id::format(message_id),
        "transactionId": transaction_id,
        "offset": offset,
    });
    Ok(call.value(jsonb(&verdict.to_string())))
}
