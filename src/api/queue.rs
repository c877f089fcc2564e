//! Queues: configure and drop.

use crate::api::arguments;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb};
use crate::pg::relation::Tables;
use crate::pg::spi;
use crate::pg::value::Value;
use crate::rows::queue;
use pgrx::pg_sys::Datum;
use queen_core::names;
use queen_core::options::{Mode, QueueOptions};

/// `queen.configure(queue, options jsonb, mode) → jsonb`: all effective options.
pub fn configure(call: &Call) -> Result<Datum> {
    let name = arguments::queue(call, 0)?;
    let given = call.jsonb(1)?.unwrap_or("{}");
    let mode = match call.text(2)?.unwrap_or("merge") {
        "merge" => Mode::Merge,
        "replace" => Mode::Replace,
        other => {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("mode must be \"merge\" or \"replace\", got \"{}\"", names::cut(other, 64)),
            ));
        }
    };
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    // Before the options are read: of two merges at once, the later one keeps what the earlier one changed.
    queue::lock_name(tenant, name);
    let options = match queue::find(&tables, tenant, name)? {
        Some(queue) => changed(&queue, given, mode)?,
        None => {
            let options = QueueOptions::configured_default().merge(given, mode)?;
            queue::create(&tables, tenant, name, options.clone())?;
            options
        }
    };
    if options.encryption_enabled && guc::key_ring().map_or(true, |ring| ring.is_empty()) {
        pgrx::warning!(
            "queue \"{}\" is encrypted but no usable key is configured: pushes to it are refused until \
             queen.encryption_keys or queen.encryption_key_file is set",
            names::cut(name, 64)
        );
    }
    Ok(call.value(jsonb(&options.to_json())))
}

fn changed(queue: &queue::Queue, given: &str, mode: Mode) -> Result<QueueOptions> {
    let options = queue.options.merge(given, mode)?;
    queue::set_options(queue.qid, &options);
    Ok(options)
}

/// `queen.drop_queue(queue) → boolean`: the queue, everything in it and its dead letters.
///
/// Locks the name, then every partition in order of name, so that it waits for pushes under way and they for it.
pub fn drop_queue(call: &Call) -> Result<Datum> {
    let name = arguments::queue(call, 0)?;
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    queue::lock_name(tenant, name);
    let Some(queue) = queue::find(&tables, tenant, name)? else { return Ok(call.value(Value::Bool(false))) };
    crate::rows::partition::lock_creation(queue.qid);
    crate::rows::subscription::lock_creation(queue.qid);
    let statements = [
        "SELECT pid FROM queen.partition WHERE qid = $1 ORDER BY name FOR UPDATE",
        "DELETE FROM queen.ready r USING queen.subscription s WHERE s.qid = $1 AND r.gid = s.gid",
        "DELETE FROM queen.cursor c USING queen.subscription s WHERE s.qid = $1 AND c.gid = s.gid",
        "DELETE FROM queen.segment s USING queen.partition p WHERE p.qid = $1 AND s.pid = p.pid",
        "DELETE FROM queen.transaction_id t USING queen.partition p WHERE p.qid = $1 AND t.pid = p.pid",
        "DELETE FROM queen.trimmed t USING queen.partition p WHERE p.qid = $1 AND t.pid = p.pid",
        "DELETE FROM queen.subscription WHERE qid = $1",
        "DELETE FROM queen.dropped_duplicate WHERE qid = $1",
        "DELETE FROM queen.dead_letter_record WHERE qid = $1",
        "DELETE FROM queen.partition WHERE qid = $1",
        "DELETE FROM queen.queue WHERE qid = $1",
    ];
    spi::as_owner(|client| {
        for statement in statements {
            client.update(statement, None, &[queue.qid.into()])?;
        }
        Ok::<_, pgrx::spi::Error>(())
    })
    .unwrap_or_else(|e| pgrx::error!("dropping a queue: {e}"));
    Ok(call.value(Value::Bool(true)))
}

/// `queen.current_tenant() → uuid`: what the views show. A C function, so that the library is loaded, and a setting that
/// the session had no right to make is dropped, before it is read.
pub fn current_tenant(call: &Call) -> Result<Datum> {
    Ok(call.value(Value::Uuid(guc::tenant()?)))
}
