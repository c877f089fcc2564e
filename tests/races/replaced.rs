//! Calls beside others that replace the same cursor again and again. A scan that passes a row while it is replaced may see
//! neither the old one nor the new one: no call may answer as if there was none.

use queen_tests::session::Session;
use queen_tests::shared_cluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Cursors, one after the other, and calls of each session for each.
const CURSORS: usize = 8;
const CALLS: usize = 150;

/// Index entries of rows that are gone lie between the end of the index and the newest row, and a snapshot keeps them: so
/// it takes a scan longer from reading the page to looking at the row, and that it misses the row is likely.
async fn put_in_the_way(observer: &Session) {
    observer
        .run(
            "INSERT INTO queen.cursor
               SELECT c.gid, c.pid, c.seq + 1000 + n, c.committed, c.retries, c.lease_id, c.batch_end, c.expires_at
                 FROM queen.cursor c, generate_series(1, 100) n;
             DELETE FROM queen.cursor WHERE seq > 1000",
        )
        .await;
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
        let call = call.replace("{lease}", &lease).replace("{partition}", &got[0].partition_id);
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
