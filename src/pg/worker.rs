//! The background worker that runs replay plans, one for each database that `queen.worker_databases` names.
#![allow(unsafe_code)]

use crate::guc;
use crate::rows::replay_plan;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::pg_sys::{self, Datum};
use std::time::Duration;

/// How long it sleeps when no plan is running.
const IDLE: Duration = Duration::from_secs(1);
/// How long after its end (a database that is not there, say) the server starts it again.
const RESTART: Duration = Duration::from_secs(10);

/// Registers the workers; only possible while the server starts.
pub fn register() {
    // SAFETY: a flag of this process.
    if !unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        return;
    }
    for (n, database) in guc::worker_databases().iter().enumerate() {
        BackgroundWorkerBuilder::new(&format!("queen replays in {}", queen_core::names::cut(database, 32)))
            .set_type("queen replays")
            .set_library("queen")
            .set_function("queen_replay_worker")
            .set_argument(Some(Datum::from(n)))
            .enable_spi_access()
            .set_start_time(BgWorkerStartTime::RecoveryFinished)
            .set_restart_time(Some(RESTART))
            .load();
    }
}

/// One database's loop: batch, sleep as long as the rates say, again.
#[pgrx::pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn queen_replay_worker(argument: Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    let databases = guc::worker_databases();
    let Some(database) = databases.get(argument.value()) else { return };
    BackgroundWorker::connect_worker_to_spi(Some(database), None);
    let mut sleep = Duration::ZERO;
    while BackgroundWorker::wait_latch(Some(sleep)) {
        if BackgroundWorker::sighup_received() {
            // SAFETY: the main loop of a worker, outside a transaction.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        }
        let wait = BackgroundWorker::transaction(|| {
            if replay_plan::is_installed() { replay_plan::batch(None).wait_ms } else { None }
        });
        sleep = wait.map_or(IDLE, |ms| Duration::from_millis(ms.max(1) as u64));
    }
}
