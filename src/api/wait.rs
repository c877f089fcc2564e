//! Waiting for something to pop.

use crate::api::arguments;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::Call;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::pg::value::Value;
use crate::pg::wakeup::{LOOK_AGAIN_MS, Waiter};
use crate::pg::{clock, procedure};
use crate::rows::{partition, queue, ready, segment, subscription};
use pgrx::pg_sys::Datum;

/// What a look found: something is there, or when it is worth to look again without a commit.
enum Look {
    Ready,
    NotBefore(Option<i64>),
}

/// Looks at what is there, or falls due before it is time to look again (or `end`).
fn look(tenant: u128, queue_name: &str, group: &str, end: i64) -> Result<(Option<i64>, Look)> {
    let tables = Tables::default();
    let Some(queue) = queue::find(&tables, tenant, queue_name)? else { return Ok((None, Look::NotBefore(None))) };
    let found = match subscription::find(&tables, queue.qid, group).filter(|g| g.registered) {
        // Whoever resumes it wakes us.
        Some(group) if group.paused => Look::NotBefore(None),
        Some(group) => {
            let upto = (clock::now() + LOOK_AGAIN_MS * 1000).min(end);
            match ready::earliest(&tables, group.gid, upto) {
                Some(due) if due <= clock::now() => Look::Ready,
                due => Look::NotBefore(due),
            }
        }
        // Not subscribed yet: ready when a pop could bring anything.
        None => {
            let mut after = 0;
            loop {
                let page = partition::after(&tables, queue.qid, after, 256);
                let Some(last) = page.last() else { break Look::NotBefore(None) };
                after = last.pid;
                let any = |p: &partition::Partition| {
                    segment::tail(&tables, p.pid, Sight::Committed).offset > segment::trimmed(&tables, p.pid)
                };
                if page.iter().any(any) {
                    break Look::Ready;
                }
            }
        }
    };
    Ok((Some(queue.qid), found))
}

/// `CALL queen.wait(queue, consumer_group, timeout_ms, ready)`
pub fn wait(call: &Call) -> Result<Datum> {
    if !call.may_commit() {
        return Err(error(ErrorKind::TransactionBlock, "queen.wait cannot run inside a transaction block")
            .with_hint("It sleeps without a snapshot; call it on its own."));
    }
    let queue = arguments::queue(call, 0)?.to_owned();
    let group = arguments::group(call, 1)?.to_owned();
    let timeout = arguments::not_negative(call.int4(2), "timeout_ms", 30_000)?;
    let tenant = guc::tenant()?;
    let end = clock::now() + i64::from(timeout) * 1000;
    let ready = procedure::with_commits(|commits| -> Result<bool> {
        let mut waiter: Option<(i64, Waiter)> = None;
        loop {
            if let Some((_, w)) = &mut waiter {
                w.arm();
            }
            let (qid, found) = commits.with_snapshot(|| look(tenant, &queue, &group, end))?;
            let due = match found {
                Look::Ready => return Ok(true),
                Look::NotBefore(due) => due,
            };
            let now = clock::now();
            if now >= end {
                return Ok(false);
            }
            match (&waiter, qid) {
                // A queue that has just been found: register, then look once more before sleeping.
                (None, Some(qid)) => {
                    waiter = Some((qid, Waiter::new(qid)));
                    continue;
                }
                (Some((known, _)), Some(qid)) if *known != qid => {
                    waiter = None;
                    continue;
                }
                _ => {}
            }
            let until = due.map_or(end, |d| d.min(end));
            let sleep = ((until - now + 999) / 1000).max(1);
            commits.commit();
            match &waiter {
                Some((_, w)) => w.sleep(sleep),
                None => Waiter::unregistered().sleep(sleep),
            }
        }
    })?;
    Ok(call.row(&[Value::Bool(ready)]))
}
