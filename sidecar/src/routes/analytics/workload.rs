//! `GET /api/v1/analytics/workload`: queues, or groups of them, over a window and now.

use super::super::status::round;
use super::super::window::{Params, Window};
use super::super::{Caller, json};
use super::DEFAULT_MINUTES;
use crate::database::Statement;
use crate::error::Problem;
use crate::metrics::tally::{Bucket, Tally};
use crate::state::Shared;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json as value};
use std::collections::{BTreeMap, BTreeSet};

/// What queues are grouped by.
pub const GROUPS: [&str; 3] = ["queue", "namespace", "task"];

const WORKLOAD: Statement = Statement { sql: include_str!("../../../sql/workload.sql"), types: &[] };

/// A queue as it is now.
#[derive(Deserialize, Clone, Default, Debug)]
struct Queue {
    queue: String,
    namespace: Option<String>,
    task: Option<String>,
    partitions: i64,
    pending: i64,
    processing: i64,
    dead_letters: i64,
    groups: i64,
}

pub async fn workload(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
) -> Result<Response, Problem> {
    let group = params.get("groupBy").map_or("queue", String::as_str);
    let group = if group.is_empty() { "queue" } else { group };
    if !GROUPS.contains(&group) {
        return Err(Problem::bad_request("bad groupBy"));
    }
    let window = Window::of(&params, DEFAULT_MINUTES);
    let buckets = app.metrics.minutes.buckets(caller.tenant, window.from, window.to, window.bucket);
    let text = app.database.look(caller.tenant, WORKLOAD, &[]).await?;
    let queues: Vec<Queue> = serde_json::from_str(&text)
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the database's answer cannot be read"))?;
    let body = value!({
        "timeRange": window.range(),
        "bucketMinutes": window.bucket,
        "groupBy": group,
        "rows": rows(group, &buckets, &queues),
    });
    Ok(json(StatusCode::OK, body.to_string()))
}

fn rows(group: &str, buckets: &[Bucket], queues: &[Queue]) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<&Queue>> = BTreeMap::new();
    for queue in queues {
        let key = match group {
            "namespace" => queue.namespace.as_deref().unwrap_or_default(),
            "task" => queue.task.as_deref().unwrap_or_default(),
            _ => &queue.queue,
        };
        groups.entry(key).or_default().push(queue);
    }
    groups.into_iter().map(|(key, queues)| row(key, buckets, &queues)).collect()
}

fn row(key: &str, buckets: &[Bucket], queues: &[&Queue]) -> Value {
    let tally_of = |bucket: &Bucket| {
        let mut sum = Tally::default();
        for queue in queues {
            sum.add(bucket.queues.get(&queue.queue).unwrap_or(&Tally::default()));
        }
        sum
    };
    let tallies: Vec<Tally> = buckets.iter().map(tally_of).collect();
    let mut sum = Tally::default();
    tallies.iter().for_each(|tally| sum.add(tally));
    let touched = |queue: &&&Queue| buckets.iter().any(|bucket| bucket.queues.contains_key(&queue.queue));
    let active: BTreeSet<&str> = buckets
        .iter()
        .flat_map(|bucket| &bucket.queues)
        .filter(|(_, tally)| tally.push_messages + tally.pop_messages > 0)
        .map(|(queue, _)| queue.as_str())
        .collect();
    let parked: Vec<f64> = buckets.iter().zip(&tallies).map(|(bucket, tally)| round(bucket.parked(tally))).collect();
    let series = |of: fn(&Tally) -> u64| tallies.iter().map(of).collect::<Vec<u64>>();
    let now = |of: fn(&Queue) -> i64| queues.iter().map(|queue| of(queue)).sum::<i64>();
    let alone = |queue: &&&Queue| queue.groups == 0;
    value!({
        "key": key,
        "queues": queues.len(),
        "window": {
            "pushMessages": sum.push_messages,
            "pushRequests": sum.push_requests,
            "popMessages": sum.pop_messages,
            "popEmpty": sum.pop_empty,
            "ackRequests": sum.ack_requests,
            "ackSuccess": sum.ack_success,
            "ackFailed": sum.ack_failed,
            "transactions": sum.transactions,
            "conflated": 0,
            "partitionsCreated": 0,
            "partitionsDeleted": 0,
            "parkedAvg": round(parked.iter().sum::<f64>() / parked.len().max(1) as f64),
            "avgLagMs": sum.lag_avg_ms(),
            "maxLagMs": sum.lag_max_ms,
        },
        "series": {
            "push": series(|t| t.push_messages.into()),
            "pop": series(|t| t.pop_messages.into()),
            "popEmpty": series(|t| t.pop_empty.into()),
            "ackFailed": series(|t| t.ack_failed.into()),
            "parked": parked,
            "avgLagMs": series(Tally::lag_avg_ms),
            "maxLagMs": series(|t| t.lag_max_ms.into()),
        },
        "now": {
            "pending": now(|q| q.pending),
            "processing": now(|q| q.processing),
            "deadLetter": now(|q| q.dead_letters),
            "retainedBytes": null,
            "partitions": now(|q| q.partitions),
            "groups": now(|q| q.groups),
            "queuesWithoutGroup": queues.iter().filter(alone).count(),
            "pendingWithoutGroup": queues.iter().filter(alone).map(|queue| queue.pending).sum::<i64>(),
            "queuesTouched": queues.iter().filter(touched).count(),
            "queuesActive": queues.iter().filter(|queue| active.contains(queue.queue.as_str())).count(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_added_up_by_what_they_are_grouped_by() {
        let queue = |queue: &str, namespace: &str, pending, groups| Queue {
            queue: queue.to_owned(),
            namespace: Some(namespace.to_owned()),
            pending,
            groups,
            ..Queue::default()
        };
        let queues = [queue("a.x", "a", 1, 0), queue("a.y", "a", 2, 3), queue("b", "", 4, 1)];
        let mut bucket = Bucket { length: 1, ..Bucket::default() };
        for name in ["a.x", "a.y", "gone"] {
            bucket.queues.insert(name.to_owned(), Tally { push_messages: 5, ..Tally::default() });
        }
        let by_queue = rows("queue", std::slice::from_ref(&bucket), &queues);
        assert_eq!(by_queue.iter().map(|row| &row["key"]).collect::<Vec<_>>(), ["a.x", "a.y", "b"]);
        let by_namespace = rows("namespace", &[bucket], &queues);
        let a = by_namespace.iter().find(|row| row["key"] == "a").unwrap();
        assert_eq!(
            (&a["queues"], &a["window"]["pushMessages"], &a["now"]["pending"]),
            (&value!(2), &value!(10), &value!(3))
        );
        assert_eq!((&a["now"]["queuesWithoutGroup"], &a["now"]["pendingWithoutGroup"]), (&value!(1), &value!(1)));
        assert_eq!(a["series"]["push"], value!([10]));
    }
}
