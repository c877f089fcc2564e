//! Looks at the process now and then.

use super::tally::{Health, Stat, Tally};
use super::{Metrics, process};
use crate::database::Database;
use crate::polls::Polls;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Between two measurements of how late the runtime wakes up.
const BEAT: Duration = Duration::from_millis(250);
/// Beats between two samples.
const BEATS: u32 = 40;

/// Samples for ever.
pub async fn keep(metrics: Arc<Metrics>, database: Database, polls: Polls) {
    let began = Instant::now();
    let (mut cpu, mut errors, mut sampled) = (process::cpu_micros(), 0, began);
    loop {
        let mut lag = Stat::default();
        for _ in 0..BEATS {
            let due = Instant::now() + BEAT;
            tokio::time::sleep_until(due.into()).await;
            lag.add(&Stat::of(due.elapsed().as_secs_f64() * 1000.0));
        }
        metrics.set_loop_lag(lag.avg());
        let now = process::cpu_micros();
        let (user, system) = ((now.0 - cpu.0) as f64, (now.1 - cpu.1) as f64);
        let percent = |micros: f64| Stat::of(micros / sampled.elapsed().as_micros().max(1) as f64 * 100.0);
        let (size, idle, waiting) = database.pool_status();
        let failed = metrics.database_errors.load(Relaxed);
        metrics.minutes.sample(&Health {
            cpu_user: Stat::of(user),
            cpu_system: Stat::of(system),
            cpu_user_percent: percent(user),
            cpu_system_percent: percent(system),
            resident: Stat::of(process::resident_bytes() as f64),
            pool_size: Stat::of(size as f64),
            pool_idle: Stat::of(idle as f64),
            pool_active: Stat::of(size.saturating_sub(idle) as f64),
            pool_waiting: Stat::of(waiting as f64),
            uptime: Stat::of(began.elapsed().as_secs_f64()),
            loop_lag: lag,
            database_errors: u32::try_from(failed - errors).unwrap_or(u32::MAX),
        });
        (cpu, errors, sampled) = (now, failed, Instant::now());
        for (tenant, queue, count) in polls.parked() {
            let parked = Tally { parked_sum: u32::try_from(count).unwrap_or(u32::MAX), ..Tally::default() };
            metrics.minutes.count(tenant, &queue, &parked);
        }
    }
}
