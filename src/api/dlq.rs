//! Reading and removing dead letters.

use crate::api::arguments;
use crate::broker::seal::Opener;
use crate::error::Result;
use crate::guc;
use crate::pg::call::{Call, null_argument};
use crate::pg::value::Value;
use crate::rows::{audit, dead_letter};
use pgrx::pg_sys::Datum;

/// `queen.dlq(queue, consumer_group, max_rows, skip, partition_id, transaction_id) → SETOF dead_letter`
pub fn dlq(call: &Call) -> Result<Datum> {
    let max_rows = arguments::not_negative(call.int4(2), "max_rows", 100)?;
    let skip = arguments::not_negative(call.int4(3), "skip", 0)?;
    let only = dead_letter::Only {
        queue: call.text(0)?,
        group: call.text(1)?,
        partition_id: call.uuid(4),
        transaction_id: call.text(5)?,
    };
    let records = dead_letter::list(guc::tenant()?, &only, max_rows, skip);
    let opener = Opener::new();
    let mut rows = call.rows();
    for record in &records {
        let (text, sealed) = opener.open(&record.payload, record.is_encrypted);
        let headers = record.headers.as_deref().and_then(|h| std::str::from_utf8(h).ok());
        rows.put(&record.row(&text, headers, sealed));
    }
    rows.done()
}

/// `queen.dlq_delete(partition_id, transaction_id) → bigint`: every group's record of one message.
pub fn dlq_delete(call: &Call) -> Result<Datum> {
    let partition = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    let deleted = dead_letter::delete_message(guc::tenant()?, partition, transaction_id);
    if deleted > 0 {
        let what = serde_json::json!({
            "records": deleted, "partitionId": queen_core::id::format(partition), "transactionId": transaction_id,
        });
        audit::note("deleted", None, None, &what);
    }
    Ok(call.value(Value::Int8(deleted)))
}

/// `queen.dlq_delete_row(dlq_id) → bigint`
pub fn dlq_delete_row(call: &Call) -> Result<Datum> {
    let id = call.uuid(0).ok_or_else(|| null_argument("dlq_id"))?;
    let deleted = dead_letter::delete_row(guc::tenant()?, id);
    if deleted > 0 {
        audit::note("deleted", Some(id), None, &serde_json::json!({"records": deleted}));
    }
    Ok(call.value(Value::Int8(deleted)))
}

/// `queen.dlq_purge(queue, consumer_group) → bigint`
pub fn dlq_purge(call: &Call) -> Result<Datum> {
    let queue = arguments::queue(call, 0)?;
    let group = call.text(1)?;
    let purged = dead_letter::purge(guc::tenant()?, queue, group);
    audit::note("purged", None, Some(queue), &serde_json::json!({"records": purged, "consumerGroup": group}));
    Ok(call.value(Value::Int8(purged)))
}
