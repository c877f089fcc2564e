//! Moving a dead letter back into a queue.

use crate::support::{Db, file_dead_letter as file, filed, lit, moved};
use serde_json::json;

#[tokio::test]
async fn a_move_lands_at_the_tail_with_a_fresh_budget_and_ends_the_record() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    db.push("q", "b").await;
    let original = db.rows("SELECT message_id FROM queen.messages() WHERE transaction_id = 'a'").await;
    let verdict = moved(&db, &lit(&id)).await;
    let moved_id = format!("dlq:{id}");
    assert_eq!(verdict["result"], "moved");
    assert_eq!(verdict["queue"], "q");
    assert_eq!(verdict["partition"], "Default");
    assert_eq!(verdict["consumerGroup"], "g");
    assert_eq!(verdict["dlqId"], id);
    assert_eq!(verdict["originalTransactionId"], "a");
    assert_eq!(verdict["transactionId"], moved_id);
    assert_eq!(verdict["offset"], 2);
    assert_ne!(verdict["messageId"], original);
    assert_eq!(db.stored("q").await, format!("a b {moved_id}"));
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    let batch = db.pop("'q', 'g', batch => 9").await;
    assert_eq!((batch.ids, batch.attempt), (format!("b {moved_id}"), 1));
    assert_eq!(db.cursor("q", "g").await, "0|0|t");
}

#[tokio::test]
async fn a_second_move_a_missing_and_a_deleted_record_are_gone_alike() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    assert_eq!(moved(&db, &lit(&id)).await["result"], "moved");
    for gone in [id.as_str(), "0190aaaa-0000-7000-8000-00000000000f"] {
        assert_eq!(moved(&db, &lit(gone)).await, json!({"result": "gone", "dlqId": gone}));
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "2");
}

#[tokio::test]
async fn a_move_elsewhere_creates_what_is_missing_and_keeps_payload_and_headers() {
    let db = Db::new().await;
    db.run(
        r#"SELECT queen.push_batch('[{"queue":"q","payload":{"b" : 1.50},"transactionId":"a","headers":{"h" : 1}}]')"#,
    )
    .await;
    let id = file(&db, "g").await;
    let verdict = moved(&db, &format!("'{id}', 'new.queue', 'p7'")).await;
    assert_eq!(
        (&verdict["queue"], &verdict["partition"], &verdict["offset"]),
        (&json!("new.queue"), &json!("p7"), &json!(0))
    );
    let message = db.rows("SELECT partition, payload_text, headers FROM queen.messages('new.queue')").await;
    let original = db.rows("SELECT message_id FROM queen.messages('q')").await;
    let headers = format!(
        r#"{{"h": 1, "x-replay-hops": "1", "x-causation-id": "{original}", "x-original-transaction-id": "a"}}"#
    );
    assert_eq!(message, format!("p7|{{\"b\" : 1.50}}|{headers}"));
    assert_eq!(db.rows("SELECT namespace FROM queen.queues WHERE queue = 'new.queue'").await, "new");
}

#[tokio::test]
async fn a_move_to_a_name_that_is_not_allowed_leaves_the_record() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    for arguments in [
        format!("'{id}', ''"),
        format!("'{id}', '  '"),
        format!("'{id}', 'q', E'a\\nb'"),
        format!("'{id}', {}", lit(&"x".repeat(256))),
    ] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_move_v1({arguments})")).await, "QN001", "{arguments:.60}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "1");
}

#[tokio::test]
async fn a_move_to_where_its_frame_is_already_is_a_duplicate_and_keeps_the_record_whatever_the_window() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    db.configure("there", r#"{"dedupWindowSeconds": 0}"#).await;
    db.push("there", "x y").await;
    db.push("there", &format!("dlq:{id}")).await;
    let there = db.rows("SELECT message_id FROM queen.messages('there') WHERE \"offset\" = 2").await;
    let verdict = moved(&db, &format!("'{id}', 'there'")).await;
    assert_eq!((&verdict["result"], &verdict["offset"]), (&json!("duplicate"), &json!(2)));
    assert_eq!(verdict["messageId"], there);
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('there')").await, "3");
}

#[tokio::test]
async fn a_move_that_is_rolled_back_leaves_record_and_queue_as_they_were() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    db.run("BEGIN").await;
    assert_eq!(moved(&db, &lit(&id)).await["result"], "moved");
    db.run("ROLLBACK").await;
    assert_eq!(db.rows("SELECT id FROM queen.dlq()").await, id);
    assert_eq!(db.stored("q").await, "a");
    assert_eq!(moved(&db, &lit(&id)).await["offset"], 1);
}

#[tokio::test]
async fn a_moved_message_that_fails_again_can_be_moved_again() {
    let db = Db::new().await;
    let mut id = filed(&db, "g").await;
    for _ in 0..3 {
        let told = moved(&db, &lit(&id)).await["transactionId"].as_str().unwrap().to_owned();
        let batch = db.pop("'q', 'g'").await;
        assert_eq!(batch.ids, told);
        assert_eq!(db.ack(&batch, &told, "dlq").await, "ok released dlq");
        let next = db.rows("SELECT id FROM queen.dlq()").await;
        assert_ne!(next, id);
        id = next;
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "4");
}

#[tokio::test]
async fn other_groups_get_a_moved_message_too() {
    let db = Db::new().await;
    let id = filed(&db, "g1").await;
    let batch = db.pop("'q', 'g2', subscription_mode => 'all'").await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
    moved(&db, &lit(&id)).await;
    assert_eq!(db.pop("'q', 'g2'").await.ids, format!("dlq:{id}"));
}
