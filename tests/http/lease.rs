//! `POST /api/v1/lease/{leaseId}/extend`

use crate::{data, queue, shared};
use queen_tests::sidecar::{Method, Sidecar, Value, json};

async fn leased(http: &Sidecar, params: &str) -> (String, Value) {
    let q = queue();
    http.push(&q, &[json!(1)]).await;
    let popped = http.pop(&q, params).await;
    (q, popped[0].clone())
}

/// Seconds from now until the lease ends, as the database has it.
async fn seconds_left(http: &Sidecar, lease: &str) -> f64 {
    let sql = "SELECT extract(epoch FROM max(expires_at) - clock_timestamp())::float8 FROM queen.cursor \
               WHERE lease_id = $1::text::uuid";
    http.sql().await.query_one(sql, &[&lease]).await.expect("a lease").get(0)
}

#[tokio::test]
async fn a_body_that_says_nothing_means_sixty_seconds() {
    let http = shared();
    for body in ["", " ", "{}", "null", "{\"seconds\":null}", "{\"seconds\":\"x\"}", "not json", "[]"] {
        let (_, message) = leased(http, "leaseSeconds=2").await;
        let lease = message["leaseId"].as_str().unwrap();
        let answer = http.post_text(&format!("/api/v1/lease/{lease}/extend"), body).await.expect(200);
        assert_eq!((&answer["success"], &answer["renewed"]), (&json!(true), &json!(1)), "{body}");
        assert_eq!(answer["leaseId"], lease);
        let left = seconds_left(http, lease).await;
        assert!((30.0..=60.0).contains(&left), "{body}: {left}");
    }
    let (_, message) = leased(http, "leaseSeconds=2").await;
    let path = format!("/api/v1/lease/{}/extend", message["leaseId"].as_str().unwrap());
    assert_eq!(http.send(http.request(Method::POST, &path)).await.expect(200)["success"], true, "no body at all");
}

#[tokio::test]
async fn the_new_end_is_told_three_times_and_never_earlier_than_the_old() {
    let http = shared();
    let (_, message) = leased(http, "leaseSeconds=500").await;
    let lease = message["leaseId"].as_str().unwrap();
    let path = format!("/api/v1/lease/{lease}/extend");
    let before = seconds_left(http, lease).await;
    let answer = http.post(&path, &json!({"seconds": 5})).await.expect(200);
    assert!(seconds_left(http, lease).await > before - 60.0, "not shortened");
    let text = answer["newExpiresAt"].as_str().unwrap();
    assert!(text.ends_with('Z') && text.len() == "2026-07-30T12:34:56.000000Z".len(), "{text}");
    assert_eq!((&answer["expiresAt"], &answer["lease_expires_at"]), (&answer["newExpiresAt"], &answer["newExpiresAt"]));
    http.post(&path, &json!({"seconds": 3000})).await.expect(200);
    assert!(seconds_left(http, lease).await > 2000.0);
    // Less than a second is a second, and far too long is the limit.
    for seconds in ["0", "-5", "99999999999"] {
        let answer = http.post_text(&path, &format!("{{\"seconds\":{seconds}}}")).await.expect(200);
        assert_eq!(answer["success"], true, "{seconds}");
    }
    assert!(seconds_left(http, lease).await <= 604_800.0);
}

#[tokio::test]
async fn all_partitions_of_a_lease_are_renewed() {
    let (http, q) = (shared(), queue());
    let items: Vec<_> = (0..3).map(|n| json!({"queue": q, "partition": n.to_string(), "payload": n})).collect();
    http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    let popped = http.pop(&q, "partitions=3").await;
    let path = format!("/api/v1/lease/{}/extend", popped[0]["leaseId"].as_str().unwrap());
    assert_eq!(http.post(&path, &json!({})).await.expect(200)["renewed"], 3);
    http.ack(&popped[0], "completed").await;
    assert_eq!(http.post(&path, &json!({})).await.expect(200)["renewed"], 2);
}

#[tokio::test]
async fn a_lease_that_has_ended_is_not_renewed() {
    let http = shared();
    let (q, message) = leased(http, "").await;
    let path = format!("/api/v1/lease/{}/extend", message["leaseId"].as_str().unwrap());
    http.expire(&message["leaseId"]).await;
    let answer = http.post(&path, &json!({})).await.expect(200);
    assert_eq!((&answer["success"], &answer["newExpiresAt"]), (&json!(false), &Value::Null));
    assert_eq!(data(&http.pop(&q, "").await), [1]);
    let (_, message) = leased(http, "").await;
    let path = format!("/api/v1/lease/{}/extend", message["leaseId"].as_str().unwrap());
    http.ack(&message, "completed").await;
    assert_eq!(http.post(&path, &json!({})).await.expect(200)["success"], false);
}

#[tokio::test]
async fn the_length_of_a_lease_is_the_pops_else_the_queues() {
    let (http, q) = (shared(), queue());
    http.configure(&q, &json!({"leaseTime": 1000})).await;
    for (params, seconds) in
        [("", 1000.0), ("leaseSeconds=0", 1000.0), ("leaseSeconds=-1", 1000.0), ("leaseSeconds=30", 30.0)]
    {
        http.push(&q, &[json!(1)]).await;
        let popped = http.pop(&q, params).await;
        let left = seconds_left(http, popped[0]["leaseId"].as_str().unwrap()).await;
        assert!(left <= seconds && left > seconds - 25.0, "{params}: {left}");
        http.ack(&popped[0], "completed").await;
    }
}
