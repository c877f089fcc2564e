//! Running replay plans, and in whose name people act.

use crate::api::arguments;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb};
use crate::pg::value::Value;
use crate::pg::wakeup::Waiter;
use crate::pg::{clock, privilege, procedure};
use crate::rows::replay_plan;
use pgrx::pg_sys::Datum;

/// `queen.actor() → text`
pub fn actor(call: &Call) -> Result<Datum> {
    Ok(call.value(Value::Text(&guc::actor()?)))
}

/// `queen.same_person(one, other) → boolean`
pub fn same_person(call: &Call) -> Result<Datum> {
    let same = queen_core::person::same(call.required_text(0, "one")?, call.required_text(1, "other")?);
    Ok(call.value(Value::Bool(same)))
}

/// `CALL queen.run_replays(max_ms, all_tenants, result)`
///
/// Batch after batch, each in a transaction of its own, until the time is up or no plan runs, of the
/// session's tenant or of all. How many
/// messages a batch has is the plan's business: see `queen.replay_batch`.
pub fn run_replays(call: &Call) -> Result<Datum> {
    if !call.may_commit() {
        return Err(error(ErrorKind::TransactionBlock, "queen.run_replays cannot run inside a transaction block")
            .with_hint("It commits after each batch; call it on its own."));
    }
    let max_ms = arguments::not_negative(call.int4(0), "max_ms", 1000)?;
    let tenant = match call.bool(1) {
        Some(true) if privilege::may_set(c"queen.tenant") => None,
        Some(true) => {
            return Err(error(ErrorKind::PermissionDenied, "plans of all tenants are run by who may set queen.tenant")
                .with_hint("GRANT SET ON PARAMETER queen.tenant, or leave all_tenants out."));
        }
        _ => Some(guc::tenant()?),
    };
    let end = clock::now() + i64::from(max_ms) * 1000;
    let (mut handled, mut running) = (0_i64, true);
    procedure::with_commits(|commits| {
        loop {
            let batch = commits.with_snapshot(|| replay_plan::batch(tenant));
            commits.commit();
            handled += i64::from(batch.handled);
            let Some(wait) = batch.wait_ms else {
                running = false;
                break;
            };
            let left = (end - clock::now() + 999) / 1000;
            if left <= 0 {
                break;
            }
            Waiter::unregistered().sleep(i64::from(wait).min(left));
        }
    });
    let result = serde_json::json!({"handled": handled, "running": running});
    Ok(call.row(&[jsonb(&result.to_string())]))
}
