//! Deduplication: one message for each (partition, transaction id) within the queue's window.

use crate::support::Db;

const STATUS: &str = "SELECT status FROM queen.push('q', '1', transaction_id => 'a')";

/// Status, and whether the message id told is the stored one's.
async fn again(db: &Db, original: &str) -> String {
    let answer = db.rows("SELECT status, message_id FROM queen.push('q', '2', transaction_id => 'a')").await;
    let (status, id) = answer.split_once('|').unwrap();
    format!("{status} {}", id == original)
}

#[tokio::test]
async fn the_same_id_again_is_a_duplicate_and_is_told_the_original_on_every_door() {
    let db = Db::new().await;
    let original = db.rows("SELECT message_id FROM queen.push('q', '1', transaction_id => 'a')").await;
    let place = db.rows("SELECT message_id, partition_id, \"offset\" FROM queen.messages('q')").await;
    assert!(place.starts_with(&original));
    for call in [
        "queen.push('q', '2', transaction_id => 'a')",
        "queen.push_many('q', ARRAY['2']::jsonb[], transaction_ids => ARRAY['a'])",
        r#"queen.push_batch('[{"queue":"q","payload":2,"transactionId":"a"}]')"#,
    ] {
        let told = db.rows(&format!("SELECT status, message_id, partition_id, \"offset\" FROM {call}")).await;
        assert_eq!(told, format!("duplicate|{place}"), "{call}");
    }
    assert_eq!(db.rows("SELECT payload FROM queen.messages('q')").await, "1", "the first is kept");
}

#[tokio::test]
async fn the_same_id_in_another_partition_or_queue_is_another_message() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a").await;
    db.push_to("q", "p2", "a").await;
    db.push_to("r", "p1", "a").await;
    assert_eq!(db.stored("q").await, "a a");
    assert_eq!(db.stored("r").await, "a");
}

#[tokio::test]
async fn ids_are_compared_by_bytes() {
    let db = Db::new().await;
    // The last two look the same: composed and decomposed.
    db.push("q", "a A a. \u{e9} e\u{301}").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "5");
}

#[tokio::test]
async fn inside_the_window_it_is_a_duplicate_and_after_it_a_new_message() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": 100}"#).await;
    let original = db.rows("SELECT message_id FROM queen.push('q', '1', transaction_id => 'a')").await;
    db.age("q", 95).await;
    assert_eq!(again(&db, &original).await, "duplicate true");
    db.age("q", 6).await;
    assert_eq!(again(&db, &original).await, "queued false");
    assert_eq!(db.stored("q").await, "a a");
}

#[tokio::test]
async fn after_the_window_a_duplicate_is_told_the_newest_holder() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": 100}"#).await;
    db.push("q", "a").await;
    db.age("q", 101).await;
    let second = db.rows("SELECT message_id FROM queen.push('q', '1', transaction_id => 'a')").await;
    assert_eq!(again(&db, &second).await, "duplicate true");
}

#[tokio::test]
async fn the_window_is_that_of_now_and_not_of_the_push() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.age("q", 50).await;
    db.configure("q", r#"{"dedupWindowSeconds": 49}"#).await;
    db.run("BEGIN").await;
    assert_eq!(db.rows(STATUS).await, "queued");
    db.run("ROLLBACK").await;
    db.configure("q", r#"{"dedupWindowSeconds": 5000}"#).await;
    assert_eq!(db.rows(STATUS).await, "duplicate");
}

#[tokio::test]
async fn the_default_window_is_an_hour() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.age("q", 3590).await;
    assert_eq!(db.rows(STATUS).await, "duplicate");
    db.age("q", 11).await;
    assert_eq!(db.rows(STATUS).await, "queued");
}

#[tokio::test]
async fn a_window_of_zero_stores_every_push() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": 0}"#).await;
    db.push("q", "a").await;
    db.push("q", "a").await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":2,"transactionId":"a"}]')"#).await;
    assert_eq!(db.stored("q").await, "a a a");
}

#[tokio::test]
async fn of_repeats_in_one_call_the_first_wins_also_with_window_zero() {
    let db = Db::new().await;
    db.configure("off", r#"{"dedupWindowSeconds": 0}"#).await;
    for queue in ["on", "off"] {
        let answer = db
            .rows(&format!(
                r#"SELECT r.status, r."offset", r.message_id = first_value(r.message_id) OVER (ORDER BY r.index)
                     FROM queen.push_batch('[{{"queue":"{queue}","payload":1,"transactionId":"a"}},
                         {{"queue":"{queue}","payload":2,"transactionId":"b"}},
                         {{"queue":"{queue}","payload":3,"transactionId":"a"}}]') r ORDER BY r.index"#
            ))
            .await;
        assert_eq!(answer, "queued|0|t\nqueued|1|f\nduplicate|0|t", "{queue}");
        db.push(queue, "c d c").await;
        assert_eq!(db.stored(queue).await, "a b c d", "{queue}");
        let payloads = db
            .rows(&format!("SELECT string_agg(payload_text, ' ' ORDER BY \"offset\") FROM queen.messages('{queue}')"))
            .await;
        assert_eq!(payloads, "1 2 0 1", "{queue}");
    }
}

#[tokio::test]
async fn of_repeats_in_one_transaction_the_first_wins_also_with_window_zero() {
    let db = Db::new().await;
    db.configure("off", r#"{"dedupWindowSeconds": 0}"#).await;
    for queue in ["on", "off"] {
        db.run("BEGIN").await;
        let push = format!("SELECT status, message_id FROM queen.push('{queue}', '1', transaction_id => 'a')");
        let first = db.rows(&push).await;
        let second = db.rows(&push).await;
        assert_eq!(second, first.replace("queued", "duplicate"), "{queue}");
        db.run("COMMIT").await;
        assert_eq!(db.stored(queue).await, "a", "{queue}");
    }
}

/// A flush, or a push_batch, ended the memory of what the transaction had pushed.
#[tokio::test]
async fn of_repeats_in_one_transaction_the_first_wins_also_after_a_flush_or_a_push_batch() {
    let db = Db::new().await;
    db.configure("off", r#"{"dedupWindowSeconds": 0}"#).await;
    for queue in ["on", "off"] {
        let push = format!("SELECT status FROM queen.push('{queue}', '1', transaction_id => 'a')");
        let batch = format!(
            r#"SELECT status FROM queen.push_batch('[{{"queue":"{queue}","payload":1,"transactionId":"b"}}]')"#
        );
        db.run("BEGIN").await;
        assert_eq!(db.rows(&push).await, "queued");
        assert_eq!(db.rows("SELECT queen.flush()").await, "1");
        assert_eq!(db.rows(&push).await, "duplicate", "{queue}");
        assert_eq!(db.rows(&batch).await, "queued");
        assert_eq!(db.rows(&batch).await, "duplicate", "{queue}");
        db.run("COMMIT").await;
        assert_eq!(db.stored(queue).await, "a b", "{queue}");
    }
}

#[tokio::test]
async fn a_push_and_a_push_batch_of_one_transaction_share_their_ids() {
    let db = Db::new().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'a')").await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":2,"transactionId":"a"}]'); COMMIT"#).await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "1");
}

#[tokio::test]
async fn the_id_of_a_push_that_was_rolled_back_is_free() {
    let db = Db::new().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'a'); ROLLBACK").await;
    assert_eq!(db.rows(STATUS).await, "queued");
    db.run("BEGIN; SAVEPOINT s; SELECT queen.push('q', '1', transaction_id => 'b'); ROLLBACK TO s").await;
    let again = db.rows("SELECT status FROM queen.push('q', '1', transaction_id => 'b')").await;
    assert_eq!(again, "queued");
    db.run("COMMIT").await;
    assert_eq!(db.stored("q").await, "a b");
}

#[tokio::test]
async fn a_duplicate_found_only_at_commit_is_dropped_in_silence_and_counted() {
    let db = Db::new().await;
    let other = db.session().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'a'), queen.push('q', '1', transaction_id => 'b')")
        .await;
    other.run("SELECT queen.push('q', '2', transaction_id => 'a')").await;
    db.run("COMMIT").await;
    assert_eq!(db.stored("q").await, "a b");
    assert_eq!(db.rows("SELECT payload FROM queen.messages('q') WHERE transaction_id = 'a'").await, "2");
    let counted = "SELECT queue, duplicates_dropped FROM queen.queues ORDER BY queue";
    db.configure("other", "{}").await;
    assert_eq!(db.rows(counted).await, "other|0\nq|1");
    // The count outlives maintenance.
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'c')").await;
    other.push("q", "c").await;
    db.run("COMMIT; SELECT queen.maintain()").await;
    assert_eq!(db.rows(counted).await, "other|0\nq|2");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dropped_duplicate").await, "1");
}

#[tokio::test]
async fn an_explicit_id_equal_to_a_stored_message_id_is_a_duplicate_of_that_message() {
    let db = Db::new().await;
    let id = db.rows("SELECT message_id FROM queen.push('q', '1')").await;
    let told = db.rows(&format!("SELECT status, message_id FROM queen.push('q', '1', transaction_id => '{id}')")).await;
    assert_eq!(told, format!("duplicate|{id}"));
    // Not stored soon after it was made: the id alone does not say where.
    db.run("BEGIN").await;
    let late = db.rows("SELECT message_id FROM queen.push('q', '1')").await;
    db.run("SELECT pg_sleep(0.05); COMMIT").await;
    let told = db
        .rows(&format!(
            r#"SELECT status, message_id FROM queen.push_batch('[{{"queue":"q","payload":1,"transactionId":"{late}"}}]')"#
        ))
        .await;
    assert_eq!(told, format!("duplicate|{late}"));
}

#[tokio::test]
async fn consuming_a_message_does_not_free_its_id() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
    assert_eq!(db.rows(STATUS).await, "duplicate");
}

#[tokio::test]
async fn an_id_whose_message_retention_has_removed_is_free() {
    let db = Db::new().await;
    db.configure("q", r#"{"retentionEnabled": true, "retentionSeconds": 10, "dedupWindowSeconds": 1000}"#).await;
    db.push("q", "a").await;
    db.age("q", 11).await;
    db.run("SELECT queen.maintain()").await;
    assert_eq!(db.rows(STATUS).await, "queued");
    let rows = db.rows("SELECT count(*) FROM queen.transaction_id").await;
    assert_eq!(rows, "1", "the old entry went with its segment");
}
