//! Many sessions push to the same queues in any order: no deadlock, no serialization failure, nothing out of order.

use queen_tests::session::{Session, describe};
use queen_tests::shared_cluster;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

const QUEUES: [&str; 3] = ["apples", "pears", "plums"];

/// A small generator: the runs of a test differ in nothing but the machine's timing.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Statements of one transaction that pushes to all queues in some order, through one door or another.
fn transaction(random: &mut Random, name: &str) -> String {
    let mut order = QUEUES.to_vec();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let style = random.below(4);
    if style == 0 {
        let items: Vec<_> =
            order.iter().map(|q| serde_json::json!({"queue": q, "payload": name, "transactionId": name})).collect();
        return format!("SELECT queen.push_batch('{}')", serde_json::Value::Array(items));
    }
    let pushes: Vec<String> =
        order.iter().map(|q| format!("SELECT queen.push('{q}', '\"{name}\"', transaction_id => '{name}')")).collect();
    match style {
        1 => format!("BEGIN; {}; SELECT queen.flush(); COMMIT", pushes.join("; ")),
        2 => format!(
            "BEGIN; {}; SAVEPOINT s; SELECT queen.push('{}', '0', transaction_id => 'undone {name}'); ROLLBACK TO s; {}; COMMIT",
            pushes[0],
            order[2],
            pushes[1..].join("; ")
        ),
        _ => format!("BEGIN; {}; COMMIT", pushes.join("; ")),
    }
}

/// `count` transactions from 8 sessions, a consumer of each queue meanwhile.
async fn crowd(isolation: &'static str, count: i64) {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let observer = Session::open(cluster, &db).await;
    let left = Arc::new(AtomicI64::new(count));
    let pushed = Arc::new(AtomicBool::new(false));

    let mut consumers = Vec::new();
    for queue in QUEUES {
        let session = Session::open(cluster, &db).await;
        session.pop(&format!("'{queue}', 'seen', subscription_mode => 'all'")).await;
        let pushed = pushed.clone();
        consumers.push(tokio::spawn(async move {
            let mut seen: Vec<(i64, String)> = Vec::new();
            loop {
                // Read before the pop: an empty pop after the last commit is the end.
                let last = pushed.load(SeqCst);
                let messages = session.pop(&format!("'{queue}', 'seen', 200, auto_ack => true")).await;
                if messages.is_empty() && last {
                    return seen;
                }
                seen.extend(messages.into_iter().map(|m| (m.offset, m.transaction_id)));
            }
        }));
    }

    let mut producers = Vec::new();
    for n in 0..8 {
        let session = Session::open(cluster, &db).await;
        session.run(&format!("SET default_transaction_isolation = '{isolation}'")).await;
        let left = left.clone();
        producers.push(tokio::spawn(async move {
            let mut random = Random(n);
            let mut mine = Vec::new();
            while left.fetch_sub(1, SeqCst) > 0 {
                let name = format!("{n}-{}", mine.len());
                let sql = transaction(&mut random, &name);
                if let Err(e) = session.try_rows(&sql).await {
                    panic!("{sql}\n{}", describe(&e));
                }
                mine.push(name);
            }
            mine
        }));
    }
    let mut names: Vec<String> = Vec::new();
    for producer in producers {
        let mine = producer.await.expect("a producer");
        names.extend(mine);
    }
    pushed.store(true, SeqCst);
    names.sort();
    assert_eq!(names.len() as i64, count);

    for (queue, consumer) in QUEUES.into_iter().zip(consumers) {
        let seen = consumer.await.expect("a consumer");
        let offsets: Vec<i64> = seen.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..count).collect::<Vec<_>>(), "{queue}: each offset once and in order");
        let stored = &observer.stored(queue).await["Default"];
        let mut seen: Vec<String> = seen.into_iter().map(|(_, name)| name).collect();
        assert_eq!(&seen, stored, "{queue}: delivered as stored");
        // A session's own transactions are in the order in which they committed.
        let mut next: HashMap<&str, usize> = HashMap::new();
        for name in stored {
            let (session, n) = name.split_once('-').expect("a name");
            let next = next.entry(session).or_default();
            assert_eq!(n.parse(), Ok(*next), "{queue}: a transaction overtook an earlier one of its session");
            *next += 1;
        }
        seen.sort();
        assert_eq!(seen, names, "{queue}: every transaction once, and none that was undone");
    }
    assert_eq!(observer.rows("SELECT * FROM queen.verify()").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_transactions_to_the_same_queues_in_any_order() {
    crowd("read committed", 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatable_read_transactions_to_the_same_queues_in_any_order() {
    crowd("repeatable read", 1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn serializable_transactions_to_the_same_queues_in_any_order() {
    crowd("serializable", 1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_in_the_order_of_commits_and_not_of_pushes() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for n in 0..5 {
        let session = Session::open(cluster, &db).await;
        session.run(&format!("BEGIN; SELECT queen.push('q', '0', transaction_id => 't{n}')")).await;
        sessions.push(session);
    }
    let observer = Session::open(cluster, &db).await;
    for n in [3, 0, 4, 1, 2] {
        sessions[n].run("COMMIT").await;
    }
    assert_eq!(observer.stored("q").await["Default"], ["t3", "t0", "t4", "t1", "t2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_does_not_pass_an_append_that_has_not_committed() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let (a, b) = (Session::open(cluster, &db).await, Session::open(cluster, &db).await);
    let observer = Session::open(cluster, &db).await;
    observer.append("q", "Default", &["before"]).await;
    a.run("BEGIN; SELECT queen.push('q', '0', transaction_id => 'first'); SELECT queen.flush()").await;
    // The other cannot take a later offset while the earlier one is open.
    let (second, waits) = b.start_and_watch(&observer, "SELECT queen.push('q', '0', transaction_id => 'second')").await;
    assert!(waits);
    let got = observer.pop("'q', 'g', 10, subscription_mode => 'all', auto_ack => true").await;
    assert_eq!(got.len(), 1, "only what is committed");
    a.run("COMMIT").await;
    second.end().await;
    let got = observer.pop("'q', 'g', 10, auto_ack => true").await;
    let ids: Vec<&str> = got.iter().map(|m| m.transaction_id.as_str()).collect();
    assert_eq!(ids, ["first", "second"]);
}
