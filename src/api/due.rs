//! When pops may find something.

use crate::broker::due;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::Call;
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::rows::subscription::QUEUE_MODE;
use crate::rows::{partition, queue};
use pgrx::pg_sys::Datum;
use queen_core::names;
use std::borrow::Cow;
use std::collections::HashMap;

/// One watch: a queue, a group (null: queue mode), and a partition (null or left out: any).
type Watch<'a> = Vec<Option<Cow<'a, str>>>;

/// `queen.due_json(watches text) → text`: for each watch, in milliseconds, when a pop may find something.
///
/// 22023 for text that is not such an array. Locks nothing.
pub fn due_json(call: &Call) -> Result<Datum> {
    let watches = call.required_text(0, "watches")?;
    let malformed = || {
        error(ErrorKind::InvalidArgument, "watches must be a JSON array of [queue, group] or [queue, group, partition]")
    };
    let watches: Vec<Watch> = serde_json::from_str(watches).map_err(|_| malformed())?;
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let mut queues = HashMap::new();
    let mut out = String::with_capacity(watches.len() * 5 + 2);
    for watch in &watches {
        let (Some(Some(name)), Some(group), 2..=3) = (watch.first(), watch.get(1), watch.len()) else {
            return Err(malformed());
        };
        let group = group.as_deref().unwrap_or(QUEUE_MODE);
        let queue = match queues.get(name.as_ref()) {
            Some(known) => known,
            None => queues.entry(name.as_ref()).or_insert(queue::find(&tables, tenant, name)?),
        };
        let due = match (queue, watch.get(2).and_then(Option::as_deref)) {
            // It would make the queue, and subscribe.
            (None, None) => names::check_queue(name).is_ok().then(clock::now),
            (None, Some(_)) => None,
            (Some(queue), None) => due::of_group(&tables, queue, group),
            (Some(queue), Some(one)) => match partition::find(&tables, queue.qid, one) {
                Some(partition) => due::of_partition(&tables, queue, &partition, group)?,
                None => None,
            },
        };
        out.push_str(if out.is_empty() { "[" } else { "," });
        match due {
            None => out.push_str("null"),
            Some(due) => out.push_str(&in_milliseconds(due).to_string()),
        }
    }
    out.push_str(if out.is_empty() { "[]" } else { "]" });
    Ok(call.value(Value::Text(&out)))
}

/// From now until then, rounded up: who waits that long is not early.
fn in_milliseconds(due: i64) -> i64 {
    due.saturating_sub(clock::now()).max(0).saturating_add(999) / 1000
}
