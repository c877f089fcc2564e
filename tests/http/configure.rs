//! `POST /api/v1/configure`

use crate::{queue, shared};
use queen_tests::sidecar::{Value, json};

/// The options with their defaults; `namespace` and `task` are beside them in the answer.
fn defaults() -> Value {
    json!({
        "priority": 0, "leaseTime": 300, "retryLimit": 3, "retryDelay": 1000, "maxSize": 0, "ttl": 3600,
        "deadLetterQueue": true, "dlqAfterMaxRetries": true, "delayedProcessing": 0, "windowBuffer": 0,
        "retentionEnabled": false, "retentionSeconds": 0, "completedRetentionSeconds": 0, "maxWaitTimeSeconds": 0,
        "minPopWaitTime": 0, "encryptionEnabled": false, "dedupWindowSeconds": 3600, "retentionSinkHold": "",
        "retentionSinkHoldMaxSeconds": 604_800, "deadLetterTo": "", "deadLetterRules": [], "deadLetterPayload": "keep",
        "redactionAllow": [], "requireApproval": false, "owner": "", "runbook": "", "severity": "",
        "retryBackoff": "none", "retryMaxDelay": 0, "retryJitter": 0, "maxElapsedSeconds": 0, "maxDeliveries": 0,
        "deadlines": false, "autoPauseCount": 0, "autoPauseSeconds": 300,
    })
}

/// None of them the default.
fn others() -> Value {
    json!({
        "priority": 5, "leaseTime": 120, "retryLimit": 7, "retryDelay": 2000, "maxSize": 10, "ttl": 60,
        "deadLetterQueue": false, "dlqAfterMaxRetries": false, "delayedProcessing": 1, "windowBuffer": 2,
        "retentionEnabled": true, "retentionSeconds": 86_400, "completedRetentionSeconds": 3600,
        "maxWaitTimeSeconds": 90_000, "minPopWaitTime": 50, "encryptionEnabled": true, "dedupWindowSeconds": 0,
        "retentionSinkHold": "s3", "retentionSinkHoldMaxSeconds": 60, "deadLetterTo": ".dead",
        "deadLetterRules": [{"pattern": "a", "class": "poison", "code": "A"}], "deadLetterPayload": "redact",
        "redactionAllow": ["$.id"], "requireApproval": true, "owner": "o", "runbook": "r", "severity": "s",
        "retryBackoff": "exponential", "retryMaxDelay": 60_000, "retryJitter": 0.5, "maxElapsedSeconds": 600,
        "maxDeliveries": 9, "deadlines": true, "autoPauseCount": 4, "autoPauseSeconds": 60,
    })
}

#[tokio::test]
async fn all_options_are_answered_as_they_are_in_force() {
    let (http, q) = (shared(), queue());
    let answer = http.post("/api/v1/configure", &json!({ "queue": q })).await.expect(200);
    assert_eq!(answer["options"], defaults());
    assert_eq!(
        (&answer["configured"], &answer["queue"], &answer["storage"]),
        (&json!(true), &json!(q), &json!("segments"))
    );
    assert_eq!(
        (&answer["namespace"], &answer["task"], answer.get("partitionId")),
        (&json!(""), &json!(""), Some(&Value::Null))
    );
    assert!(answer.get("queueId").is_some_and(|id| !id.is_null()), "{answer}");
    assert!(answer.get("error").is_none());

    let body = json!({"queue": q, "namespace": "n", "task": "t", "options": others()});
    let answer = http.post("/api/v1/configure", &body).await.expect(200);
    assert_eq!(answer["options"], others());
    assert_eq!((&answer["namespace"], &answer["task"]), (&json!("n"), &json!("t")));
}

#[tokio::test]
async fn merge_keeps_what_is_absent_null_is_the_default_and_replace_resets() {
    let (http, q) = (shared(), queue());
    http.configure(&q, &others()).await;
    let mut wanted = others();
    wanted["leaseTime"] = json!(5);
    wanted["retryLimit"] = json!(3);
    for mode in [Value::Null, json!("merge")] {
        let body = json!({"queue": q, "mode": mode, "options": {"leaseTime": 5, "retryLimit": null}});
        assert_eq!(http.post("/api/v1/configure", &body).await.expect(200)["options"], wanted, "{mode}");
    }
    let mut wanted = defaults();
    wanted["ttl"] = json!(1);
    let body = json!({"queue": q, "mode": "replace", "options": {"ttl": 1, "priority": null}});
    assert_eq!(http.post("/api/v1/configure", &body).await.expect(200)["options"], wanted);
}

#[tokio::test]
async fn options_may_stand_beside_the_queue_and_what_is_unknown_is_ignored() {
    let (http, q) = (shared(), queue());
    let body = json!({"queue": q, "leaseTime": 77, "nonsense": {}, "namespace": "", "task": null});
    let answer = http.post("/api/v1/configure", &body).await.expect(200);
    assert_eq!(answer["options"]["leaseTime"], 77);
    // An object of options is the only place then.
    let body =
        json!({"queue": q, "leaseTime": 78, "options": {"nonsense": 1, "namespace": "inside"}, "namespace": "outside"});
    let answer = http.post("/api/v1/configure", &body).await.expect(200);
    assert_eq!((&answer["options"]["leaseTime"], &answer["namespace"]), (&json!(77), &json!("inside")));
}

#[tokio::test]
async fn what_cannot_be_configured_is_refused_and_nothing_is_written() {
    let (http, q) = (shared(), queue());
    for (body, words) in [
        (json!({"options": {}}), "queue is required"),
        (json!({"queue": null}), "queue is required"),
        (json!({"queue": 5}), "queue is required"),
        (json!({"queue": q, "mode": 5}), "mode must be \"merge\" or \"replace\", got 5"),
        (json!({"queue": q, "mode": "MERGE"}), "mode must be \"merge\" or \"replace\", got \"MERGE\""),
        (json!({"queue": q, "options": []}), "bad body: "),
        (json!({"queue": " "}), "blank"),
        // The wire's own broker answers 500 to these; they are the caller's to mend.
        (json!({"queue": q, "options": {"ttl": 7, "leaseTime": "soon"}}), "leaseTime"),
        (json!({"queue": q, "options": {"leaseTime": 0}}), "leaseTime"),
        (json!({"queue": q, "options": {"retryLimit": -1}}), "retryLimit"),
        (json!({"queue": q, "options": {"retentionEnabled": "maybe"}}), "retentionEnabled"),
        (json!({"queue": q, "options": {"retentionSinkHold": "a b"}}), "retentionSinkHold"),
        (json!({"queue": q, "options": {"retentionSinkHoldMaxSeconds": 59}}), "retentionSinkHoldMaxSeconds"),
    ] {
        let answer = http.post("/api/v1/configure", &body).await.expect(400);
        assert!(answer["error"].as_str().unwrap().contains(words), "{body}: {answer}");
    }
    for body in ["", "no", "[]", "\"q\""] {
        let answer = http.post_text("/api/v1/configure", body).await.expect(400);
        assert!(answer["error"].as_str().unwrap().starts_with("bad body: "), "{body}: {answer}");
    }
    let found = http.sql().await.query("SELECT FROM queen.queues WHERE queue = $1", &[&q]).await.unwrap();
    assert_eq!(found.len(), 0);
}

#[tokio::test]
async fn what_the_sdks_always_send_is_echoed() {
    let (http, q) = (shared(), queue());
    let options = json!({
        "leaseTime": 300, "retryLimit": 3, "priority": 0, "delayedProcessing": 0, "windowBuffer": 0, "maxSize": 0,
        "retentionSeconds": 0, "completedRetentionSeconds": 0, "encryptionEnabled": false,
    });
    let body = json!({"queue": q, "namespace": null, "task": null, "options": options});
    let answer = http.post("/api/v1/configure", &body).await.expect(200);
    for (name, value) in options.as_object().unwrap() {
        assert_eq!(&answer["options"][name], value, "{name}");
    }
}
