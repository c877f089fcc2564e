//! Queues: configure and drop.

use crate::api::arguments;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb};
use crate::pg::relation::{Tables, queues_changed};
use crate::pg::value::Value;
use crate::pg::{commit, spi};
use crate::rows::{audit, cursor, dead_letter, queue, ready, subscription};
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
        Some(queue) => changed(&tables, &queue, given, mode)?,
        None => {
            let options = QueueOptions::configured_default().merge(given, mode)?;
            queue::create(&tables, tenant, name, options.clone())?;
            audit_governance(name, &QueueOptions::configured_default(), &options);
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

fn changed(tables: &Tables, queue: &queue::Queue, given: &str, mode: Mode) -> Result<QueueOptions> {
    let options = queue.options.merge(given, mode)?;
    queue::set_options(queue.qid, &options);
    audit_governance(&queue.name, &queue.options, &options);
    if (&options.namespace, &options.task) != (&queue.options.namespace, &queue.options.task) {
        // Pops of the new namespace or task find what is there already.
        commit::wake(queue.qid);
    }
    let delay = |o: &QueueOptions| o.delayed_processing.max(o.window_buffer);
    if delay(&options) < delay(&queue.options) {
        // Hints are due when the old delay ends: let every group look once more.
        for group in subscription::of_queue(tables, queue.qid).iter().filter(|g| g.registered) {
            ready::insert_sweep(tables, group.gid, 0);
        }
        commit::wake(queue.qid);
    }
    Ok(options)
}

/// Who decides about dead letters, and what is kept of them, does not change silently.
fn audit_governance(queue: &str, from: &QueueOptions, to: &QueueOptions) {
    if let Some(changes) = from.governance_changes(to) {
        audit::note("queue_configured", None, Some(queue), &serde_json::json!({"options": changes}));
    }
}

/// `queen.drop_queue(queue) → boolean`: the queue, everything in it and its dead letters.
///
/// Locks the name, then hints and cursors, then every partition in order of name: it waits for pops, acks and pushes under
/// way and they for it. Cursors before partitions, as in a transaction that acks and pushes: its pushes land at commit.
pub fn drop_queue(call: &Call) -> Result<Datum> {
    let name = arguments::queue(call, 0)?;
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    if commit::old_snapshot() {
        return Err(error(ErrorKind::InvalidArgument, "drop_queue needs isolation level READ COMMITTED"));
    }
    queue::lock_name(tenant, name);
    let Some(queue) = queue::find(&tables, tenant, name)? else { return Ok(call.value(Value::Bool(false))) };
    // Before the lanes, as a move of one of them does; once more at the end, for what is filed meanwhile.
    let mut records = dead_letter::purge(tenant, name, None);
    crate::rows::subscription::lock_creation(queue.qid);
    let hints = "DELETE FROM queen.ready r USING queen.subscription s WHERE s.qid = $1 AND r.gid = s.gid";
    delete(queue.qid, &[hints]);
    lock_cursors(&tables, queue.qid);
    crate::rows::partition::prevent_creation(queue.qid);
    delete(
        queue.qid,
        &[
            "SELECT pid FROM queen.partition WHERE qid = $1 ORDER BY name FOR UPDATE",
            hints,
            "DELETE FROM queen.cursor c USING queen.subscription s WHERE s.qid = $1 AND c.gid = s.gid",
            "DELETE FROM queen.segment s USING queen.partition p WHERE p.qid = $1 AND s.pid = p.pid",
            "DELETE FROM queen.transaction_id t USING queen.partition p WHERE p.qid = $1 AND t.pid = p.pid",
            "DELETE FROM queen.trimmed t USING queen.partition p WHERE p.qid = $1 AND t.pid = p.pid",
            "DELETE FROM queen.subscription WHERE qid = $1",
            "DELETE FROM queen.dropped_duplicate WHERE qid = $1",
            "DELETE FROM queen.partition WHERE qid = $1",
            "DELETE FROM queen.queue WHERE qid = $1",
        ],
    );
    records += dead_letter::purge(tenant, name, None);
    // What it was governed by is told too: whoever creates it anew begins with the defaults.
    let governance = queue.options.governance_changes(&QueueOptions::configured_default());
    audit::note("queue_dropped", None, Some(name), &serde_json::json!({"records": records, "options": governance}));
    // Groups that wait have to subscribe again, before the queue gets its next first message.
    commit::wake(queue.qid);
    Ok(call.value(Value::Bool(true)))
}

fn delete(qid: i64, statements: &[&str]) {
    queues_changed();
    spi::as_owner(|client| {
        for statement in statements {
            client.update(*statement, None, &[qid.into()])?;
        }
        Ok::<_, pgrx::spi::Error>(())
    })
    .unwrap_or_else(|e| pgrx::error!("dropping a queue: {e}"));
}

fn lock_cursors(tables: &Tables, qid: i64) {
    let pairs = spi::as_owner(|client| {
        let mut pairs = Vec::new();
        let statement = "SELECT c.gid, c.pid FROM queen.cursor c JOIN queen.subscription s USING (gid) \
                          WHERE s.qid = $1 GROUP BY s.name, c.gid, c.pid ORDER BY s.name, c.pid";
        for row in client.select(statement, None, &[qid.into()])? {
            pairs.push((row["gid"].value::<i64>()?, row["pid"].value::<i64>()?));
        }
        Ok::<_, pgrx::spi::Error>(pairs)
    })
    .unwrap_or_else(|e| pgrx::error!("dropping a queue: {e}"));
    for (gid, pid) in pairs {
        if let (Some(gid), Some(pid)) = (gid, pid) {
            cursor::take(tables, gid, pid, true);
        }
    }
}

/// `queen.current_tenant() → uuid`: what the views show. A C function, so that the library is loaded, and a setting that
/// the session had no right to make is dropped, before it is read.
pub fn current_tenant(call: &Call) -> Result<Datum> {
    Ok(call.value(Value::Uuid(guc::tenant()?)))
}
