//! Lone pushes that meet at a busy lane are appended by one of them for all. Each is still stored exactly when its own
//! transaction commits, whatever happens to the others, and can be given up like any other statement.

use crate::crowd::Random;
use queen_tests::session::{PATIENCE, Session, sqlstate};
use queen_tests::shared_cluster;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Pushes of one session: those that returned, with the id that they answered, and those that were cancelled; nobody knows
/// of the others.
#[derive(Default)]
struct Outcome {
    stored: Vec<(String, String)>,
    cancelled: Vec<String>,
}

/// How many push, and how.
struct Storm {
    producers: usize,
    /// Pushes of each; without, they go on until somebody was disturbed often enough.
    each: Option<usize>,
    isolation: &'static str,
    /// What is done to one of their backends now and then.
    disturb: &'static str,
}

/// The i-th push of a session, which answers its message id. Now and then one that cannot go along, so that there is
/// somebody to wait for.
fn push(name: &str, i: usize) -> String {
    let push = format!("SELECT message_id FROM queen.push('q', '\"{name}\"')");
    let undone = "SELECT queen.push('q', '\"undone\"')";
    match i % 7 {
        0 => format!("BEGIN; SELECT message_id, queen.flush() FROM queen.push('q', '\"{name}\"'); COMMIT"),
        1 => format!("BEGIN; SAVEPOINT s; {undone}; ROLLBACK TO s; {push}; COMMIT"),
        2 => format!("BEGIN; SAVEPOINT s; {undone}; SELECT queen.flush(); ROLLBACK TO s; {push}; COMMIT"),
        3 => format!("BEGIN; SELECT queen.push('q', '1', 'other'); {push}; COMMIT"),
        5 => format!("BEGIN; SAVEPOINT s; {push}; RELEASE s; COMMIT"),
        _ => push,
    }
}

/// Producers of one lane, while they are disturbed.
async fn storm(storm: Storm) {
    let Storm { producers: count, each, isolation, disturb } = storm;
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let admin = Session::open(cluster, &db).await;
    admin.append("q", "Default", &["first"]).await;
    admin.pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
    let stop = Arc::new(AtomicBool::new(false));
    let hits = Arc::new(AtomicUsize::new(0));
    let mut producers = Vec::new();
    for n in 0..count {
        let (db, stop, hits) = (db.clone(), stop.clone(), hits.clone());
        producers.push(tokio::spawn(async move {
            let mut outcome = Outcome::default();
            let mut numbers = 0..each.unwrap_or(usize::MAX);
            'connect: loop {
                let session = Session::open(cluster, &db).await;
                let setting = format!("SET default_transaction_isolation = '{isolation}'");
                if session.try_rows(&setting).await.is_err() {
                    continue;
                }
                for i in numbers.by_ref() {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let name = format!("{n}-{i}");
                    match session.try_rows(&push(&name, i)).await {
                        Ok(rows) => outcome.stored.push((name, rows[0][0].clone().expect("a message id"))),
                        Err(e) if sqlstate(&e) == "57014" => {
                            outcome.cancelled.push(name);
                            hits.fetch_add(1, SeqCst);
                            let _ = session.try_rows("ROLLBACK").await;
                        }
                        Err(_) => continue 'connect,
                    }
                }
                return outcome;
            }
        }));
    }
    let mut random = Random(7);
    // A burst is soon over, and most of those that are hit have just ended.
    let at_once = if each.is_some() { 6 } else { 1 };
    for round in 0.. {
        let over = match each {
            Some(_) => producers.iter().all(|p| p.is_finished()),
            // Until it has hit often enough to say something, on a fast machine as on a slow one.
            None => round >= 400 && (disturb != "pg_cancel_backend" || hits.load(SeqCst) > 20 || round == 4000),
        };
        if over {
            break;
        }
        let victim = format!(
            "SELECT {disturb}(pid) FROM pg_stat_activity
              WHERE datname = '{db}' AND query LIKE '%queen.push%' AND state = 'active' AND pid <> pg_backend_pid()
              ORDER BY md5(pid::text || '{}') LIMIT {at_once}",
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
    let rows = admin
        .rows("SELECT payload #>> '{}', message_id FROM queen.messages('q', 'Default', max_rows => 1000000)")
        .await;
    let there: HashMap<String, String> =
        rows.iter().map(|row| (row[0].clone().expect("a payload"), row[1].clone().expect("a message id"))).collect();
    assert_eq!(there.len(), rows.len(), "a message is stored twice");
    assert_eq!(there.values().collect::<HashSet<_>>().len(), rows.len(), "an id is stored twice");
    assert_eq!(admin.stored("q").await["Default"].len(), rows.len(), "dense");
    for (name, id) in &stored {
        assert_eq!(there.get(name), Some(id), "the push of {name} had returned");
    }
    for name in &cancelled {
        assert!(!there.contains_key(name), "the push of {name} was cancelled, and it is there");
    }
    assert!(!there.contains_key("undone"), "a push that was rolled back with its savepoint is there");
    assert!(stored.len() > 500, "hardly any push: {}", stored.len());
    if disturb == "pg_cancel_backend" {
        assert!(cancelled.len() > 20, "hardly any was cancelled: {}", cancelled.len());
        // The answer of none was lost.
        assert_eq!(stored.len() + 1, there.len());
        if let Some(each) = each {
            assert_eq!(stored.len() + cancelled.len(), count * each);
        }
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
    storm(Storm { producers: 6, each: None, isolation: "read committed", disturb: "pg_cancel_backend" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_serializable_push_is_not_stored_and_one_that_returned_is() {
    storm(Storm { producers: 6, each: None, isolation: "serializable", disturb: "pg_cancel_backend" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_pushes_to_one_lane_is_stored_exactly_as_answered() {
    storm(Storm { producers: 16, each: Some(1000), isolation: "read committed", disturb: "pg_cancel_backend" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_that_are_killed_take_no_other_push_with_them() {
    storm(Storm { producers: 6, each: None, isolation: "read committed", disturb: "pg_terminate_backend" }).await;
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
