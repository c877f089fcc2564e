//! Times at which waiting pops ask again without a commit: a lease runs out, a delay ends, a window closes.

use super::row::Key;
use super::{Polls, Target};
use crate::database::Statement;
use crate::tenant::Tenant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::types::Type;

/// Every row is looked after this often, whatever was heard of it.
const ROUND: Duration = Duration::from_secs(1);
/// Rows that have come to rest are looked after together, this long after the last look.
const SOON: Duration = Duration::from_millis(50);
/// Rows of one call.
const CHUNK: usize = 2000;

const DUE: Statement = Statement { sql: "SELECT queen.due_json($1)", types: &[Type::TEXT] };

/// Keeps the time for ever.
pub async fn keep(polls: Polls) {
    let mut round = Instant::now();
    loop {
        while polls.rows().is_empty() {
            // Entering wakes the listener first, so look up soon rather than be told.
            tokio::select! {
                () = polls.0.rested.notified() => {}
                () = tokio::time::sleep(ROUND) => {}
            }
        }
        let now = Instant::now();
        let (due, fresh) = {
            let rows = polls.rows();
            (rows.next_due(), rows.any_fresh())
        };
        let mut until = round + ROUND;
        if let Some(due) = due {
            until = until.min(due);
        }
        if fresh {
            until = until.min(now + SOON);
        }
        tokio::select! {
            () = tokio::time::sleep_until(until.into()) => {}
            () = polls.0.rested.notified(), if !fresh => continue,
        }
        let now = Instant::now();
        let keys = polls.rows().due(now);
        polls.start(keys);
        let all = now >= round + ROUND;
        if all {
            round = now;
        }
        look(&polls, all).await;
    }
}

/// Finds out when resting rows should ask again: all of them, or those of which it is not known.
pub async fn look(polls: &Polls, all: bool) {
    let mut by_tenant: HashMap<Tenant, Vec<Arc<Key>>> = HashMap::new();
    let mut kicked = Vec::new();
    {
        let mut rows = polls.rows();
        for key in rows.resting(all) {
            match key.target {
                // Which queues match is the database's to know: such a row asks in every round.
                Target::Matching { .. } if all => {
                    if rows.kick(&key) {
                        kicked.push(key);
                    }
                }
                Target::Matching { .. } => {}
                _ => by_tenant.entry(key.tenant).or_default().push(key),
            }
        }
    }
    polls.start(kicked);
    for (tenant, keys) in by_tenant {
        for keys in keys.chunks(CHUNK) {
            look_at(polls, tenant, keys).await;
        }
    }
}

async fn look_at(polls: &Polls, tenant: Tenant, keys: &[Arc<Key>]) {
    let watches: Vec<_> = keys
        .iter()
        .map(|key| match &key.target {
            Target::Partition { queue, partition } => serde_json::json!([queue, key.group, partition]),
            Target::Queue(queue) => serde_json::json!([queue, key.group]),
            Target::Matching { .. } => serde_json::json!(["", key.group]),
        })
        .collect();
    let watches = serde_json::Value::Array(watches).to_string();
    // Without an answer the next round looks again.
    let Ok(text) = polls.0.database.call(tenant, DUE, &[&watches]).await else { return };
    let Ok(times) = serde_json::from_str::<Vec<Option<i64>>>(&text) else { return };
    let now = Instant::now();
    let mut start = Vec::new();
    {
        let mut rows = polls.rows();
        for (key, time) in keys.iter().zip(times) {
            match time {
                Some(ms) if ms <= 0 => {
                    if rows.due_now(key) {
                        start.push(key.clone());
                    }
                }
                Some(ms) => rows.set_due(key, Some(now + Duration::from_millis(ms as u64))),
                None => rows.set_due(key, None),
            }
        }
    }
    polls.start(start);
}
