//! The server is killed under load, again and again: whatever a call had answered is there afterwards.

use queen_tests::Cluster;
use queen_tests::session::Session;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

const ROUNDS: usize = 20;
const LANES: u64 = 6;

/// What calls have answered, over all rounds.
#[derive(Default)]
struct Record {
    /// Transaction ids whose push returned, by queue and partition.
    pushed: HashMap<(&'static str, String), Vec<String>>,
    /// Transaction ids whose ack by group g returned.
    acked: HashSet<String>,
    /// Failures that were charged to the first message of the nacked lane, as far as their nack returned.
    nacked: i64,
    /// What went against the rules while it ran.
    wrong: Vec<String>,
}

type Shared = Arc<Mutex<Record>>;

struct Load {
    cluster: Arc<Cluster>,
    db: String,
    record: Shared,
}

impl Load {
    async fn session(&self) -> Session {
        Session::open(&self.cluster, &self.db).await
    }

    fn note(&self, f: impl FnOnce(&mut Record)) {
        f(&mut self.record.lock().expect("the record"));
    }

    /// Pushes that land at commit, one or three a transaction.
    async fn push(self: Arc<Self>, n: usize) {
        let session = self.session().await;
        for i in 0.. {
            let lane = format!("p{}", i % LANES);
            let ids: Vec<String> = (0..1 + i % 2 * 2).map(|k| format!("{n}-{i}-{k}")).collect();
            let pushes: Vec<String> =
                ids.iter().map(|id| format!("SELECT queen.push('work', '0', '{lane}', '{id}')")).collect();
            if session.try_rows(&pushes.join(";")).await.is_err() {
                return;
            }
            self.note(|r| r.pushed.entry(("work", lane)).or_default().extend(ids));
        }
    }

    /// Lone pushes to one lane, which go along with one another.
    async fn push_hot(self: Arc<Self>) {
        let session = self.session().await;
        let sql = "SELECT transaction_id FROM queen.push('work', '0', 'hot')";
        while let Ok(rows) = session.try_rows(sql).await {
            let id = rows[0][0].clone().expect("an id");
            self.note(|r| r.pushed.entry(("work", "hot".to_owned())).or_default().push(id));
        }
    }

    /// Batches over two lanes.
    async fn push_batch(self: Arc<Self>, n: usize) {
        let session = self.session().await;
        for i in 0.. {
            let items: Vec<_> = (0..4).map(|k| (format!("p{}", (i + k % 2) % LANES), format!("{n}-{i}-{k}"))).collect();
            let json: Vec<_> = items
                .iter()
                .map(|(lane, id)| {
                    serde_json::json!({"queue": "work", "partition": lane, "payload": i, "transactionId": id})
                })
                .collect();
            let sql = format!("SELECT queen.push_batch('{}')", serde_json::Value::Array(json));
            if session.try_rows(&sql).await.is_err() {
                return;
            }
            self.note(|r| {
                for (lane, id) in items {
                    r.pushed.entry(("work", lane)).or_default().push(id);
                }
            });
        }
    }

    /// Pops any partition; acks the first message alone, then the rest, now and then gives the rest back.
    async fn consume(self: Arc<Self>) {
        let session = self.session().await;
        for i in 0.. {
            let Ok(got) = session.try_pop("'work', 'g', 8, max_partitions => 2, lease_seconds => 2").await else {
                return;
            };
            let Some(first) = got.first().cloned() else {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            };
            self.note(|r| {
                for m in &got {
                    if r.acked.contains(&m.transaction_id) {
                        r.wrong.push(format!("{} was delivered after its ack had returned", m.transaction_id));
                    }
                }
            });
            let lease = first.lease.expect("a lease");
            let ack = format!(
                "SELECT success FROM queen.ack('{}', '{}', 'completed', 'g', '{lease}')",
                first.partition_id, first.transaction_id
            );
            match session.try_rows(&ack).await {
                Ok(rows) if rows[0][0].as_deref() == Some("t") => {
                    self.note(|r| _ = r.acked.insert(first.transaction_id))
                }
                // The lease ran out.
                Ok(_) => continue,
                Err(_) => return,
            }
            let rest = if i % 5 == 0 { "release" } else { "ack_lease" };
            let leases: i64 = (got.len() as i64) - 1;
            match session.try_rows(&format!("SELECT queen.{rest}('{lease}')")).await {
                // All of it, or nothing is known of the rest.
                Ok(rows) if rest == "ack_lease" && rows[0][0] == Some(leases.to_string()) => {
                    self.note(|r| r.acked.extend(got.into_iter().map(|m| m.transaction_id)));
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Nacks the same message over and over.
    async fn nack(self: Arc<Self>) {
        let session = self.session().await;
        loop {
            let Ok(got) = session.try_pop("'bad', 'g', 1, 'lane', lease_seconds => 1").await else {
                return;
            };
            let Some(m) = got.into_iter().next() else {
                // The lease of a pop that a crash interrupted.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let lease = m.lease.expect("a lease");
            let sql = format!("SELECT success FROM queen.nack('{lease}', 'poison', 'no')");
            match session.try_rows(&sql).await {
                Ok(rows) if rows[0][0].as_deref() == Some("t") => self.note(|r| r.nacked += 1),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn start(self: &Arc<Self>, round: usize) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for n in 0..2 {
            tasks.push(tokio::spawn(self.clone().push(round * 10 + n)));
            tasks.push(tokio::spawn(self.clone().push_batch(round * 10 + 5 + n)));
            tasks.push(tokio::spawn(self.clone().consume()));
            tasks.push(tokio::spawn(self.clone().push_hot()));
            tasks.push(tokio::spawn(self.clone().push_hot()));
        }
        tasks.push(tokio::spawn(self.clone().nack()));
        tasks
    }

    /// Everything that had returned is there.
    async fn check(&self, round: usize) {
        let session = self.session().await;
        let problems = session.rows("SELECT * FROM queen.verify()").await;
        assert!(problems.is_empty(), "round {round}: {problems:?}");
        let stored = session.stored("work").await;
        let mut all: HashSet<&String> = HashSet::new();
        for id in stored.values().flatten() {
            assert!(all.insert(id), "round {round}: {id} is stored twice");
        }
        let (pushed, nacked) = {
            let record = self.record.lock().expect("the record");
            assert!(record.wrong.is_empty(), "round {round}: {:?}", record.wrong);
            (record.pushed.clone(), record.nacked)
        };
        for ((_, lane), ids) in pushed {
            let lane: HashSet<&String> = stored.get(&lane).into_iter().flatten().collect();
            for id in ids {
                assert!(lane.contains(&id), "round {round}: the push of {id} had returned, and it is gone");
            }
        }
        let charged = session
            .number(
                "SELECT coalesce(max(c.retries), 0) FROM queen.cursor c JOIN queen.subscription s USING (gid)
                   JOIN queen.queue q USING (qid) WHERE q.name = 'bad'",
            )
            .await;
        // One more for each crash: a nack whose answer did not arrive.
        assert!(
            (nacked..=nacked + round as i64 + 1).contains(&charged),
            "round {round}: {charged} failures are charged, {nacked} nacks had returned"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_crashes_under_load_lose_nothing_that_had_returned() {
    let cluster = Arc::new(Cluster::durable());
    let db = cluster.fresh_database().await;
    let load = Arc::new(Load { cluster: cluster.clone(), db, record: Shared::default() });
    let session = load.session().await;
    session.run(r#"SELECT queen.configure('bad', '{"retryLimit": 1000000}'); SELECT queen.configure('work')"#).await;
    session.append("bad", "lane", &["poison"]).await;
    for queue in ["work", "bad"] {
        session.run(&format!("SELECT queen.seek('{queue}', 'g', to_timestamp => '-infinity')")).await;
    }
    drop(session);

    for round in 0..ROUNDS {
        let tasks = load.start(round);
        // Time for work, never the same, so that the blow falls anywhere.
        tokio::time::sleep(Duration::from_millis(250 + 37 * (round as u64 % 9))).await;
        let stopped = cluster.clone();
        tokio::task::spawn_blocking(move || {
            stopped.stop_immediate();
            stopped.restart();
        })
        .await
        .expect("a crash");
        for task in tasks {
            task.await.expect("a client of the crashed server");
        }
        load.check(round).await;
    }

    // No lane is stuck: all that is not done is found by pops of any partition, once the last leases have run out.
    let session = load.session().await;
    session.run("SELECT queen.release(lease_id) FROM queen.cursor WHERE lease_id IS NOT NULL").await;
    let mut rest: HashSet<String> = HashSet::new();
    loop {
        let got = session.pop("'work', 'g', 1000, max_partitions => 0, auto_ack => true").await;
        if got.is_empty() {
            break;
        }
        rest.extend(got.into_iter().map(|m| m.transaction_id));
    }
    let pending =
        session.number("SELECT sum(pending + processing) FROM queen.consumer_groups WHERE queue = 'work'").await;
    assert_eq!(pending, 0);
    let record = load.record.lock().expect("the record");
    assert!(record.acked.len() > 100, "hardly anything was consumed: {}", record.acked.len());
    let pushed: usize = record.pushed.values().map(Vec::len).sum();
    assert!(pushed > 1000 && record.nacked > 20, "hardly any load: {pushed}, {}", record.nacked);
    let twice: Vec<_> = rest.intersection(&record.acked).collect();
    assert!(twice.is_empty(), "delivered after their ack had returned: {twice:?}");
}
