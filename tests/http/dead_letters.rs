//! Dead letters over HTTP: look, plan, approve, run, decide.

use crate::{queue, shared, sidecar_with};
use queen_tests::sidecar::{Answer, Method, Sidecar, Value, json};
use queen_tests::{Client, shared_cluster};
use std::time::Duration;
use uuid::Uuid;

// Signed with the secret below; they never expire.
const ADA: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhZGEiLCJyb2xlIjoiYWRtaW4ifQ.ZZznxmMiMDaqhos4xQ5Ymdi9kMLKaiKoTYqJLQtExr4";
const GRACE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJncmFjZSIsInJvbGUiOiJyZWFkLXdyaXRlIn0.EvX_wQ1-jGYoa5i8wal2GTsbKWQn2hOaEPdsGNq8H6Q";
const EVE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJldmUiLCJyb2xlIjoicmVhZC1vbmx5In0.T5lBtfpszDscd2Ra7aWygTbBjulmR0P9tW1FZrUch30";
const NOBODY: &str =
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoiYWRtaW4ifQ.3-oawQEmWQq98C7Z4osEftx5lDIZyvpw61fv1o1im9I";
const SECRET: [(&str, &str); 2] = [("JWT_ENABLED", "true"), ("JWT_SECRET", "a secret of the tests")];

async fn ask(http: &Sidecar, token: &str, method: Method, path: &str, body: Value) -> Answer {
    let request = http.request(method, path).header("authorization", format!("Bearer {token}"));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    http.send(request.body(body)).await
}

/// Pushes this many and gives up on each, as group `g`; without a server's authentication.
async fn dead_letters(http: &Sidecar, queue: &str, count: usize) {
    let payloads: Vec<Value> = (0..count).map(|n| json!({ "n": n })).collect();
    http.push(queue, &payloads).await;
    for _ in 0..count {
        let popped = http.pop(queue, "consumerGroup=g&subscriptionMode=all").await;
        assert_eq!(http.ack(&popped[0], "dlq").await["dlq"], true);
    }
}

async fn records(http: &Sidecar, queue: &str) -> Vec<Value> {
    let listed = http.get(&format!("/api/v1/dlq/list?queue={queue}")).await.expect(200);
    listed["records"].as_array().unwrap().clone()
}

/// The same through SQL, of a server that wants tokens.
async fn file_by_sql(http: &Sidecar, queue: &str, count: usize) {
    let sql = http.sql().await;
    let push = format!(
        "SELECT queen.configure('{queue}', '{{\"requireApproval\": true}}');
         SELECT queen.push('{queue}', jsonb_build_object('n', n)) FROM generate_series(1, {count}) n"
    );
    sql.batch_execute(&push).await.unwrap();
    for _ in 0..count {
        give_up(&sql, queue).await;
    }
}

/// Pops a message as group `g`, and gives up on it.
async fn give_up(sql: &Client, queue: &str) {
    let give_up = format!(
        "WITH m AS MATERIALIZED (SELECT * FROM queen.pop('{queue}', 'g', subscription_mode => 'all')) \
                 SELECT (queen.ack(m.partition_id, m.transaction_id, 'dlq', 'g', m.lease_id, 'boom')).success FROM m"
    );
    let filed: bool = sql.query_one(&give_up, &[]).await.unwrap().get(0);
    assert!(filed);
}

/// Looks at a plan until it is in this state.
async fn until(http: &Sidecar, token: &str, plan: &str, state: &str) -> Value {
    for _ in 0..600 {
        let status = ask(http, token, Method::GET, &format!("/api/v1/dlq/plans/{plan}"), Value::Null).await.expect(200);
        if status["state"] == state {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the plan does not come to {state}\n{}", http.log());
}

#[tokio::test]
async fn a_plan_is_approved_by_another_person_and_runs_canary_first() {
    let http = sidecar_with(&SECRET).await;
    file_by_sql(&http, "q", 12).await;
    let plan = json!({
        "reason": "down", "remediation": "change 1", "filter": {"queue": "q"}, "rate": 1000, "canary": 3,
        "expiresIn": 3600, "toQueue": null,
    });
    let path = "/api/v1/dlq/plans";
    ask(&http, EVE, Method::POST, path, plan.clone()).await.expect(403);
    let mut dry = plan.clone();
    dry["dryRun"] = true.into();
    let dry = ask(&http, ADA, Method::POST, path, dry).await.expect(200);
    assert_eq!((&dry["planId"], &dry["planned"]), (&Value::Null, &json!(12)));
    let planned = ask(&http, ADA, Method::POST, path, plan).await.expect(201);
    assert_eq!((&planned["planned"], &planned["needsApproval"]), (&json!(12), &json!(true)));
    let id = planned["planId"].as_str().unwrap();
    let step = |word: &str| format!("{path}/{id}/{word}");

    ask(&http, ADA, Method::POST, &step("run"), Value::Null).await.expect(403);
    ask(&http, ADA, Method::POST, &step("approve"), Value::Null).await.expect(403);
    ask(&http, EVE, Method::POST, &step("approve"), Value::Null).await.expect(403);
    // Without a subject it would be the server's login that is the other person.
    ask(&http, NOBODY, Method::POST, &step("approve"), Value::Null).await.expect(403);
    let approved = ask(&http, GRACE, Method::POST, &step("approve"), json!({"note": "seen"})).await.expect(200);
    assert_eq!(
        (&approved["plannedBy"], &approved["approvedBy"], &approved["approvalNote"]),
        (&json!("ada"), &json!("grace"), &json!("seen"))
    );
    ask(&http, ADA, Method::POST, &step("widen"), Value::Null).await.expect(409);
    ask(&http, ADA, Method::POST, &step("run"), Value::Null).await.expect(200);
    let canary = until(&http, EVE, id, "canary_done").await;
    assert_eq!((&canary["moved"], &canary["remaining"]), (&json!(3), &json!(9)));
    let early = ask(&http, ADA, Method::POST, &step("widen"), Value::Null).await.expect(409);
    assert!(early["error"].as_str().unwrap().contains("3 still pending"), "{early}");
    ask(&http, ADA, Method::POST, &step("widen"), json!({"force": "yes"})).await.expect(400);
    ask(&http, ADA, Method::POST, &step("widen"), json!({"force": true})).await.expect(200);
    let done = until(&http, EVE, id, "done").await;
    assert_eq!((&done["moved"], &done["remaining"], &done["failed"]), (&json!(12), &json!(0), &json!(0)));
    let popped = ask(&http, ADA, Method::GET, "/api/v1/pop/queue/q?consumerGroup=g&batch=50", Value::Null).await;
    assert_eq!(popped.expect(200)["messages"].as_array().unwrap().len(), 12, "they are in the queue again");

    let events =
        ask(&http, EVE, Method::GET, &format!("/api/v1/dlq/events?planId={id}"), Value::Null).await.expect(200);
    let events = events["events"].as_array().unwrap();
    let who = |action: &str| events.iter().find(|e| e["action"] == action).map(|e| e["actor"].clone());
    assert_eq!(who("plan_created"), Some(json!("ada")));
    assert_eq!(who("plan_approved"), Some(json!("grace")));
    let plans = ask(&http, EVE, Method::GET, "/api/v1/dlq/plans?state=done", Value::Null).await.expect(200);
    assert_eq!(plans["plans"][0]["planId"], id);
    assert!(!http.log().contains("boom"), "errors of consumers are not logged");
}

#[tokio::test]
async fn what_cannot_be_done_has_its_status() {
    let (http, q) = (shared(), queue());
    let none = Uuid::new_v4();
    for (path, body, status) in [
        ("/api/v1/dlq/plans".to_owned(), json!({}), 400),
        ("/api/v1/dlq/plans".to_owned(), json!({"reason": "r", "remediation": "c", "filter": {"x": "y"}}), 400),
        ("/api/v1/dlq/plans".to_owned(), json!({"reason": "r", "remediation": "c", "ids": ["x"]}), 400),
        (
            "/api/v1/dlq/plans".to_owned(),
            json!({"reason": "r", "remediation": "c", "filter": {"queue": q}, "expiresIn": "soon"}),
            400,
        ),
        (
            "/api/v1/dlq/plans".to_owned(),
            json!({"reason": "r", "remediation": "c", "filter": {"queue": q, "payload": "$["}}),
            400,
        ),
        ("/api/v1/dlq/plans".to_owned(), json!({"reason": "r", "remediation": "c", "ids": [], "rate": "x"}), 400),
        (format!("/api/v1/dlq/plans/{none}/run"), Value::Null, 404),
        ("/api/v1/dlq/plans/x/run".to_owned(), Value::Null, 404),
        (format!("/api/v1/dlq/{none}/repair"), json!({"payload": 1, "reason": "r"}), 404),
        (format!("/api/v1/dlq/{none}/repair"), json!({"reason": "r"}), 400),
        ("/api/v1/dlq/discard".to_owned(), json!({"ids": [none.to_string()], "cause": "bored", "note": "n"}), 400),
        ("/api/v1/dlq/discard".to_owned(), json!({"cause": "test", "note": "n"}), 400),
        (format!("/api/v1/consumer-groups/g/queues/{q}-none/pause"), json!({}), 404),
        (format!("/api/v1/consumer-groups/{q}/queues/{q}/pause"), json!({}), 404),
        (format!("/api/v1/consumer-groups/{q}/queues/{q}/resume"), json!({}), 404),
    ] {
        let answer = http.post(&path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
        assert!(answer.json()["error"].is_string(), "{path} {body}");
    }
    for (path, status) in [
        (format!("/api/v1/dlq/{none}"), 404),
        ("/api/v1/dlq/x".to_owned(), 404),
        (format!("/api/v1/dlq/plans/{none}"), 404),
        ("/api/v1/dlq/list?class=silly".to_owned(), 400),
        ("/api/v1/dlq/list?from=never".to_owned(), 400),
        ("/api/v1/dlq/list?limit=-1".to_owned(), 400),
        ("/api/v1/dlq/list?after=x".to_owned(), 400),
        ("/api/v1/dlq/stats?minutes=61".to_owned(), 400),
        ("/api/v1/dlq/events?planId=x".to_owned(), 400),
    ] {
        http.get(&path).await.expect(status);
    }
}

#[tokio::test]
async fn a_canary_that_failed_again_widens_only_by_force_and_a_settled_one_without() {
    let http = sidecar_with(&[]).await;
    let path = "/api/v1/dlq/plans";
    for (queue, fate, status) in [("good", "completed", 200), ("bad", "dlq", 409)] {
        dead_letters(&http, queue, 3).await;
        let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": queue}, "canary": 1, "rate": 1000});
        let plan = http.post(path, &plan).await.expect(201)["planId"].as_str().unwrap().to_owned();
        http.post_text(&format!("{path}/{plan}/run"), "").await.expect(200);
        until(&http, "", &plan, "canary_done").await;
        let popped = http.pop(queue, "consumerGroup=g").await;
        http.ack(&popped[0], fate).await;
        http.post_text(&format!("{path}/{plan}/widen"), "").await.expect(status);
        if status == 409 {
            http.post(&format!("{path}/{plan}/widen"), &json!({"force": true})).await.expect(200);
        }
        until(&http, "", &plan, "done").await;
    }
}

#[tokio::test]
async fn a_key_that_is_not_known_is_refused_naming_those_that_are() {
    let (http, none) = (shared(), Uuid::new_v4());
    for (path, body, known) in [
        ("plans".to_owned(), json!({"reason": "r", "remediation": "c", "ids": [], "dryrun": true}), "dryRun"),
        (format!("plans/{none}/approve"), json!({"Note": "n"}), "note"),
        (format!("plans/{none}/cancel"), json!({"reason": "n"}), "note"),
        (format!("plans/{none}/widen"), json!({"forced": true}), "force"),
        (format!("plans/{none}/run"), json!({"rate": 1}), "none is known"),
        (format!("plans/{none}/pause"), json!({"note": "n"}), "none is known"),
        (format!("plans/{none}/resume"), json!({"note": "n"}), "none is known"),
        (format!("{none}/repair"), json!({"payload": 1, "reason": "r", "toQueue": "q"}), "partition"),
        ("discard".to_owned(), json!({"ids": [], "cause": "test", "note": "n", "reason": "r"}), "cause"),
    ] {
        let answer = http.post(&format!("/api/v1/dlq/{path}"), &body).await.expect(400);
        assert!(answer["error"].as_str().unwrap().contains(known), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_plan_over_its_limit_is_refused_as_too_large() {
    let (http, q) = (shared(), queue());
    dead_letters(http, &q, 3).await;
    let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": q}, "maxRecords": 2});
    http.post("/api/v1/dlq/plans", &plan).await.expect(413);
}

#[tokio::test]
async fn a_list_pages_through_the_filter_and_a_record_shows_its_history() {
    let (http, q) = (shared(), queue());
    dead_letters(http, &q, 5).await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..5 {
        let page = http.get(&format!("/api/v1/dlq/list?queue={q}&limit=2&after={after}")).await.expect(200);
        seen.extend(page["records"].as_array().unwrap().iter().map(|r| r["data"]["n"].as_i64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    let listed = http.get(&format!("/api/v1/dlq/list?queue={q}&class=transient")).await.expect(200);
    assert_eq!(listed["records"], json!([]));

    let id = records(http, &q).await[0]["id"].as_str().unwrap().to_owned();
    let body = json!({"ids": [id, Uuid::new_v4().to_string()], "cause": "test", "note": "sent by a test"});
    assert_eq!(http.post("/api/v1/dlq/discard", &body).await.expect(200)["discarded"], 1);
    assert_eq!(records(http, &q).await.len(), 4, "not listed any more");
    let one = http.get(&format!("/api/v1/dlq/{id}")).await.expect(200);
    assert_eq!((&one["record"]["status"], &one["events"][0]["action"]), (&json!("discarded"), &json!("discarded")));
    assert_eq!(one["events"][0]["detail"]["note"], "sent by a test");

    let stats = http.get(&format!("/api/v1/dlq/stats?queue={q}")).await.expect(200);
    let group = &stats["groups"][0];
    assert_eq!((&group["consumerGroup"], &group["pending"], &group["discarded"]), (&json!("g"), &json!(4), &json!(1)));
}

#[tokio::test]
async fn a_repaired_message_has_the_new_payload_and_names_the_original() {
    let (http, q) = (shared(), queue());
    dead_letters(http, &q, 1).await;
    let record = records(http, &q).await[0].clone();
    let id = record["id"].as_str().unwrap();
    let answer = http
        .post(&format!("/api/v1/dlq/{id}/repair"), &json!({"payload": {"n": "seven"}, "reason": "was a number"}))
        .await
        .expect(200);
    assert_eq!(answer["result"], "repaired");
    let popped = http.pop(&q, "consumerGroup=g").await;
    assert_eq!(popped[0]["data"], json!({"n": "seven"}));
    let one = http.get(&format!("/api/v1/dlq/{id}")).await.expect(200);
    assert_eq!((&one["record"]["status"], &one["record"]["data"]), (&json!("replayed"), &json!({"n": 0})));
    assert_eq!(one["ancestry"].as_array().unwrap().len(), 2, "the original and its repair");
    http.post(&format!("/api/v1/dlq/{id}/repair"), &json!({"payload": null, "reason": "again"})).await.expect(404);
}

#[tokio::test]
async fn a_repair_is_approved_with_its_payload() {
    let http = sidecar_with(&SECRET).await;
    file_by_sql(&http, "q", 1).await;
    let listed = ask(&http, EVE, Method::GET, "/api/v1/dlq/list?queue=q", Value::Null).await.expect(200);
    let id = listed["records"][0]["id"].as_str().unwrap();
    let payload = json!({"n": "seven"});
    let plan = json!({"reason": "r", "remediation": "c", "ids": [id], "repair": payload});
    let plan = ask(&http, ADA, Method::POST, "/api/v1/dlq/plans", plan).await.expect(201);
    assert!(plan["repairHash"].is_string(), "{plan}");
    let plan = plan["planId"].as_str().unwrap();
    ask(&http, GRACE, Method::POST, &format!("/api/v1/dlq/plans/{plan}/approve"), Value::Null).await.expect(200);
    let repair = format!("/api/v1/dlq/{id}/repair");
    ask(&http, ADA, Method::POST, &repair, json!({"payload": {"n": "eight"}, "reason": "r"})).await.expect(403);
    let answer = ask(&http, ADA, Method::POST, &repair, json!({"payload": payload, "reason": "r"})).await.expect(200);
    assert_eq!(answer["result"], "repaired");
    until(&http, EVE, plan, "done").await;
}

#[tokio::test]
async fn during_push_maintenance_nothing_is_replayed() {
    let http = sidecar_with(&[]).await;
    dead_letters(&http, "q", 2).await;
    let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": "q"}, "canary": 0, "rate": 1000});
    let plan = http.post("/api/v1/dlq/plans", &plan).await.expect(201)["planId"].as_str().unwrap().to_owned();
    let id = records(&http, "q").await[0]["id"].as_str().unwrap().to_owned();
    http.post("/api/v1/system/maintenance", &json!({"enabled": true})).await.expect(200);
    let repair = json!({"payload": 1, "reason": "r"});
    http.post(&format!("/api/v1/dlq/{id}/repair"), &repair).await.expect(503);
    http.post_text(&format!("/api/v1/dlq/plans/{plan}/run"), "").await.expect(200);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let status = http.get(&format!("/api/v1/dlq/plans/{plan}")).await.expect(200);
    assert_eq!((&status["state"], &status["moved"]), (&json!("running"), &json!(0)));
    http.post("/api/v1/system/maintenance", &json!({"enabled": false})).await.expect(200);
    until(&http, "", &plan, "done").await;
}

#[tokio::test]
async fn the_audit_names_the_subject_of_the_token_whatever_it_did() {
    let http = sidecar_with(&SECRET).await;
    file_by_sql(&http, "q", 2).await;
    http.sql().await.batch_execute("SELECT queen.configure('q', '{\"requireApproval\": false}')").await.unwrap();
    let listed = ask(&http, EVE, Method::GET, "/api/v1/dlq/list?queue=q", Value::Null).await.expect(200);
    let id = listed["records"][0]["id"].as_str().unwrap();
    ask(&http, GRACE, Method::POST, &format!("/api/v1/dlq/{id}/replay"), Value::Null).await.expect(200);
    ask(&http, GRACE, Method::POST, "/api/v1/consumer-groups/g/queues/q/pause", json!({})).await.expect(200);
    ask(&http, ADA, Method::DELETE, "/api/v1/dlq?queue=q", Value::Null).await.expect(200);
    let options = json!({"queue": "q", "options": {"owner": "shop"}});
    ask(&http, ADA, Method::POST, "/api/v1/configure", options).await.expect(200);
    ask(&http, ADA, Method::DELETE, "/api/v1/resources/queues/q", Value::Null).await.expect(200);
    let events = ask(&http, EVE, Method::GET, "/api/v1/dlq/events", Value::Null).await.expect(200);
    let events: Vec<(&str, &str)> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["action"].as_str().unwrap(), e["actor"].as_str().unwrap()))
        .collect();
    for wanted in [
        ("moved", "grace"),
        ("group_paused", "grace"),
        ("purged", "ada"),
        ("queue_configured", "ada"),
        ("queue_dropped", "ada"),
    ] {
        assert!(events.contains(&wanted), "{wanted:?} is not in {events:?}");
    }
}

#[tokio::test]
async fn a_paused_group_gets_nothing_until_it_goes_on() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    http.pop(&q, "consumerGroup=other&subscriptionMode=all").await;
    let popped = http.pop(&q, "consumerGroup=g&subscriptionMode=all").await;
    http.ack(&popped[0], "retry").await;
    let path = |word: &str| format!("/api/v1/consumer-groups/g/queues/{q}/{word}");
    let paused = http.post(&path("pause"), &json!({"reason": "the provider is down"})).await.expect(200);
    assert_eq!((&paused["pause"], &paused["changed"]), (&json!(true), &json!(true)));
    assert_eq!(http.post_text(&path("pause"), "").await.expect(200)["changed"], false);
    assert!(http.pop(&q, "consumerGroup=g").await.is_empty());
    http.post(&format!("/api/v1/consumer-groups/nobody/queues/{q}/pause"), &json!({})).await.expect(404);
    let stats = http.get(&format!("/api/v1/dlq/stats?queue={q}")).await.expect(200);
    assert_eq!((&stats["groups"], &stats["paused"][0]["consumerGroup"]), (&json!([]), &json!("g")), "{stats}");
    assert_eq!(http.post_text(&path("resume"), "").await.expect(200)["changed"], true);
    assert_eq!(http.pop(&q, "consumerGroup=g").await.len(), 1);
}

#[tokio::test]
async fn who_may_only_look_sees_encrypted_evidence_redacted() {
    let database = shared_cluster().fresh_database().await;
    let keys = "one:0101010101010101010101010101010101010101010101010101010101010101";
    // Before the server connects: sessions take it on when they begin.
    shared_cluster().psql(&database, &format!("ALTER DATABASE {database} SET queen.encryption_keys = '{keys}'"));
    let http = Sidecar::start_with(shared_cluster(), &database, &SECRET);
    let sql = http.sql().await;
    sql.batch_execute(
        "SELECT queen.configure('q', '{\"deadLetterPayload\": \"encrypt\", \"redactionAllow\": [\"$.id\"]}'); \
         SELECT queen.push('q', '{\"id\": 7, \"card\": \"4111\"}')",
    )
    .await
    .unwrap();
    give_up(&sql, "q").await;
    for (token, path, card) in [
        (EVE, "/api/v1/dlq/list", "[REDACTED]"),
        (EVE, "/api/v1/dlq/list?redacted=false", "[REDACTED]"),
        (GRACE, "/api/v1/dlq/list", "4111"),
        (GRACE, "/api/v1/dlq/list?redacted=true", "[REDACTED]"),
    ] {
        let listed = ask(&http, token, Method::GET, path, Value::Null).await.expect(200);
        let record = &listed["records"][0];
        assert_eq!((&record["data"]["id"], &record["data"]["card"]), (&json!(7), &json!(card)), "{path}");
        let path = path.replace("list", record["id"].as_str().unwrap());
        let one = ask(&http, token, Method::GET, &path, Value::Null).await.expect(200);
        assert_eq!(one["record"]["data"]["card"], card, "{path}");
    }
}

#[tokio::test]
async fn figures_of_dead_letters_are_exposed_with_their_owner() {
    let http = sidecar_with(&[]).await;
    http.configure("q", &json!({"owner": "shop", "severity": "high", "runbook": "https://wiki/q"})).await;
    dead_letters(&http, "q", 2).await;
    let text = http.get("/metrics/prometheus").await.text;
    for line in [
        r#"queen_dlq_pending{queue="q",group="g"} 2"#,
        r#"queen_dlq_replays_failed_again{queue="q",group="g"} 0"#,
        r#"queen_dlq_replays_total{result="moved"} 0"#,
        r#"queen_dlq_queue_info{queue="q",owner="shop",runbook="https://wiki/q",severity="high"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert_eq!(text.lines().filter(|l| l.starts_with("queen_dlq_fingerprint{")).count(), 1, "one cause");
}

#[tokio::test]
async fn figures_that_cannot_be_had_any_more_are_missing_and_do_not_stand_still() {
    let http = sidecar_with(&[]).await;
    dead_letters(&http, "q", 1).await;
    let text = http.get("/metrics/prometheus").await.text;
    assert!(text.contains("queen_database_up 1\n") && text.contains("queen_dlq_pending{"), "{text}");
    http.sql().await.batch_execute("ALTER FUNCTION queen.dlq_stats RENAME TO dlq_stats_away").await.unwrap();
    for _ in 0..600 {
        let text = http.get("/metrics/prometheus").await.text;
        if !text.contains("queen_dlq_") {
            assert!(text.contains("queen_database_up 1\n"), "it is the query that fails: {text}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the figures are those of before");
}

#[tokio::test]
async fn evidence_that_is_kept_less_protected_than_its_queue_wants_is_counted() {
    let http = sidecar_with(&[]).await;
    dead_letters(&http, "q", 1).await;
    dead_letters(&http, "other", 1).await;
    http.configure("q", &json!({"deadLetterPayload": "redact"})).await;
    dead_letters(&http, "q", 1).await;
    let text = http.get("/metrics/prometheus").await.text;
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("queen_dlq_unprotected{")).collect();
    assert_eq!(lines, [r#"queen_dlq_unprotected{queue="q"} 1"#], "the one that was filed before");
}

#[tokio::test]
async fn a_plan_that_says_so_goes_on_by_itself_once_its_canary_is_settled() {
    let (http, q) = (shared(), queue());
    dead_letters(http, &q, 3).await;
    let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": q}, "canary": 1, "autoWiden": true});
    let plan = http.post("/api/v1/dlq/plans", &plan).await.expect(201)["planId"].as_str().unwrap().to_owned();
    http.post_text(&format!("/api/v1/dlq/plans/{plan}/run"), "").await.expect(200);
    until(http, "", &plan, "canary_done").await;
    // Longer than one call of the runner.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let popped = http.pop(&q, "consumerGroup=g").await;
    http.ack(&popped[0], "completed").await;
    until(http, "", &plan, "done").await;
}

#[tokio::test]
async fn with_run_replays_off_the_server_leaves_plans_to_others() {
    let http = sidecar_with(&[("QUEEN_RUN_REPLAYS", "false")]).await;
    dead_letters(&http, "q", 2).await;
    let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": "q"}, "canary": 0, "rate": 1000});
    let plan = http.post("/api/v1/dlq/plans", &plan).await.expect(201)["planId"].as_str().unwrap().to_owned();
    http.post_text(&format!("/api/v1/dlq/plans/{plan}/run"), "").await.expect(200);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let status = http.get(&format!("/api/v1/dlq/plans/{plan}")).await.expect(200);
    assert_eq!((&status["state"], &status["moved"]), (&json!("running"), &json!(0)));
    http.sql().await.batch_execute("CALL queen.run_replays(10000)").await.unwrap();
    assert_eq!(http.get(&format!("/api/v1/dlq/plans/{plan}")).await.expect(200)["state"], "done");
}

#[tokio::test]
async fn seeded_secrets_are_in_no_answer_no_metric_and_no_log_line_when_redaction_is_on() {
    let database = shared_cluster().fresh_database().await;
    let http = Sidecar::start_with(shared_cluster(), &database, &[("QUEEN_LOG", "debug")]);
    http.configure(
        "orders",
        &json!({"deadLetterPayload": "redact", "redactionAllow": ["$.order"], "deadLetterTo": ".dead"}),
    )
    .await;
    http.configure("orders.dead", &json!({})).await;
    let seeds = [
        "sk-live_4eC39HqLyjWDarjtT1zdp7dc",
        "Bearer eyJhbGciOiJIUzI1NiJ9.c2VlZA.c2lnbmF0dXJl",
        "4111 1111 1111 1111",
        "postgresql://shop:hunter2seed@db.example/shop",
        "AKIAIOSFODNN7EXAMPLE",
        "password=correcthorseseed",
    ];
    let traces = "    at com.example.Shop.pay(Shop.java:42)\n".repeat(25_000);
    let payload = json!({"order": 7, "card": seeds[2], "note": seeds.join(" ")});
    let headers = json!({"authorization": seeds[1], "x-api-key": seeds[0], "traceparent": "00-1-2-01"});
    let body = json!({"items": [{"queue": "orders", "payload": payload, "headers": headers}]});
    http.post("/api/v1/push", &body).await.expect(201);
    let popped = http.pop("orders", "consumerGroup=pay&subscriptionMode=all").await;
    let ack = json!({
        "transactionId": popped[0]["transactionId"], "partitionId": popped[0]["partitionId"], "status": "dlq",
        "leaseId": popped[0]["leaseId"], "consumerGroup": "pay", "error": format!("{}\n{traces}{}", seeds.join(" "), seeds[0]),
    });
    assert_eq!(http.post("/api/v1/ack", &ack).await.expect(200)[0]["dlq"], true);

    let record = records(&http, "orders").await[0]["id"].as_str().unwrap().to_owned();
    let plan = json!({"reason": "r", "remediation": "c", "filter": {"queue": "orders"}, "dryRun": true});
    let mut told = vec![("plan".to_owned(), http.post("/api/v1/dlq/plans", &plan).await.text)];
    for path in [
        "/api/v1/dlq/list".to_owned(),
        format!("/api/v1/dlq/{record}"),
        "/api/v1/dlq/stats".to_owned(),
        "/api/v1/dlq/events".to_owned(),
        "/api/v1/dlq?queue=orders".to_owned(),
        "/api/v1/status".to_owned(),
        "/api/v1/analytics/dlq-signatures?queue=orders".to_owned(),
        "/metrics/prometheus".to_owned(),
        "/api/v1/pop/queue/orders.dead?autoAck=true".to_owned(),
    ] {
        let answer = http.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        told.push((path, answer.text));
    }
    told.push(("the log".to_owned(), http.log()));
    for (place, text) in told {
        for seed in seeds {
            // The parts that are secret, whatever stands around them.
            let secret = seed.trim_start_matches("Bearer ").trim_start_matches("password=");
            let secret = secret.trim_start_matches("postgresql://shop:").trim_end_matches("@db.example/shop");
            assert!(!text.contains(secret), "{place} has {secret}");
        }
        assert!(text.len() < 1_000_000, "{place} has the whole stack trace");
    }
}
