//! configure: create a queue, change its options.

use crate::support::{Db, lit};
use queen_tests::shared_cluster;

async fn option(db: &Db, queue: &str, name: &str) -> String {
    db.rows(&format!("SELECT options ->> '{name}' FROM queen.queues WHERE queue = {}", lit(queue))).await
}

#[tokio::test]
async fn configure_creates_the_queue_with_the_defaults_and_answers_all_options() {
    let db = Db::new().await;
    let answer: serde_json::Value = serde_json::from_str(&db.rows("SELECT queen.configure('a.b')").await).unwrap();
    assert_eq!(
        answer,
        serde_json::json!({"namespace": "", "task": "", "priority": 0, "leaseTime": 300, "retryLimit": 3, "retryDelay": 1000,
            "maxSize": 0, "ttl": 3600, "deadLetterQueue": true, "dlqAfterMaxRetries": true, "delayedProcessing": 0, "windowBuffer": 0,
            "retentionEnabled": false, "retentionSeconds": 0, "completedRetentionSeconds": 0, "maxWaitTimeSeconds": 0,
            "minPopWaitTime": 0, "encryptionEnabled": false, "dedupWindowSeconds": 3600, "retentionSinkHold": "",
            "retentionSinkHoldMaxSeconds": 604_800, "deadLetterTo": "", "deadLetterRules": [], "deadLetterPayload": "keep",
            "redactionAllow": [], "requireApproval": false, "owner": "", "runbook": "", "severity": "",
            "retryBackoff": "none", "retryMaxDelay": 0, "retryJitter": 0, "maxElapsedSeconds": 0, "maxDeliveries": 0,
            "deadlines": false, "autoPauseCount": 0, "autoPauseSeconds": 300})
    );
    let row = db.rows("SELECT queue, partitions, options FROM queen.queues").await;
    assert!(row.starts_with("a.b|0|"), "configure creates no partition: {row}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&row[6..]).unwrap(), answer);
}

#[tokio::test]
async fn merge_keeps_what_is_not_named_replace_does_not_and_null_is_the_default_with_both() {
    let db = Db::new().await;
    db.configure("q", r#"{"leaseTime": 10, "retryLimit": 7, "namespace": "n"}"#).await;
    db.configure("q", r#"{"retryLimit": 5}"#).await;
    assert_eq!(option(&db, "q", "leaseTime").await, "10");
    assert_eq!(option(&db, "q", "retryLimit").await, "5");
    db.configure("q", r#"{"leaseTime": null}"#).await;
    assert_eq!(option(&db, "q", "leaseTime").await, "300");
    assert_eq!(option(&db, "q", "namespace").await, "n");
    db.run(r#"SELECT queen.configure('q', '{"ttl": 1, "priority": null}', 'replace')"#).await;
    for (name, value) in [("retryLimit", "3"), ("namespace", ""), ("ttl", "1"), ("priority", "0")] {
        assert_eq!(option(&db, "q", name).await, value, "{name}");
    }
}

#[tokio::test]
async fn a_bad_option_or_mode_changes_and_creates_nothing() {
    let db = Db::new().await;
    db.configure("known", r#"{"leaseTime": 10}"#).await;
    for (options, state) in [
        (r#"{"leaseTime": 20, "lease_time": 1}"#, "QN007"),
        (r#"{"leaseTime": 20, "LeaseTime": 1}"#, "QN007"),
        (r#"{"leaseTime": 20, "retryLimit": "x"}"#, "QN006"),
        (r#"{"leaseTime": 20, "retryLimit": -1}"#, "QN006"),
        (r#"{"leaseTime": 20, "retryLimit": 1.5}"#, "QN006"),
        (r#"{"leaseTime": 0}"#, "QN006"),
        (r#"{"leaseTime": 604801}"#, "QN006"),
        (r#"{"leaseTime": 99999999999999999999}"#, "QN006"),
        (r#"{"leaseTime": 20, "deadLetterQueue": 1}"#, "QN006"),
        (r#"{"leaseTime": 20, "namespace": 1}"#, "QN006"),
        (r#"{"leaseTime": 20, "retentionSinkHold": "a b"}"#, "QN006"),
        (r#"{"leaseTime": 20, "retentionSinkHoldMaxSeconds": 59}"#, "QN006"),
        ("[]", "QN006"),
        ("5", "QN006"),
        ("null", "QN006"),
    ] {
        for queue in ["known", "unknown"] {
            let sql = format!("SELECT queen.configure('{queue}', {})", lit(options));
            assert_eq!(db.state(&sql).await, state, "{options}");
        }
    }
    for mode in ["'x'", "''", "'MERGE'"] {
        assert_eq!(db.state(&format!("SELECT queen.configure('known', '{{}}', {mode})")).await, "22023", "{mode}");
    }
    assert_eq!(option(&db, "known", "leaseTime").await, "10");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "1");
}

#[tokio::test]
async fn the_window_and_the_fill_time_are_brought_into_their_range() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": -1, "minPopWaitTime": 60001}"#).await;
    assert_eq!(option(&db, "q", "dedupWindowSeconds").await, "0");
    assert_eq!(option(&db, "q", "minPopWaitTime").await, "60000");
}

#[tokio::test]
async fn null_arguments_mean_the_defaults() {
    let db = Db::new().await;
    db.run("SELECT queen.configure('q', NULL, NULL)").await;
    assert_eq!(option(&db, "q", "leaseTime").await, "300");
}

#[tokio::test]
async fn options_of_a_queue_hold_for_what_comes_next_in_every_session() {
    let db = Db::new().await;
    let other = db.session().await;
    db.push("q", "a").await;
    other.push("q", "b").await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    let batch = other.pop("'q', batch => 2").await;
    assert_eq!(other.ack(&batch, "a", "failed").await, "ok released dlq");
}

#[tokio::test]
async fn a_configure_that_is_rolled_back_changed_nothing() {
    let db = Db::new().await;
    db.configure("q", r#"{"leaseTime": 10}"#).await;
    db.run(r#"BEGIN; SELECT queen.configure('q', '{"leaseTime": 20}'); SELECT queen.configure('r'); ROLLBACK"#).await;
    assert_eq!(option(&db, "q", "leaseTime").await, "10");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "1");
}

#[tokio::test]
async fn encryption_without_a_key_is_accepted_with_a_warning() {
    let db = Db::new().await;
    let output = shared_cluster()
        .try_psql(&db.name, r#"SELECT queen.configure('q', '{"encryptionEnabled": true}') -> 'encryptionEnabled'"#);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "true");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("WARNING:") && text.contains("no usable key"), "{text}");
    let quiet = shared_cluster().try_psql(&db.name, "SELECT queen.configure('r')");
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
}
