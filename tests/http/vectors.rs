//! The wire's behaviour vectors, by their numbers: messages. What only an operator does is in `vectors_operate`.

use crate::{data, queue, shared};
use queen_tests::sidecar::{Sidecar, Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const NIL: &str = "11111111-2222-7333-8444-555555555555";

/// A queue with the messages 1, 2 and 3, popped.
async fn three(http: &Sidecar, params: &str) -> (String, Vec<Value>) {
    let q = queue();
    http.push(&q, &[json!(1), json!(2), json!(3)]).await;
    let popped = http.pop(&q, params).await;
    assert_eq!(data(&popped), [1, 2, 3]);
    (q, popped)
}

#[tokio::test]
async fn a1_the_second_push_of_a_transaction_id_is_a_duplicate_of_the_first() {
    let (http, q) = (shared(), queue());
    let body = json!({"items": [{"queue": q, "payload": 1, "transactionId": "a"}]});
    let first = http.post("/api/v1/push", &body).await.expect(201);
    let second = http.post("/api/v1/push", &body).await.expect(201);
    assert_eq!((&first[0]["status"], &second[0]["status"]), (&json!("queued"), &json!("duplicate")));
    assert_eq!(first[0]["message_id"], second[0]["message_id"]);
}

#[tokio::test]
async fn a2_a_transaction_id_twice_in_one_push_is_stored_once() {
    let (http, q) = (shared(), queue());
    let item = json!({"queue": q, "payload": 1, "transactionId": "a"});
    let pushed = http.post("/api/v1/push", &json!({"items": [item, item]})).await.expect(201);
    assert_eq!((&pushed[0]["status"], &pushed[1]["status"]), (&json!("queued"), &json!("duplicate")));
    assert_eq!(pushed[0]["message_id"], pushed[1]["message_id"]);
    assert_eq!(http.pop(&q, "").await.len(), 1);
}

#[tokio::test]
async fn a3_a_transaction_id_is_one_message_in_each_partition() {
    let (http, q) = (shared(), queue());
    let item = |p: &str| json!({"queue": q, "partition": p, "payload": 1, "transactionId": "a"});
    let pushed = http.post("/api/v1/push", &json!({"items": [item("p1"), item("p2")]})).await.expect(201);
    assert_eq!((&pushed[0]["status"], &pushed[1]["status"]), (&json!("queued"), &json!("queued")));
}

#[tokio::test]
async fn a4_an_item_without_payload_is_a_bad_body() {
    let error = shared().post("/api/v1/push", &json!({"items": [{"queue": queue()}]})).await.expect(400);
    assert!(error["error"].as_str().unwrap().starts_with("bad body: "), "{error}");
}

#[tokio::test]
async fn a5_no_items_are_pushed_like_any() {
    assert_eq!(shared().post("/api/v1/push", &json!({"items": []})).await.expect(201), json!([]));
}

#[tokio::test]
async fn a6_what_is_leased_is_not_popped_again() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let popped = http.get(&format!("/api/v1/pop/queue/{q}")).await.expect(200);
    assert_eq!(popped["consumerGroup"], "__QUEUE_MODE__");
    assert_eq!(popped["messages"].as_array().unwrap().len(), 1);
    assert_eq!(http.get(&format!("/api/v1/pop/queue/{q}")).await.status, 204);
}

#[tokio::test]
async fn a7_a_new_group_starts_at_the_end() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    assert_eq!(http.get(&format!("/api/v1/pop/queue/{q}?consumerGroup=g")).await.status, 204);
    http.push(&q, &[json!(2)]).await;
    assert_eq!(data(&http.pop(&q, "consumerGroup=g").await), [2]);
}

#[tokio::test]
async fn a8_a_new_group_may_ask_for_all() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    assert_eq!(http.pop(&q, "consumerGroup=g&subscriptionMode=all").await.len(), 1);
}

#[tokio::test]
async fn a9_a_group_may_come_before_its_queue() {
    let (http, q) = (shared(), queue());
    assert_eq!(http.get(&format!("/api/v1/pop/queue/{q}?consumerGroup=g")).await.status, 204);
    http.push(&q, &[json!(1)]).await;
    assert_eq!(data(&http.pop(&q, "consumerGroup=g").await), [1]);
}

#[tokio::test]
async fn a10_a_pinned_pop_creates_no_queue() {
    let (http, q) = (shared(), queue());
    assert_eq!(http.get(&format!("/api/v1/pop/queue/{q}/partition/p")).await.status, 204);
    let found = http.sql().await.query("SELECT FROM queen.queues WHERE queue = $1", &[&q]).await.unwrap();
    assert_eq!(found.len(), 0);
}

#[tokio::test]
async fn a11_completing_the_last_completes_the_batch() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    let acked = http.ack(&popped[2], "completed").await;
    assert_eq!((&acked["success"], &acked["leaseReleased"]), (&json!(true), &json!(true)));
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn a12_what_was_not_completed_when_the_lease_ran_out_is_delivered_again() {
    let http = shared();
    let (q, popped) = three(http, "leaseSeconds=1").await;
    let acked = http.ack(&popped[0], "completed").await;
    // The wire's own broker says true here; ours says what happened: the lease goes on.
    assert_eq!((&acked["success"], &acked["leaseReleased"]), (&json!(true), &json!(false)));
    assert_eq!(http.pop(&q, "").await.len(), 0);
    assert_eq!(data(&http.pop(&q, "wait=true&timeout=20000").await), [2, 3]);
}

#[tokio::test]
async fn a13_a_failure_of_the_first_commits_nothing_of_its_call() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    let acked = http.ack_all(&[(&popped[0], "failed"), (&popped[1], "completed"), (&popped[2], "completed")]).await;
    assert!(acked.iter().all(|item| item["success"] == true), "{acked:?}");
    let again = http.pop(&q, "").await;
    assert_eq!(data(&again), [1, 2, 3]);
    assert!(again.iter().all(|message| message["deliveryAttempt"] == 2));
}

#[tokio::test]
async fn a14_a_failure_commits_what_is_below_it() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    http.ack_all(&[(&popped[0], "completed"), (&popped[1], "failed"), (&popped[2], "completed")]).await;
    assert_eq!(data(&http.pop(&q, "").await), [2, 3]);
}

#[tokio::test]
async fn a15_the_fourth_failure_dead_letters() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1), json!(2)]).await;
    for _ in 0..3 {
        let popped = http.pop(&q, "batch=1").await;
        assert_eq!(data(&popped), [1]);
        assert_eq!(http.ack(&popped[0], "failed").await["dlq"], false);
    }
    let popped = http.pop(&q, "batch=1").await;
    let body = json!({
        "transactionId": popped[0]["transactionId"], "partitionId": popped[0]["partitionId"],
        "leaseId": popped[0]["leaseId"], "status": "failed", "error": "the last word",
    });
    let acked = http.post("/api/v1/ack", &body).await.expect(200);
    assert_eq!((&acked[0]["success"], &acked[0]["dlq"]), (&json!(true), &json!(true)));
    let row = http
        .sql()
        .await
        .query_one("SELECT retry_count, error FROM queen.dlq($1)", &[&q])
        .await
        .expect("one dead letter");
    assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (3, "the last word"));
    assert_eq!(data(&http.pop(&q, "").await), [2]);
}

#[tokio::test]
async fn a16_retry_costs_nothing() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    for _ in 0..10 {
        let popped = http.pop(&q, "").await;
        assert_eq!(data(&popped), [1]);
        let acked = http.ack(&popped[0], "retry").await;
        assert_eq!((&acked["success"], &acked["dlq"]), (&json!(true), &json!(false)));
    }
    assert_eq!(http.pop(&q, "").await[0]["deliveryAttempt"], 11);
}

#[tokio::test]
async fn a17_dlq_dead_letters_at_once() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let popped = http.pop(&q, "").await;
    assert_eq!(http.ack(&popped[0], "dlq").await["dlq"], true);
    let row = http.sql().await.query_one("SELECT retry_count FROM queen.dlq($1)", &[&q]).await.expect("one row");
    assert_eq!(row.get::<_, i32>(0), 0);
}

#[tokio::test]
async fn a18_without_dead_letters_what_is_exhausted_is_dropped() {
    let (http, q) = (shared(), queue());
    http.configure(&q, &json!({"deadLetterQueue": false, "dlqAfterMaxRetries": false, "retryLimit": 0})).await;
    http.push(&q, &[json!(1)]).await;
    let popped = http.pop(&q, "").await;
    let acked = http.ack(&popped[0], "failed").await;
    assert_eq!((&acked["dropped"], &acked["dlq"]), (&json!(true), &json!(false)));
    assert_eq!(http.sql().await.query("SELECT FROM queen.dlq($1)", &[&q]).await.unwrap().len(), 0);
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn a19_a_lease_that_runs_out_costs_nothing() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    for attempt in 1..=10 {
        let popped = http.pop(&q, "").await;
        assert_eq!(popped[0]["deliveryAttempt"], attempt);
        http.expire(&popped[0]["leaseId"]).await;
    }
    // The budget is whole: three failures redeliver, the fourth does not.
    for failure in 1..=4 {
        let popped = http.pop(&q, "").await;
        assert_eq!(http.ack(&popped[0], "failed").await["dlq"], failure == 4);
    }
}

#[tokio::test]
async fn a20_a_wrong_lease_settles_nothing() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    for wrong in [NIL, "no uuid"] {
        let mut message = popped[2].clone();
        message["leaseId"] = json!(wrong);
        let acked = http.ack(&message, "completed").await;
        assert_eq!((&acked["success"], &acked["leaseReleased"]), (&json!(false), &json!(false)));
        assert_eq!(acked["error"], "invalid or expired lease", "{wrong}");
    }
    assert_eq!(http.ack(&popped[2], "completed").await["success"], true);
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn a21_a_finished_batch_is_a_noop_without_its_lease_and_a_rejection_with_it() {
    let http = shared();
    let (_, popped) = three(http, "").await;
    http.ack(&popped[2], "completed").await;
    let again = http.ack(&popped[2], "completed").await;
    assert_eq!((&again["success"], &again["error"]), (&json!(false), &json!("invalid or expired lease")));
    let mut message = popped[2].clone();
    message["leaseId"] = Value::Null;
    let again = http.ack(&message, "completed").await;
    assert_eq!((&again["success"], &again["noop"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn a22_an_unknown_transaction_id_leaves_the_lease() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    let mut message = popped[0].clone();
    message["transactionId"] = json!("nobody's");
    let acked = http.ack(&message, "completed").await;
    assert_eq!((&acked["success"], &acked["leaseReleased"]), (&json!(false), &json!(false)));
    assert!(acked["error"].as_str().unwrap().starts_with("unresolvable: "), "{acked}");
    assert_eq!(http.pop(&q, "").await.len(), 0, "still leased");
    assert_eq!(http.ack(&popped[2], "completed").await["success"], true);
}

#[tokio::test]
async fn a23_a_status_in_another_case_is_a_failure() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    http.ack(&popped[2], "Completed").await;
    let again = http.pop(&q, "").await;
    // What is below the failure stays where it was: nothing had completed it.
    assert_eq!(data(&again), [1, 2, 3]);
}

#[tokio::test]
async fn a24_auto_ack_commits_with_the_delivery() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1), json!(2)]).await;
    let popped = http.get(&format!("/api/v1/pop/queue/{q}?autoAck=true&batch=1")).await.expect(200);
    assert_eq!((&popped["leaseId"], &popped["messages"][0]["leaseId"]), (&json!(""), &json!("")));
    assert_eq!(popped["messages"][0]["data"], 1);
    assert_eq!(data(&http.pop(&q, "autoAck=true").await), [2]);
}

#[tokio::test]
async fn a25_an_unknown_lease_is_not_renewed() {
    for lease in [NIL, "no-uuid"] {
        let answer = shared().post(&format!("/api/v1/lease/{lease}/extend"), &json!({})).await.expect(200);
        assert_eq!((&answer["success"], &answer["renewed"]), (&json!(false), &json!(0)));
        for name in ["newExpiresAt", "expiresAt", "lease_expires_at"] {
            assert_eq!(answer.get(name), Some(&Value::Null), "{name}");
        }
        assert_eq!(answer["leaseId"], lease);
    }
}

#[tokio::test]
async fn a26_a_duplicate_rolls_the_transaction_back() {
    let http = shared();
    let (q, popped) = three(http, "").await;
    let other = queue();
    let push = json!({"type": "push", "items": [{"queue": other, "payload": 1, "transactionId": "t"}]});
    http.post("/api/v1/transaction", &json!({"operations": [push]})).await.expect(200);
    let ack = json!({
        "type": "ack", "transactionId": popped[2]["transactionId"], "partitionId": popped[2]["partitionId"],
        "leaseId": popped[2]["leaseId"], "status": "completed",
    });
    let answer = http.post("/api/v1/transaction", &json!({"operations": [ack, push]})).await.expect(200);
    assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("duplicate")));
    assert_eq!(answer["results"], json!([]));
    assert_eq!(http.pop(&q, "").await.len(), 0, "still leased");
    assert_eq!(http.ack(&popped[2], "completed").await["noop"], false, "not committed");
}

#[tokio::test]
async fn a27_a_repeat_inside_a_transaction_is_no_failure() {
    let (http, q) = (shared(), queue());
    let push = json!({"type": "push", "items": [{"queue": q, "payload": 1, "transactionId": "t"}]});
    let answer = http.post("/api/v1/transaction", &json!({"operations": [push, push]})).await.expect(200);
    assert_eq!(answer["success"], true);
    assert_eq!((answer["results"][0].get("duplicate"), &answer["results"][1]["duplicate"]), (None, &json!(true)));
    assert_eq!(http.pop(&q, "").await.len(), 1);
}

#[tokio::test]
async fn a28_a_transaction_has_operations() {
    let answer = shared().post("/api/v1/transaction", &json!({})).await.expect(400);
    assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("bad_request")));
    assert_eq!(answer["results"], json!([]));
}

#[tokio::test]
async fn a29_merge_keeps_what_a_push_set_and_replace_does_not() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let merged = http.post("/api/v1/configure", &json!({"queue": q})).await.expect(200);
    assert_eq!(merged["options"]["leaseTime"], 60);
    let replaced = http.post("/api/v1/configure", &json!({"queue": q, "mode": "replace"})).await.expect(200);
    assert_eq!(replaced["options"]["leaseTime"], 300);
}

#[tokio::test]
async fn a30_what_is_configured_one_after_the_other_adds_up() {
    let (http, q) = (shared(), queue());
    http.configure(&q, &json!({"leaseTime": 10})).await;
    let options = http.configure(&q, &json!({"retryLimit": 5})).await;
    assert_eq!((&options["leaseTime"], &options["retryLimit"]), (&json!(10), &json!(5)));
}

#[tokio::test]
async fn a31_an_unknown_mode_writes_nothing() {
    let (http, q) = (shared(), queue());
    let answer = http
        .post("/api/v1/configure", &json!({"queue": q, "mode": "x", "options": {"leaseTime": 7}}))
        .await
        .expect(400);
    assert!(answer["error"].as_str().unwrap().starts_with(r#"mode must be "merge" or "replace", got "#), "{answer}");
    let found = http.sql().await.query("SELECT FROM queen.queues WHERE queue = $1", &[&q]).await.unwrap();
    assert_eq!(found.len(), 0);
}

#[tokio::test]
async fn a41_groups_do_not_share() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let one = http.pop(&q, "consumerGroup=g1&subscriptionMode=all").await;
    let two = http.pop(&q, "consumerGroup=g2&subscriptionMode=all").await;
    assert_eq!((data(&one), data(&two)), (data(&two), data(&one)));
    assert_ne!(one[0]["leaseId"], two[0]["leaseId"]);
    http.ack(&one[0], "completed").await;
    assert_eq!(http.ack(&two[0], "retry").await["success"], true, "its lease is not touched by the other's ack");
}

#[tokio::test]
async fn a42_several_partitions_under_one_lease_are_settled_each_for_itself() {
    let (http, q) = (shared(), queue());
    let items: Vec<_> = ["a", "b", "c"].iter().map(|p| json!({"queue": q, "partition": p, "payload": p})).collect();
    http.post("/api/v1/push", &json!({"items": items})).await.expect(201);
    let popped = http.get(&format!("/api/v1/pop/queue/{q}?partitions=2&batch=10")).await.expect(200);
    assert_eq!(popped["partitionsClaimed"], 2);
    let messages = popped["messages"].as_array().unwrap();
    let partitions: HashSet<&str> = messages.iter().map(|m| m["partition"].as_str().unwrap()).collect();
    assert_eq!((messages.len(), partitions.len()), (2, 2));
    assert!(messages.iter().all(|m| m["leaseId"] == popped["leaseId"]));
    assert_eq!(http.ack(&messages[0], "retry").await["leaseReleased"], true);
    // The other partition is under the lease still: what can be had are the released one and the third.
    let rest = http.pop(&q, "partitions=3&batch=10").await;
    let rest: HashSet<&str> = rest.iter().map(|m| m["partition"].as_str().unwrap()).collect();
    assert!(rest.len() == 2 && !rest.contains(messages[1]["partition"].as_str().unwrap()), "{rest:?}");
    assert_eq!(http.ack(&messages[1], "completed").await["success"], true);
}

#[tokio::test]
async fn a43_a_waiting_pop_is_answered_by_a_push_or_by_its_timeout() {
    let (http, q) = (shared(), queue());
    let began = Instant::now();
    let empty = http.get(&format!("/api/v1/pop/queue/{q}?wait=true&timeout=500")).await;
    assert_eq!(empty.status, 204);
    assert!(began.elapsed() >= Duration::from_millis(500), "not before its time: {:?}", began.elapsed());
    let began = Instant::now();
    let push = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        http.push(&q, &[json!(1)]).await
    };
    let (popped, _) = tokio::join!(http.pop(&q, "wait=true&timeout=30000"), push);
    assert_eq!(data(&popped), [1]);
    assert!(began.elapsed() < Duration::from_secs(15), "by the push, not by the timeout: {:?}", began.elapsed());
}

#[tokio::test]
async fn a44_discovery_needs_something_to_go_by() {
    let answer = shared().get("/api/v1/pop").await.expect(400);
    assert_eq!(answer, json!({"success": false, "error": "namespace or task is required", "messages": []}));
}

#[tokio::test]
async fn a45_an_unknown_route_says_so() {
    let answer = shared().get("/api/v1/nope").await.expect(404);
    assert_eq!(answer, json!({"error": "Not Found", "code": "no_such_route"}));
}

#[tokio::test]
async fn a46_a_delayed_message_is_not_there_before_its_time() {
    let (http, q) = (shared(), queue());
    http.configure(&q, &json!({"delayedProcessing": 2})).await;
    http.push(&q, &[json!(1)]).await;
    assert_eq!(http.get(&format!("/api/v1/pop/queue/{q}")).await.status, 204);
    tokio::time::sleep(Duration::from_millis(2050)).await;
    assert_eq!(data(&http.pop(&q, "").await), [1]);
}

#[tokio::test]
async fn a47_conflation_is_a_groups() {
    let answer = shared().get(&format!("/api/v1/pop/queue/{}?conflation=true", queue())).await.expect(400);
    assert!(answer["error"].as_str().unwrap().starts_with("conflation requires consumerGroup"), "{answer}");
    assert_eq!((&answer["success"], &answer["messages"]), (&json!(false), &json!([])));
}
