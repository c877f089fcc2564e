//! What operators and consoles ask: queues, messages, dead letters, groups, traces.

use crate::{data, queue, shared, sidecar};
use queen_tests::sidecar::{Answer, Method, Sidecar, Value, json};

fn address(message: &Value) -> String {
    let part = |name: &str| message[name].as_str().unwrap();
    format!("/api/v1/messages/{}/{}", part("partitionId"), part("transactionId"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

#[track_caller]
fn has(value: &Value, names: &[&str]) {
    let keys = keys(value);
    for name in names {
        assert!(keys.contains(name), "{name} is missing in {value}");
    }
}

#[tokio::test]
async fn a_deleted_queue_is_gone_with_all_that_is_its() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1), json!(2)]).await;
    let popped = http.pop(&q, "consumerGroup=g&subscriptionMode=all").await;
    http.ack(&popped[0], "dlq").await;
    let path = format!("/api/v1/resources/queues/{q}");
    assert_eq!(http.delete(&path).await.expect(200), json!({"deleted": true, "queue": q, "existed": true}));
    assert_eq!(http.get(&path).await.expect(404)["error"], "Queue not found");
    assert_eq!(http.get(&format!("/api/v1/dlq?queue={q}")).await.expect(200)["messages"], json!([]));
    assert_eq!(http.delete(&path).await.expect(200)["existed"], false);
    // Created again, it is another one.
    http.push(&q, &[json!(3)]).await;
    let again = http.pop(&q, "consumerGroup=g&subscriptionMode=all").await;
    assert_eq!(data(&again), [3]);
    assert_ne!(again[0]["partitionId"], popped[0]["partitionId"]);
}

#[tokio::test]
async fn a_queue_tells_what_is_in_it() {
    let (http, q) = (shared(), queue());
    let items: Vec<Value> = [("b", 1), ("a", 2), ("b", 3), ("b", 4)]
        .iter()
        .map(|(p, n)| json!({"queue": q, "partition": p, "payload": n}))
        .collect();
    http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    let popped = http.get(&format!("/api/v1/pop/queue/{q}/partition/b?batch=2")).await.expect(200);
    http.ack(&popped["messages"][0], "completed").await;

    let detail = http.get(&format!("/api/v1/resources/queues/{q}")).await.expect(200);
    has(
        &detail,
        &[
            "id",
            "name",
            "namespace",
            "task",
            "createdAt",
            "options",
            "partitions",
            "totals",
            "retainedBytes",
            "segments",
        ],
    );
    assert_eq!(keys(&detail["options"]).len(), 37);
    let partitions = detail["partitions"].as_array().unwrap();
    assert_eq!((&partitions[0]["name"], &partitions[1]["name"]), (&json!("a"), &json!("b")));
    let stats = &partitions[1]["stats"];
    let numbers =
        ["total", "pending", "processing", "completed", "deadLetter"].map(|name| stats[name].as_i64().unwrap());
    // Whether what is processed is pending, too, the wire leaves to the reader: pending counts it here.
    assert_eq!((numbers[0], numbers[2], numbers[3], numbers[4]), (3, 1, 1, 0), "{stats}");
    assert_eq!(detail["totals"]["total"], 4);
    assert_eq!(detail["segments"]["messages"], 4);

    let listed = http.get("/api/v1/resources/queues").await.expect(200);
    let entry = listed["queues"].as_array().unwrap().iter().find(|entry| entry["name"] == json!(q)).expect("the queue");
    has(
        entry,
        &["id", "name", "namespace", "task", "createdAt", "partitions", "retainedBytes", "segments", "messages"],
    );
    assert_eq!((&entry["partitions"], &entry["messages"]["total"]), (&json!(2), &json!(4)));

    let depth = http.get(&format!("/api/v1/resources/queues/{q}/depth")).await.expect(200);
    has(
        &depth,
        &[
            "queue",
            "group",
            "pending",
            "processing",
            "ready",
            "partitionsPending",
            "partitionsReady",
            "conflation",
            "effectivePending",
            "effectiveReady",
            "partitions",
        ],
    );
    assert_eq!((&depth["pending"], &depth["processing"], &depth["ready"]), (&json!(3), &json!(1), &json!(2)));
    http.get("/api/v1/resources/queues/not-there/depth").await.expect(404);
    has(
        &http.get("/api/v1/resources/overview").await.expect(200),
        &["queues", "partitions", "namespaces", "tasks", "messages", "lag"],
    );
    has(&http.get("/api/v1/resources/namespaces").await.expect(200), &["namespaces"]);
    has(&http.get("/api/v1/resources/tasks").await.expect(200), &["tasks"]);
}

#[tokio::test]
async fn a_message_is_pending_then_processing_then_completed_or_dead() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!({"n": 1}), json!(2)]).await;
    let list = async |status: &str| {
        let listed = http.get(&format!("/api/v1/messages?queue={q}&status={status}")).await.expect(200);
        let numbers: Vec<Value> = listed["messages"].as_array().unwrap().iter().map(|m| m["data"].clone()).collect();
        assert_eq!(listed["total"], numbers.len());
        numbers
    };
    assert_eq!(list("pending").await, [json!(2), json!({"n": 1})], "newest first");
    let popped = http.pop(&q, "").await;
    assert_eq!(list("processing").await.len(), 2);
    let detail = http.get(&address(&popped[0])).await.expect(200);
    has(
        &detail,
        &[
            "id",
            "transactionId",
            "data",
            "payload",
            "traceId",
            "producerSub",
            "createdAt",
            "partitionId",
            "partition",
            "queue",
            "queuePath",
            "namespace",
            "task",
            "status",
            "errorMessage",
            "retryCount",
            "leaseExpiresAt",
            "queueConfig",
            "consumerGroups",
            "mode",
        ],
    );
    assert_eq!(
        (&detail["data"], &detail["payload"], &detail["status"]),
        (&json!({"n": 1}), &json!({"n": 1}), &json!("processing"))
    );
    assert_eq!(detail["queuePath"], format!("{q}/Default"));
    http.ack_all(&[(&popped[0], "completed"), (&popped[1], "dlq")]).await;
    assert_eq!(list("completed").await, [json!({"n": 1})]);
    assert_eq!(list("dead_letter").await, [json!(2)]);
    assert_eq!(http.get(&address(&popped[1])).await.expect(200)["errorMessage"], "said dlq");

    // Only dead letters can be deleted or replayed.
    let live = http.delete(&address(&popped[0])).await.expect(404);
    assert_eq!((&live["success"], &live["error"]), (&json!(false), &json!("Message not found")));
    http.post(&format!("{}/retry", address(&popped[0])), &json!({})).await.expect(404);
    assert_eq!(http.delete(&address(&popped[1])).await.expect(200)["success"], true);
    http.delete(&address(&popped[1])).await.expect(404);
    for path in ["/api/v1/messages/no-uuid/t", "/api/v1/messages/11111111-2222-7333-8444-555555555555/t"] {
        assert_eq!(http.get(path).await.expect(404)["error"], "Message not found", "{path}");
        http.delete(path).await.expect(404);
        http.post(&format!("{path}/retry"), &json!({})).await.expect(404);
    }
}

async fn dead(http: &Sidecar, n: usize) -> (String, Vec<Value>) {
    let q = queue();
    http.push(&q, &(0..n).map(|n| json!({ "n": n })).collect::<Vec<_>>()).await;
    for _ in 0..n {
        let popped = http.pop(&q, "batch=1").await;
        http.ack(&popped[0], "dlq").await;
    }
    (q.clone(), rows(http, &format!("queue={q}")).await)
}

async fn rows(http: &Sidecar, params: &str) -> Vec<Value> {
    http.get(&format!("/api/v1/dlq?{params}")).await.expect(200)["messages"].as_array().unwrap().clone()
}

async fn replay(http: &Sidecar, row: &Value, body: &str) -> Answer {
    http.post_text(&format!("/api/v1/dlq/{}/replay", row["id"].as_str().unwrap()), body).await
}

#[tokio::test]
async fn dead_letters_are_listed_newest_first_and_by_pages() {
    let http = shared();
    let (q, listed) = dead(http, 5).await;
    assert_eq!(listed.iter().map(|row| row["data"]["n"].as_i64().unwrap()).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    has(
        &listed[0],
        &[
            "id",
            "transactionId",
            "partitionId",
            "queue",
            "partition",
            "consumerGroup",
            "errorMessage",
            "retryCount",
            "data",
            "createdAt",
            "failedAt",
        ],
    );
    assert_eq!((&listed[0]["queue"], &listed[0]["consumerGroup"]), (&json!(q), &json!("__QUEUE_MODE__")));
    assert_eq!(rows(http, &format!("queue={q}&limit=2&offset=1")).await, listed[1..3]);
    assert_eq!(rows(http, &format!("queue={q}&consumerGroup=other")).await.len(), 0);
    assert_eq!(rows(http, &format!("queue={q}&partition=x&from=y&to=z")).await.len(), 5, "what SDKs send is ignored");
    let page = http.get(&format!("/api/v1/dlq?queue={q}&limit=2&offset=nonsense")).await.expect(200);
    assert_eq!(page["pagination"], json!({"limit": 2, "offset": 0}));
    assert_eq!(page["total"], 2, "of the page");

    let purge = format!("/api/v1/dlq?queue={q}");
    assert_eq!(http.delete(&format!("{purge}&consumerGroup=other")).await.expect(200)["deleted"], 0);
    assert_eq!(
        http.delete(&purge).await.expect(200),
        json!({"success": true, "deleted": 5, "queue": q, "consumerGroup": null})
    );
    assert_eq!(rows(http, &format!("queue={q}")).await.len(), 0);
}

#[tokio::test]
async fn a_replay_goes_where_it_is_told() {
    let http = shared();
    let (q, listed) = dead(http, 4).await;
    let other = queue();
    let answer = replay(http, &listed[0], &json!({"queue": format!(" {other} "), "partition": "p"}).to_string())
        .await
        .expect(200);
    assert_eq!((&answer["queue"], &answer["partition"]), (&json!(other), &json!("p")));
    has(
        &answer,
        &[
            "success",
            "result",
            "queue",
            "partition",
            "consumerGroup",
            "dlqId",
            "originalTransactionId",
            "replayedAs",
            "dlqRowRemoved",
        ],
    );
    has(&answer["replayedAs"], &["index", "message_id", "transaction_id", "queueName", "status", "offset"]);
    assert_eq!(answer["originalTransactionId"], listed[0]["transactionId"]);
    let popped = http.pop(&other, "").await;
    assert_eq!((&popped[0]["data"], &popped[0]["partition"]), (&listed[0]["data"], &json!("p")));
    assert_eq!(popped[0]["id"], answer["replayedAs"]["message_id"]);
    for (n, body) in ["", "  ", "{}"].into_iter().enumerate() {
        assert_eq!(replay(http, &listed[n + 1], body).await.expect(200)["queue"], json!(q), "in place: {body:?}");
    }
    let gone = replay(http, &listed[0], "").await.expect(404);
    assert_eq!((&gone["result"], &gone["dlqId"]), (&json!("gone"), &listed[0]["id"]));
}

#[tokio::test]
async fn a_replay_that_was_made_already_is_a_duplicate_and_keeps_the_row() {
    let http = shared();
    let (q, listed) = dead(http, 1).await;
    let item =
        json!({"queue": q, "payload": "here", "transactionId": format!("dlq:{}", listed[0]["id"].as_str().unwrap())});
    http.post("/api/v1/push", &json!({"items": [item]})).await.expect(201);
    let answer = replay(http, &listed[0], "").await.expect(200);
    assert_eq!((&answer["success"], &answer["result"]), (&json!(true), &json!("duplicate")));
    assert_eq!((&answer["dlqRowRemoved"], &answer["replayedAs"]["status"]), (&json!(false), &json!("duplicate")));
    assert_eq!(answer["replayedAs"]["message_id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!(rows(http, &format!("queue={q}")).await.len(), 1);
}

#[tokio::test]
async fn a_destination_that_cannot_be_is_refused_and_the_row_stays() {
    let http = shared();
    let (q, listed) = dead(http, 1).await;
    for body in [
        "null",
        "[]",
        "5",
        "no",
        "{\"queue\":\"\"}",
        "{\"partition\":\" \"}",
        "{\"queue\":5}",
        "{\"queue\":\"a\\u0001\"}",
    ] {
        let answer = replay(http, &listed[0], body).await.expect(400);
        assert_eq!(answer["success"], false, "{body}");
        has(&answer, &["error", "message"]);
    }
    assert_eq!(rows(http, &format!("queue={q}")).await, listed);
}

#[tokio::test]
async fn of_replays_at_once_one_moves_and_the_others_find_nothing() {
    let http = shared();
    let (q, listed) = dead(http, 1).await;
    let replays =
        tokio::join!(replay(http, &listed[0], ""), replay(http, &listed[0], "{}"), replay(http, &listed[0], ""));
    let mut statuses = [replays.0.status, replays.1.status, replays.2.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404, 404]);
    assert_eq!(http.pop(&q, "").await.len(), 1);
}

#[tokio::test]
async fn groups_are_told_per_queue_and_forgotten_when_they_are_deleted() {
    let http = sidecar().await;
    http.push("q", &[json!(1), json!(2), json!(3)]).await;
    let popped = http.pop("q", "consumerGroup=g&subscriptionMode=all&batch=1").await;
    http.ack(&popped[0], "completed").await;
    let listed = http.get("/api/v1/consumer-groups").await.expect(200);
    let g = listed.as_array().unwrap().iter().find(|group| group["name"] == "g").expect("the group");
    has(
        g,
        &[
            "name",
            "topics",
            "queueName",
            "members",
            "totalLag",
            "maxTimeLag",
            "state",
            "subscriptionMode",
            "conflation",
        ],
    );
    assert_eq!((&g["queueName"], &g["topics"], &g["totalLag"]), (&json!("q"), &json!(["q"]), &json!(2)));
    let detail = http.get("/api/v1/consumer-groups/g").await.expect(200);
    has(
        &detail["q"]["partitions"][0],
        &["partition", "workerId", "totalConsumed", "offsetLag", "timeLagSeconds", "leaseActive"],
    );
    assert_eq!(detail["q"]["partitions"][0]["offsetLag"], 2);
    assert_eq!(http.get("/api/v1/consumer-groups/nobody").await.expect(200), json!({}));
    assert_eq!(http.get("/api/v1/consumer-groups/lagging?minLagSeconds=100000").await.expect(200), json!([]));

    let answer = http.delete("/api/v1/consumer-groups/g/queues/q?deleteMetadata=true").await.expect(200);
    assert_eq!(
        (&answer["success"], &answer["consumerGroup"], &answer["queueName"]),
        (&json!(true), &json!("g"), &json!("q"))
    );
    assert_eq!((&answer["deletedPartitions"], &answer["metadataDeleted"]), (&json!(1), &json!(true)));
    assert_eq!(data(&http.pop("q", "consumerGroup=g&subscriptionMode=all").await), [1, 2, 3], "it starts over");
    assert_eq!(http.delete("/api/v1/consumer-groups/g").await.expect(200)["deletedPartitions"], 1);
    assert_eq!(http.delete("/api/v1/consumer-groups/nobody").await.expect(200)["deletedPartitions"], 0);
    http.push("q", &[json!(4)]).await;
    assert_eq!(
        http.pop("q", "consumerGroup=g&subscriptionMode=new").await.len(),
        0,
        "its subscription was forgotten, too"
    );
}

#[tokio::test]
async fn a_seek_moves_a_queue_or_a_partition() {
    let (http, q) = (shared(), queue());
    let items: Vec<Value> = ["a", "b"].iter().map(|p| json!({"queue": q, "partition": p, "payload": p})).collect();
    http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    let pop = async || http.pop(&q, "consumerGroup=g&subscriptionMode=all&partitions=0&autoAck=true").await.len();
    assert_eq!(pop().await, 2);
    let whole = format!("/api/v1/consumer-groups/g/queues/{q}/seek");
    let one = format!("/api/v1/consumer-groups/g/queues/{q}/partitions/a/seek");
    let past = json!({"timestamp": "2000-01-01T00:00:00Z"});
    let answer = http.post(&whole, &past).await.expect(200);
    assert_eq!(
        (&answer["success"], &answer["seekToEnd"], &answer["partitionsUpdated"]),
        (&json!(true), &json!(false), &json!(2))
    );
    assert_eq!(pop().await, 2);
    let answer = http.post(&one, &past).await.expect(200);
    assert_eq!((&answer["partitionName"], &answer["updated"]), (&json!("a"), &json!(true)));
    assert_eq!(pop().await, 1);
    http.post(&whole, &past).await.expect(200);
    // For a partition, nothing means its end.
    http.send(http.request(Method::POST, &one)).await.expect(200);
    assert_eq!(pop().await, 1);
    let missing = http.post("/api/v1/consumer-groups/g/queues/not-there/seek", &past).await.expect(404);
    assert_eq!((&missing["success"], &missing["partitionsUpdated"]), (&json!(false), &json!(0)));
    http.post(&format!("/api/v1/consumer-groups/g/queues/{q}/partitions/z/seek"), &past).await.expect(404);
    // The wire answers 500; it is the caller's to mend.
    http.post(&whole, &json!({"timestamp": "whenever"})).await.expect(400);
}

#[tokio::test]
async fn a_trace_is_found_by_its_message_and_by_its_names() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let message = http.pop(&q, "").await[0].clone();
    let name = format!("trace-of-{q}");
    let body = json!({
        "transactionId": message["transactionId"], "partitionId": message["partitionId"], "data": {"step": 1},
        "traceNames": [name], "eventType": "step", "consumerGroup": null,
    });
    let made = http.post("/api/v1/traces", &body).await.expect(201);
    assert_eq!(made["success"], true);
    assert!(made["traceId"].is_string());
    let path = address(&message).replace("/messages/", "/traces/");
    let traces = http.get(&path).await.expect(200);
    has(
        &traces["traces"][0],
        &["id", "event_type", "data", "consumer_group", "worker_id", "created_at", "trace_names"],
    );
    assert_eq!(traces["traces"][0]["data"], json!({"step": 1}));
    let named = http.get(&format!("/api/v1/traces/by-name/{name}")).await.expect(200);
    assert_eq!(named["traces"][0]["transaction_id"], message["transactionId"]);
    let names = http.get("/api/v1/traces/names").await.expect(200);
    assert!(names["trace_names"].as_array().unwrap().iter().any(|n| n["trace_name"] == json!(name)), "{names}");
    for (missing, error) in
        [("data", "data is required"), ("transactionId", "transactionId and partitionId are required")]
    {
        let mut body = body.clone();
        body[missing] = Value::Null;
        assert_eq!(http.post("/api/v1/traces", &body).await.expect(400)["error"], error);
    }
}
