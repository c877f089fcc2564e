//! Tenants by header, and what a token says: who sees what.

use crate::{data, queue, raw, shared, sidecar_with};
use queen_tests::shared_cluster;
use queen_tests::sidecar::{Answer, Method, Sidecar, Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

const A: &str = "aaaaaaaa-0000-4000-8000-00000000000a";
const B: &str = "bbbbbbbb-0000-4000-8000-00000000000b";

async fn with_tenants() -> Sidecar {
    let database = shared_cluster().fresh_database().await;
    shared_cluster().psql(&database, "GRANT SET ON PARAMETER queen.tenant TO queen_sidecar");
    let environment = [("QUEEN_TENANCY_HEADER", "1"), ("QUEEN_KV_TRUSTED_PROXY", "1")];
    Sidecar::start_with(shared_cluster(), &database, &environment)
}

async fn ask(http: &Sidecar, tenant: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let request = http.request(method, path).header("x-queen-tenant", tenant);
    http.send(request.body(body.map_or(String::new(), |body| body.to_string()))).await
}

async fn push(http: &Sidecar, tenant: &str, payload: Value) {
    let body = json!({"items": [{"queue": "q", "payload": payload}]});
    ask(http, tenant, Method::POST, "/api/v1/push", Some(body)).await.expect(201);
}

async fn pop(http: &Sidecar, tenant: &str) -> Vec<Value> {
    let answer = ask(http, tenant, Method::GET, "/api/v1/pop/queue/q", None).await;
    if answer.status == 204 { Vec::new() } else { answer.expect(200)["messages"].as_array().unwrap().clone() }
}

#[tokio::test]
async fn what_is_anothers_is_as_if_it_were_not() {
    let http = with_tenants().await;
    push(&http, A, json!("a's")).await;
    assert_eq!(pop(&http, B).await.len(), 0);
    assert_eq!(http.pop("q", "").await.len(), 0, "nor the default tenant's");
    let message = pop(&http, A).await[0].clone();

    let ack = json!({"transactionId": message["transactionId"], "partitionId": message["partitionId"], "leaseId": message["leaseId"]});
    let missing = json!({"transactionId": "x", "partitionId": "11111111-2222-7333-8444-555555555555"});
    let of_a = ask(&http, B, Method::POST, "/api/v1/ack", Some(ack.clone())).await.expect(200);
    let of_nobody = ask(&http, B, Method::POST, "/api/v1/ack", Some(missing)).await.expect(200);
    assert_eq!((&of_a[0]["success"], &of_a[0]["error"]), (&json!(false), &of_nobody[0]["error"]));
    let extend = format!("/api/v1/lease/{}/extend", message["leaseId"].as_str().unwrap());
    assert_eq!(ask(&http, B, Method::POST, &extend, None).await.expect(200)["renewed"], 0);
    let operations = json!({"operations": [{"type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"]}]});
    assert_eq!(
        ask(&http, B, Method::POST, "/api/v1/transaction", Some(operations)).await.expect(200)["success"],
        false
    );
    let address = format!(
        "/api/v1/messages/{}/{}",
        message["partitionId"].as_str().unwrap(),
        message["transactionId"].as_str().unwrap()
    );
    ask(&http, B, Method::GET, &address, None).await.expect(404);
    ask(&http, B, Method::DELETE, &address, None).await.expect(404);
    assert_eq!(
        ask(&http, B, Method::DELETE, "/api/v1/resources/queues/q", None).await.expect(200)["deleted"],
        true,
        "its own, that its pop made"
    );

    ask(&http, A, Method::GET, &address, None).await.expect(200);
    assert_eq!(ask(&http, A, Method::POST, &extend, None).await.expect(200)["renewed"], 1);
    assert_eq!(ask(&http, A, Method::POST, "/api/v1/ack", Some(ack)).await.expect(200)[0]["success"], true);
}

#[tokio::test]
async fn a_poll_is_woken_by_its_own_tenant_only() {
    let http = with_tenants().await;
    let get = raw::get("/api/v1/pop/queue/q?wait=true&timeout=15000")
        .replace("host:", &format!("x-queen-tenant: {B}\r\nconnection: close\r\nhost:"));
    let mut poll = raw::send(&http, &get);
    tokio::time::sleep(Duration::from_millis(200)).await;
    push(&http, A, json!("a's")).await;
    http.push("q", &[json!("default's")]).await;
    assert_eq!(data(&pop(&http, A).await), ["a's"], "which the poll did not take");
    push(&http, B, json!("b's")).await;
    let answer = tokio::task::spawn_blocking(move || raw::until_closed(&mut poll)).await.unwrap().expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"b's\""), "{answer}");
}

#[tokio::test]
async fn tenants_that_push_at_once_keep_what_is_theirs() {
    let http = with_tenants().await;
    let mut pushes = JoinSet::new();
    for n in 0..60 {
        let mut request = http.request(Method::POST, "/api/v1/push");
        if n % 3 > 0 {
            request = request.header("x-queen-tenant", [A, B][n % 3 - 1]);
        }
        let request = request.body(
            json!({"items": [{"queue": "q", "payload": n, "transactionId": "same"}, {"queue": "q", "payload": n}]})
                .to_string(),
        );
        pushes.spawn(async move { request.send().await.expect("an answer").status().as_u16() });
    }
    assert!(pushes.join_all().await.iter().all(|status| *status == 201));
    for (kind, messages) in [(0, http.pop("q", "").await), (1, pop(&http, A).await), (2, pop(&http, B).await)] {
        assert_eq!(messages.len(), 21, "20 and the one that all of them call the same");
        assert!(messages.iter().all(|message| message["data"].as_i64().unwrap() % 3 == kind));
    }
}

#[tokio::test]
async fn a_tenant_is_a_uuid_and_without_one_it_is_the_default() {
    let http = with_tenants().await;
    for bad in ["x", "aaaaaaaa00004000800000000000000a", "{aaaaaaaa-0000-4000-8000-00000000000a}", "ü"] {
        let answer = ask(&http, bad, Method::GET, "/api/v1/pop/queue/q", None).await.expect(400);
        assert_eq!(answer["error"], "invalid x-queen-tenant header (must be a UUID)", "{bad}");
    }
    push(&http, &A.to_uppercase(), json!(1)).await;
    assert_eq!(data(&pop(&http, A).await), [1]);
    push(&http, "", json!(2)).await;
    assert_eq!(data(&pop(&http, "00000000-0000-0000-0000-000000000001").await), [2]);
}

#[tokio::test]
async fn replay_plans_of_every_tenant_are_run() {
    let http = with_tenants().await;
    for tenant in ["", A, B] {
        push(&http, tenant, json!(1)).await;
        let path = "/api/v1/pop/queue/q?consumerGroup=g&subscriptionMode=all";
        let message = ask(&http, tenant, Method::GET, path, None).await.expect(200)["messages"][0].clone();
        let ack = json!({"transactionId": message["transactionId"], "partitionId": message["partitionId"],
                         "leaseId": message["leaseId"], "consumerGroup": "g", "status": "dlq"});
        ask(&http, tenant, Method::POST, "/api/v1/ack", Some(ack)).await.expect(200);
    }
    for tenant in ["", A, B] {
        let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": "q"}});
        let plan = ask(&http, tenant, Method::POST, "/api/v1/dlq/plans", Some(plan)).await.expect(201);
        let path = format!("/api/v1/dlq/plans/{}", plan["planId"].as_str().unwrap());
        ask(&http, tenant, Method::POST, &format!("{path}/run"), None).await.expect(200);
        let mut state = Value::Null;
        for _ in 0..600 {
            state = ask(&http, tenant, Method::GET, &path, None).await.expect(200)["state"].clone();
            if state == "done" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(state, "done", "tenant {tenant:?}\n{}", http.log());
    }
}

#[tokio::test]
async fn without_the_setting_the_header_means_nothing() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    for tenant in [B, "nonsense"] {
        let path = format!("/api/v1/pop/queue/{q}?consumerGroup={}&subscriptionMode=all", &tenant[..3]);
        ask(http, tenant, Method::GET, &path, None).await.expect(200);
    }
}

// Signed with the secret below; they never expire.
const ADMIN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhZGEiLCJyb2xlIjoiYWRtaW4ifQ.ZZznxmMiMDaqhos4xQ5Ymdi9kMLKaiKoTYqJLQtExr4";
const READER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJldmUiLCJyb2xlIjoicmVhZC1vbmx5In0.T5lBtfpszDscd2Ra7aWygTbBjulmR0P9tW1FZrUch30";
const WRITER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IiLCJyb2xlIjoid3JpdGUtb25seSJ9.yTmM5wejhvCNKgqnNxIIObevHAgq1xBFn6NQWhJ0CEU";

#[tokio::test]
async fn a_token_says_who_pushed_and_its_role_what_may_be_done() {
    let http = sidecar_with(&[("JWT_ENABLED", "true"), ("JWT_SECRET", "a secret of the tests")]).await;
    let ask = async |token: Option<&str>, method: Method, path: &str, body: Value| {
        let request = http.request(method, path).body(body.to_string());
        let request = match token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        http.send(request).await
    };
    let items = json!({"items": [{"queue": "q", "payload": 1, "producerSub": "mallory"}]});
    let refused = ask(None, Method::POST, "/api/v1/push", items.clone()).await.expect(401);
    assert_eq!(refused["error"], "Authentication required");
    let forged = format!("{}x", &WRITER[..WRITER.len() - 1]);
    assert_eq!(
        ask(Some(&forged), Method::POST, "/api/v1/push", items.clone()).await.expect(401)["error"],
        "Invalid token signature"
    );
    assert_eq!(
        ask(Some(READER), Method::POST, "/api/v1/push", items.clone()).await.expect(403)["error"],
        "Insufficient permissions"
    );
    ask(Some(WRITER), Method::POST, "/api/v1/push", items).await.expect(201);
    let operations = json!({"operations": [{"type": "push", "queue": "q", "payload": 2}]});
    ask(Some(WRITER), Method::POST, "/api/v1/transaction", operations.clone()).await.expect(403);
    ask(Some(ADMIN), Method::POST, "/api/v1/transaction", operations).await.expect(200);
    ask(Some(WRITER), Method::GET, "/api/v1/pop/queue/q", Value::Null).await.expect(403);
    let popped = ask(Some(ADMIN), Method::GET, "/api/v1/pop/queue/q", Value::Null).await.expect(200);
    let producers: Vec<&Value> = popped["messages"].as_array().unwrap().iter().map(|m| &m["producerSub"]).collect();
    assert_eq!(producers, ["bob", "ada"]);
    ask(Some(READER), Method::GET, "/api/v1/resources/queues", Value::Null).await.expect(200);
    ask(Some(READER), Method::DELETE, "/api/v1/dlq?queue=q", Value::Null).await.expect(403);
    assert_eq!(http.get("/health").await.status, 200, "whoever looks after it needs no token");
    assert!(!http.log().contains(&WRITER[40..]), "tokens are not logged");
}
