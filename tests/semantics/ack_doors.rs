//! The same by every way of acknowledging.

use crate::support::{Batch, Db, INVALID_LEASE, ack_items, lit, verdict_columns};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Door {
    /// `ack`, one call a message.
    Ack,
    AckUnleased,
    AckBatch,
    AckBatchJson,
    /// `nack`, which takes every status.
    Nack,
    Transaction,
}

const DOORS: [Door; 6] =
    [Door::Ack, Door::AckUnleased, Door::AckBatch, Door::AckBatchJson, Door::Nack, Door::Transaction];

/// Settles, and answers the last verdict: as by `verdict_columns`, flags that the door has no word for left out.
async fn settle(db: &Db, door: Door, batch: &Batch, items: &[(&str, &str)]) -> String {
    let mut last = String::new();
    match door {
        Door::Ack => {
            for (id, status) in items {
                last = db.ack(batch, id, status).await;
            }
        }
        Door::AckUnleased => {
            for (id, status) in items {
                last = db.ack_unleased(batch, id, status).await;
            }
        }
        Door::Nack => {
            for (id, status) in items {
                last = db
                    .rows(&format!(
                        "SELECT {} FROM queen.nack('{}', {}, NULL, {}) a",
                        verdict_columns("a"),
                        batch.lease,
                        lit(id),
                        lit(status)
                    ))
                    .await;
            }
        }
        Door::AckBatch => {
            let all = db.ack_all(batch, items).await;
            last = all.lines().last().unwrap_or_default().to_owned();
        }
        Door::AckBatchJson => {
            let text = db
                .rows(&format!("SELECT queen.ack_batch_json({}, {})", lit(&ack_items(batch, items)), lit(&batch.group)))
                .await;
            let answers: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            assert_eq!(answers.len(), items.len());
            let answer = answers.last().unwrap();
            last = match answer["error"].as_str() {
                Some(error) => format!("no: {error}"),
                None => {
                    assert_eq!(answer["success"], true);
                    let mut words = vec!["ok"];
                    for (key, word) in
                        [("leaseReleased", "released"), ("dlq", "dlq"), ("dropped", "dropped"), ("noop", "noop")]
                    {
                        if answer[key] == true {
                            words.push(word);
                        }
                    }
                    words.join(" ")
                }
            };
        }
        Door::Transaction => {
            let operations: Vec<serde_json::Value> = items
                .iter()
                .map(|(id, status)| {
                    serde_json::json!({"type": "ack", "transactionId": id, "partitionId": batch.partition_id,
                        "leaseId": batch.lease, "status": status, "consumerGroup": batch.group})
                })
                .collect();
            let text = db
                .rows(&format!("SELECT queen.transaction({})", lit(&serde_json::Value::Array(operations).to_string())))
                .await;
            let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
            last = if answer["success"] == true {
                let results = answer["results"].as_array().unwrap();
                assert_eq!(results.len(), items.len());
                if results.last().unwrap()["dlq"] == true { "ok dlq".to_owned() } else { "ok".to_owned() }
            } else {
                assert_eq!(answer["results"], serde_json::json!([]));
                format!("no: {}", answer["error"].as_str().unwrap())
            };
        }
    }
    last
}

const TEN: &str = "m1 m2 m3 m4 m5 m6 m7 m8 m9 m10";
const SEVEN: &str = "m4 m5 m6 m7 m8 m9 m10";

#[tokio::test]
async fn pop_ten_settle_three_let_the_lease_end_and_the_other_seven_come_in_order() {
    for door in DOORS {
        let db = Db::new().await;
        db.push("q", TEN).await;
        let batch = db.pop("'q', 'g', batch => 10, subscription_mode => 'all'").await;
        assert_eq!(batch.ids, TEN);
        let three = [("m1", "completed"), ("m2", "completed"), ("m3", "completed")];
        assert!(settle(&db, door, &batch, &three).await.starts_with("ok"), "{door:?}");
        assert_eq!(db.pop("'q', 'g', batch => 10").await.ids, "", "{door:?}: still leased");
        db.expire().await;
        let rest = db.pop("'q', 'g', batch => 10").await;
        assert_eq!((rest.ids.as_str(), rest.attempt), (SEVEN, 2), "{door:?}");
        // And the seven are settled by the same door.
        let all: Vec<(&str, &str)> = SEVEN.split(' ').map(|id| (id, "completed")).collect();
        assert!(settle(&db, door, &rest, &all).await.starts_with("ok"), "{door:?}");
        assert_eq!(db.cursor("q", "g").await, "9|0|f", "{door:?}");
        assert_eq!(db.pop("'q', 'g', batch => 10").await.ids, "", "{door:?}");
        db.verify().await;
    }
}

#[tokio::test]
async fn settle_three_of_ten_out_of_order_and_in_several_segments() {
    for door in DOORS {
        let db = Db::new().await;
        for id in TEN.split(' ') {
            db.push("q", id).await;
        }
        let batch = db.pop("'q', 'g', batch => 10, subscription_mode => 'all'").await;
        let three = [("m3", "completed"), ("m1", "completed"), ("m2", "completed")];
        assert!(settle(&db, door, &batch, &three).await.starts_with("ok"), "{door:?}");
        db.expire().await;
        assert_eq!(db.pop("'q', 'g', batch => 10").await.ids, SEVEN, "{door:?}");
    }
}

#[tokio::test]
async fn ack_lease_of_a_lease_that_a_partial_ack_shortened_completes_the_rest() {
    let db = Db::new().await;
    db.push("q", TEN).await;
    let batch = db.pop("'q', batch => 10").await;
    assert_eq!(db.ack(&batch, "m3", "completed").await, "ok");
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", batch.lease)).await, "7");
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", batch.lease)).await, "0");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "9|0|f");
}

#[tokio::test]
async fn every_door_refuses_a_lease_that_is_over_and_moves_nothing() {
    for door in DOORS {
        if door == Door::AckUnleased {
            continue;
        }
        let db = Db::new().await;
        db.push("q", TEN).await;
        let old = db.pop("'q', 'g', batch => 10, subscription_mode => 'all'").await;
        db.expire().await;
        let new = db.pop("'q', 'g', batch => 10").await;
        for status in ["completed", "failed", "retry", "dlq"] {
            let verdict = settle(&db, door, &old, &[("m3", status)]).await;
            assert!(verdict.contains("invalid or expired lease"), "{door:?} {status}: {verdict}");
        }
        assert_eq!(db.cursor("q", "g").await, "-1|0|t", "{door:?}");
        assert_eq!(db.ack(&new, "m10", "completed").await, "ok released", "{door:?}");
    }
}

#[tokio::test]
async fn every_door_charges_files_and_retries_alike() {
    for door in DOORS {
        let db = Db::new().await;
        db.configure("q", r#"{"retryLimit": 1}"#).await;
        db.push("q", "a b").await;
        // Without a lease id a failure is heard only when the lease is over.
        let pop = async || {
            let batch = db.pop("'q', 'g', batch => 2, subscription_mode => 'all'").await;
            if door == Door::AckUnleased {
                db.expire().await;
            }
            batch
        };
        settle(&db, door, &pop().await, &[("a", "retry")]).await;
        assert_eq!(db.cursor("q", "g").await, "-1|0|f", "{door:?}");
        settle(&db, door, &pop().await, &[("a", "failed")]).await;
        assert_eq!(db.cursor("q", "g").await, "-1|1|f", "{door:?}");
        let verdict = settle(&db, door, &pop().await, &[("a", "failed")]).await;
        assert!(verdict.ends_with("dlq"), "{door:?} {verdict}");
        assert_eq!(db.cursor("q", "g").await, "0|0|f", "{door:?}");
        let verdict = settle(&db, door, &pop().await, &[("b", "dlq")]).await;
        assert!(verdict.ends_with("dlq"), "{door:?} {verdict}");
        let filed = db.rows("SELECT transaction_id, retry_count, consumer_group FROM queen.dlq() ORDER BY 1").await;
        assert_eq!(filed, "a|1|g\nb|0|g", "{door:?}");
    }
}

/// Retention had removed the front of a leased batch, and then no message of that lease could be told apart.
#[tokio::test]
async fn what_retention_left_of_a_leased_batch_can_be_settled() {
    for door in DOORS {
        let db = Db::new().await;
        db.configure("q", r#"{"maxWaitTimeSeconds": 100}"#).await;
        db.push("q", "m1 m2").await;
        db.age("q", 101).await;
        db.push("q", "m3 m4 m5").await;
        let batch = db.pop("'q', 'g', batch => 9, subscription_mode => 'all'").await;
        assert_eq!(batch.ids, "m1 m2 m3 m4 m5");
        db.run("SELECT queen.maintain()").await;
        assert_eq!(db.stored("q").await, "m3 m4 m5");
        let verdict = settle(&db, door, &batch, &[("m3", "completed")]).await;
        assert!(verdict.starts_with("ok"), "{door:?} {verdict}");
        assert_eq!(db.cursor("q", "g").await, "2|0|t", "{door:?}");
        if door == Door::AckUnleased {
            db.expire().await;
        }
        let verdict = settle(&db, door, &batch, &[("m4", "dlq")]).await;
        assert!(verdict.ends_with("dlq"), "{door:?} {verdict}");
        assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "m5", "{door:?}");
    }
}

#[tokio::test]
async fn messages_without_a_transaction_id_are_settled_by_their_message_id() {
    for door in DOORS {
        let db = Db::new().await;
        db.run("BEGIN; SELECT queen.push('q', '1'), queen.push('q', '2'), queen.push('q', '3'); SELECT pg_sleep(0.03); COMMIT").await;
        db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":4},{"queue":"q","payload":5}]')"#).await;
        let batch = db.pop("'q', 'g', batch => 9, subscription_mode => 'all'").await;
        let ids: Vec<&str> = batch.ids.split(' ').collect();
        settle(&db, door, &batch, &[(ids[1], "completed")]).await;
        assert_eq!(db.cursor("q", "g").await, "1|0|t", "{door:?}");
        // Five in one call: looked up in another way than one.
        let all: Vec<(&str, &str)> = ids.iter().map(|id| (*id, "completed")).collect();
        settle(&db, door, &batch, &all).await;
        assert_eq!(db.cursor("q", "g").await, "4|0|f", "{door:?}");
    }
}

#[tokio::test]
async fn a_batch_of_many_ids_explicit_and_not_is_resolved_each_to_its_own_offset() {
    let db = Db::new().await;
    db.run("SELECT count(*) FROM queen.push_many('q', (SELECT array_agg(to_jsonb(n)) FROM generate_series(0, 99) n),
              transaction_ids => (SELECT array_agg(CASE WHEN n % 3 > 0 THEN 'id' || n END ORDER BY n) FROM generate_series(0, 99) n))").await;
    let batch = db.pop("'q', batch => 100").await;
    let ids: Vec<&str> = batch.ids.split(' ').collect();
    // Everything up to 49, the highest first, and one that fails at 50.
    let mut items: Vec<(&str, &str)> = ids[..50].iter().rev().map(|id| (*id, "completed")).collect();
    items.push((ids[50], "retry"));
    items.push(("nowhere", "completed"));
    let verdicts = db.ack_all(&batch, &items).await;
    assert_eq!(verdicts.lines().filter(|l| *l == "ok released").count(), 51);
    assert_eq!(verdicts.lines().last(), Some(crate::support::UNRESOLVABLE));
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "49|0|f");
}

#[tokio::test]
async fn a_batch_spans_partitions_and_leases_and_each_group_of_items_is_settled_for_itself() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a b").await;
    db.push_to("q", "p2", "a b").await;
    let one = db.pop("'q', partition => 'p1', batch => 2").await;
    let two = db.pop("'q', partition => 'p2', batch => 2").await;
    let mut items: Vec<serde_json::Value> = serde_json::from_str(&ack_items(&one, &[("b", "completed")])).unwrap();
    items.extend(
        serde_json::from_str::<Vec<serde_json::Value>>(&ack_items(&two, &[("a", "failed"), ("b", "completed")]))
            .unwrap(),
    );
    let stale = Batch { lease: one.lease.clone(), ..two.clone() };
    items.extend(serde_json::from_str::<Vec<serde_json::Value>>(&ack_items(&stale, &[("a", "completed")])).unwrap());
    items.push(serde_json::json!({"transactionId": "a", "partitionId": "not a uuid"}));
    items.push(serde_json::json!({"transactionId": "a", "partitionId": one.partition_id, "leaseId": "not a uuid"}));
    items.push(serde_json::json!({"transactionId": "a"}));
    let answer = db
        .rows(&format!(
            "SELECT index, transaction_id, {} FROM queen.ack_batch({}) a",
            verdict_columns("a"),
            lit(&serde_json::Value::Array(items).to_string())
        ))
        .await;
    assert_eq!(
        answer,
        format!(
            "0|b|ok released\n1|a|ok released\n2|b|ok released\n3|a|{INVALID_LEASE}\n4|a|no: partitionId is not a UUID\n5|a|{INVALID_LEASE}\n6|a|no: partitionId is required"
        )
    );
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "1|0|f\n-1|1|f");
}
