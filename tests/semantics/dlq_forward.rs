//! Dead letters as a queue: option deadLetterTo.

use crate::support::Db;

const KEY: &str = "k1:00000000000000000000000000000000000000000000000000000000000000aa";

/// Files message `a` of a queue for a group; with the headers given, as written in SQL.
async fn file(db: &Db, queue: &str, status: &str) {
    let batch = db.pop(&format!("'{queue}', 'g', subscription_mode => 'all'")).await;
    assert_eq!(db.ack_with(&batch, &batch.ids, status, &batch.lease, "'boom'").await, "ok released dlq");
}

#[tokio::test]
async fn a_dead_letter_is_pushed_to_the_queue_that_the_option_names_with_its_death_in_the_headers() {
    for (to, target) in [(".dead", "q.dead"), ("graves", "graves")] {
        let db = Db::new().await;
        db.configure("q", &format!(r#"{{"deadLetterTo": "{to}"}}"#)).await;
        db.run(r#"SELECT queen.push_batch('[{"queue":"q","partition":"p","payload":{"b" : 1.50},"transactionId":"a","headers":{"h":1,"x-attempts":"9"}}]')"#).await;
        let original = db.rows("SELECT message_id FROM queen.messages('q')").await;
        file(&db, "q", "dlq").await;
        let copy = db.rows(&format!("SELECT partition, payload_text, headers FROM queen.messages('{target}')")).await;
        let (rest, headers) = copy.rsplit_once('|').unwrap();
        assert_eq!(rest, "p|{\"b\" : 1.50}");
        let headers: serde_json::Value = serde_json::from_str(headers).unwrap();
        assert_eq!(
            headers,
            serde_json::json!({"h": 1, "x-death-reason": "fatal", "x-original-queue": "q", "x-attempts": "1",
                               "x-original-message-id": original})
        );
    }
}

#[tokio::test]
async fn a_dead_letter_queue_that_dead_letters_does_not_forward_again() {
    let db = Db::new().await;
    for queue in ["q", "q.dead", "q.dead.dead"] {
        db.configure(queue, r#"{"deadLetterTo": ".dead"}"#).await;
    }
    db.push("q", "a").await;
    file(&db, "q", "dlq").await;
    file(&db, "q.dead", "dlq").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q.dead.dead')").await, "0");
    assert_eq!(db.rows("SELECT queue FROM queen.dlq() ORDER BY 1").await, "q\nq.dead");
    // Nor does a queue that names itself.
    db.configure("self", r#"{"deadLetterTo": "self"}"#).await;
    db.push("self", "a").await;
    file(&db, "self", "dlq").await;
    assert_eq!(db.stored("self").await, "a");
}

#[tokio::test]
async fn the_copy_comes_and_goes_with_the_transaction_of_the_failure() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadLetterTo": ".dead"}"#).await;
    db.push("q", "a").await;
    let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
    db.run("BEGIN").await;
    assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
    db.run("ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q.dead')").await, "0");
    assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q.dead')").await, "1");
}

#[tokio::test]
async fn what_was_sealed_is_forwarded_sealed_or_redacted_never_in_the_clear() {
    let db = Db::new().await;
    db.run(&format!("SET queen.encryption_keys = '{KEY}'")).await;
    // The queue is created sealed.
    db.configure("q", r#"{"encryptionEnabled": true, "deadLetterTo": ".dead"}"#).await;
    db.run(r#"SELECT queen.push('q', '{"s": "hidden"}')"#).await;
    file(&db, "q", "dlq").await;
    assert_eq!(
        db.rows("SELECT payload ->> 's', is_encrypted FROM queen.messages('q.dead')").await.split('|').next(),
        Some("hidden")
    );
    assert_eq!(
        db.rows("SELECT options ->> 'encryptionEnabled' FROM queen.queues WHERE queue = 'q.dead'").await,
        "true"
    );
    // One that was there before, and is not.
    db.configure("open", "{}").await;
    db.configure("q", r#"{"deadLetterTo": "open"}"#).await;
    db.run(r#"SELECT queen.push('q', '{"s": "hidden"}')"#).await;
    file(&db, "q", "dlq").await;
    assert_eq!(db.rows("SELECT payload ->> 's' FROM queen.messages('open')").await, "[REDACTED]");
}
