//! Calls beside others that replace the same cursor again and again. A scan that passes a row while it is replaced may see
//! neither the old one nor the new one: no call may answer as if there was none.

use queen_tests::session::Session;
use queen_tests::shared_cluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Cursors, one after the other, and calls of each session for each.
const CURSORS: usize = 4;
const CALLS: usize = 100;

/// Index entries of rows that are gone lie between the end of the index and the newest row, and a snapshot keeps them: so
/// it takes a scan longer from reading the page to looking at the row, and that it misses the row is likely.
async fn put_in_the_way(observer: &Session) {
    observer
        .run(
            "INSERT INTO queen.cursor
               SELECT c.gid, c.pid, c.seq + 1000 + n, c.committed, c.retries, c.lease_id, c.batch_end, c.expires_at
                 FROM queen.cursor c, generate_series(1, 250) n;
             DELETE FROM queen.cursor WHERE seq > 1000",
        )
        .await;
}

/// Holds a session's server process up again and again, for longer than others take to replace a row, and lets it run only
/// a little in between: so it is often held up after it has read an index entry and before it looks at the row.
fn hold_up(pid: i32, done: &AtomicBool) {
    let mut run = 20;
    while !done.load(SeqCst) {
        // SAFETY: signals to a process of the test's own cluster.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        std::thread::sleep(Duration::from_millis(1));
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        let begun = Instant::now();
        // Every length from 20 to 120 microseconds in turn.
        run = 20 + (run + 17) % 101;
        while begun.elapsed() < Duration::from_micros(run) {}
    }
}

/// Two sessions renew a lease all the time, and two others call something. Answers what they got that was not expected.
async fn beside_renewals(call: &str, expected: &str) -> Vec<String> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let (observer, holder) = (Session::open(cluster, &db).await, Session::open(cluster, &db).await);
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let session = Session::open(cluster, &db).await;
        session.run("SET synchronous_commit = off").await;
        sessions.push(session);
    }
    let mut wrong = Vec::new();
    for n in 0..CURSORS {
        let queue = format!("q{n}");
        observer.append(&queue, "Default", &["one", "two"]).await;
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queen.queue").await;
        let pop = format!("'{queue}', 'g', 9, lease_seconds => 3600, subscription_mode => 'all'");
        let got = observer.pop(&pop).await;
        put_in_the_way(&observer).await;
        let lease = got[0].lease.clone().expect("a lease");
        let call =
            call.replace("{lease}", &lease).replace("{partition}", &got[0].partition_id).replace("{queue}", &queue);
        let done = Arc::new(AtomicBool::new(false));
        let (mut renewals, mut calls) = (Vec::new(), Vec::new());
        for session in &sessions[..2] {
            let (session, done, lease) = (session.clone(), done.clone(), lease.clone());
            renewals.push(tokio::spawn(async move {
                while !done.load(SeqCst) {
                    session.run(&format!("SELECT queen.renew_lease('{lease}', 3600)")).await;
                }
            }));
        }
        let held_up: Vec<_> = sessions[2..]
            .iter()
            .map(|session| {
                let (pid, done) = (session.pid, done.clone());
                std::thread::spawn(move || hold_up(pid, &done))
            })
            .collect();
        for session in &sessions[2..] {
            let (session, call) = (session.clone(), call.clone());
            calls.push(tokio::spawn(async move {
                let mut answers = Vec::new();
                for _ in 0..CALLS {
                    answers.push(session.one(&call).await);
                }
                answers
            }));
        }
        for call in calls {
            wrong.extend(call.await.expect("the calls").into_iter().filter(|answer| answer != expected));
        }
        done.store(true, SeqCst);
        for thread in held_up {
            thread.join().expect("signals");
        }
        for renewal in renewals {
            renewal.await.expect("the renewals");
        }
        holder.run("COMMIT").await;
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_beside_renewals_of_its_lease_always_finds_the_cursor() {
    // After a rollback a backend looks from the beginning, and not first where it found the row last.
    let call = "BEGIN; ROLLBACK;
                SELECT split_part((queen.ack('{partition}', 'nothing', 'completed', 'g', '{lease}')).error, ':', 1)";
    assert_eq!(beside_renewals(call, "unresolvable").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_beside_others_always_finds_the_lease() {
    let call = "SELECT queen.renew_lease('{lease}', 3600) IS NOT NULL";
    assert_eq!(beside_renewals(call, "t").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_beside_renewals_of_its_lease_always_finds_it() {
    let call = "SELECT split_part((queen.nack('{lease}', 'nothing')).error, ':', 1)";
    assert_eq!(beside_renewals(call, "unresolvable").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pop_beside_renewals_finds_the_lease_and_makes_no_cursor_of_its_own() {
    let call = "BEGIN; ROLLBACK; SELECT count(*) FROM queen.pop('{queue}', 'g', partition => 'Default')";
    assert_eq!(beside_renewals(call, "0").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_configured_again_and_again_is_always_found() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let observer = Session::open(cluster, &db).await;
    observer.append("q", "Default", &["one"]).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut changes = Vec::new();
    for n in 1..=2 {
        let (session, done) = (Session::open(cluster, &db).await, done.clone());
        session.run("SET synchronous_commit = off").await;
        // Long, so that the new row is often on another page than the old one.
        let options = format!(r#"'{{"owner": "' || repeat('{n}', 200) || '", "retryLimit": {n}}}'"#);
        changes.push(tokio::spawn(async move {
            while !done.load(SeqCst) {
                session.run(&format!("SELECT queen.configure('q', ({options})::jsonb)")).await;
            }
        }));
    }
    let mut errors = Vec::new();
    for _ in 0..CURSORS * CALLS {
        errors.extend(observer.try_rows("SELECT queen.pause_group('q', 'nobody')").await.err());
    }
    done.store(true, SeqCst);
    for change in changes {
        change.await.expect("the changes");
    }
    assert!(errors.is_empty(), "{} times: {:?}", errors.len(), errors.first());
}
