//! Hearing of every commit that touches a queue.

use crate::api::arguments;
use crate::error::{ErrorKind, Result, error};
use crate::pg::call::Call;
use crate::pg::changes::{Found, Position};
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::pg::{clock, procedure};
use crate::rows::queue;
use pgrx::pg_sys::Datum;
use queen_core::id;

/// Queues that one call names at most.
const QUEUES: usize = 1000;

/// `CALL queen.wait_changes(since, timeout_ms, changes)`: queues that commits have touched after a position.
///
/// 25001 inside a transaction block, 22023 for a timeout below 0. Locks nothing, and holds no snapshot while it sleeps.
pub fn wait_changes(call: &Call) -> Result<Datum> {
    if !call.may_commit() {
        return Err(error(ErrorKind::TransactionBlock, "queen.wait_changes cannot run inside a transaction block")
            .with_hint("It sleeps without a snapshot; call it on its own."));
    }
    let timeout = arguments::not_negative(call.int4(1), "timeout_ms", 30_000)?;
    let end = clock::now() + i64::from(timeout) * 1000;
    let Some(mut position) = call.text(0)?.and_then(Position::parse) else {
        return Ok(anything(call, &Position::end()));
    };
    let left = || (end - clock::now() + 999) / 1000;
    let answer = procedure::with_commits(|commits| -> Result<Option<String>> {
        loop {
            match position.read(QUEUES) {
                Found::Anything => return Ok(None),
                Found::Queues(qids) if qids.is_empty() => {}
                Found::Queues(qids) => {
                    return Ok(commits.with_snapshot(|| named(&qids)));
                }
            }
            let (left, deaf) = (left(), position.is_deaf());
            if left <= 0 {
                return Ok((!deaf).then(String::new));
            }
            commits.commit();
            position.sleep(left);
            if deaf {
                return Ok(None);
            }
        }
    })?;
    Ok(match answer {
        None => anything(call, &position),
        Some(queues) => {
            let text = format!("{{\"position\":\"{}\",\"queues\":[{queues}]}}", position.text());
            call.row(&[Value::Text(&text)])
        }
    })
}

fn anything(call: &Call, position: &Position) -> Datum {
    call.row(&[Value::Text(&format!("{{\"position\":\"{}\",\"all\":true}}", position.text()))])
}

/// The queues with these keys, as the elements of a JSON array. None: one of them is gone, and who waits for a queue of
/// its name may have to subscribe again.
fn named(qids: &[i64]) -> Option<String> {
    let tables = Tables::default();
    let mut found = String::new();
    for &qid in qids {
        let (tenant, name) = queue::name_of(&tables, qid)?;
        let comma = if found.is_empty() { "" } else { "," };
        let name = serde_json::Value::String(name);
        found.push_str(&format!("{comma}{{\"tenant\":\"{}\",\"queue\":{name}}}", id::format(tenant)));
    }
    Some(found)
}
