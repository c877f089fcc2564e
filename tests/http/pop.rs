//! `GET /api/v1/pop…`: parameters, shapes, discovery, conflation.

use crate::{data, queue, shared};
use queen_tests::sidecar::{Sidecar, Value, json};
use std::collections::HashSet;

async fn push_to(http: &Sidecar, queue: &str, items: &[(&str, i64)]) {
    let items: Vec<Value> = items.iter().map(|(p, n)| json!({"queue": queue, "partition": p, "payload": n})).collect();
    http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
}

#[tokio::test]
async fn a_message_has_all_that_the_sdks_demand() {
    let (http, q) = (shared(), queue());
    push_to(http, &q, &[("eu-1", 5)]).await;
    let answer = http.get(&format!("/api/v1/pop/queue/{q}?consumerGroup=g&subscriptionMode=all")).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let body = answer.expect(200);
    assert_eq!((&body["success"], &body["partitionsClaimed"]), (&json!(true), &json!(1)));
    assert_eq!((&body["queue"], &body["partition"], &body["consumerGroup"]), (&json!(q), &json!("eu-1"), &json!("g")));
    let message = &body["messages"][0];
    for name in ["id", "transactionId", "createdAt", "partitionId", "partition", "leaseId", "consumerGroup"] {
        assert!(message[name].as_str().is_some_and(|text| !text.is_empty()), "{name} of {message}");
    }
    for name in ["traceId", "producerSub"] {
        assert_eq!(message.get(name), Some(&Value::Null), "{name}");
    }
    assert_eq!((&message["data"], &message["deliveryAttempt"]), (&json!(5), &json!(1)));
    assert_eq!((&message["leaseId"], &message["partitionId"]), (&body["leaseId"], &body["partitionId"]));
    let created = message["createdAt"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.len() == "2026-07-30T12:34:56.000000Z".len(), "{created}");
}

#[tokio::test]
async fn nothing_is_204_without_body_and_length() {
    let (http, q) = (shared(), queue());
    for path in [
        format!("/api/v1/pop/queue/{q}"),
        format!("/api/v1/pop/queue/{q}/partition/p"),
        "/api/v1/pop?namespace=nobody-has-it".to_owned(),
        format!("/api/v1/pop/queue/{q}?wait=true&timeout=1"),
        format!("/api/v1/pop/queue/{q}?wait=true&timeout=-5"),
        format!("/api/v1/pop/queue/{q}?wait=true&timeout=0"),
    ] {
        let answer = http.get(&path).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{path}");
        assert!(!answer.headers.contains_key("content-length"), "{path}");
        assert!(!answer.headers.contains_key("transfer-encoding"), "{path}");
    }
}

#[tokio::test]
async fn a_parameter_that_cannot_be_read_is_the_callers_error() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    for params in [
        "batch=abc",
        "batch=1.5",
        "batch=99999999999999",
        "partitions=x",
        "leaseSeconds=x",
        "timeout=soon",
        "wait=perhaps",
        "autoAck=2",
        "conflation=maybe",
        "consumerGroup=a%00b",
        "consumerGroup=%20",
        "consumerGroup=g&subscriptionMode=all&leaseSeconds=604801",
        // The wire would take it for `new`; here it is refused, not guessed.
        "consumerGroup=g&subscriptionFrom=whenever",
        "consumerGroup=g&conflation=true&autoAck=true",
        "conflation=true",
    ] {
        let answer = http.get(&format!("/api/v1/pop/queue/{q}?{params}")).await.expect(400);
        assert!(answer["error"].as_str().is_some_and(|text| !text.is_empty()), "{params}: {answer}");
        assert_eq!((&answer["success"], &answer["messages"]), (&json!(false), &json!([])), "{params}");
    }
    for path in ["/api/v1/pop/queue/a%01b", "/api/v1/pop/queue/%20", "/api/v1/pop/queue/q/partition/%0a"] {
        http.get(path).await.expect(400);
    }
    assert_eq!(data(&http.pop(&q, "").await), [1], "nothing was taken");
}

#[tokio::test]
async fn empty_and_unknown_parameters_are_no_parameters() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let params = "batch=&wait=&timeout=&consumerGroup=&subscriptionFrom=&leaseSeconds=&autopilot=true&namespace=x&y";
    let body = http.get(&format!("/api/v1/pop/queue/{q}?{params}")).await.expect(200);
    assert_eq!(body["consumerGroup"], "__QUEUE_MODE__");
}

#[tokio::test]
async fn a_batch_is_200_messages_of_one_partition_unless_it_is_said() {
    let (http, q) = (shared(), queue());
    let items: Vec<(&str, i64)> = (0..500).map(|n| (if n < 250 { "a" } else { "b" }, n)).collect();
    push_to(http, &q, &items).await;
    let body = http.get(&format!("/api/v1/pop/queue/{q}")).await.expect(200);
    assert_eq!((body["messages"].as_array().unwrap().len(), &body["partitionsClaimed"]), (200, &json!(1)));
    assert_eq!(http.pop(&q, "batch=0").await.len(), 1, "less than one is one");
    assert_eq!(http.pop(&q, "batch=1").await.len(), 0, "both partitions are leased");
}

#[tokio::test]
async fn the_budget_is_spread_over_at_most_so_many_partitions() {
    let (http, q) = (shared(), queue());
    push_to(http, &q, &[("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5), ("c", 6)]).await;
    let body = http.get(&format!("/api/v1/pop/queue/{q}?batch=3&partitions=0")).await.expect(200);
    assert_eq!((body["messages"].as_array().unwrap().len(), &body["partitionsClaimed"]), (3, &json!(2)));
    let rest = http.pop(&q, "batch=100&partitions=100").await;
    let partitions: HashSet<&str> = rest.iter().map(|m| m["partition"].as_str().unwrap()).collect();
    assert_eq!(partitions.len(), 1, "the others are leased");
}

#[tokio::test]
async fn a_pinned_pop_takes_from_its_partition_only() {
    let (http, q) = (shared(), queue());
    push_to(http, &q, &[("a", 1), ("b", 2)]).await;
    let body = http.get(&format!("/api/v1/pop/queue/{q}/partition/b?partitions=9")).await.expect(200);
    assert_eq!((&body["partition"], data(body["messages"].as_array().unwrap())), (&json!("b"), vec![&json!(2)]));
    assert_eq!(http.get(&format!("/api/v1/pop/queue/{q}/partition/c")).await.status, 204);
    assert_eq!(data(&http.pop(&q, "partitions=9").await), [1]);
}

#[tokio::test]
async fn auto_ack_takes_no_lease_and_says_attempt_one() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    let popped = http.pop(&q, "").await;
    http.ack(&popped[0], "retry").await;
    let popped = http.pop(&q, "autoAck=true").await;
    assert_eq!((&popped[0]["leaseId"], &popped[0]["data"]), (&json!(""), &json!(1)));
    // Old clients ack all the same.
    assert_eq!(http.ack(&popped[0], "completed").await["success"], true);
    assert_eq!(http.pop(&q, "").await.len(), 0);
}

#[tokio::test]
async fn discovery_pops_from_all_queues_that_match() {
    let http = shared();
    let (one, two, other, namespace) = (queue(), queue(), queue(), queue());
    for (q, task) in [(&one, "a"), (&two, "b")] {
        http.post("/api/v1/configure", &json!({"queue": q, "namespace": namespace, "task": task})).await.expect(200);
    }
    for (n, q) in [&one, &two, &other].into_iter().enumerate() {
        push_to(http, q, &[("p", n as i64)]).await;
    }
    let body = http.get(&format!("/api/v1/pop?namespace={namespace}&task=b")).await.expect(200);
    assert_eq!((&body["queue"], data(body["messages"].as_array().unwrap())), (&json!(""), vec![&json!(1)]));
    let body = http.get(&format!("/api/v1/pop?namespace={namespace}&partitions=9")).await.expect(200);
    assert_eq!(data(body["messages"].as_array().unwrap()), [0]);
    // A parked one hears of a push into any of them.
    let path = format!("/api/v1/pop?namespace={namespace}&partitions=9&wait=true&timeout=20000");
    let (body, ()) = tokio::join!(http.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        push_to(http, &one, &[("fresh", 7)]).await;
    });
    assert_eq!(data(body.expect(200)["messages"].as_array().unwrap()), [7]);
}

#[tokio::test]
async fn where_a_new_group_starts_is_said_by_its_first_pop() {
    let http = shared();
    for (params, count) in [
        ("subscriptionMode=all", 1),
        ("subscriptionMode=anything", 1),
        ("subscriptionMode=%20NEW_only%20", 0),
        ("subscriptionMode=new", 0),
        ("", 0),
        ("subscriptionMode=all&subscriptionFrom=now", 0),
        ("subscriptionFrom=2000-01-01T00:00:00Z", 1),
        ("subscriptionMode=all&subscriptionFrom=2999-01-01T00:00:00Z", 0),
    ] {
        let q = queue();
        http.push(&q, &[json!(1)]).await;
        assert_eq!(http.pop(&q, &format!("consumerGroup=g&{params}")).await.len(), count, "{params}");
    }
}

#[tokio::test]
async fn conflation_brings_the_newest_and_echoes_also_when_there_is_nothing() {
    let (http, q) = (shared(), queue());
    let path = format!("/api/v1/pop/queue/{q}?consumerGroup=g&conflation=true&subscriptionMode=all");
    let empty = http.get(&path).await.expect(200);
    assert_eq!((&empty["messages"], &empty["conflation"]), (&json!([]), &json!(true)));
    push_to(http, &q, &[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5)]).await;
    let body = http.get(&path).await.expect(200);
    assert_eq!(body["conflation"], true);
    let messages = body["messages"].as_array().unwrap();
    let newest: HashSet<i64> = messages.iter().map(|m| m["data"].as_i64().unwrap()).collect();
    assert_eq!((messages.len(), newest), (2, HashSet::from([3, 5])), "one of each partition");
    let a = messages.iter().find(|m| m["partition"] == "a").unwrap();
    assert_eq!(http.ack(a, "completed").await["conflated"], 2);
    // Parked and not served, the echo has to be there, too.
    let waited = http.get(&format!("{path}&wait=true&timeout=300")).await.expect(200);
    assert_eq!((&waited["messages"], &waited["conflation"]), (&json!([]), &json!(true)));
}

#[tokio::test]
async fn who_disagrees_with_a_groups_policy_is_told() {
    let (http, q) = (shared(), queue());
    let path = |params: &str| format!("/api/v1/pop/queue/{q}?consumerGroup=g&subscriptionMode=all{params}");
    http.push(&q, &[json!(1), json!(2)]).await;
    let plain = http.get(&path("&batch=1")).await.expect(200);
    assert!(plain.get("conflation").is_none() && plain.get("conflationConflict").is_none());
    for params in ["&conflation=true", "&conflation=true&wait=true&timeout=200"] {
        let empty = http.get(&path(params)).await.expect(200);
        assert_eq!((&empty["messages"], &empty["conflationConflict"]), (&json!([]), &json!(true)), "{params}");
        assert!(empty.get("conflation").is_none(), "{empty}");
    }
    http.ack(&plain["messages"][0], "completed").await;
    let body = http.get(&path("&conflation=true")).await.expect(200);
    assert_eq!(
        (&body["conflationConflict"], data(body["messages"].as_array().unwrap())),
        (&json!(true), vec![&json!(2)])
    );
}

#[tokio::test]
async fn a_delivery_attempt_counts_the_deliveries_of_the_first_message() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1), json!(2)]).await;
    let popped = http.pop(&q, "").await;
    http.ack_all(&[(&popped[0], "completed"), (&popped[1], "retry")]).await;
    let again = http.pop(&q, "").await;
    assert_eq!((data(&again), &again[0]["deliveryAttempt"]), (vec![&json!(2)], &json!(2)));
    http.ack(&again[0], "completed").await;
    http.push(&q, &[json!(3)]).await;
    assert_eq!(http.pop(&q, "").await[0]["deliveryAttempt"], 1);
}

// Python and JavaScript write names into the path as they are.
#[tokio::test]
async fn names_in_a_path_may_be_encoded_or_not() {
    let http = shared();
    let q = format!("{}a+b:c@d,e;f(g)!*'~", queue());
    let encoded: String = q.bytes().map(|b| format!("%{b:02X}")).collect();
    for (n, path) in [&q, &encoded].into_iter().enumerate() {
        push_to(http, &q, &[("x+y", n as i64)]).await;
        let body = http.get(&format!("/api/v1/pop/queue/{path}/partition/x+y?autoAck=true")).await.expect(200);
        assert_eq!((&body["queue"], data(body["messages"].as_array().unwrap())), (&json!(q), vec![&json!(n)]));
    }
    // In the query, a plus is a space.
    push_to(http, &q, &[("p", 1)]).await;
    let body =
        http.get(&format!("/api/v1/pop/queue/{encoded}?consumerGroup=a+b%2Bc&subscriptionMode=all")).await.expect(200);
    assert_eq!(body["consumerGroup"], "a b+c");
}

#[tokio::test]
async fn ten_thousand_messages_are_pushed_popped_and_settled_in_one_request_each() {
    let (http, q) = (shared(), queue());
    let items: Vec<(&str, i64)> = (0..10_000).map(|n| ("p", n)).collect();
    push_to(http, &q, &items).await;
    let popped = http.pop(&q, "batch=20000").await;
    assert!(data(&popped).into_iter().eq(items.iter().map(|(_, n)| n).map(|n| json!(n)).collect::<Vec<_>>().iter()));
    let acks: Vec<(&Value, &str)> = popped.iter().map(|message| (message, "completed")).collect();
    let acked = http.ack_all(&acks).await;
    assert_eq!(acked.len(), 10_000);
    assert!(acked.iter().all(|answer| answer["success"] == true));
    assert_eq!(http.pop(&q, "").await.len(), 0);
}
