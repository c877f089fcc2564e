//! Requests that come together share a commit. Nobody may notice, but for the speed.

use crate::{data, queue, shared, sidecar};
use queen_tests::sidecar::{Method, Sidecar, Value, json};
use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::time::Duration;
use tokio::task::JoinSet;

/// Runs one task a client, all at once, and answers their results.
async fn all<T: Send + 'static>(clients: impl IntoIterator<Item: Future<Output = T> + Send + 'static>) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(client);
    }
    tasks.join_all().await
}

#[tokio::test]
async fn each_client_gets_its_own_verdicts_and_its_own_order() {
    const CLIENTS: usize = 32;
    let (http, q) = (shared(), queue());
    let ids = all((0..CLIENTS).map(|client| {
        let q = q.clone();
        async move {
            let mut ids = Vec::new();
            for n in 0..10 {
                let item = |k: usize| {
                    let id = format!("c{client}-{n}-{k}");
                    json!({"queue": q, "partition": format!("p{}", client % 3), "payload": [client, n * 2 + k], "transactionId": id})
                };
                // Every third request repeats its first item, every fifth an earlier one.
                let mut items = vec![item(0), item(1)];
                if n % 3 == 0 {
                    items.push(item(0));
                }
                let pushed = http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
                let pushed = pushed.as_array().unwrap();
                assert_eq!(pushed.len(), items.len());
                for (n, (result, item)) in pushed.iter().zip(&items).enumerate() {
                    assert_eq!((&result["index"], &result["transaction_id"]), (&json!(n), &item["transactionId"]));
                    assert_eq!(result["status"], if n == 2 { "duplicate" } else { "queued" });
                }
                if n % 3 == 0 {
                    assert_eq!(pushed[2]["message_id"], pushed[0]["message_id"]);
                }
                ids.extend(pushed[..2].iter().map(|r| r["message_id"].as_str().unwrap().to_owned()));
            }
            ids
        }
    }))
    .await;
    let ids: HashSet<String> = ids.into_iter().flatten().collect();
    assert_eq!(ids.len(), CLIENTS * 20, "no two answers name one message");

    let popped = http.pop(&q, "batch=10000&partitions=10").await;
    let popped_ids: HashSet<String> = popped.iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((popped.len(), popped_ids), (CLIENTS * 20, ids));
    let mut by_client: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for message in &popped {
        by_client.entry(message["data"][0].as_i64().unwrap()).or_default().push(message["data"][1].as_i64().unwrap());
    }
    for (client, numbers) in by_client {
        assert!(numbers.is_sorted(), "client {client}: {numbers:?}");
    }
}

#[tokio::test]
async fn requests_that_come_together_share_commits() {
    let (http, q) = (shared(), queue());
    let mut commits = usize::MAX;
    // How many come together is the machine's affair; of several rounds, one will do.
    for _ in 0..5 {
        all((0..64).map(|n| {
            let q = q.clone();
            async move { http.push(&q, &[json!(n)]).await }
        }))
        .await;
        let popped = http.pop(&q, "autoAck=true").await;
        assert_eq!(popped.len(), 64);
        // What one commit stored has one time.
        let times: HashSet<&str> = popped.iter().map(|m| m["createdAt"].as_str().unwrap()).collect();
        commits = commits.min(times.len());
        if commits < 48 {
            return;
        }
    }
    panic!("64 requests, and never fewer than {commits} commits");
}

#[tokio::test]
async fn one_transaction_id_from_all_clients_is_one_message() {
    let (http, q) = (shared(), queue());
    for round in 0..3 {
        let answers = all((0..32).map(|n| {
            let item = json!({"queue": q, "payload": n, "transactionId": format!("same{round}")});
            async move { http.post("/api/v1/push", &json!({"items": [item]})).await.expect(201) }
        }))
        .await;
        let queued = answers.iter().filter(|a| a[0]["status"] == "queued").count();
        let ids: HashSet<&str> = answers.iter().map(|a| a[0]["message_id"].as_str().unwrap()).collect();
        assert_eq!((queued, ids.len()), (1, 1));
        assert_eq!(http.pop(&q, "autoAck=true").await.len(), 1);
    }
}

#[tokio::test]
async fn a_request_that_is_refused_fails_alone() {
    let (http, good, secret) = (shared(), queue(), queue());
    // No key is configured, and an encrypted queue never stores plain text.
    http.configure(&secret, &json!({"encryptionEnabled": true})).await;
    for round in 0..3 {
        let answers = all((0..32).map(|n| {
            let q = if n == 17 { secret.clone() } else { good.clone() };
            let item = json!({"queue": q, "payload": [round, n]});
            async move { (n, http.post("/api/v1/push", &json!({"items": [item]})).await) }
        }))
        .await;
        for (n, answer) in answers {
            if n == 17 {
                let error = answer.expect(503);
                assert!(error["error"].as_str().unwrap().contains("encrypt"), "{error}");
            } else {
                assert_eq!(answer.expect(201)[0]["status"], "queued");
            }
        }
        assert_eq!(http.pop(&good, "autoAck=true").await.len(), 31, "each once");
    }
    assert_eq!(http.pop(&secret, "autoAck=true").await.len(), 0);
}

/// A queue with one message in each of so many partitions, popped under one lease.
async fn popped_of_many(http: &Sidecar, partitions: usize) -> Vec<Value> {
    let q = queue();
    let items: Vec<Value> =
        (0..partitions).map(|n| json!({"queue": q, "partition": n.to_string(), "payload": n})).collect();
    http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    let popped = http.pop(&q, "partitions=0").await;
    assert_eq!(popped.len(), partitions);
    popped
}

#[tokio::test]
async fn acks_that_come_together_are_answered_each_for_itself() {
    let http = shared();
    let popped = popped_of_many(http, 32).await;
    let answers = all(popped.into_iter().enumerate().map(|(n, mut message)| async move {
        let status = ["completed", "failed", "retry", "dlq"][n % 4];
        if n % 8 == 0 {
            message["leaseId"] = json!("wrong");
        }
        if n == 4 {
            message["partitionId"] = json!("no uuid");
        }
        (n, message["transactionId"].clone(), http.ack(&message, status).await)
    }))
    .await;
    for (n, id, answer) in answers {
        assert_eq!((&answer["transactionId"], &answer["index"]), (&id, &json!(0)));
        assert_eq!(answer["success"], json!(n % 8 != 0 && n != 4), "{n}: {answer}");
        assert_eq!(answer["dlq"], json!(n % 4 == 3));
        assert_eq!(answer["error"].is_null(), n % 8 != 0 && n != 4);
    }
}

#[tokio::test]
async fn a_failure_holds_back_successes_of_its_own_request_only() {
    let http = shared();
    for _ in 0..5 {
        let q = queue();
        http.push(&q, &[json!(1), json!(2), json!(3)]).await;
        let popped = http.pop(&q, "").await;
        // One of the two comes first, and what it does ends the lease for the other.
        let (failed, completed) = tokio::join!(http.ack(&popped[0], "failed"), http.ack(&popped[2], "completed"));
        let won = (failed["success"] == true, completed["success"] == true);
        let left = http.pop(&q, "").await;
        match won {
            (true, false) => assert_eq!(data(&left), [1, 2, 3]),
            (false, true) => assert_eq!(left.len(), 0),
            both => panic!("{both:?}: {failed} {completed}"),
        }
        let lost = if won.0 { &completed } else { &failed };
        assert_eq!(lost["error"], "invalid or expired lease");
    }
}

#[tokio::test]
async fn a_client_that_leaves_costs_its_neighbours_nothing() {
    let http = sidecar().await;
    let q = queue();
    let pushes = (0..40).map(|n| {
        let request = http
            .request(queen_tests::sidecar::Method::POST, "/api/v1/push")
            .body(json!({"items": [{"queue": q, "payload": n}]}).to_string());
        async move {
            if n % 2 == 0 {
                // Gone before its answer, most likely.
                _ = tokio::time::timeout(std::time::Duration::from_micros(300), request.send()).await;
                None
            } else {
                Some(request.send().await.expect("an answer").status().as_u16())
            }
        }
    });
    let answers = all(pushes).await;
    assert_eq!(answers.into_iter().flatten().filter(|status| *status == 201).count(), 20);
    let popped = http.pop(&q, "").await;
    let kept = popped.iter().filter(|m| m["data"].as_i64().unwrap() % 2 == 1).count();
    assert_eq!(kept, 20);
}

/// An open transaction that holds partition `held` of a queue.
async fn holding(http: &Sidecar, q: &str) -> queen_tests::Client {
    let sql = http.sql().await;
    let hold = format!("BEGIN; SELECT queen.push('{q}', '1', 'held'); SELECT queen.flush()");
    sql.batch_execute(&hold).await.expect("a partition held");
    sql
}

fn push_to(http: &Sidecar, q: &str, partition: &str) -> tokio::task::JoinHandle<u16> {
    let body = json!({"items": [{"queue": q, "partition": partition, "payload": 1}]}).to_string();
    let request = http.request(Method::POST, "/api/v1/push").body(body);
    tokio::spawn(async move { request.send().await.expect("an answer").status().as_u16() })
}

#[tokio::test]
async fn a_partition_that_somebody_holds_stops_no_other() {
    let http = sidecar().await;
    let q = queue();
    // It is there before: who makes one holds up others that make one in the same queue.
    assert_eq!(push_to(&http, &q, "held").await.unwrap(), 201);
    let sql = holding(&http, &q).await;
    let stuck = push_to(&http, &q, "held");
    // What comes at the same moment shares its call and its fate.
    let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let observer = http.sql().await;
    while observer.query(waits, &[]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Far fewer than would be worth a second call.
    for n in 0..3 {
        let other = push_to(&http, &q, &format!("free{n}"));
        let answered = tokio::time::timeout(Duration::from_secs(20), other).await;
        assert_eq!(answered.expect("an answer while the other is held").unwrap(), 201);
    }
    assert!(!stuck.is_finished());
    sql.batch_execute("COMMIT").await.unwrap();
    assert_eq!(stuck.await.unwrap(), 201);
}

#[tokio::test]
async fn a_call_whose_client_left_makes_nobody_wait() {
    let http = sidecar().await;
    let q = queue();
    let sql = holding(&http, &q).await;
    let operations = json!({"operations": [{"type": "push", "queue": q, "partition": "held", "payload": 2}]});
    for _ in 0..3 {
        let request = http.request(Method::POST, "/api/v1/transaction").body(operations.to_string());
        assert!(tokio::time::timeout(Duration::from_millis(200), request.send()).await.is_err(), "it is held");
    }
    // More than there are connections: each of them would have its turn.
    for _ in 0..16 {
        let asked = http.post_text("/api/v1/lease/01a22c00-27b6-7e52-9142-09828ab9f254/extend", "");
        let answer = tokio::time::timeout(Duration::from_secs(20), asked).await;
        answer.expect("an answer, whoever is gone").expect(200);
    }
    sql.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_request_with_very_many_partitions_is_read_in_no_time() {
    let http = sidecar().await;
    let items: Vec<Value> =
        (0..100_000).map(|n| json!({"transactionId": "x", "partitionId": format!("p{n}")})).collect();
    let body = json!({ "acknowledgments": items }).to_string();
    let request = http.request(Method::POST, "/api/v1/ack/batch").body(body);
    // Minutes, if each were compared with each.
    let answer = tokio::time::timeout(Duration::from_secs(60), http.send(request)).await.expect("an answer");
    assert_eq!(answer.expect(200).as_array().map(Vec::len), Some(100_000));
}
