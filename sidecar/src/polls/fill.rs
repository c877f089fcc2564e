//! Queue option `minPopWaitTime`: a waiting pop of several messages that could have some, but fewer than it asked for, lets
//! the queue fill up for that long before it claims.

use super::row::Waiter;
use super::{Polls, Target, Wanted};
use crate::database::Statement;
use crate::tenant::Tenant;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::types::Type;

/// How long a queue's option is believed.
const FRESH: Duration = Duration::from_secs(5);
/// Queues whose option is remembered at most.
const REMEMBERED: usize = 10_000;
/// Between two looks at how much there is.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

const LOOK: Statement = Statement {
    sql: "SELECT json_build_object('wait', (q.options ->> 'minPopWaitTime')::int, 'pending', CASE WHEN \
          (q.options ->> 'minPopWaitTime')::int > 0 THEN (SELECT g.pending FROM queen.consumer_groups g \
          WHERE g.queue = q.queue AND g.consumer_group = $2) END)::text FROM queen.queues q WHERE q.queue = $1",
    types: &[Type::TEXT, Type::TEXT],
};

#[derive(Deserialize, Default)]
struct Seen {
    wait: u64,
    /// None: a group that has not popped from any partition yet, or nobody asked because nobody waits.
    pending: Option<i64>,
}

/// What is known of queues' options.
#[derive(Default)]
pub struct Fills(Mutex<HashMap<(Tenant, String), (Instant, Duration)>>);

impl Fills {
    fn known(&self, tenant: Tenant, queue: &str) -> Option<Duration> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(tenant, queue.to_owned())).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, wait)| *wait)
    }

    fn learn(&self, tenant: Tenant, queue: &str, wait: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert((tenant, queue.to_owned()), (Instant::now(), wait));
    }
}

impl Polls {
    /// Waits until a claim for this waiter is worth it: its batch is full, the queue's time is over, or its own is. Returns
    /// at once when there is nothing at all, or the queue wants no waiting.
    pub(super) async fn fill(&self, waiter: &Waiter) {
        let wanted = &waiter.wanted;
        let Target::Queue(queue) = &wanted.target else { return };
        if wanted.batch <= 1 || self.0.fills.known(wanted.tenant, queue) == Some(Duration::ZERO) {
            return;
        }
        let began = Instant::now();
        let mut waited = false;
        while let Some(pause) = self.to_fill(wanted, queue, began).await {
            if waiter.wants_no_more() || *self.0.closing.borrow() {
                break;
            }
            waited = true;
            tokio::time::sleep(pause).await;
        }
        if waited {
            self.0.metrics.fill_waits.fetch_add(1, Relaxed);
            self.0.metrics.fill_wait_micros.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        }
    }

    /// How long to wait before looking again; None: claim now.
    async fn to_fill(&self, wanted: &Wanted, queue: &String, began: Instant) -> Option<Duration> {
        let seen = self.0.database.find(wanted.tenant, LOOK, &[queue, &wanted.group]).await.ok()??;
        let seen: Seen = serde_json::from_str(&seen).ok()?;
        let wait = Duration::from_millis(seen.wait);
        self.0.fills.learn(wanted.tenant, queue, wait);
        let left = wait.checked_sub(began.elapsed())?;
        let pending = seen.pending?;
        let filling = pending > 0 && pending < i64::from(wanted.batch);
        (filling && !left.is_zero()).then(|| left.min((wait / 10).clamp(LOOKS.0, LOOKS.1)))
    }
}
