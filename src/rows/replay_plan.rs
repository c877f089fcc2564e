//! Replay plans: their rules are in SQL (`sql/functions/dlq_plan.sql` and its neighbours); here is only how they are
//! driven.

use crate::pg::spi;

/// What one batch did.
pub struct Batch {
    /// Records handled, whatever came of them.
    pub handled: i32,
    /// When it is worth to look again, in milliseconds; None: no plan is running.
    pub wait_ms: Option<i32>,
}

/// Handles what the running plans' rates allow now. `tenant` None: all tenants' plans.
pub fn batch(tenant: Option<u128>) -> Batch {
    spi::as_owner(|client| {
        let tenant = tenant.map(spi::uuid);
        let row = client.update("SELECT handled, wait_ms FROM queen.replay_batch($1)", None, &[tenant.into()])?.first();
        Ok::<_, pgrx::spi::Error>(Batch { handled: row.get(1)?.unwrap_or_default(), wait_ms: row.get(2)? })
    })
    .unwrap_or_else(|e| pgrx::error!("running replays: {e}"))
}

/// Whether this database has the extension.
pub fn is_installed() -> bool {
    pgrx::Spi::get_one::<bool>("SELECT pg_catalog.to_regclass('queen.replay_plan') IS NOT NULL")
        .ok()
        .flatten()
        .unwrap_or(false)
}
