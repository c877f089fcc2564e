//! What the HTTP server needs beyond what everybody may call: who pushed, bundles as text, many ack batches at once.

use crate::support::{Batch, Db, ack_items, lit};
use queen_tests::shared_cluster;
use serde_json::{Value, json};

/// A session that may do what the HTTP server may, and nothing else.
async fn sidecar(db: &Db) -> Db {
    let login = format!("server_of_{}", db.name);
    shared_cluster().create_login(&login, &["queen_sidecar"]);
    db.session_as(&login).await
}

async fn answer(db: &Db, call: &str) -> Value {
    serde_json::from_str(&db.rows(&format!("SELECT queen.{call}")).await).unwrap()
}

async fn bundle(db: &Db, operations: &Value, producer: &str) -> Value {
    answer(db, &format!("transaction_json({}, {producer})", lit(&operations.to_string()))).await
}

async fn settle(db: &Db, requests: &Value) -> Value {
    answer(db, &format!("ack_many_json({})", lit(&requests.to_string()))).await
}

fn request(batch: &Batch, items: &[(&str, &str)]) -> Value {
    let items: Value = serde_json::from_str(&ack_items(batch, items)).unwrap();
    json!({"consumerGroup": batch.group, "acknowledgments": items})
}

/// Producers of what a queue holds, in order.
async fn producers(db: &Db, queue: &str) -> String {
    db.rows(&format!("SELECT producer FROM queen.messages('{queue}') ORDER BY \"offset\"")).await
}

#[tokio::test]
async fn a_pushed_item_keeps_the_producer_that_the_server_names() {
    let db = Db::new().await;
    let items = json!([{"queue": "q", "payload": 1, "producer": "ada"}, {"queue": "q", "payload": 2, "producer": null},
                       {"queue": "q", "payload": 3}, {"queue": "q", "payload": 4, "producer": "grace"}]);
    sidecar(&db).await.run(&format!("SELECT queen.push_batch_json({})", lit(&items.to_string()))).await;
    assert_eq!(producers(&db, "q").await, "ada\n~\n~\ngrace");
    let popped = answer(&db, "pop_json('q', batch => 4)").await;
    let messages = &popped["batches"][0]["segments"][0]["messages"];
    assert_eq!((&messages[0]["producerSub"], &messages[1]["producerSub"]), (&json!("ada"), &Value::Null));
}

// The producer is who was authenticated: a producer that could name one could pass as somebody else.
#[tokio::test]
async fn a_producer_cannot_name_itself_in_push_batch() {
    let db = Db::new().await;
    let items =
        json!([{"queue": "q", "payload": 1, "producer": "ada"}, {"queue": "q", "payload": 1, "producer": {"no": 1}}]);
    db.run(&format!("SELECT queen.push_batch({})", lit(&items.to_string()))).await;
    db.run(r#"SELECT queen.transaction('[{"type":"push","queue":"q","producer":"ada"}]')"#).await;
    assert_eq!(producers(&db, "q").await, "~\n~\n~");
}

#[tokio::test]
async fn a_producer_that_no_text_can_hold_is_refused() {
    let db = Db::new().await;
    for producer in ["5", "{}", r#""a\u0000b""#, r#""a\nb""#] {
        let items = format!(r#"[{{"queue":"q","payload":1,"producer":{producer}}}]"#);
        assert_eq!(db.state(&format!("SELECT queen.push_batch_json({})", lit(&items))).await, "QN008", "{producer}");
    }
    let operations = lit(r#"[{"type":"push","queue":"q"}]"#);
    assert_eq!(db.state(&format!("SELECT queen.transaction_json({operations}, E'a\\nb')")).await, "QN008");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "0");
}

#[tokio::test]
async fn the_server_runs_bundles_for_others_and_says_who_pushes() {
    let db = Db::new().await;
    db.push("in", "a").await;
    let batch = db.pop("'in', 'g', subscription_mode => 'all'").await;
    let ack = json!({"type": "ack", "transactionId": "a", "partitionId": batch.partition_id, "leaseId": batch.lease, "consumerGroup": "g"});
    let push = json!({"type": "push", "queue": "out", "data": 2, "traceId": "none", "transactionId": "x"});
    let server = sidecar(&db).await;
    let answer = bundle(
        &server,
        &json!({"operations": [ack, push, {"type": "push", "queue": "out"}], "kv": [], "timers": null}),
        "'ada'",
    )
    .await;
    assert_eq!(answer["success"], true, "{answer}");
    let results = answer["results"].as_array().unwrap();
    assert_eq!(
        results[0],
        json!({"index": 0, "type": "ack", "success": true, "transactionId": "a", "error": null, "dlq": false})
    );
    assert_eq!((&results[1]["transactionId"], &results[1]["queueName"]), (&json!("x"), &json!("out")));
    assert_eq!(
        db.rows("SELECT payload_text, producer, trace_id FROM queen.messages('out') ORDER BY \"offset\"").await,
        "2|ada|~\n{}|ada|~"
    );
    assert_eq!(db.cursor("in", "g").await, "0|0|f");

    let again = bundle(&server, &json!([push]), "NULL").await;
    assert_eq!(
        (&again["success"], &again["reason"], &again["results"]),
        (&json!(false), &json!("duplicate"), &json!([]))
    );
    bundle(&server, &json!([{"type": "push", "queue": "out"}]), "NULL").await;
    assert_eq!(producers(&db, "out").await, "ada\nada\n~");
}

#[tokio::test]
async fn operations_that_the_wire_refuses_are_refused_in_its_words() {
    let db = Db::new().await;
    let push = json!({"type": "push", "queue": "q"});
    for (body, words) in [
        (json!({}), "transaction requires an operations array (or a top-level kv/timers array)"),
        (json!([]), "transaction requires an operations array (or a top-level kv/timers array)"),
        (json!([{"type": "copy"}]), "segments transaction supports only push and ack operations, got `copy`"),
        (json!([push, {"queue": "q"}]), "every transaction operation needs a `type` of push or ack"),
        (json!([push, {"type": ""}]), "every transaction operation needs a `type` of push or ack"),
        (json!({"operations": [push], "kv": [{}]}), "kv is not supported"),
        (json!({"operations": [push], "timers": [{}]}), "timers is not supported"),
    ] {
        let call = format!("SELECT queen.transaction_json({})", lit(&body.to_string()));
        assert_eq!(db.error(&call).await, ("QN008".to_owned(), words.to_owned()), "{body}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "0");
}

#[tokio::test]
async fn each_request_is_settled_by_itself_and_answered_in_its_place() {
    let db = Db::new().await;
    let mut batches = Vec::new();
    for queue in ["q", "r"] {
        db.push(queue, "a b c").await;
        batches.push(db.pop(&format!("'{queue}', 'g', 3, subscription_mode => 'all'")).await);
    }
    db.push("s", "x").await;
    let ungrouped = db.pop("'s'").await;
    let mut nameless = request(&ungrouped, &[("x", "completed")]);
    nameless["consumerGroup"] = json!("");
    let answer = settle(
        &sidecar(&db).await,
        &json!([
            request(&batches[1], &[("a", "completed"), ("b", "failed"), ("c", "completed")]),
            {"consumerGroup": "g"},
            request(&batches[0], &[("c", "completed"), ("nope", "completed")]),
            nameless,
        ]),
    )
    .await;
    let shown: Vec<Vec<String>> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|list| {
            list.as_array()
                .unwrap()
                .iter()
                .map(|i| {
                    format!(
                        "{}:{}:{}:{}",
                        i["index"],
                        i["transactionId"].as_str().unwrap(),
                        i["success"],
                        i["leaseReleased"]
                    )
                })
                .collect()
        })
        .collect();
    assert_eq!(
        shown,
        [
            vec!["0:a:true:true", "1:b:true:true", "2:c:true:true"],
            vec![],
            vec!["0:c:true:true", "1:nope:false:false"],
            vec!["0:x:true:true"],
        ],
        "{answer}"
    );
    assert_eq!(db.cursor("r", "g").await, "0|1|f", "the failure holds back its own request");
    assert_eq!(db.cursor("q", "g").await, "2|0|f", "and no other");
    assert_eq!(db.cursor("s", "__QUEUE_MODE__").await, "0|0|f");
    assert_eq!(settle(&db, &json!([])).await, json!([]));
}

#[tokio::test]
async fn a_later_request_meets_what_an_earlier_one_left() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = db.pop("'q', 'g', 2, subscription_mode => 'all'").await;
    let (fail, done) = (request(&batch, &[("a", "failed")]), request(&batch, &[("b", "completed")]));
    let answer = settle(&db, &json!([fail, done])).await;
    assert_eq!(answer[0][0]["leaseReleased"], true);
    assert_eq!(answer[1][0]["error"], "invalid or expired lease");
    assert_eq!(db.cursor("q", "g").await, "-1|1|f");
}

// Whoever gets this from a client's request answers the client what one batch alone is answered.
#[tokio::test]
async fn every_item_is_answered_as_by_a_batch_alone() {
    let strange = json!([{"transactionId": "a"}, {"transactionId": "a", "partitionId": "x"}, {},
                         {"transactionId": "a", "partitionId": "0190aaaa-0000-7000-8000-00000000000f", "leaseId": "x"}]);
    let one = async |many: bool| {
        let db = Db::new().await;
        db.configure("q", r#"{"retryLimit": 0, "deadLetterQueue": false, "dlqAfterMaxRetries": false}"#).await;
        db.push("q", "a b c d").await;
        let batch = db.pop("'q', 'g', 3, subscription_mode => 'all'").await;
        let mut answers = Vec::new();
        for items in [
            strange.clone(),
            serde_json::from_str(&ack_items(&batch, &[("a", "completed"), ("d", "completed"), ("b", "retry")]))
                .unwrap(),
            serde_json::from_str(&ack_items(&batch, &[("a", "completed")])).unwrap(),
            json!([{"transactionId": "a", "partitionId": batch.partition_id}, {"transactionId": "b", "partitionId": batch.partition_id, "status": "dlq"}]),
        ] {
            for group in ["g", "never seen"] {
                answers.push(match many {
                    true => settle(&db, &json!([{"consumerGroup": group, "acknowledgments": items}])).await[0].clone(),
                    false => answer(&db, &format!("ack_batch_json({}, {})", lit(&items.to_string()), lit(group))).await,
                });
            }
        }
        let again = db.pop("'q', 'g'").await;
        let items = ack_items(&again, &[("b", "failed")]);
        answers.push(match many {
            true => settle(
                &db,
                &json!([{"consumerGroup": "g", "acknowledgments": serde_json::from_str::<Value>(&items).unwrap()}]),
            )
            .await[0]
                .clone(),
            false => answer(&db, &format!("ack_batch_json({}, 'g')", lit(&items))).await,
        });
        assert_eq!(answers.last().unwrap()[0]["dropped"], true);
        answers
    };
    assert_eq!(one(true).await, one(false).await);
}

#[tokio::test]
async fn a_request_of_the_wrong_shape_is_named_and_nothing_is_settled() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
    let good = request(&batch, &[("a", "completed")]);
    for (bad, state) in [
        (json!({"consumerGroup": 5}), "QN008"),
        (json!({"acknowledgments": {}}), "QN008"),
        (json!({"acknowledgments": [{"leaseId": 5}]}), "QN008"),
        (json!({"consumerGroup": "a\nb"}), "QN001"),
    ] {
        let (got, message) =
            db.error(&format!("SELECT queen.ack_many_json({})", lit(&json!([good, bad]).to_string()))).await;
        assert_eq!(got, state, "{bad}");
        assert!(message.starts_with("request 1: "), "{message}");
    }
    assert_eq!(db.state("SELECT queen.ack_many_json('{}')").await, "QN008");
    assert_eq!(db.cursor("q", "g").await, "-1|0|t");
}
