//! What a failure costs: the retry budget, and what happens when it is spent.

use crate::support::{Batch, Db};

const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// A queue `q` with messages a b c d, all leased.
async fn leased(db: &Db) -> Batch {
    db.push("q", "a b c d").await;
    db.pop("'q', batch => 4").await
}

#[tokio::test]
async fn failed_is_charged_and_delivered_again_and_the_one_beyond_the_limit_is_final() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    for charged in 1..=3 {
        let batch = db.pop("'q', batch => 2").await;
        assert_eq!(batch.ids, "a b");
        assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
        assert_eq!(db.cursor("q", QUEUE_MODE).await, format!("-1|{charged}|f"));
    }
    let batch = db.pop("'q', batch => 2").await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("a b", 4));
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released dlq");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "0|0|f", "a fresh budget for what follows");
    assert_eq!(db.rows("SELECT transaction_id, retry_count, reason FROM queen.dlq()").await, "a|3|retries_exhausted");
    assert_eq!(db.pop("'q', batch => 2").await.ids, "b");
}

#[tokio::test]
async fn a_limit_of_zero_makes_the_first_failure_final() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    let batch = leased(&db).await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released dlq");
    assert_eq!(db.rows("SELECT retry_count FROM queen.dlq()").await, "0");
}

#[tokio::test]
async fn a_failure_completes_what_is_before_it() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    let verdicts = db.ack_all(&batch, &[("b", "completed"), ("c", "failed")]).await;
    assert_eq!(verdicts, "ok released\nok released");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "1|1|f");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "c d");
}

#[tokio::test]
async fn a_failure_alone_leaves_what_is_before_it_undone() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    assert_eq!(db.ack(&batch, "c", "failed").await, "ok released");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "a b c d");
}

#[tokio::test]
async fn a_message_settled_for_good_settles_what_is_before_it() {
    // The same for a forced dead letter, a spent budget, and a drop.
    for (options, status, verdict) in [
        (r#"{}"#, "dlq", "ok released dlq"),
        (r#"{"retryLimit": 0}"#, "failed", "ok released dlq"),
        (
            r#"{"retryLimit": 0, "deadLetterQueue": false, "dlqAfterMaxRetries": false}"#,
            "failed",
            "ok released dropped",
        ),
    ] {
        let db = Db::new().await;
        db.configure("q", options).await;
        let batch = leased(&db).await;
        assert_eq!(db.ack(&batch, "c", status).await, verdict);
        assert_eq!(db.cursor("q", QUEUE_MODE).await, "2|0|f");
        assert_eq!(db.pop("'q', batch => 9").await.ids, "d");
    }
}

#[tokio::test]
async fn dead_lettering_is_on_when_either_switch_is_and_a_forced_dlq_files_even_when_both_are_off() {
    for (queue, dlq, after, files) in
        [("q1", true, true, true), ("q2", true, false, true), ("q3", false, true, true), ("q4", false, false, false)]
    {
        let db = Db::new().await;
        db.configure(
            queue,
            &format!(r#"{{"retryLimit": 0, "deadLetterQueue": {dlq}, "dlqAfterMaxRetries": {after}}}"#),
        )
        .await;
        db.push(queue, "a b").await;
        let batch = db.pop(&format!("'{queue}', batch => 2")).await;
        let wanted = if files { "ok released dlq" } else { "ok released dropped" };
        assert_eq!(db.ack(&batch, "a", "failed").await, wanted, "{queue}");
        let batch = db.pop(&format!("'{queue}', batch => 2")).await;
        assert_eq!(batch.ids, "b");
        assert_eq!(db.ack(&batch, "b", "dlq").await, "ok released dlq");
        let filed = db.rows("SELECT string_agg(transaction_id, ' ' ORDER BY \"offset\") FROM queen.dlq()").await;
        assert_eq!(filed, if files { "a b" } else { "b" }, "{queue}");
    }
}

#[tokio::test]
async fn retry_is_never_charged() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 1}"#).await;
    db.push("q", "a").await;
    for attempt in 1..=10 {
        let batch = db.pop("'q'").await;
        assert_eq!((batch.ids.as_str(), batch.attempt), ("a", attempt));
        assert_eq!(db.ack(&batch, "a", "retry").await, "ok released");
    }
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|f");
}

#[tokio::test]
async fn expiry_release_renew_and_retry_charge_nothing_and_forget_nothing() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
    db.pop("'q'").await;
    db.expire().await;
    let batch = db.pop("'q'").await;
    db.run(&format!("SELECT queen.renew_lease('{0}'); SELECT queen.release('{0}')", batch.lease)).await;
    let batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, "a", "retry").await, "ok released");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|1|f");
    assert_eq!(db.pop("'q'").await.attempt, 5);
}

#[tokio::test]
async fn reaching_the_end_of_the_batch_ends_the_lease_and_refills_the_budget_whoever_does_it() {
    for (door, sql) in [
        ("with the lease", "SELECT queen.ack('<P>', 'b', lease_id => '<L>')"),
        ("without", "SELECT queen.ack('<P>', 'b')"),
        ("the whole lease", "SELECT queen.ack_lease('<L>')"),
        (
            "a batch",
            r#"SELECT queen.ack_batch('[{"partitionId":"<P>","transactionId":"a","leaseId":"<L>"},{"partitionId":"<P>","transactionId":"b","leaseId":"<L>"}]')"#,
        ),
        (
            "a bundle",
            r#"SELECT queen.transaction('[{"type":"ack","partitionId":"<P>","transactionId":"b","leaseId":"<L>"}]')"#,
        ),
    ] {
        let db = Db::new().await;
        db.push("q", "a b").await;
        let batch = db.pop("'q', batch => 2").await;
        assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
        let batch = db.pop("'q', batch => 2").await;
        assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|1|t", "{door}");
        db.run(&sql.replace("<L>", &batch.lease).replace("<P>", &batch.partition_id)).await;
        assert_eq!(db.cursor("q", QUEUE_MODE).await, "1|0|f", "{door}");
        db.push("q", "c").await;
        assert_eq!(db.pop("'q'").await.attempt, 1, "{door}");
    }
}

#[tokio::test]
async fn a_partial_completion_keeps_lease_and_budget() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    assert_eq!(db.ack(&batch, "b", "failed").await, "ok released");
    let batch = db.pop("'q', batch => 4").await;
    assert_eq!(db.ack(&batch, "b", "completed").await, "ok");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "1|1|t");
    assert_eq!(db.pop("'q', batch => 4").await.ids, "", "still leased");
}

#[tokio::test]
async fn statuses_are_exact_words_and_every_other_word_is_a_failure() {
    for (status, verdict, cursor) in [
        ("'completed'", "ok released", "0|0|f"),
        ("'success'", "ok released", "0|0|f"),
        ("'acked'", "ok released", "0|0|f"),
        ("'ok'", "ok released", "0|0|f"),
        ("NULL", "ok released", "0|0|f"),
        ("'failed'", "ok released", "-1|1|f"),
        ("'Completed'", "ok released", "-1|1|f"),
        ("' completed'", "ok released", "-1|1|f"),
        ("''", "ok released", "-1|1|f"),
        ("'nack'", "ok released", "-1|1|f"),
        ("'RETRY'", "ok released", "-1|1|f"),
        ("'retry'", "ok released", "-1|0|f"),
        ("'dlq'", "ok released dlq", "0|0|f"),
    ] {
        let db = Db::new().await;
        db.push("q", "a").await;
        let batch = db.pop("'q'").await;
        let told = db
            .rows(&format!(
                "SELECT {} FROM queen.ack('{}', 'a', {status}, lease_id => '{}') a",
                crate::support::verdict_columns("a"),
                batch.partition_id,
                batch.lease
            ))
            .await;
        assert_eq!(told, verdict, "{status}");
        assert_eq!(db.cursor("q", QUEUE_MODE).await, cursor, "{status}");
    }
}

#[tokio::test]
async fn an_acknowledgment_that_is_rolled_back_did_not_happen() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    let batch = leased(&db).await;
    for status in ["completed", "failed", "retry", "dlq"] {
        db.run("BEGIN").await;
        assert!(db.ack(&batch, "d", status).await.starts_with("ok released"));
        db.run("ROLLBACK").await;
        assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|t", "{status}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    assert_eq!(db.ack(&batch, "d", "completed").await, "ok released");
}
