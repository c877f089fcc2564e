//! `POST /api/v1/transaction`: pushes and acks together, or not at all.

use crate::{data, queue, shared};
use queen_tests::sidecar::{Sidecar, Value, json};

async fn bundle(http: &Sidecar, body: &Value) -> Value {
    http.post("/api/v1/transaction", body).await.expect(200)
}

async fn leased(http: &Sidecar) -> (String, Value) {
    let q = queue();
    http.push(&q, &[json!("in")]).await;
    let popped = http.pop(&q, "").await;
    (q, popped[0].clone())
}

fn ack(message: &Value) -> Value {
    json!({
        "type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "status": "completed",
    })
}

#[tokio::test]
async fn results_are_flat_and_in_order() {
    let (http, out) = (shared(), queue());
    let (q, message) = leased(http).await;
    let body = json!({"operations": [
        {"type": "push", "items": [{"queue": out, "payload": 1, "transactionId": "a"}, {"queue": out, "data": 2}]},
        ack(&message),
        {"type": "push", "queue": out, "payload": 3, "data": "payload wins", "partition": null},
        {"type": "push", "queue": out},
    ], "requiredLeases": [message["leaseId"]], "kv": null, "timers": [], "other": 1});
    let answer = bundle(http, &body).await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["transactionId"].as_str().unwrap().len(), 36);
    let results = answer["results"].as_array().unwrap();
    let kinds: Vec<&Value> = results.iter().map(|r| &r["type"]).collect();
    assert_eq!(kinds, ["push", "push", "ack", "push", "push"]);
    for (n, result) in results.iter().enumerate() {
        assert_eq!((&result["index"], &result["success"]), (&json!(n), &json!(true)));
    }
    assert_eq!((&results[0]["transactionId"], &results[0]["queueName"]), (&json!("a"), &json!(out)));
    assert_eq!(results[1]["transactionId"], results[1]["messageId"]);
    assert_eq!((results[2].get("error"), &results[2]["dlq"]), (Some(&Value::Null), &json!(false)));
    assert_eq!(data(&http.pop(&out, "").await), [&json!(1), &json!(2), &json!(3), &json!({})]);
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn a_rejected_ack_rolls_the_pushes_back() {
    let (http, out) = (shared(), queue());
    let (q, message) = leased(http).await;
    for (name, wrong) in
        [("transactionId", "nobody's"), ("leaseId", "11111111-2222-7333-8444-555555555555"), ("partitionId", "x")]
    {
        let mut bad = ack(&message);
        bad[name] = json!(wrong);
        let push = json!({"type": "push", "queue": out, "payload": 1});
        let answer = bundle(http, &json!({"operations": [push, bad]})).await;
        assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("ack_rejected")), "{name}");
        assert!(answer["error"].as_str().unwrap().starts_with("QTXN "), "{answer}");
        assert_eq!(answer["results"], json!([]));
    }
    assert_eq!(http.pop(&out, "").await.len(), 0);
    assert_eq!(http.ack(&message, "completed").await["noop"], false);
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn a_failure_signal_in_a_transaction_is_settled_like_any() {
    let http = shared();
    let (q, message) = leased(http).await;
    let mut nack = ack(&message);
    nack["status"] = json!("dlq");
    nack["error"] = json!("enough");
    let answer = bundle(http, &json!({"operations": [nack]})).await;
    assert_eq!((&answer["success"], &answer["results"][0]["dlq"]), (&json!(true), &json!(true)), "{answer}");
    let error: String = http.sql().await.query_one("SELECT error FROM queen.dlq($1)", &[&q]).await.unwrap().get(0);
    assert_eq!(error, "enough");
}

#[tokio::test]
async fn the_required_lease_stands_in_for_one_that_is_not_named() {
    let http = shared();
    let (q, message) = leased(http).await;
    let mut bare = ack(&message);
    bare.as_object_mut().unwrap().remove("leaseId");
    let answer = bundle(http, &json!({"operations": [bare], "requiredLeases": [message["leaseId"]]})).await;
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn what_is_no_transaction_is_refused_in_the_wires_words() {
    let (http, q) = (shared(), queue());
    let push = json!({"type": "push", "queue": q, "payload": 1});
    let none = "transaction requires an operations array (or a top-level kv/timers array)";
    for (body, words) in [
        (json!({}), none),
        (json!({"operations": []}), none),
        (json!({"operations": null}), none),
        (
            json!({"operations": [push, {"type": "pop"}]}),
            "segments transaction supports only push and ack operations, got `pop`",
        ),
        (json!({"operations": [push, {"queue": q}]}), "every transaction operation needs a `type` of push or ack"),
        (json!({"operations": [push], "kv": {}}), "kv must be an array"),
        (json!({"operations": [push], "kv": [{"op": "get"}]}), "kv is not supported"),
        (json!({"operations": [push], "timers": [{}]}), "timers is not supported"),
    ] {
        let answer = http.post("/api/v1/transaction", &body).await.expect(400);
        assert_eq!((&answer["success"], &answer["reason"]), (&json!(false), &json!("bad_request")), "{body}");
        assert_eq!((answer["error"].as_str().unwrap(), &answer["results"]), (words, &json!([])), "{body}");
        assert_eq!(answer["transactionId"].as_str().unwrap().len(), 36);
    }
    for body in ["", "no", "{\"operations\":[}"] {
        let answer = http.post_text("/api/v1/transaction", body).await.expect(400);
        assert!(answer["error"].as_str().unwrap().starts_with("bad body: "), "{body}: {answer}");
    }
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn a_trace_id_that_is_one_is_kept() {
    let (http, q) = (shared(), queue());
    let id = "0190aaaa-0000-7000-8000-00000000000f";
    let push = |trace: &str| json!({"type": "push", "queue": q, "payload": 1, "traceId": trace});
    bundle(http, &json!({"operations": [push(id), push("none")]})).await;
    let popped = http.pop(&q, "").await;
    assert_eq!((&popped[0]["traceId"], &popped[1]["traceId"]), (&json!(id), &Value::Null));
}

#[tokio::test]
async fn payloads_of_a_transaction_are_kept_byte_for_byte() {
    let (http, q) = (shared(), queue());
    let payload = r#"{"b" : 1.50,"a":[1e400,"\u0000\ud800"],"a":2}"#;
    let body = format!(r#"{{"operations":[{{"type":"push","queue":"{q}","payload":{payload}}}]}}"#);
    assert_eq!(http.post_text("/api/v1/transaction", &body).await.expect(200)["success"], true);
    let popped = http.get(&format!("/api/v1/pop/queue/{q}")).await;
    assert!(popped.text.contains(&format!("\"data\":{payload}")), "{}", popped.text);
}
