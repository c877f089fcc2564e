//! The wire's behaviour vectors, by their numbers: queues, dead letters and groups under an operator's hands.

use crate::{data, queue, shared, sidecar};
use queen_tests::sidecar::{Sidecar, Value, json};

/// A queue whose one message was dead-lettered by these groups; the rows of `GET /api/v1/dlq`, newest first.
async fn dead(http: &Sidecar, groups: &[&str]) -> (String, Vec<Value>) {
    let q = queue();
    http.push(&q, &[json!({"n": 1})]).await;
    for group in groups {
        let popped = http.pop(&q, &format!("consumerGroup={group}&subscriptionMode=all")).await;
        assert_eq!(http.ack(&popped[0], "dlq").await["dlq"], true);
    }
    let listed = rows(http, &q).await;
    assert_eq!(listed.len(), groups.len());
    (q, listed)
}

async fn rows(http: &Sidecar, queue: &str) -> Vec<Value> {
    let listed = http.get(&format!("/api/v1/dlq?queue={queue}")).await.expect(200);
    listed["messages"].as_array().unwrap().clone()
}

fn address(row: &Value) -> String {
    let part = |name: &str| row[name].as_str().unwrap().to_owned();
    format!("/api/v1/messages/{}/{}", part("partitionId"), part("transactionId"))
}

#[tokio::test]
async fn a32_deleting_a_queue_that_is_not_there_is_no_error() {
    let q = queue();
    let answer = shared().delete(&format!("/api/v1/resources/queues/{q}")).await.expect(200);
    assert_eq!((&answer["deleted"], &answer["existed"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn a33_a_replay_moves_the_dead_letter_to_the_tail() {
    let http = shared();
    let (q, rows_before) = dead(http, &["g"]).await;
    let (row, id) = (&rows_before[0], rows_before[0]["id"].as_str().unwrap());
    http.push(&q, &[json!({"n": 2})]).await;
    let moved = http.post(&format!("{}/retry", address(row)), &json!({})).await.expect(200);
    assert_eq!((&moved["success"], &moved["result"]), (&json!(true), &json!("moved")));
    assert_eq!((&moved["dlqRowRemoved"], &moved["dlqId"]), (&json!(true), &json!(id)));
    assert_eq!(moved["replayedAs"]["transaction_id"], format!("dlq:{id}"));
    assert_eq!(rows(http, &q).await.len(), 0);
    let popped = http.pop(&q, "consumerGroup=g").await;
    assert_eq!(data(&popped), [&json!({"n": 2}), &json!({"n": 1})]);
    assert_eq!(popped[1]["transactionId"], format!("dlq:{id}"));
    let again = http.post(&format!("{}/retry", address(row)), &json!({})).await.expect(404);
    assert_eq!((&again["success"], &again["error"]), (&json!(false), &json!("Message not found")));
}

#[tokio::test]
async fn a34_a_replay_by_address_takes_the_newest_row_and_a_delete_takes_all() {
    let http = shared();
    let (q, before) = dead(http, &["g1", "g2"]).await;
    assert_eq!((&before[0]["consumerGroup"], &before[1]["consumerGroup"]), (&json!("g2"), &json!("g1")));
    let moved = http.post(&format!("{}/retry", address(&before[0])), &json!({})).await.expect(200);
    assert_eq!((&moved["dlqId"], &moved["consumerGroup"]), (&before[0]["id"], &json!("g2")));
    let left = rows(http, &q).await;
    assert_eq!((left.len(), &left[0]["id"]), (1, &before[1]["id"]));

    let (q, before) = dead(http, &["g1", "g2"]).await;
    assert_eq!(http.delete(&address(&before[0])).await.expect(200)["success"], true);
    assert_eq!(rows(http, &q).await.len(), 0);
}

#[tokio::test]
async fn a35_a_blank_destination_is_refused() {
    let http = shared();
    let (q, rows_before) = dead(http, &["g"]).await;
    let path = format!("/api/v1/dlq/{}/replay", rows_before[0]["id"].as_str().unwrap());
    let answer = http.post(&path, &json!({"queue": "  "})).await.expect(400);
    assert_eq!(answer["success"], false);
    assert_eq!(rows(http, &q).await.len(), 1);
}

#[tokio::test]
async fn a36_a_malformed_row_id_is_a_row_that_is_gone() {
    let answer = shared().post("/api/v1/dlq/not-a-uuid/replay", &json!({})).await.expect(404);
    assert_eq!((&answer["success"], &answer["result"]), (&json!(false), &json!("gone")));
}

#[tokio::test]
async fn a37_nothing_is_replayed_during_push_maintenance() {
    let http = sidecar().await;
    let (q, before) = dead(&http, &["g"]).await;
    http.post("/api/v1/system/maintenance", &json!({"enabled": true})).await.expect(200);
    let replay = format!("/api/v1/dlq/{}/replay", before[0]["id"].as_str().unwrap());
    for path in [replay.clone(), format!("{}/retry", address(&before[0]))] {
        let answer = http.post(&path, &json!({})).await.expect(503);
        assert_eq!((&answer["success"], &answer["result"]), (&json!(false), &json!("maintenance")));
    }
    assert_eq!(rows(&http, &q).await.len(), 1);
    http.post("/api/v1/system/maintenance", &json!({"enabled": false})).await.expect(200);
    http.post(&replay, &json!({})).await.expect(200);
}

#[tokio::test]
async fn a38_a_purge_names_its_queue() {
    let answer = shared().delete("/api/v1/dlq").await.expect(400);
    assert_eq!((&answer["success"], &answer["error"]), (&json!(false), &json!("queue is required")));
}

#[tokio::test]
async fn a39_a_seek_ends_the_lease_and_its_late_acks() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let popped = http.pop(&q, "consumerGroup=g&subscriptionMode=all").await;
    let path = format!("/api/v1/consumer-groups/g/queues/{q}/seek");
    assert_eq!(http.post(&path, &json!({"toEnd": true})).await.expect(200)["success"], true);
    assert_eq!(http.ack(&popped[0], "completed").await["error"], "invalid or expired lease");
    assert_eq!(http.pop(&q, "consumerGroup=g").await.len(), 0);
    http.push(&q, &[json!(2)]).await;
    assert_eq!(data(&http.pop(&q, "consumerGroup=g").await), [2]);
}

#[tokio::test]
async fn a40_a_seek_says_where_to() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let answer = http.post(&format!("/api/v1/consumer-groups/g/queues/{q}/seek"), &json!({})).await.expect(400);
    assert_eq!(answer["error"], "Must specify toEnd=true or a timestamp");
}
