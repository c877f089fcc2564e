//! A transaction id is stored once, whoever pushes it at the same time.

use queen_tests::session::{Session, batch};
use queen_tests::shared_cluster;
use std::collections::HashSet;

async fn sessions(n: usize) -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        sessions.push(Session::open(cluster, &db).await);
    }
    sessions
}

fn push_batch(id: &str) -> String {
    format!("SELECT status, message_id FROM queen.push_batch({})", batch("q", "Default", &[id]))
}

fn text(row: &[Option<String>], column: usize) -> &str {
    row[column].as_deref().unwrap_or_default()
}

/// Two sessions push one id; the second waits for the first, which then ends as `end` says.
async fn second_after(end: &str) -> (Session, Vec<Option<String>>, Vec<Option<String>>) {
    let s = sessions(3).await;
    s[0].append("q", "Default", &["before"]).await;
    s[1].run("BEGIN").await;
    let first = s[1].rows(&push_batch("same")).await.remove(0);
    let (second, waits) = s[2].start_and_watch(&s[0], &push_batch("same")).await;
    assert!(waits, "whether it is a duplicate is known when the first push has ended");
    s[1].run(end).await;
    let second = second.end().await.remove(0);
    (s[0].clone(), first, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_push_of_an_id_is_told_the_first_ones_message_when_that_commits() {
    let (s, first, second) = second_after("COMMIT").await;
    assert_eq!(text(&first, 0), "queued");
    assert_eq!(text(&second, 0), "duplicate");
    assert_eq!(text(&first, 1), text(&second, 1));
    assert_eq!(s.stored("q").await["Default"], ["before", "same"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_push_of_an_id_is_stored_when_the_first_rolls_back() {
    let (s, _, second) = second_after("ROLLBACK").await;
    assert_eq!(text(&second, 0), "queued");
    assert_eq!(s.stored("q").await["Default"], ["before", "same"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_push_of_an_id_is_stored_when_the_firsts_backend_dies() {
    let s = sessions(3).await;
    s[0].append("q", "Default", &["before"]).await;
    s[1].run("BEGIN").await;
    s[1].run(&push_batch("same")).await;
    let (second, waits) = s[2].start_and_watch(&s[0], &push_batch("same")).await;
    assert!(waits);
    s[0].terminate(s[1].pid).await;
    assert_eq!(text(&second.end().await[0], 0), "queued");
    assert_eq!(s[0].stored("q").await["Default"], ["before", "same"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_push_of_a_lane_is_exact_too() {
    // Neither the queue nor the partition exists: the second session waits for their creation.
    let s = sessions(3).await;
    s[1].run("BEGIN").await;
    s[1].run(&push_batch("same")).await;
    let (second, waits) = s[2].start_and_watch(&s[0], &push_batch("same")).await;
    assert!(waits);
    s[1].run("ROLLBACK").await;
    assert_eq!(text(&second.end().await[0], 0), "queued");
    assert_eq!(s[0].stored("q").await["Default"], ["same"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_land_at_commit_drop_the_later_duplicate_and_count_it() {
    let s = sessions(3).await;
    for a in [&s[1], &s[2]] {
        a.run("BEGIN; SELECT queen.push('q', '{}', transaction_id => 'same')").await;
    }
    s[2].run("COMMIT").await;
    s[1].run("COMMIT").await;
    assert_eq!(s[0].stored("q").await["Default"], ["same"]);
    assert_eq!(s[0].number("SELECT sum(pushes) FROM queen.dropped_duplicate").await, 1);
}

async fn everybody_pushes_the_same(isolation: &str) {
    let s = sessions(9).await;
    let ids: Vec<String> = (0..200).map(|i| format!("id-{i}")).collect();
    let mut tasks = Vec::new();
    for (n, session) in s[1..].iter().enumerate() {
        let (session, mut ids) = (session.clone(), ids.clone());
        session.run(&format!("SET default_transaction_isolation = '{isolation}'")).await;
        // Orders of their own, some from the back.
        ids.rotate_left(n * 7);
        if n % 2 == 1 {
            ids.reverse();
        }
        tasks.push(tokio::spawn(async move {
            let mut queued = 0;
            for (i, id) in ids.iter().enumerate() {
                match (n + i) % 3 {
                    0 => session.run(&format!("SELECT queen.push('q', '{{}}', transaction_id => '{id}')")).await,
                    1 => session.run(&format!("BEGIN; {}; ROLLBACK; {}", push_batch(id), push_batch(id))).await,
                    _ => queued += session.one(&push_batch(id)).await.eq("queued") as usize,
                }
            }
            queued
        }));
    }
    for task in tasks {
        task.await.expect("a pusher");
    }
    let stored = &s[0].stored("q").await["Default"];
    let distinct: HashSet<_> = stored.iter().collect();
    assert_eq!((stored.len(), distinct.len()), (200, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_sessions_that_race_the_same_ids_store_each_once() {
    everybody_pushes_the_same("read committed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_serializable_sessions_that_race_the_same_ids_store_each_once() {
    everybody_pushes_the_same("serializable").await;
}
