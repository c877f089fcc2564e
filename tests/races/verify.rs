//! `queen.verify` beside traffic reports what is wrong, and nothing that was only written or removed in between.

use queen_tests::session::Session;
use queen_tests::shared_cluster;

/// Runs `traffic` after verify has looked at everything that comes before this table, and answers what it found.
async fn verify_stopped_at(table: &str, prepare: &[&str], traffic: &[&str]) -> String {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let [observer, busy, checker] =
        [Session::open(cluster, &db).await, Session::open(cluster, &db).await, Session::open(cluster, &db).await];
    observer.run("SET statement_timeout = '20s'").await;
    for sql in prepare {
        observer.run(sql).await;
    }
    busy.run(&format!("BEGIN; LOCK TABLE queen.{table} IN ACCESS EXCLUSIVE MODE")).await;
    let (verify, waits) = checker.start_and_watch(&observer, "SELECT problem FROM queen.verify()").await;
    assert!(waits, "verify does not look at {table}");
    for sql in traffic {
        busy.run(sql).await;
    }
    busy.run("COMMIT").await;
    verify.end().await.into_iter().flatten().flatten().collect::<Vec<_>>().join("; ")
}

const PUSH: &str = r#"SELECT queen.push_batch('[{"queue": "q", "payload": 0}]')"#;
const POP: &str = "SELECT queen.pop('q', 'g', 10, auto_ack => true, subscription_mode => 'all')";

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_moved_on_with_new_messages_is_not_past_the_end() {
    assert_eq!(verify_stopped_at("cursor", &[PUSH, POP], &[PUSH, POP]).await, "");
    // It is when it is.
    assert_ne!(verify_stopped_at("cursor", &[PUSH, POP], &["UPDATE queen.cursor SET committed = 1"]).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_over_new_messages_does_not_reach_outside_what_is_stored() {
    let lease = "SELECT queen.pop('q', 'g', 10)";
    assert_eq!(verify_stopped_at("cursor", &[PUSH, POP], &[PUSH, lease]).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_that_retention_removes_meanwhile_are_not_missing() {
    let prepare = [
        r#"SELECT queen.configure('q', '{"maxWaitTimeSeconds": 100}')"#,
        PUSH,
        PUSH,
        "UPDATE queen.segment SET created_at = created_at - interval '1 hour'",
        PUSH,
    ];
    assert_eq!(verify_stopped_at("segment", &prepare, &["SELECT queen.maintain()"]).await, "");
    let gone = "DELETE FROM queen.segment WHERE base < 2";
    assert_eq!(verify_stopped_at("segment", &prepare, &[gone]).await, "offsets 0 to 1 are missing");
}
