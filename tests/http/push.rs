//! `POST /api/v1/push`: what is taken, what is refused, and that a payload stays what it was.

use crate::{data, queue, shared};
use queen_tests::sidecar::{Method, Sidecar, Value, json};

/// The error of a push that must be refused; nothing of it may be stored.
async fn refused(http: &Sidecar, body: impl Into<String>) -> String {
    let answer = http.post_text("/api/v1/push", &body.into()).await.expect(400);
    answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

async fn stored(http: &Sidecar, queue: &str) -> i64 {
    let sql = "SELECT count(*) FROM queen.messages($1)";
    http.sql().await.query_one(sql, &[&queue]).await.expect("a count").get(0)
}

#[tokio::test]
async fn what_is_no_list_of_items_is_a_bad_body() {
    let http = shared();
    for (body, words) in [
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ("nonsense", ""),
        ("[]", "the body must be an object {\"items\": […]}"),
        ("\"items\"", "the body must be an object {\"items\": […]}"),
        ("{\"items\":[]", ""),
        ("{\"items\":[]} x", ""),
        ("{}", "items is missing"),
        ("{\"items\":null}", "items is missing"),
        ("{\"items\":{}}", "items"),
        ("{\"items\":\"x\"}", "items"),
        ("{\"items\":[1]}", "items"),
        ("{\"items\":[[]]}", "items"),
        ("{\"items\":[null]}", "items"),
    ] {
        let error = refused(http, body).await;
        assert!(error.starts_with("bad body: ") && error.contains(words), "{body}: {error}");
    }
    let request = http.request(Method::POST, "/api/v1/push").body(b"{\"items\":[{\"queue\":\"\xff\"}]}".to_vec());
    let error = http.send(request).await.expect(400);
    assert!(error["error"].as_str().unwrap().starts_with("bad body: "), "{error}");
}

#[tokio::test]
async fn one_bad_item_refuses_the_whole_request_and_is_named() {
    let (http, q) = (shared(), queue());
    for (bad, words) in [
        (json!({"payload": 1}), "queue is missing"),
        (json!({"queue": null, "payload": 1}), "queue is missing"),
        (json!({"queue": 5, "payload": 1}), "queue must be a string"),
        (json!({"queue": q}), "payload is missing"),
        // The key is `payload` here, though a pop calls it `data`.
        (json!({"queue": q, "data": 1}), "payload is missing; what a pop calls data is payload here"),
        (json!({"queue": q, "payload": 1, "partition": 5}), "partition must be a string"),
        (json!({"queue": q, "payload": 1, "transactionId": 5}), "transactionId must be a string"),
        (json!({"queue": q, "payload": 1, "transactionId": ""}), "transaction id is empty"),
        // The wire would take an empty queue name; here names are not blank.
        (json!({"queue": "", "payload": 1}), "blank"),
        (json!({"queue": q, "payload": 1, "partition": " "}), "blank"),
        (json!({"queue": "q".repeat(256), "payload": 1}), "255"),
    ] {
        let body = json!({"items": [{"queue": q, "payload": "good"}, bad]});
        let error = refused(http, body.to_string()).await;
        assert!(error.starts_with("bad body: item 1: ") && error.contains(words), "{bad}: {error}");
    }
    assert_eq!(stored(http, &q).await, 0);
}

#[tokio::test]
async fn control_characters_in_names_are_a_bad_body() {
    let (http, q) = (shared(), queue());
    for character in ["\\u0000", "\\u0001", "\\n", "\\u001f"] {
        for item in [
            format!(r#"{{"queue":"{q}{character}","payload":1}}"#),
            format!(r#"{{"queue":"{q}","partition":"a{character}b","payload":1}}"#),
            format!(r#"{{"queue":"{q}","transactionId":"{character}x","payload":1}}"#),
        ] {
            let error = refused(http, format!(r#"{{"items":[{item}]}}"#)).await;
            assert!(error.starts_with("bad body: ") && error.contains("control character"), "{item}: {error}");
        }
    }
    // Half a pair is no character at all.
    let error = refused(http, format!(r#"{{"items":[{{"queue":"{q}\ud800","payload":1}}]}}"#)).await;
    assert!(error.starts_with("bad body: "), "{error}");
    assert_eq!(stored(http, &q).await, 0);
}

#[tokio::test]
async fn a_transaction_id_has_65535_bytes_at_most() {
    let (http, q) = (shared(), queue());
    let body = |n: usize| json!({"items": [{"queue": q, "payload": 0}, {"queue": q, "payload": 1, "transactionId": "é".repeat(n / 2) + &"x".repeat(n % 2)}]});
    let error = refused(http, body(65_536).to_string()).await;
    assert_eq!(error, "bad body: transactionId of item 1 exceeds the 65535-byte limit");
    assert_eq!(stored(http, &q).await, 0);
    let pushed = http.post("/api/v1/push", &body(65_535)).await.expect(201);
    assert_eq!(pushed[1]["transaction_id"].as_str().unwrap().len(), 65_535);
    assert_eq!(http.pop(&q, "").await[1]["transactionId"], pushed[1]["transaction_id"]);
}

#[tokio::test]
async fn a_result_an_item_in_the_order_of_the_items() {
    let (http, q) = (shared(), queue());
    let items: Vec<Value> = (0..300)
        .map(
            |n| json!({"queue": q, "partition": format!("p{}", n % 7), "payload": n, "transactionId": format!("t{n}")}),
        )
        .collect();
    let pushed = http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    let pushed = pushed.as_array().unwrap();
    assert_eq!(pushed.len(), 300);
    for (n, result) in pushed.iter().enumerate() {
        assert_eq!((&result["index"], &result["transaction_id"]), (&json!(n), &json!(format!("t{n}"))));
        assert_eq!((&result["queueName"], &result["status"]), (&json!(q), &json!("queued")));
        assert_eq!(result["message_id"].as_str().unwrap().len(), 36);
    }
    for p in 0..7 {
        let popped = http.get(&format!("/api/v1/pop/queue/{q}/partition/p{p}?batch=300")).await.expect(200);
        let numbers: Vec<i64> =
            popped["messages"].as_array().unwrap().iter().map(|m| m["data"].as_i64().unwrap()).collect();
        assert_eq!(numbers, (p..300).step_by(7).collect::<Vec<_>>(), "in the order pushed");
    }
}

#[tokio::test]
async fn a_transaction_id_that_is_not_given_is_the_message_id() {
    let (http, q) = (shared(), queue());
    let items = [json!({"queue": q, "payload": 1}), json!({"queue": q, "payload": 2, "transactionId": null})];
    let pushed = http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    let popped = http.pop(&q, "").await;
    for (n, message) in popped.iter().enumerate() {
        assert_eq!(pushed[n]["message_id"], pushed[n]["transaction_id"]);
        assert_eq!((&message["id"], &message["transactionId"]), (&pushed[n]["message_id"], &pushed[n]["message_id"]));
    }
}

#[tokio::test]
async fn payloads_come_back_byte_for_byte() {
    let http = shared();
    for payload in [
        "null",
        "true",
        "\"\"",
        "{}",
        "[]",
        "-0",
        "1.50",
        "1e999999",
        "-1.5E+300",
        "123456789012345678901234567890.123456789012345678901234567890",
        r#"{"b":1,"a":2,"b":3,"a":4}"#,
        r#""\u0000""#,
        r#""\ud800 and \udfff alone""#,
        r#""\u00e9 é \/ / \" \\ 🐘 \ud83d\udc18""#,
        "{ \"a\" :\t[ 1 ,\r\n2 ] }",
        "\u{2028}\"",
    ] {
        let payload = if payload.starts_with('\u{2028}') { "\"\u{2028}\u{7f}\u{feff}\"" } else { payload };
        let q = queue();
        let body = format!(" {{ \"items\" : [ {{ \"queue\" : \"{q}\" ,\n\"payload\" : \t{payload} }} ] }} ");
        http.post_text("/api/v1/push", &body).await.expect(201);
        let popped = http.get(&format!("/api/v1/pop/queue/{q}")).await;
        let wanted = format!("\"data\":{payload}}}]}}");
        assert!(popped.text.ends_with(&wanted), "{payload}: {}", popped.text);
    }
}

#[tokio::test]
async fn any_depth_of_nesting_is_a_payload() {
    let (http, q) = (shared(), queue());
    let payload = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let object = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let body = format!(
        r#"{{"x":{payload},"items":[{{"queue":"{q}","x":{object},"payload":{payload}}},{{"queue":"{q}","payload":{object}}}]}}"#
    );
    http.post_text("/api/v1/push", &body).await.expect(201);
    let popped = http.get(&format!("/api/v1/pop/queue/{q}")).await;
    assert_eq!(popped.status, 200);
    assert!(
        popped.text.contains(&format!("\"data\":{payload}")) && popped.text.contains(&format!("\"data\":{object}"))
    );
    // Half of it is no JSON, and no crash.
    let error = refused(http, format!(r#"{{"items":[{{"queue":"{q}","payload":{}"#, "[".repeat(10_000))).await;
    assert!(error.starts_with("bad body: "), "{error}");
}

#[tokio::test]
async fn names_are_data() {
    let http = shared();
    for odd in ["a b", "ü/é", "'; DROP SCHEMA queen; --", "%2F", "?x=1&y#z", "../..", "\"\\"] {
        let q = format!("{}{odd}", queue());
        let item = json!({"queue": q, "partition": odd, "payload": odd, "transactionId": odd});
        let pushed = http.post("/api/v1/push", &json!({"items": [item]})).await.expect(201);
        assert_eq!((&pushed[0]["queueName"], &pushed[0]["transaction_id"]), (&json!(q), &json!(odd)));
        let encoded: String = q.bytes().map(|b| format!("%{b:02x}")).collect();
        let popped = http.pop(&encoded, "").await;
        assert_eq!((&popped[0]["partition"], &popped[0]["transactionId"]), (&json!(odd), &json!(odd)), "{q}");
        assert_eq!(http.ack(&popped[0], "completed").await["success"], true);
    }
}

#[tokio::test]
async fn what_the_wire_does_not_know_is_ignored() {
    let (http, q) = (shared(), queue());
    let item = json!({
        "queue": q, "payload": 1, "partition": null, "traceId": 5, "producerSub": "me", "producer": "me", "ttl": [],
    });
    http.post("/api/v1/push", &json!({"items": [item], "sync": true})).await.expect(201);
    let popped = http.pop(&q, "").await;
    assert_eq!((&popped[0]["traceId"], &popped[0]["producerSub"]), (&Value::Null, &Value::Null));
    assert_eq!(popped[0]["partition"], "Default");
}

#[tokio::test]
async fn a_repeated_key_of_an_item_means_its_last_value() {
    let (http, q) = (shared(), queue());
    let body = format!(r#"{{"items":[{{"queue":"no","queue":"{q}","payload":1,"payload":2}}]}}"#);
    http.post_text("/api/v1/push", &body).await.expect(201);
    assert_eq!(data(&http.pop(&q, "").await), [2]);
}

#[tokio::test]
async fn the_first_push_creates_the_queue_with_the_wires_defaults() {
    let http = shared();
    let q = format!("billing{}.invoice.more", queue());
    http.push(&q, &[json!(1)]).await;
    let answer = http.post("/api/v1/configure", &json!({ "queue": q })).await.expect(200);
    assert_eq!(answer["options"]["leaseTime"], 60);
    assert_eq!((&answer["namespace"], &answer["task"]), (&json!(q.split('.').next()), &json!("invoice")));
}
