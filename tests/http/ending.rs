//! How the server ends, and how it lives through the end of its database.

use crate::{data, raw, sidecar, sidecar_with};
use queen_tests::Cluster;
use queen_tests::sidecar::{Answer, Sidecar, json};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SIGTERM: i32 = 15;
const SIGINT: i32 = 2;
/// Time enough to stand in a row.
const PARKING: Duration = Duration::from_millis(300);

/// The same requests from a client that outlives the borrow of the server.
fn park(http: &Sidecar, queues: impl Iterator<Item = String>, ms: u64) -> JoinSet<(u16, String)> {
    let mut polls = JoinSet::new();
    for queue in queues {
        let request = http
            .request(queen_tests::sidecar::Method::GET, &format!("/api/v1/pop/queue/{queue}?wait=true&timeout={ms}"));
        polls.spawn(async move {
            let response = request.send().await.expect("an answer");
            let status = response.status().as_u16();
            (status, response.text().await.expect("a body"))
        });
    }
    polls
}

#[tokio::test]
async fn at_sigterm_polls_are_answered_at_once_and_work_under_way_is_finished() {
    let mut http = sidecar().await;
    let began = Instant::now();
    let mut polls = park(&http, (0..50).map(|n| format!("parked{n}")), 120_000);
    // A push that waits for a transaction in the same partition.
    let sql = http.sql().await;
    let held = r#"BEGIN; SELECT queen.push_batch('[{"queue": "q", "payload": 0}]')"#;
    sql.batch_execute(held).await.expect("a push");
    let mut push = raw::send(&http, &raw::post("/api/v1/push", r#"{"items":[{"queue":"q","payload":1}]}"#));
    tokio::time::sleep(PARKING).await;

    http.signal(SIGTERM);
    while let Some(answer) = polls.join_next().await {
        assert_eq!(answer.expect("a task"), (204, String::new()));
    }
    assert!(began.elapsed() < Duration::from_secs(60), "long before their own time");
    assert!(http.wait(Duration::ZERO).is_none(), "the push is under way");
    let address = http.url().strip_prefix("http://").unwrap().to_owned();
    assert!(TcpStream::connect(address).is_err(), "no new connections");

    sql.batch_execute("COMMIT").await.expect("a commit");
    let answer = tokio::task::spawn_blocking(move || raw::until_closed(&mut push)).await.unwrap().expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("\"queued\""), "{answer}");
    let status = http.wait(Duration::from_secs(20)).expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn at_sigint_it_ends_as_well_and_idle_connections_do_not_keep_it() {
    let mut http = sidecar().await;
    // One that has had its answer and stays, one that never asked, one in the middle of its head.
    let idle = raw::send(&http, &raw::get("/health"));
    let silent = raw::send(&http, "");
    let half = raw::send(&http, "GET /health HTTP/1.1\r\nho");
    tokio::time::sleep(PARKING).await;
    http.signal(SIGINT);
    let status = http.wait(Duration::from_secs(15)).expect("it ends, though they stay");
    assert_eq!(status.code(), Some(0));
    drop((idle, silent, half));
}

#[tokio::test]
async fn work_that_does_not_finish_is_cut_off_after_the_drain_time() {
    let mut http = sidecar_with(&[("QUEEN_DRAIN_SECONDS", "1")]).await;
    let sql = http.sql().await;
    let held = r#"BEGIN; SELECT queen.push_batch('[{"queue": "q", "payload": 0}]')"#;
    sql.batch_execute(held).await.expect("a push");
    let push = raw::send(&http, &raw::post("/api/v1/push", r#"{"items":[{"queue":"q","payload":1}]}"#));
    tokio::time::sleep(PARKING).await;
    http.signal(SIGTERM);
    assert!(http.wait(Duration::from_secs(20)).is_some(), "it ends, though the push does not");
    drop(push);
}

#[tokio::test]
async fn polls_live_through_a_restart_of_the_database_and_are_served_afterwards() {
    // Leaked for the server wants a cluster that stays; its guard takes it away when this process ends.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start_with(&[])));
    let database = cluster.fresh_database().await;
    let http = Sidecar::start(cluster, &database);
    http.push("warm", &[json!(1)]).await;
    let mut polls = park(&http, (0..20).map(|n| format!("q{n}")), 60_000);
    tokio::time::sleep(PARKING).await;
    let began = Instant::now();
    tokio::task::spawn_blocking(|| cluster.restart()).await.expect("a restart");
    assert!(polls.try_join_next().is_none(), "nobody was sent away");
    for n in 0..20 {
        let body = json!({"items": [{"queue": format!("q{n}"), "payload": n, "transactionId": "once"}]});
        // As the SDKs do: try again.
        let mut answer = http.post("/api/v1/push", &body).await;
        while answer.status >= 500 && began.elapsed() < Duration::from_secs(30) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            answer = http.post("/api/v1/push", &body).await;
        }
        answer.expect(201);
    }
    let mut served = 0;
    while let Some(answer) = polls.join_next().await {
        let (status, text) = answer.expect("a task");
        assert_eq!(status, 200, "{text}");
        served += 1;
    }
    assert!(began.elapsed() < Duration::from_secs(50), "by the pushes, not by their time");
    assert_eq!(served, 20);
    assert_eq!(http.get("/health").await.status, 200);
    stopped_database_is_told(cluster, &http).await;
}

/// Without a database: 5xx to those who push, nothing to those who wait, and health says so.
async fn stopped_database_is_told(cluster: &'static Cluster, http: &Sidecar) {
    tokio::task::spawn_blocking(|| cluster.stop_fast()).await.expect("a stop");
    let body = json!({"items": [{"queue": "q", "payload": 1}]});
    let (push, poll, health): (Answer, Answer, Answer) = tokio::join!(
        http.post("/api/v1/push", &body),
        http.get("/api/v1/pop/queue/q?wait=true&timeout=1000"),
        http.get("/health"),
    );
    assert_eq!((push.status, poll.status, health.status), (500, 204, 503), "{push:?}");
    assert_eq!(health.json()["status"], "unhealthy");
    tokio::task::spawn_blocking(|| cluster.restart()).await.expect("a start");
    let began = Instant::now();
    while http.post("/api/v1/push", &body).await.status != 201 {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(data(&http.pop("q", "").await), [1]);
}
