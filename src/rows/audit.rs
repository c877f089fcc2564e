//! The audit of what is done with dead letters and groups: rows are only ever added.

use crate::broker::replay::Replayed;
use crate::pg::spi::{self, uuid};
use crate::rows::dead_letter::Record;
use queen_core::id;

/// Adds a row, in the name of the session's actor.
pub fn note(action: &str, dlq_id: Option<u128>, queue: Option<&str>, detail: &serde_json::Value) {
    spi::as_owner(|client| {
        client
            .update(
                "SELECT queen.dlq_audit($1, $2, NULL, $3, $4::pg_catalog.jsonb)",
                None,
                &[action.into(), dlq_id.map(uuid).into(), queue.into(), detail.to_string().as_str().into()],
            )
            .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("writing the audit: {e}"));
}

/// Adds a row for something that nobody asked for just now: the actor is `queen`.
pub fn note_own(action: &str, queue: &str, detail: &serde_json::Value) {
    let statement = "INSERT INTO queen.dlq_event (tenant, actor, action, queue, consumer_group, detail) \
         SELECT queen.current_tenant(), 'queen', $1, $2, d ->> 'consumerGroup', d FROM (SELECT $3::jsonb) one (d)";
    spi::as_owner(|client| {
        client.update(statement, None, &[action.into(), queue.into(), detail.to_string().as_str().into()]).map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("writing the audit: {e}"));
}

/// What the audit keeps of a replay: enough to tell the ancestry of a message when the record is gone.
pub fn lineage(record: &Record, replayed: &Replayed) -> serde_json::Value {
    serde_json::json!({
        "messageId": id::format(replayed.message_id),
        "transactionId": replayed.transaction_id,
        "originalMessageId": id::format(record.message_id),
        "originalTransactionId": record.transaction_id,
        "consumerGroup": record.group,
        "toQueue": replayed.queue,
        "toPartition": replayed.partition,
        "hops": replayed.hops,
    })
}
