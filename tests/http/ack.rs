//! `POST /api/v1/ack` and `/ack/batch`: what each status does, and that the answer is the truth.

use crate::{data, queue, shared};
use queen_tests::sidecar::{Sidecar, Value, json};

/// A queue with the messages 1, 2, …, n, popped.
async fn popped(http: &Sidecar, n: i64, params: &str) -> (String, Vec<Value>) {
    let q = queue();
    http.push(&q, &(1..=n).map(|n| json!(n)).collect::<Vec<_>>()).await;
    let messages = http.pop(&q, params).await;
    assert_eq!(messages.len() as i64, n);
    (q, messages)
}

fn flags(answer: &Value) -> (bool, bool, bool, bool, bool) {
    let flag = |name: &str| answer.get(name).and_then(Value::as_bool).unwrap_or(false);
    (flag("success"), flag("leaseReleased"), flag("dlq"), flag("dropped"), flag("noop"))
}

#[tokio::test]
async fn completed_has_five_spellings_and_every_other_word_is_a_failure() {
    let http = shared();
    for status in [json!("completed"), json!("success"), json!("acked"), json!("ok"), Value::Null] {
        let (q, messages) = popped(http, 1, "").await;
        let mut body = json!({
            "transactionId": messages[0]["transactionId"], "partitionId": messages[0]["partitionId"],
            "leaseId": messages[0]["leaseId"], "status": status, "consumerGroup": null, "error": null,
        });
        if status.is_null() {
            body.as_object_mut().unwrap().remove("status");
        }
        let answer = http.post("/api/v1/ack", &body).await.expect(200);
        assert_eq!(flags(&answer[0]), (true, true, false, false, false), "{status}");
        assert_eq!(answer[0]["error"], Value::Null);
        assert_eq!(http.pop(&q, "").await.len(), 0);
    }
    for status in ["failed", "", "COMPLETED", "nack", "error", "completed "] {
        let (q, messages) = popped(http, 1, "").await;
        assert_eq!(flags(&http.ack(&messages[0], status).await), (true, true, false, false, false), "{status}");
        let again = http.pop(&q, "").await;
        assert_eq!((again.len(), &again[0]["deliveryAttempt"]), (1, &json!(2)), "{status}");
    }
}

#[tokio::test]
async fn the_answer_has_an_item_for_each_of_the_request_in_its_order() {
    let http = shared();
    let (_, messages) = popped(http, 3, "").await;
    let mut unknown = messages[0].clone();
    unknown["transactionId"] = json!("nobody's");
    let mut nowhere = messages[0].clone();
    nowhere["partitionId"] = json!("no uuid");
    let answers = http
        .ack_all(&[
            (&unknown, "completed"),
            (&messages[2], "completed"),
            (&nowhere, "completed"),
            (&messages[0], "completed"),
            (&messages[0], "completed"),
        ])
        .await;
    let ids: Vec<&Value> = answers.iter().map(|a| &a["transactionId"]).collect();
    let wanted = [&unknown, &messages[2], &nowhere, &messages[0], &messages[0]].map(|m| &m["transactionId"]);
    assert_eq!(ids, wanted);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["index"], n);
        assert_eq!(answer["success"], json!(n != 0 && n != 2), "{answer}");
        for name in ["success", "leaseReleased", "dlq", "noop"] {
            assert!(answer[name].is_boolean(), "{name} of {answer}");
        }
        assert!(answer.get("error").is_some(), "{answer}");
    }
    assert!(answers[2]["error"].as_str().unwrap().contains("partitionId"), "{}", answers[2]);
}

#[tokio::test]
async fn no_acknowledgments_are_answered_by_none() {
    let http = shared();
    for body in [json!({}), json!({"acknowledgments": null}), json!({"acknowledgments": [], "consumerGroup": "g"})] {
        assert_eq!(http.post("/api/v1/ack/batch", &body).await.expect(200), json!([]), "{body}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_a_bad_body() {
    let http = shared();
    for (path, body) in [
        ("/api/v1/ack", ""),
        ("/api/v1/ack", "[]"),
        ("/api/v1/ack", "{\"transactionId\":1}"),
        ("/api/v1/ack", "{\"status\":true}"),
        ("/api/v1/ack", "{\"consumerGroup\":5}"),
        ("/api/v1/ack", "{} {}"),
        ("/api/v1/ack/batch", "no"),
        ("/api/v1/ack/batch", "[]"),
        ("/api/v1/ack/batch", "{\"acknowledgments\":{}}"),
        ("/api/v1/ack/batch", "{\"acknowledgments\":[1]}"),
        ("/api/v1/ack/batch", "{\"acknowledgments\":[{\"leaseId\":1}]}"),
        ("/api/v1/ack/batch", "{\"acknowledgments\":[],\"consumerGroup\":[]}"),
    ] {
        let answer = http.post_text(path, body).await.expect(400);
        assert!(answer["error"].as_str().unwrap().starts_with("bad body: "), "{body}: {answer}");
    }
}

#[tokio::test]
async fn refusals_of_an_item_are_answered_with_200_and_the_wires_words() {
    let http = shared();
    let (q, messages) = popped(http, 2, "").await;
    let nobody = "11111111-2222-7333-8444-555555555555";
    let with = |name: &str, value: Value| {
        let mut message = messages[0].clone();
        message[name] = value;
        message
    };
    for (message, status, error) in [
        (with("leaseId", json!(nobody)), "completed", "invalid or expired lease"),
        (with("consumerGroup", json!("stranger")), "completed", "consumer not found"),
        (with("transactionId", json!("x")), "completed", "unresolvable: "),
        (with("transactionId", json!("x")), "failed", "unresolvable: "),
        (with("transactionId", Value::Null), "completed", "unresolvable: "),
        (with("partitionId", json!(nobody)), "completed", "partition not found"),
        (with("partitionId", json!("x")), "completed", "partitionId is not a UUID"),
        // Somebody else's work under a live lease: what does not name the lease may not charge it.
        (with("leaseId", Value::Null), "failed", "invalid or expired lease"),
        (with("leaseId", json!("")), "dlq", "invalid or expired lease"),
    ] {
        let answer = http.ack(&message, status).await;
        assert_eq!(flags(&answer), (false, false, false, false, false), "{error}: {answer}");
        assert!(answer["error"].as_str().unwrap().starts_with(error), "{answer} is not {error}");
    }
    assert_eq!(http.pop(&q, "").await.len(), 0, "the lease lives");
    assert_eq!(flags(&http.ack(&messages[0], "completed").await), (true, false, false, false, false));
    let answer = http.ack(&messages[0], "failed").await;
    assert_eq!(answer["error"], "already committed: the cursor moved past this message before this ack");
    assert_eq!(flags(&http.ack(&messages[0], "completed").await), (true, false, false, false, true));
    assert_eq!(flags(&http.ack(&messages[1], "completed").await), (true, true, false, false, false));
}

#[tokio::test]
async fn an_ack_without_lease_completes_also_under_a_lease() {
    let http = shared();
    let (q, messages) = popped(http, 2, "").await;
    let mut message = messages[1].clone();
    message["leaseId"] = Value::Null;
    assert_eq!(flags(&http.ack(&message, "completed").await), (true, true, false, false, false));
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn dlq_and_dropped_are_told_of_the_message_they_befell_only() {
    let http = shared();
    let (_, messages) = popped(http, 3, "").await;
    let answers =
        http.ack_all(&[(&messages[0], "completed"), (&messages[1], "dlq"), (&messages[2], "completed")]).await;
    let dlq: Vec<&Value> = answers.iter().map(|a| &a["dlq"]).collect();
    assert_eq!(dlq, [&json!(false), &json!(true), &json!(false)]);

    let q = queue();
    http.configure(&q, &json!({"deadLetterQueue": false, "dlqAfterMaxRetries": false, "retryLimit": 0})).await;
    http.push(&q, &[json!(1), json!(2), json!(3)]).await;
    let messages = http.pop(&q, "").await;
    let answers =
        http.ack_all(&[(&messages[0], "completed"), (&messages[1], "failed"), (&messages[2], "completed")]).await;
    let dropped: Vec<bool> = answers.iter().map(|a| flags(a).3).collect();
    assert_eq!(dropped, [false, true, false]);
    assert_eq!(data(&http.pop(&q, "").await), [3], "what is above the dropped one is delivered again");
}

#[tokio::test]
async fn the_error_text_is_kept_with_the_dead_letter_and_never_a_reason_not_to_settle() {
    let http = shared();
    for error in [json!("it\u{0}broke"), json!({"code": 5}), json!(5), json!("x".repeat(100_000)), Value::Null] {
        let (q, messages) = popped(http, 1, "").await;
        let body = json!({
            "transactionId": messages[0]["transactionId"], "partitionId": messages[0]["partitionId"],
            "leaseId": messages[0]["leaseId"], "status": "dlq", "error": error,
        });
        assert_eq!(http.post("/api/v1/ack", &body).await.expect(200)[0]["dlq"], true);
        let text: Option<String> =
            http.sql().await.query_one("SELECT error FROM queen.dlq($1)", &[&q]).await.unwrap().get(0);
        assert!(text.is_none_or(|text| text.len() <= 4096));
    }
}

#[tokio::test]
async fn a_batch_has_one_group_whatever_its_items_say() {
    let http = shared();
    let (_, messages) = popped(http, 1, "consumerGroup=g&subscriptionMode=all").await;
    let mut item = json!({
        "transactionId": messages[0]["transactionId"], "partitionId": messages[0]["partitionId"],
        "leaseId": messages[0]["leaseId"], "consumerGroup": "g",
    });
    let answer = http.post("/api/v1/ack/batch", &json!({"acknowledgments": [item]})).await.expect(200);
    assert_eq!(answer[0]["success"], false);
    item["consumerGroup"] = json!("other");
    let body = json!({"acknowledgments": [item], "consumerGroup": "g"});
    assert_eq!(http.post("/api/v1/ack/batch", &body).await.expect(200)[0]["success"], true);
}
