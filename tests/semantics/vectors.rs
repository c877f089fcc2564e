//! The behaviour vectors of the wire that have a meaning in SQL, by their numbers.

use crate::support::{ALREADY, Db, INVALID_LEASE, UNRESOLVABLE, messages};
use serde_json::{Value, json};

async fn push_json(db: &Db, items: Value) -> Value {
    let text = db.rows(&format!("SELECT queen.push_batch_json({})", crate::support::lit(&items.to_string()))).await;
    serde_json::from_str(&text).unwrap()
}

async fn three(db: &Db) -> crate::support::Batch {
    db.push("q", "m1 m2 m3").await;
    db.pop("'q', batch => 3").await
}

#[tokio::test]
async fn vector_a1_the_same_id_twice() {
    let db = Db::new().await;
    let item = json!([{"queue": "q", "payload": 1, "transactionId": "a"}]);
    let first = push_json(&db, item.clone()).await;
    let second = push_json(&db, item).await;
    assert_eq!((&first[0]["duplicate"], &second[0]["duplicate"]), (&Value::Null, &json!(true)));
    assert_eq!((&first[0]["messageId"], &first[0]["offset"]), (&second[0]["messageId"], &second[0]["offset"]));
}

#[tokio::test]
async fn vector_a2_the_same_id_twice_in_one_push() {
    let db = Db::new().await;
    let item = json!({"queue": "q", "payload": 1, "transactionId": "a"});
    let answer = push_json(&db, json!([item, item])).await;
    assert_eq!((&answer[0]["duplicate"], &answer[1]["duplicate"]), (&Value::Null, &json!(true)));
    assert_eq!(answer[0]["messageId"], answer[1]["messageId"]);
}

#[tokio::test]
async fn vector_a3_the_same_id_in_two_partitions() {
    let db = Db::new().await;
    let answer = push_json(
        &db,
        json!([{"queue": "q", "partition": "p1", "payload": 1, "transactionId": "a"}, {"queue": "q", "partition": "p2", "payload": 1, "transactionId": "a"}]),
    )
    .await;
    assert_eq!((&answer[0]["duplicate"], &answer[1]["duplicate"]), (&Value::Null, &Value::Null));
    assert_ne!(answer[0]["messageId"], answer[1]["messageId"]);
}

#[tokio::test]
async fn vector_a4_an_item_without_payload() {
    let db = Db::new().await;
    assert_eq!(db.state(r#"SELECT queen.push_batch_json('[{"queue":"q","data":1}]')"#).await, "QN002");
}

#[tokio::test]
async fn vector_a5_no_items() {
    assert_eq!(push_json(&Db::new().await, json!([])).await, json!([]));
}

#[tokio::test]
async fn vector_a6_group_less_pop_and_again() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', batch => 200").await;
    assert_eq!((batch.ids.as_str(), batch.group.as_str()), ("a", "__QUEUE_MODE__"));
    assert_eq!(db.pop("'q', batch => 200").await.ids, "");
}

#[tokio::test]
async fn vector_a7_a_new_group_without_mode_sees_what_comes_later() {
    let db = Db::new().await;
    db.push("q", "a").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    db.push("q", "b").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "b");
}

#[tokio::test]
async fn vector_a8_a_new_group_with_mode_all() {
    let db = Db::new().await;
    db.push("q", "a").await;
    assert_eq!(db.pop("'q', 'g', subscription_mode => 'all'").await.ids, "a");
}

#[tokio::test]
async fn vector_a9_a_pop_of_a_queue_that_does_not_exist_registers() {
    let db = Db::new().await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    db.push("q", "a").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "a");
}

#[tokio::test]
async fn vector_a10_a_pinned_pop_of_an_unknown_queue_creates_nothing() {
    let db = Db::new().await;
    assert_eq!(db.pop("'q', partition => 'Default'").await.ids, "");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

#[tokio::test]
async fn vector_a11_and_a21_the_last_completed_completes_all_and_again_with_and_without_the_lease() {
    let db = Db::new().await;
    let batch = three(&db).await;
    assert_eq!(db.ack(&batch, "m3", "completed").await, "ok released");
    assert_eq!(db.pop("'q', batch => 3").await.ids, "");
    assert_eq!(db.ack(&batch, "m3", "completed").await, INVALID_LEASE);
    assert_eq!(db.ack_unleased(&batch, "m3", "completed").await, "ok noop");
    assert_eq!(db.ack_unleased(&batch, "m3", "failed").await, ALREADY);
}

#[tokio::test]
async fn vector_a12_the_rest_comes_after_expiry() {
    let db = Db::new().await;
    let batch = three(&db).await;
    assert_eq!(db.ack(&batch, "m1", "completed").await, "ok");
    db.expire().await;
    assert_eq!(db.pop("'q', batch => 3").await.ids, "m2 m3");
}

#[tokio::test]
async fn vector_a13_failed_first_then_completed_commits_nothing() {
    let db = Db::new().await;
    let batch = three(&db).await;
    let verdicts = db.ack_all(&batch, &[("m1", "failed"), ("m2", "completed"), ("m3", "completed")]).await;
    assert_eq!(verdicts, "ok released\nok released\nok released");
    let again = db.pop("'q', batch => 3").await;
    assert_eq!((again.ids.as_str(), again.attempt), ("m1 m2 m3", 2));
}

#[tokio::test]
async fn vector_a14_completed_failed_completed_commits_the_first() {
    let db = Db::new().await;
    let batch = three(&db).await;
    db.ack_all(&batch, &[("m1", "completed"), ("m2", "failed"), ("m3", "completed")]).await;
    assert_eq!(db.pop("'q', batch => 3").await.ids, "m2 m3");
}

#[tokio::test]
async fn vector_a15_the_fourth_failure_is_final() {
    let db = Db::new().await;
    three(&db).await;
    db.expire().await;
    for n in 1..=4 {
        let batch = db.pop("'q', batch => 3").await;
        assert_eq!(batch.ids, "m1 m2 m3");
        let verdict = db.ack_with(&batch, "m1", "failed", &batch.lease, &format!("'error {n}'")).await;
        assert_eq!(verdict, if n < 4 { "ok released" } else { "ok released dlq" });
    }
    assert_eq!(db.rows("SELECT retry_count, error FROM queen.dlq()").await, "3|error 4");
    assert_eq!(db.pop("'q'").await.ids, "m2");
}

#[tokio::test]
async fn vector_a16_retry_ten_times() {
    let db = Db::new().await;
    db.push("q", "m1").await;
    for _ in 0..10 {
        let batch = db.pop("'q'").await;
        assert_eq!(db.ack(&batch, "m1", "retry").await, "ok released");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    assert_eq!(db.pop("'q'").await.ids, "m1");
}

#[tokio::test]
async fn vector_a17_dlq_at_once() {
    let db = Db::new().await;
    let batch = three(&db).await;
    assert_eq!(db.ack(&batch, "m1", "dlq").await, "ok released dlq");
    assert_eq!(db.rows("SELECT retry_count FROM queen.dlq()").await, "0");
}

#[tokio::test]
async fn vector_a18_dropped_when_both_switches_are_off() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadLetterQueue": false, "dlqAfterMaxRetries": false, "retryLimit": 0}"#).await;
    let batch = three(&db).await;
    assert_eq!(db.ack(&batch, "m1", "failed").await, "ok released dropped");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    assert_eq!(db.pop("'q', batch => 3").await.ids, "m2 m3");
}

#[tokio::test]
async fn vector_a19_ten_expiries_charge_nothing() {
    let db = Db::new().await;
    db.push("q", "m1").await;
    for attempt in 1..=10 {
        let batch = db.pop("'q'").await;
        assert_eq!((batch.ids.as_str(), batch.attempt), ("m1", attempt));
        db.expire().await;
    }
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|0|t");
}

#[tokio::test]
async fn vector_a20_a_wrong_lease() {
    let db = Db::new().await;
    let batch = three(&db).await;
    let wrong = "0190aaaa-0000-7000-8000-00000000000f";
    assert_eq!(db.ack_with(&batch, "m1", "completed", wrong, "NULL").await, INVALID_LEASE);
}

#[tokio::test]
async fn vector_a22_an_unknown_id_under_a_live_lease() {
    let db = Db::new().await;
    let batch = three(&db).await;
    assert_eq!(db.ack(&batch, "unknown", "completed").await, UNRESOLVABLE);
    assert_eq!(db.pop("'q'").await.ids, "", "the lease is kept");
}

#[tokio::test]
async fn vector_a23_a_status_in_capitals_is_a_failure() {
    let db = Db::new().await;
    let batch = three(&db).await;
    assert_eq!(db.ack(&batch, "m3", "Completed").await, "ok released");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|1|f");
}

#[tokio::test]
async fn vector_a24_auto_ack() {
    let db = Db::new().await;
    db.push("q", "m1 m2").await;
    let message = messages(&db.rows("SELECT queen.pop_json('q', auto_ack => true)").await);
    assert_eq!((&message[0]["leaseId"], &message[0]["transactionId"]), (&Value::Null, &json!("m1")));
    assert_eq!(db.pop("'q'").await.ids, "m2");
}
