//! The pause after a failure, how long failing may go on, and failures that are not retried at all.

use crate::support::{Batch, Db, lit};

const BACKOFF: &str = r#"{"retryBackoff": "exponential", "retryDelay": 600000, "retryMaxDelay": 2000000}"#;

/// Seconds for which the cursor of a group still rests, rounded; `~`: not at all.
async fn rests(db: &Db, queue: &str) -> String {
    db.rows(&format!(
        "SELECT round(extract(epoch FROM c.not_before - clock_timestamp()))
           FROM (SELECT DISTINCT ON (c.gid, c.pid) c.* FROM queen.cursor c JOIN queen.subscription s USING (gid)
                   JOIN queen.queue q ON q.qid = s.qid WHERE q.name = {} ORDER BY c.gid, c.pid, c.seq DESC) c",
        lit(queue)
    ))
    .await
}

/// Ends every pause now, hints included, as time would.
async fn pass(db: &Db) {
    db.run(
        "DO $$
         DECLARE c record; t timestamptz := clock_timestamp();
         BEGIN
           FOR c IN SELECT gid, pid, seq, not_before FROM queen.cursor WHERE not_before > t LOOP
             UPDATE queen.ready SET due_at = t WHERE gid = c.gid AND pid = c.pid AND due_at = c.not_before;
             UPDATE queen.cursor SET not_before = t WHERE gid = c.gid AND pid = c.pid AND seq = c.seq;
           END LOOP;
         END $$",
    )
    .await;
}

/// Where hints are, as whole seconds from now.
async fn hints(db: &Db) -> String {
    db.rows("SELECT round(extract(epoch FROM due_at - clock_timestamp())) FROM queen.ready ORDER BY 1").await
}

async fn popped(db: &Db) -> Batch {
    let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
    assert_ne!(batch.ids, "", "there is something to pop");
    batch
}

#[tokio::test]
async fn after_a_failure_the_partition_rests_for_longer_each_time_up_to_the_cap() {
    let db = Db::new().await;
    db.configure("q", BACKOFF).await;
    db.push("q", "a b").await;
    for seconds in ["600", "1200", "2000"] {
        let batch = popped(&db).await;
        assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
        assert_eq!(rests(&db, "q").await, seconds);
        assert_eq!(hints(&db).await, seconds, "one hint, when the pause is over");
        // Neither kind of pop finds it, and who waits is told when.
        assert_eq!(db.pop("'q', 'g'").await.ids, "");
        assert_eq!(db.pop("'q', 'g', partition => 'Default'").await.ids, "");
        assert_eq!(hints(&db).await, seconds);
        assert_eq!(db.rows("CALL queen.wait('q', 'g', 0)").await, "f");
        let due = db.rows(r#"SELECT queen.due_json('[["q", "g"], ["q", "g", "Default"]]')"#).await;
        let due: Vec<i64> = serde_json::from_str(&due).expect("milliseconds");
        let expected = seconds.parse::<i64>().unwrap() * 1000;
        assert!(due.iter().all(|d| (expected - 5000..=expected).contains(d)), "{due:?}");
        pass(&db).await;
        assert_eq!(db.rows("CALL queen.wait('q', 'g', 0)").await, "t");
    }
    let batch = popped(&db).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("a", 4));
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released dlq");
    assert_eq!(rests(&db, "q").await, "~", "a dead letter is no reason to rest");
    assert_eq!(popped(&db).await.ids, "b");
    db.verify().await;
}

#[tokio::test]
async fn other_partitions_and_other_groups_do_not_rest() {
    let db = Db::new().await;
    db.configure("q", BACKOFF).await;
    db.push_to("q", "one", "a").await;
    let batch = popped(&db).await;
    db.push_to("q", "two", "b").await;
    db.ack(&batch, "a", "failed").await;
    assert_eq!(popped(&db).await.ids, "b");
    assert_eq!(db.pop("'q', 'h', subscription_mode => 'all', partition => 'one'").await.ids, "a");
}

#[tokio::test]
async fn a_fixed_pause_is_the_retry_delay_and_by_default_there_is_none() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryBackoff": "fixed", "retryDelay": 90000}"#).await;
    db.push("q", "a").await;
    for _ in 0..2 {
        let batch = popped(&db).await;
        db.ack(&batch, "a", "failed").await;
        assert_eq!(rests(&db, "q").await, "90");
        pass(&db).await;
    }
    db.configure("q", r#"{"retryBackoff": null}"#).await;
    let batch = popped(&db).await;
    db.ack(&batch, "a", "failed").await;
    assert_eq!(rests(&db, "q").await, "~");
    assert_eq!(popped(&db).await.ids, "a");
}

#[tokio::test]
async fn jitter_spreads_pauses_around_the_configured_one() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryBackoff": "fixed", "retryDelay": 1000000, "retryJitter": 0.5}"#).await;
    let ids: Vec<String> = (0..24).map(|n| format!("m{n}")).collect();
    for id in &ids {
        db.push_to("q", id, id).await;
    }
    for _ in &ids {
        let batch = popped(&db).await;
        db.ack(&batch, &batch.ids, "failed").await;
    }
    let rests = rests(&db, "q").await;
    let seconds: Vec<i64> = rests.lines().map(|s| s.parse().unwrap()).collect();
    assert_eq!(seconds.len(), ids.len());
    assert!(seconds.iter().all(|s| (490..=1500).contains(s)), "{seconds:?}");
    // Twenty-four of one half have the odds of one to eight million.
    assert!(seconds.iter().any(|s| *s < 1000) && seconds.iter().any(|s| *s > 1000), "{seconds:?}");
}

#[tokio::test]
async fn a_pause_ends_with_seek_and_with_a_success_and_release_and_retry_leave_none() {
    let db = Db::new().await;
    db.configure("q", BACKOFF).await;
    db.push("q", "a b c").await;
    let fail = async || {
        let batch = popped(&db).await;
        db.ack(&batch, &batch.ids, "failed").await;
        assert_ne!(rests(&db, "q").await, "~");
        batch
    };
    let batch = fail().await;
    // Somebody else is done with it after all: what is behind it is due at once.
    assert_eq!(db.ack_unleased(&batch, "a", "completed").await, "ok");
    assert_eq!(rests(&db, "q").await, "~");
    assert_eq!(hints(&db).await, "0");
    let batch = fail().await;
    assert_eq!(batch.ids, "b");
    db.run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    assert_eq!((rests(&db, "q").await, hints(&db).await), ("~".to_owned(), "0".to_owned()));
    let batch = popped(&db).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("a", 1));
    db.run(&format!("SELECT queen.release('{}')", batch.lease)).await;
    assert_eq!(rests(&db, "q").await, "~");
    let batch = popped(&db).await;
    db.ack(&batch, "a", "retry").await;
    assert_eq!(rests(&db, "q").await, "~");
    assert_eq!(popped(&db).await.ids, "a");
}

#[tokio::test]
async fn every_door_of_a_failure_leads_to_the_pause() {
    let db = Db::new().await;
    let item = |b: &Batch| {
        format!(
            r#"{{"type":"ack","transactionId":"a","partitionId":"{}","leaseId":"{}","status":"failed","consumerGroup":"g"}}"#,
            b.partition_id, b.lease
        )
    };
    type Door = Box<dyn Fn(&Batch) -> String>;
    let doors: [(&str, Door); 7] = [
        ("ack", Box::new(|b| format!("SELECT queen.ack('{}', 'a', 'failed', 'g', '{}')", b.partition_id, b.lease))),
        ("nack", Box::new(|b| format!("SELECT queen.nack('{}', 'a')", b.lease))),
        ("ack_batch", Box::new(move |b| format!("SELECT queen.ack_batch('[{}]', 'g')", item(b)))),
        ("ack_batch_json", Box::new(move |b| format!("SELECT queen.ack_batch_json('[{}]', 'g')", item(b)))),
        (
            "ack_many_json",
            Box::new(move |b| {
                format!(r#"SELECT queen.ack_many_json('[{{"consumerGroup":"g","acknowledgments":[{}]}}]')"#, item(b))
            }),
        ),
        ("transaction", Box::new(move |b| format!("SELECT queen.transaction('[{}]')", item(b)))),
        ("transaction_json", Box::new(move |b| format!("SELECT queen.transaction_json('[{}]')", item(b)))),
    ];
    for (door, call) in doors {
        let queue = format!("q.{door}");
        db.configure(&queue, BACKOFF).await;
        db.push(&queue, "a").await;
        let batch = db.pop(&format!("'{queue}', 'g', subscription_mode => 'all'")).await;
        db.run(&call(&batch)).await;
        assert_eq!(rests(&db, &queue).await, "600", "{door}");
    }
}

#[tokio::test]
async fn a_message_that_is_pushed_meanwhile_waits_behind_the_one_that_rests() {
    let db = Db::new().await;
    db.configure("q", BACKOFF).await;
    db.push("q", "a").await;
    let batch = popped(&db).await;
    db.ack(&batch, "a", "failed").await;
    db.push("q", "b").await;
    assert_eq!(hints(&db).await, "600");
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "");
    pass(&db).await;
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "a b");
    assert_eq!(db.rows("SELECT count(*) FROM queen.ready WHERE due_at < clock_timestamp()").await, "0");
}

#[tokio::test]
async fn once_failing_has_gone_on_for_too_long_the_next_failure_is_final() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxElapsedSeconds": 60, "retryLimit": 100}"#).await;
    db.push("q", "a b").await;
    for _ in 0..2 {
        let batch = popped(&db).await;
        assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
    }
    db.run("UPDATE queen.cursor SET failing_since = failing_since - interval '61 seconds'").await;
    let batch = popped(&db).await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released dlq");
    assert_eq!(
        db.rows(
            "SELECT transaction_id, reason, retry_count, failed_at - first_failed_at > '1 minute' FROM queen.dlq()"
        )
        .await,
        "a|retries_exhausted|2|t"
    );
    // The next one begins anew.
    let batch = popped(&db).await;
    assert_eq!(db.ack(&batch, "b", "failed").await, "ok released");
}

#[tokio::test]
async fn a_structural_reason_or_a_hopeless_class_is_final_at_once() {
    let db = Db::new().await;
    db.configure("q", BACKOFF).await;
    for (error, reason, kept) in [
        ("NULL", "'no_handler'", "no_handler"),
        ("NULL", "'decode_error'", "decode_error"),
        ("NULL", "'malformed_envelope'", "malformed_envelope"),
        ("NULL", "'fatal'", "fatal"),
        (r#"'{"class":"permanent","code":"E1"}'"#, "NULL", "fatal"),
        (r#"'{"class":"poison"}'"#, "NULL", "fatal"),
        (r#"'{"class":"malformed"}'"#, "NULL", "fatal"),
        (r#"'{"class":"expired"}'"#, "NULL", "fatal"),
        (r#"'{"class":"policy"}'"#, "NULL", "fatal"),
        ("NULL", r#"'{"class":"unknown","reason":"no_handler"}'"#, "no_handler"),
        ("NULL", "'expired'", "expired"),
    ] {
        db.push("q", "a").await;
        let batch = popped(&db).await;
        let told = db
            .rows(&format!(
                "SELECT success, dlq FROM queen.nack('{}', '{}', {error}, 'failed', {reason})",
                batch.lease, batch.ids
            ))
            .await;
        assert_eq!(told, "t|t", "{error} {reason}");
        assert_eq!(db.rows("SELECT reason, retry_count FROM queen.dlq(max_rows => 1)").await, format!("{kept}|0"));
        db.run("SELECT queen.dlq_purge('q')").await;
        db.run("SELECT queen.seek('q', 'g', to_end => true)").await;
        db.configure("q", r#"{"dedupWindowSeconds": 0}"#).await;
    }
}

#[tokio::test]
async fn the_rules_of_the_queue_decide_which_failures_are_retried_unless_the_consumer_has_said() {
    let db = Db::new().await;
    db.configure(
        "q",
        r#"{"retryLimit": 50, "deadLetterRules": [{"pattern": "timeout", "class": "transient"},
            {"pattern": "no such account", "class": "permanent", "code": "ACCOUNT"}]}"#,
    )
    .await;
    db.push("q", "a").await;
    let nack = async |error: &str, status: &str, reason: &str| {
        let batch = popped(&db).await;
        db.rows(&format!("SELECT dlq FROM queen.nack('{}', 'a', '{error}', '{status}', {reason})", batch.lease)).await
    };
    for error in ["timeout: no such account", "something else", r#"{"class":"transient","message":"no such account"}"#]
    {
        assert_eq!(nack(error, "failed", "NULL").await, "f", "{error}");
    }
    assert_eq!(nack("no such account", "retry", "NULL").await, "f");
    assert_eq!(nack("no such account", "failed", "NULL").await, "t");
    assert_eq!(
        db.rows("SELECT reason, failure_class, error_code, retry_count, attempts FROM queen.dlq()").await,
        "fatal|permanent|ACCOUNT|3|5"
    );
}

#[tokio::test]
async fn a_dead_letter_keeps_the_policy_that_was_in_force() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0, "retryBackoff": "fixed", "retryJitter": 0.5, "maxDeliveries": 9}"#).await;
    db.push("q", "a").await;
    let batch = popped(&db).await;
    db.ack(&batch, "a", "failed").await;
    db.configure("q", r#"{"retryLimit": 7}"#).await;
    assert_eq!(
        db.rows("SELECT retry_policy FROM queen.dlq()").await,
        r#"{"retryDelay": 1000, "retryLimit": 0, "retryJitter": 0.5, "retryBackoff": "fixed", "maxDeliveries": 9, "retryMaxDelay": 0, "maxElapsedSeconds": 0}"#
    );
}

#[tokio::test]
async fn other_words_and_classes_are_retried_and_a_retry_stays_one() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 50}"#).await;
    db.push("q", "a").await;
    for (error, status, reason) in [
        ("NULL", "failed", "'timeout'"),
        ("'no_handler'", "failed", "NULL"),
        (r#"'{"class":"transient"}'"#, "failed", "NULL"),
        (r#"'{"class":"unknown"}'"#, "failed", "'retries_exhausted'"),
        ("NULL", "retry", "'no_handler'"),
    ] {
        let batch = popped(&db).await;
        let told = db
            .rows(&format!(
                "SELECT success, dlq FROM queen.nack('{}', 'a', {error}, '{status}', {reason})",
                batch.lease
            ))
            .await;
        assert_eq!(told, "t|f", "{error} {status} {reason}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
}

#[tokio::test]
async fn without_dead_lettering_a_hopeless_message_is_dropped_at_once() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadLetterQueue": false, "dlqAfterMaxRetries": false}"#).await;
    db.push("q", "a b").await;
    let batch = popped(&db).await;
    let told = db
        .rows(&format!(
            "SELECT success, dlq, dropped FROM queen.nack('{}', 'a', NULL, 'failed', 'decode_error')",
            batch.lease
        ))
        .await;
    assert_eq!(told, "t|f|t");
    assert_eq!(popped(&db).await.ids, "b");
}
