//! Lone pushes that meet at a busy lane are appended by one of them for all. Each is still stored exactly when its own
//! transaction commits, whatever happens to the others, and can be given up like any other statement.

use crate::crowd::Random;
use queen_tests::session::{PATIENCE, Session, sqlstate};
use queen_tests::shared_cluster;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Pushes of one session: those that returned, those that were cancelled, those nobody knows of.
#[derive(Default)]
struct Outcome {
    stored: Vec<String>,
    cancelled: Vec<String>,
}

/// Producers of one lane, while `disturb` is done to one of their backends now and then.
async fn storm(disturb: &'static str, isolation: &'static str) {
    const PRODUCERS: usize = 6;
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let admin = Session::open(cluster, &db).await;
    admin.append("q", "Default", &["first"]).await;
    admin.pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut producers = Vec::new();
    for n in 0..PRODUCERS {
        let (db, stop) = (db.clone(), stop.clone());
        producers.push(tokio::spawn(async move {
            let mut outcome = Outcome::default();
            'connect: loop {
                let session = Session::open(cluster, &db).await;
                let setting = format!("SET default_transaction_isolation = '{isolation}'");
                if session.try_rows(&setting).await.is_err() {
                    continue;
                }
                for i in 0.. {
                    if stop.load(SeqCst) {
                        return outcome;
                    }
                    let name = format!("{n}-{}-{i}", session.pid);
                    // Now and then one that cannot go along, so that there is somebody to wait for.
                    let push = match i % 7 {
                        0 => format!("BEGIN; SELECT queen.push('q', '\"{name}\"'); SELECT queen.flush(); COMMIT"),
                        3 => format!(
                            "BEGIN; SELECT queen.push('q', '\"{name}\"'); SELECT queen.push('q', '1', 'other'); COMMIT"
                        ),
                        _ => format!("SELECT queen.push('q', '\"{name}\"')"),
                    };
                    match session.try_rows(&push).await {
                        Ok(_) => outcome.stored.push(name),
                        Err(e) if sqlstate(&e) == "57014" => {
                            outcome.cancelled.push(name);
                            let _ = session.try_rows("ROLLBACK").await;
                        }
                        Err(_) => continue 'connect,
                    }
                }
            }
        }));
    }
    let mut random = Random(7);
    for _ in 0..400 {
        let victim = format!(
            "SELECT {disturb}(pid) FROM pg_stat_activity
              WHERE datname = '{db}' AND query LIKE '%queen.push%' AND state = 'active' AND pid <> pg_backend_pid()
              ORDER BY md5(pid::text || '{}') LIMIT 1",
            random.below(1000)
        );
        admin.run(&victim).await;
        tokio::time::sleep(Duration::from_micros(random.below(3000))).await;
    }
    stop.store(true, SeqCst);
    let (mut stored, mut cancelled) = (Vec::new(), Vec::new());
    for producer in producers {
        let outcome = producer.await.expect("a producer");
        stored.extend(outcome.stored);
        cancelled.extend(outcome.cancelled);
    }
    let there: Vec<String> = admin
        .rows("SELECT payload #>> '{}' FROM queen.messages('q', 'Default', max_rows => 1000000)")
        .await
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let distinct: HashSet<&String> = there.iter().collect();
    assert_eq!(distinct.len(), there.len(), "a message is stored twice");
    for name in &stored {
        assert!(distinct.contains(name), "the push of {name} had returned, and it is not there");
    }
    for name in &cancelled {
        assert!(!distinct.contains(name), "the push of {name} was cancelled, and it is there");
    }
    assert!(stored.len() > 500, "hardly any push: {}", stored.len());
    if disturb == "pg_cancel_backend" {
        assert!(cancelled.len() > 20, "hardly any was cancelled: {}", cancelled.len());
    }
    assert_eq!(admin.rows("SELECT * FROM queen.verify()").await.len(), 0);
    assert!(admin.number("SELECT max(frames) FROM queen.segment").await > 1, "no push went along with another");
    // Nobody has overlooked a message.
    let pending = there.len() as i64 - 1;
    let got = admin.pop("'q', 'g', 1000000, auto_ack => true").await;
    assert_eq!(got.iter().filter(|m| m.partition == "Default").count() as i64, pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_push_is_not_stored_and_one_that_returned_is() {
    storm("pg_cancel_backend", "read committed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_serializable_push_is_not_stored_and_one_that_returned_is() {
    storm("pg_cancel_backend", "serializable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_that_are_killed_take_no_other_push_with_them() {
    storm("pg_terminate_backend", "read committed").await;
}

/// A session had taken another's message along and then waited for a second lane, which somebody held: the other could
/// not be cancelled, and a circle of such waits would not have been seen as a deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_can_be_cancelled_whatever_the_session_waits_for_that_appends() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut s = Vec::new();
    for _ in 0..5 {
        s.push(Session::open(cluster, &db).await);
    }
    let [first, second, both, lone, observer] = s.as_slice() else { panic!("five sessions") };
    for lane in ["a", "b"] {
        observer.append("q", lane, &["before"]).await;
    }
    // Which of the two gets lane a first is chance: the lone one may be through before it can be cancelled.
    for round in 0..50 {
        let hold = |lane: &str| {
            let id = format!("held {round}");
            format!("BEGIN; SELECT queen.push('q', '0', '{lane}', '{id}'); SELECT queen.flush()")
        };
        first.run(&hold("a")).await;
        second.run(&hold("b")).await;
        let (pushed_both, waits) = both
            .start_and_watch(
                observer,
                "BEGIN; SELECT queen.push('q', '0', 'a'); SELECT queen.push('q', '0', 'b'); COMMIT",
            )
            .await;
        assert!(waits, "for lane a");
        let pushed = lone.start("SELECT queen.push('q', '\"lone\"', 'a')");
        let waits_for = |waiter: i32, holder: i32| format!("SELECT ({holder} = ANY (pg_blocking_pids({waiter})))::int");
        let begun = Instant::now();
        let offers = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event IS NOT NULL AND wait_event <> 'ClientRead'",
            lone.pid
        );
        while observer.number(&offers).await == 0 {
            assert!(begun.elapsed() < PATIENCE, "the lone push does not wait");
        }
        first.run("COMMIT").await;
        while observer.number(&waits_for(both.pid, second.pid)).await == 0 {
            assert!(begun.elapsed() < PATIENCE, "nobody waits for lane b");
        }
        observer.run(&format!("SELECT pg_cancel_backend({})", lone.pid)).await;
        let begun = Instant::now();
        while !pushed.is_finished() && begun.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ended = pushed.is_finished();
        second.run("COMMIT").await;
        pushed_both.end().await;
        assert!(ended, "the push could not be cancelled");
        let outcome = pushed.try_end().await;
        let there = observer
            .number("SELECT count(*) FROM queen.messages('q', 'a', max_rows => 100000) WHERE payload_text = '\"lone\"'")
            .await;
        match outcome {
            // This time it was through: then it is there, and once more we try.
            Ok(_) => assert_eq!(there, round + 1),
            Err(e) => {
                assert_eq!((sqlstate(&e), there), ("57014", round));
                return;
            }
        }
    }
    panic!("the lone push was always first");
}
