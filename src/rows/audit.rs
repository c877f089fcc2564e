//! What was done to dead letters and groups, and by whom: rows that nobody changes.

use crate::pg::spi;
use pgrx::JsonB;

/// One row; its actor is the session's ([`queen.actor()`](../../../sql/functions/actor.sql)).
pub fn write(action: &str, queue: &str, detail: &serde_json::Value) {
    let statement = "SELECT queen.dlq_audit($1, NULL, NULL, $2, $3)";
    let detail = JsonB(detail.clone());
    spi::as_owner(|client| client.update(statement, None, &[action.into(), queue.into(), detail.into()]).map(|_| ()))
        .unwrap_or_else(|e| pgrx::error!("writing the audit: {e}"));
}

/// One row for something that nobody asked for just now.
pub fn write_as(actor: &str, action: &str, queue: &str, detail: &serde_json::Value) {
    let statement = "INSERT INTO queen.dlq_event (at, tenant, actor, action, queue, consumer_group, detail) \
         VALUES (pg_catalog.clock_timestamp(), queen.current_tenant(), $1, $2, $3, \
                 $4 OPERATOR(pg_catalog.->>) 'consumerGroup', $4)";
    let detail = JsonB(detail.clone());
    spi::as_owner(|client| {
        client.update(statement, None, &[actor.into(), action.into(), queue.into(), detail.into()]).map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("writing the audit: {e}"));
}
