//! Pausing and resuming a group in a queue.

use crate::api::arguments;
use crate::broker::pause;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::Call;
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::rows::queue::{self, Queue};
use crate::rows::subscription::{self, Subscription};
use pgrx::pg_sys::Datum;
use queen_core::names;

/// The group that the first two arguments name, with nobody else changing the groups of its queue. None: there is none.
fn group_of(call: &Call, tables: &Tables) -> Result<Option<(Queue, Subscription)>> {
    let queue_name = arguments::queue(call, 0)?;
    let group_name = call.required_text(1, "consumer_group")?;
    names::check_group(group_name)?;
    let Some(queue) = queue::find(tables, guc::tenant()?, queue_name)? else {
        return Err(error(ErrorKind::QueueNotFound, format!("there is no queue \"{}\"", names::cut(queue_name, 64))));
    };
    subscription::lock_creation(queue.qid);
    Ok(subscription::find(tables, queue.qid, group_name).map(|group| (queue, group)))
}

/// `queen.pause_group(queue, consumer_group, reason) → boolean`: whether it was not paused before.
pub fn pause_group(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    let reason = call.text(2)?;
    let changed = group_of(call, &tables)?.is_some_and(|(queue, group)| pause::pause(&tables, &queue, &group, reason));
    Ok(call.value(Value::Bool(changed)))
}

/// `queen.resume_group(queue, consumer_group) → boolean`: whether it was paused.
pub fn resume_group(call: &Call) -> Result<Datum> {
    let tables = Tables::default();
    let changed = group_of(call, &tables)?.is_some_and(|(queue, group)| pause::resume(&tables, &queue, &group));
    Ok(call.value(Value::Bool(changed)))
}
