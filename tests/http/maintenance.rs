//! Push maintenance: what is answered `buffered` is delivered, once and in order, whatever happens meanwhile.

use crate::{data, sidecar};
use queen_tests::sidecar::{Method, Sidecar, Value, json};
use queen_tests::{Cluster, shared_cluster};
use std::time::{Duration, Instant};

async fn switch(http: &Sidecar, on: bool) {
    let answer = http.post("/api/v1/system/maintenance", &json!({ "enabled": on })).await.expect(200);
    assert_eq!(answer["maintenanceMode"], on);
}

async fn push(http: &Sidecar, n: i64) -> Value {
    let item = json!({"queue": "q", "payload": n, "transactionId": format!("t{n}")});
    http.post("/api/v1/push", &json!({"items": [item]})).await.expect(201)[0].clone()
}

/// Pops until so many are there.
async fn popped(http: &Sidecar, count: usize) -> Vec<i64> {
    let began = Instant::now();
    let mut numbers: Vec<i64> = Vec::new();
    while numbers.len() < count {
        assert!(began.elapsed() < Duration::from_secs(30), "{numbers:?}");
        let messages = http.pop("q", "autoAck=true&wait=true&timeout=1000").await;
        numbers.extend(messages.iter().map(|message| message["data"].as_i64().unwrap()));
    }
    numbers
}

#[tokio::test]
async fn what_is_buffered_outlives_the_server_and_comes_once_and_in_order() {
    let folder = std::env::temp_dir().join(format!("queen-http-buffer-{}", std::process::id()));
    let database = shared_cluster().fresh_database().await;
    let environment = [("FILE_BUFFER_DIR", folder.to_str().unwrap())];
    let mut http = Sidecar::start_with(shared_cluster(), &database, &environment);
    assert_eq!(push(&http, 0).await["status"], "queued");
    switch(&http, true).await;
    for n in 1..=20 {
        assert_eq!(push(&http, n).await["status"], "buffered");
        if n % 5 == 0 {
            http.signal(9);
            http.wait(Duration::from_secs(10)).expect("it is dead");
            drop(http);
            http = Sidecar::start_with(shared_cluster(), &database, &environment);
        }
    }
    // Known to the buffer, and to the database.
    assert_eq!(push(&http, 20).await["status"], "buffered");
    assert_eq!(push(&http, 0).await["status"], "buffered");
    assert_eq!(popped(&http, 1).await, [0], "what is buffered is not there yet, and pops go on");
    assert_eq!(http.get("/api/v1/pop/queue/q").await.status, 204);
    let state = http.get("/api/v1/system/maintenance").await.expect(200);
    assert_eq!((&state["maintenanceMode"], &state["bufferHealthy"]), (&json!(true), &json!(true)));
    assert!(state["bufferedMessages"].as_i64().unwrap() >= 20, "{state}");
    switch(&http, false).await;
    assert_eq!(popped(&http, 20).await, (1..=20).collect::<Vec<_>>());
    assert_eq!(data(&http.pop("q", "").await).len(), 0);
    drop(http);
    _ = std::fs::remove_dir_all(&folder);
}

#[tokio::test]
async fn nothing_overtakes_the_buffer() {
    let http = sidecar().await;
    for n in 0..60 {
        if n % 10 == 0 {
            switch(&http, n % 20 == 0).await;
        }
        let status = push(&http, n).await["status"].clone();
        assert!(status == "queued" || status == "buffered", "{status}");
    }
    assert_eq!(popped(&http, 60).await, (0..60).collect::<Vec<_>>());
}

#[tokio::test]
async fn while_it_is_on_pushes_need_no_database() {
    // Leaked for the server wants a cluster that stays; its guard takes it away when this process ends.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start()));
    let http = Sidecar::start(cluster, &cluster.fresh_database().await);
    push(&http, 0).await;
    switch(&http, true).await;
    tokio::task::spawn_blocking(|| cluster.stop_immediate()).await.unwrap();
    for n in 1..=5 {
        assert_eq!(push(&http, n).await["status"], "buffered");
    }
    // Replay waits for the database as long as it takes.
    switch(&http, false).await;
    assert_eq!(push(&http, 6).await["status"], "buffered");
    tokio::task::spawn_blocking(|| cluster.restart()).await.unwrap();
    assert_eq!(popped(&http, 7).await, (0..=6).collect::<Vec<_>>());
}

#[tokio::test]
async fn pop_maintenance_delivers_nothing_and_takes_nothing() {
    let http = sidecar().await;
    push(&http, 1).await;
    let path = "/api/v1/system/maintenance/pop";
    assert_eq!(http.post(path, &json!({"enabled": true})).await.expect(200)["popMaintenanceMode"], true);
    assert_eq!(http.get("/api/v1/pop/queue/q").await.status, 204);
    let paused = http.get("/api/v1/pop/queue/q?consumerGroup=g&conflation=true").await.expect(200);
    assert_eq!(paused, json!({"messages": [], "paused": true, "conflation": true}));
    assert_eq!(push(&http, 2).await["status"], "queued");
    assert_eq!(http.post(path, &json!({"enabled": false})).await.expect(200)["popMaintenanceMode"], false);
    let popped = http.pop("q", "").await;
    assert_eq!((data(&popped), &popped[0]["deliveryAttempt"]), (vec![&json!(1), &json!(2)], &json!(1)));
    http.post(path, &json!({"enabled": "yes"})).await.expect(400);
}

#[tokio::test]
async fn who_waits_when_pop_maintenance_begins_is_sent_away() {
    let http = sidecar().await;
    let waiting = |params: &str| {
        let path = format!("/api/v1/pop/queue/q?wait=true&timeout=60000&{params}");
        let request = http.request(Method::GET, &path);
        tokio::spawn(async move { request.send().await.expect("an answer") })
    };
    let (plain, conflating) = (waiting(""), waiting("consumerGroup=g&conflation=true"));
    while http.get("/metrics/prometheus").await.text.lines().all(|l| !(l.contains("parked") && l.ends_with(" 2"))) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    http.post("/api/v1/system/maintenance/pop", &json!({"enabled": true})).await.expect(200);
    push(&http, 1).await;
    assert_eq!(plain.await.unwrap().status(), 204);
    let paused: Value = serde_json::from_str(&conflating.await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(paused, json!({"messages": [], "paused": true, "conflation": true}));
    http.post("/api/v1/system/maintenance/pop", &json!({"enabled": false})).await.expect(200);
    assert_eq!(data(&http.pop("q", "").await), [&json!(1)]);
}
