//! The bundle of pushes and acknowledgments.

use crate::support::{Batch, Db, lit};
use serde_json::{Value, json};

async fn bundle(db: &Db, operations: Value) -> Value {
    let text = db.rows(&format!("SELECT queen.transaction({})", lit(&operations.to_string()))).await;
    serde_json::from_str(&text).unwrap()
}

async fn one_leased(db: &Db) -> Batch {
    db.push("in", "a").await;
    db.pop("'in', 'g', subscription_mode => 'all'").await
}

fn ack(batch: &Batch, id: &str) -> Value {
    json!({"type": "ack", "transactionId": id, "partitionId": batch.partition_id, "leaseId": batch.lease, "consumerGroup": batch.group})
}

#[tokio::test]
async fn pushes_and_acks_happen_together_and_are_answered_flat_and_in_order() {
    let db = Db::new().await;
    let batch = one_leased(&db).await;
    let answer = bundle(
        &db,
        json!({"operations": [
            {"type": "push", "items": [{"queue": "out", "payload": 1, "transactionId": "x"}, {"queue": "out", "data": 2}]},
            ack(&batch, "a"),
            {"type": "push", "queue": "out", "partition": "p", "payload": {"k": 1}, "transactionId": "y"}]}),
    )
    .await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["transactionId"].as_str().unwrap().len(), 36);
    let results = answer["results"].as_array().unwrap();
    let kinds: Vec<_> = results.iter().map(|r| (r["index"].as_i64().unwrap(), r["type"].as_str().unwrap())).collect();
    assert_eq!(kinds, [(0, "push"), (1, "push"), (2, "ack"), (3, "push")]);
    assert_eq!(results[0]["transactionId"], "x");
    assert_eq!(results[1]["transactionId"], results[1]["messageId"]);
    assert_eq!(results[0]["queueName"], "out");
    assert_eq!(results[2]["error"], Value::Null);
    assert_eq!(db.cursor("in", "g").await, "0|0|f");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('out')").await, "3");
}

#[tokio::test]
async fn a_bare_array_will_do_and_the_payload_defaults_to_an_empty_object() {
    let db = Db::new().await;
    let answer = bundle(
        &db,
        json!([{"type": "push", "queue": "out"}, {"type": "push", "queue": "out", "data": 1, "payload": 2}]),
    )
    .await;
    assert_eq!(answer["success"], true);
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages('out') ORDER BY \"offset\"").await, "{}\n2");
}

#[tokio::test]
async fn a_duplicate_of_something_stored_undoes_everything() {
    let db = Db::new().await;
    db.push("out", "x").await;
    let batch = one_leased(&db).await;
    let answer = bundle(
        &db,
        json!([{"type": "push", "queue": "out", "payload": 1, "transactionId": "new"}, ack(&batch, "a"),
               {"type": "push", "queue": "out", "payload": 1, "transactionId": "x"}]),
    )
    .await;
    assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("duplicate")));
    assert!(answer["error"].as_str().unwrap().starts_with("QDUP "), "{answer}");
    assert_eq!(answer["results"], json!([]));
    assert_eq!(db.cursor("in", "g").await, "-1|0|t");
    assert_eq!(db.stored("out").await, "x");
}

#[tokio::test]
async fn a_duplicate_inside_the_bundle_is_none() {
    let db = Db::new().await;
    let push = json!({"type": "push", "queue": "out", "payload": 1, "transactionId": "x"});
    let answer = bundle(&db, json!([push, push])).await;
    assert_eq!(answer["success"], true);
    assert_eq!(answer["results"][0].get("duplicate"), None);
    assert_eq!(answer["results"][1]["duplicate"], true);
    assert_eq!(answer["results"][1]["messageId"], answer["results"][0]["messageId"]);
    assert_eq!(db.stored("out").await, "x");
}

#[tokio::test]
async fn a_refused_ack_undoes_everything_and_the_callers_transaction_goes_on() {
    let db = Db::new().await;
    let batch = one_leased(&db).await;
    db.run("CREATE TABLE t (n int); BEGIN; INSERT INTO t VALUES (1)").await;
    let mut stale = ack(&batch, "a");
    stale["leaseId"] = json!("0190aaaa-0000-7000-8000-00000000000f");
    for (refused, words) in [
        (ack(&batch, "nowhere"), "QTXN ack references unknown transactionId"),
        (stale, "invalid or expired lease"),
        (json!({"type": "ack", "transactionId": "a", "partitionId": "no uuid"}), "partitionId is not a UUID"),
        (json!({"type": "ack", "transactionId": "a"}), "partitionId is required"),
    ] {
        let answer =
            bundle(&db, json!([{"type": "push", "queue": "out", "payload": 1}, ack(&batch, "a"), refused])).await;
        assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("ack_rejected")));
        let error = answer["error"].as_str().unwrap();
        assert!(error.starts_with("QTXN ") && error.contains(words), "{error}");
    }
    db.run("COMMIT").await;
    assert_eq!(db.rows("SELECT n FROM t").await, "1");
    assert_eq!(db.cursor("in", "g").await, "-1|0|t");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues WHERE queue = 'out'").await, "0");
}

#[tokio::test]
async fn an_item_that_cannot_be_stored_undoes_everything_and_is_answered() {
    let db = Db::new().await;
    for (item, reason) in [
        (json!({"type": "push", "queue": "", "payload": 1}), "invalid_name"),
        (json!({"type": "push", "queue": "out", "partition": "", "payload": 1}), "invalid_name"),
        (json!({"type": "push", "queue": "out", "payload": 1, "transactionId": ""}), "invalid_transaction_id"),
        (json!({"type": "ack", "transactionId": "a", "partitionId": "x", "consumerGroup": " "}), "invalid_name"),
    ] {
        let answer = bundle(&db, json!([{"type": "push", "queue": "first", "payload": 1}, item])).await;
        assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!(reason)), "{item}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

/// The limit on payloads counted for the other doors only.
#[tokio::test]
async fn a_payload_over_the_limit_is_refused_in_a_bundle_too() {
    let db = Db::new().await;
    db.run("SET queen.max_payload_bytes = 100").await;
    let answer = bundle(&db, json!([{"type": "push", "queue": "out", "payload": "x".repeat(99)}])).await;
    assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("payload_too_large")));
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

#[tokio::test]
async fn what_is_no_bundle_is_an_error() {
    let db = Db::new().await;
    for body in [
        "{}",
        "[]",
        "5",
        "\"x\"",
        "null",
        r#"{"operations": []}"#,
        r#"{"operations": {}}"#,
        r#"[{"type": "kv"}]"#,
        r#"[{"queue": "q"}]"#,
        r#"[{"type": ""}]"#,
        r#"[{"type": "push"}]"#,
        r#"[{"type": "ack", "transactionId": 5}]"#,
        r#"{"operations": [{"type": "push", "queue": "q"}], "requiredLeases": 5}"#,
    ] {
        assert_eq!(db.state(&format!("SELECT queen.transaction({})", lit(body))).await, "QN008", "{body}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

#[tokio::test]
async fn an_ack_without_lease_is_the_holders_when_it_completes_or_names_that_lease_elsewhere() {
    let db = Db::new().await;
    let batch = one_leased(&db).await;
    let bare = |status: &str| json!({"type": "ack", "transactionId": "a", "partitionId": batch.partition_id, "consumerGroup": "g", "status": status});
    // A failure under a lease that the caller does not name is somebody else's.
    let answer = bundle(&db, json!([bare("failed")])).await;
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(db.cursor("in", "g").await, "-1|0|t");
    let answer = bundle(&db, json!({"operations": [bare("failed")], "requiredLeases": [batch.lease]})).await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(db.cursor("in", "g").await, "-1|1|f");
    db.pop("'in', 'g'").await;
    let answer = bundle(&db, json!([bare("completed")])).await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(db.cursor("in", "g").await, "0|0|f");
}

#[tokio::test]
async fn a_required_lease_that_is_over_is_not_replaced_by_the_live_one() {
    let db = Db::new().await;
    let old = one_leased(&db).await;
    db.expire().await;
    let new = db.pop("'in', 'g'").await;
    let answer = bundle(
        &db,
        json!({"operations": [{"type": "ack", "transactionId": "a", "partitionId": old.partition_id, "consumerGroup": "g"}],
               "requiredLeases": [old.lease]}),
    )
    .await;
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(db.ack(&new, "a", "completed").await, "ok released");
}

#[tokio::test]
async fn acks_of_several_groups_and_partitions_are_settled_each_for_itself() {
    let db = Db::new().await;
    db.push_to("in", "p1", "a b").await;
    db.push_to("in", "p2", "a").await;
    let one = db.pop("'in', 'g', partition => 'p1', batch => 2, subscription_mode => 'all'").await;
    let two = db.pop("'in', 'g', partition => 'p2', subscription_mode => 'all'").await;
    let other = db.pop("'in', 'h', partition => 'p1', batch => 2, subscription_mode => 'all'").await;
    let answer = bundle(&db, json!([ack(&other, "a"), ack(&one, "b"), ack(&two, "a")])).await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(db.cursor("in", "g").await, "1|0|f\n0|0|f");
    assert_eq!(db.cursor("in", "h").await, "0|0|t");
}

#[tokio::test]
async fn a_bundle_rolls_back_with_its_transaction() {
    let db = Db::new().await;
    let batch = one_leased(&db).await;
    db.run("BEGIN").await;
    let answer = bundle(&db, json!([{"type": "push", "queue": "out", "payload": 1}, ack(&batch, "a")])).await;
    assert_eq!(answer["success"], true);
    db.run("ROLLBACK").await;
    assert_eq!(db.cursor("in", "g").await, "-1|0|t");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues WHERE queue = 'out'").await, "0");
}

#[tokio::test]
async fn pop_change_push_and_ack_in_one_sql_transaction_are_one_effect() {
    let db = Db::new().await;
    db.push("in", "a b").await;
    db.run("CREATE TABLE effect (id text)").await;
    let work = |end: &str| {
        format!(
            "BEGIN;
             CREATE TEMP TABLE got ON COMMIT DROP AS SELECT * FROM queen.pop('in', 'g', subscription_mode => 'all');
             INSERT INTO effect SELECT transaction_id FROM got;
             SELECT queen.push('out', payload, transaction_id => 'out-' || transaction_id) FROM got;
             SELECT queen.ack_lease(lease_id) FROM got;
             {end}"
        )
    };
    db.run(&work("ROLLBACK")).await;
    assert_eq!(db.rows("SELECT * FROM effect").await, "");
    db.run(&work("COMMIT")).await;
    db.run(&work("COMMIT")).await;
    db.run(&work("COMMIT")).await;
    assert_eq!(db.rows("SELECT id FROM effect ORDER BY id").await, "a\nb");
    assert_eq!(db.stored("out").await, "out-a out-b");
}
