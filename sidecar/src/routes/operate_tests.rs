//! Maintenance, metrics and analytics by their routes, with a database that nobody reaches.

use super::router;
use crate::config::Config;
use crate::server;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use clap::Parser;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::PathBuf;
use tower::ServiceExt;

#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    config: Config,
}

/// A server and the folder of its buffer.
struct Server {
    router: Router,
    folder: PathBuf,
}

impl Server {
    fn new() -> Server {
        let folder = std::env::temp_dir().join(format!("queen-operate-{}", uuid::Uuid::new_v4()));
        let settings = Settings::parse_from([
            "queen",
            "--database-url",
            "postgresql://nobody@127.0.0.1:1/none",
            "--buffer-dir",
            &folder.display().to_string(),
        ]);
        Server { router: router(server::app(settings.config).unwrap()), folder }
    }

    async fn text(&self, method: &str, path: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn json(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.text(method, path, body).await;
        (status.as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.folder);
        _ = std::fs::remove_file(&self.folder);
    }
}

const SWITCH: &str = "/api/v1/system/maintenance";

#[tokio::test]
async fn while_push_maintenance_is_on_pushes_are_buffered_without_a_database() {
    let server = Server::new();
    let (status, body) = server.json("POST", SWITCH, r#"{"enabled":true}"#).await;
    assert_eq!((status, &body["maintenanceMode"], &body["bufferHealthy"]), (200, &json!(true), &json!(true)));
    let items = r#"{"items":[{"queue":"q","payload":1},{"queue":"q","payload":2,"transactionId":"t"},{"queue":"q","payload":3,"transactionId":"t"}]}"#;
    let (status, body) = server.json("POST", "/api/v1/push", items).await;
    assert_eq!(status, 201);
    let statuses: Vec<_> = body.as_array().unwrap().iter().map(|item| item["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["buffered", "buffered", "duplicate"]);
    assert_eq!(body[0]["message_id"], body[0]["transaction_id"]);
    assert_eq!(body[1]["message_id"], body[2]["message_id"]);
    let (_, body) = server.json("GET", SWITCH, "").await;
    assert_eq!((&body["bufferedMessages"], &body["bufferStats"]["dbHealthy"]), (&json!(3), &json!(false)));
    // Off again, but not drained: nothing may overtake what waits.
    server.json("POST", SWITCH, r#"{"enabled":false}"#).await;
    let (status, body) = server.json("POST", "/api/v1/push", r#"{"items":[{"queue":"q","payload":4}]}"#).await;
    assert_eq!((status, &body[0]["status"]), (201, &json!("buffered")));
    let (_, body) = server.json("GET", "/api/v1/status/buffers", "").await;
    assert_eq!(body, json!({ "pending": 4, "failed": 0, "dbHealthy": false, "worker": 0 }));
}

#[tokio::test]
async fn what_is_no_push_is_refused_and_not_buffered() {
    let server = Server::new();
    server.json("POST", SWITCH, r#"{"enabled":true}"#).await;
    let (status, _) = server.json("POST", "/api/v1/push", r#"{"items":[{"queue":"q"}]}"#).await;
    assert_eq!(status, 400);
    let (status, body) = server.json("POST", "/api/v1/push", r#"{"items":[]}"#).await;
    assert_eq!((status, body), (201, json!([])));
    assert_eq!(server.json("GET", SWITCH, "").await.1["bufferedMessages"], 0);
}

#[tokio::test]
async fn the_switches_take_a_boolean_only() {
    let server = Server::new();
    for body in ["", "{}", r#"{"enabled":"true"}"#, r#"{"enabled":null}"#, "[]"] {
        for path in [SWITCH, "/api/v1/system/maintenance/pop"] {
            let answer = server.json("POST", path, body).await;
            assert_eq!(answer, (400, json!({ "error": "enabled (boolean) is required" })), "{body}");
        }
    }
}

#[tokio::test]
async fn while_pop_maintenance_is_on_pops_find_nothing() {
    let server = Server::new();
    let path = "/api/v1/system/maintenance/pop";
    assert_eq!(server.json("GET", path, "").await.1["popMaintenanceMode"], false);
    let (status, body) = server.json("POST", path, r#"{"enabled":true}"#).await;
    assert_eq!((status, &body["popMaintenanceMode"]), (200, &json!(true)));
    assert_eq!(server.text("GET", "/api/v1/pop/queue/q", "").await, (StatusCode::NO_CONTENT, String::new()));
    let (_, body) = server.json("GET", "/api/v1/system/shared-state", "").await;
    assert_eq!((&body["maintenance_mode"], &body["pop_maintenance_mode"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn without_a_folder_switching_on_is_an_error_and_off_is_not() {
    let server = Server::new();
    std::fs::remove_dir_all(&server.folder).unwrap();
    let other = Server::new();
    drop(server);
    let blocked = {
        let folder = other.folder.join("file");
        std::fs::write(&folder, "").unwrap();
        let url = "postgresql://nobody@127.0.0.1:1/none";
        let folder_text = folder.display().to_string();
        let settings = Settings::parse_from(["queen", "--database-url", url, "--buffer-dir", &folder_text]);
        Server { router: router(server::app(settings.config).unwrap()), folder }
    };
    let (status, body) = blocked.json("POST", SWITCH, r#"{"enabled":true}"#).await;
    assert_eq!((status, &body["bufferHealthy"]), (500, &json!(false)));
    assert!(body["error"].as_str().unwrap().contains("folder"), "{body}");
    assert_eq!(blocked.json("POST", SWITCH, r#"{"enabled":false}"#).await.0, 200);
    assert_eq!(blocked.json("GET", SWITCH, "").await.1["bufferHealthy"], false);
}

#[tokio::test]
async fn the_other_system_routes_answer_as_a_single_broker() {
    let server = Server::new();
    let notified = server.json("POST", "/internal/api/notify", r#"{"queue":"q","partition":"p"}"#).await;
    assert_eq!(notified, (200, json!({ "status": "ok" })));
    assert_eq!(server.json("POST", "/internal/api/notify", "{}").await.0, 400);
    for path in ["/internal/api/shared-state/stats", "/internal/api/inter-instance/stats"] {
        let (status, body) = server.json("GET", path, "").await;
        assert_eq!((status, &body["enabled"], &body["reason"]), (200, &json!(false), &json!("no_peers")));
    }
    let (_, me) = server.json("GET", "/auth/me", "").await;
    assert_eq!((&me["user_id"], &me["role"]), (&json!("standalone"), &json!("admin")));
    assert_eq!(server.text("GET", "/auth/login", "").await.0, StatusCode::SEE_OTHER);
    assert_eq!(server.json("POST", "/auth/logout", "").await, (200, json!({ "ok": true })));
    for path in ["/api/v1/system/kv-timers", "/api/v1/system/ephemeral"] {
        assert_eq!(server.json("GET", path, "").await.1["code"], "no_such_route");
    }
}

/// Families of a text in the format, each with the number of its values.
fn families(text: &str) -> Vec<(String, usize)> {
    let mut families: Vec<(String, usize)> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap().to_owned();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap().to_owned();
            assert!(["counter", "gauge"].contains(&kind.as_str()), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(families.iter().all(|(other, _)| *other != name), "{name} twice");
            families.push((name, 0));
            continue;
        }
        let (name, count) = families.last_mut().unwrap();
        let rest = line.strip_prefix(name.as_str()).unwrap_or_else(|| panic!("{line} is not of {name}"));
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once("} ").unwrap().1,
            None => rest.strip_prefix(' ').unwrap(),
        };
        assert!(value.parse::<f64>().is_ok(), "{line}");
        *count += 1;
    }
    families
}

#[tokio::test]
async fn the_exposition_can_be_parsed_and_is_there_without_a_database() {
    let server = Server::new();
    let (status, text) = server.text("GET", "/metrics/prometheus", "").await;
    assert_eq!(status, StatusCode::OK);
    let families = families(&text);
    for name in [
        "queen_uptime_seconds",
        "queen_process_push_requests_total",
        "queen_pop_wildcard_total",
        "queen_parked_long_polls",
        "queen_batches_fired_total",
        "queen_fusion_items_per_batch",
        "queen_batch_rtt_milliseconds",
        "queen_db_pool_size",
        "queen_maintenance_mode_enabled",
        "queen_file_buffer_pending",
    ] {
        assert!(families.iter().any(|(family, _)| family == name), "{name}");
    }
    assert!(families.contains(&("queen_batches_fired_total".to_owned(), 3)));
    assert!(!families.iter().any(|(family, _)| family.starts_with("queen_dlq_")), "not known");
    assert!(text.lines().any(|line| line == "queen_database_up 0"), "{text}");
}

#[tokio::test]
async fn what_sdks_read_from_the_operational_routes_is_there() {
    let server = Server::new();
    let pinned = [
        ("/metrics", vec!["cpu", "memory", "database", "messages", "requests", "uptime"]),
        ("/api/v1/analytics/system-metrics", vec!["timeRange", "replicas", "bucketMinutes", "pointCount"]),
        (
            "/api/v1/analytics/worker-metrics",
            vec!["timeRange", "bucketMinutes", "pointCount", "summary", "timeSeries", "workers", "queues"],
        ),
        ("/api/v1/analytics/queue-ops", vec!["timeRange", "bucketMinutes", "series", "queues"]),
        ("/api/v1/analytics/queue-parked-replicas", vec!["timeRange", "bucketMinutes", "series", "replicas"]),
        ("/api/v1/analytics/retention?groupBy=queue", vec!["timeRange", "bucketMinutes", "series", "totals", "rows"]),
        ("/api/v1/status/analytics?interval=nonsense", vec!["dataPoints", "interval", "from", "to"]),
    ];
    for (path, keys) in pinned {
        let (status, body) = server.json("GET", path, "").await;
        assert_eq!(status, 200, "{path}");
        for key in keys {
            assert!(body.get(key).is_some(), "{path}: {key}");
        }
    }
    assert_eq!(server.json("GET", "/api/v1/analytics/queue-lag", "").await, (200, json!([])));
    let wrong = [
        ("/api/v1/analytics/dlq-signatures", "queue required"),
        ("/api/v1/analytics/workload?groupBy=x", "bad groupBy"),
        ("/api/v1/analytics/retention?groupBy=x", "bad groupBy"),
    ];
    for (path, error) in wrong {
        assert_eq!(server.json("GET", path, "").await, (400, json!({ "error": error })), "{path}");
    }
}
