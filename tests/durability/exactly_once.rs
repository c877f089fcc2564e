//! Pop, business write and ack in one transaction: each message has its effect once, however often the consumer dies.

use queen_tests::session::Session;
use queen_tests::shared_cluster;
use std::time::{Duration, Instant};

const KILLS: usize = 200;
const MESSAGES: usize = 3000;

/// Consumes until its backend is killed; answers whether it was, or there is nothing left.
async fn consume(session: &Session, pause: bool) -> bool {
    loop {
        let Ok(_) = session.try_rows("BEGIN").await else {
            return true;
        };
        let got = match session.try_pop("'jobs', 'g', 3, max_partitions => 2, lease_seconds => 3600").await {
            Ok(got) => got,
            Err(_) => return true,
        };
        for m in &got {
            let sql = format!("INSERT INTO effect VALUES ('{}', '{}')", m.transaction_id, m.attempt);
            if session.try_rows(&sql).await.is_err() {
                return true;
            }
            let lease = m.lease.as_deref().expect("a lease");
            let sql = format!(
                "SELECT success FROM queen.ack('{}', '{}', 'completed', 'g', '{lease}');
                 SELECT queen.push('results', '0', transaction_id => '{}')",
                m.partition_id, m.transaction_id, m.transaction_id
            );
            if session.try_rows(&sql).await.is_err() {
                return true;
            }
        }
        if session.try_rows("COMMIT").await.is_err() {
            return true;
        }
        if got.is_empty() && !pause {
            return false;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_killed_two_hundred_times_has_each_effect_once() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let admin = Session::open(cluster, &db).await;
    // No unique constraint: a second effect is to be seen.
    admin.run("CREATE TABLE effect (id text, attempt int)").await;
    admin
        .run(&format!(
            "SELECT count(queen.push('jobs', '0', 'p' || i % 7, 'job-' || i)) FROM generate_series(1, {MESSAGES}) i"
        ))
        .await;
    admin.run("SELECT queen.seek('jobs', 'g', to_timestamp => '-infinity')").await;

    // Two consumers, so that one has to work around what the other had in hand when it died.
    let mut kills = 0;
    let mut delay = 0;
    while kills < KILLS {
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let session = Session::open(cluster, &db).await;
            let pid = session.pid;
            tasks.push((pid, tokio::spawn(async move { consume(&session, true).await })));
        }
        for (pid, task) in tasks {
            delay = (delay + 617) % 4000;
            tokio::time::sleep(Duration::from_micros(delay)).await;
            admin.terminate(pid).await;
            assert!(task.await.expect("a consumer"));
            kills += 1;
        }
    }
    let before = admin.number("SELECT count(*) FROM effect").await;
    assert!(before > 0, "nobody got anything done before it was killed");
    let session = Session::open(cluster, &db).await;
    let begun = Instant::now();
    while consume(&session, false).await {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    let row = admin.rows("SELECT count(*), count(DISTINCT id) FROM effect").await.remove(0);
    let all = Some(MESSAGES.to_string());
    assert_eq!(row, [all.clone(), all], "effects, and messages that have one ({before} before the last consumer)");
    // The messages that it pushed are as exact.
    assert_eq!(admin.stored("results").await["Default"].len(), MESSAGES);
    assert_eq!(admin.number("SELECT coalesce(sum(pushes), 0) FROM queen.dropped_duplicate").await, 0);
    assert_eq!(admin.rows("SELECT * FROM queen.verify()").await.len(), 0);
}
