//! A database that answers and cannot be worked with is told apart, by `/health`, by what fails, and in the log.

use crate::sidecar;
use queen_tests::shared_cluster;
use queen_tests::sidecar::{Sidecar, Value, json};
use std::time::{Duration, Instant};

/// A server with this database and login.
fn server(database: &str, login: &str) -> Sidecar {
    let cluster = shared_cluster();
    let url = format!("host={} port={} user={login} dbname={database}", cluster.socket_dir().display(), cluster.port());
    Sidecar::start_with(cluster, database, &[("DATABASE_URL", &url)])
}

async fn push(http: &Sidecar) -> Value {
    http.post("/api/v1/push", &json!({"items": [{"queue": "q", "payload": 1}]})).await.expect(500)
}

/// Waits until the log has a line with these words, and answers how many it has.
async fn logged(http: &Sidecar, words: &[&str]) -> usize {
    let began = Instant::now();
    loop {
        let lines = http.log().lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        if lines > 0 {
            return lines;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "not logged: {words:?}\n{}", http.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_healthy_server_tells_its_versions() {
    let http = sidecar().await;
    let health = http.get("/health").await.expect(200);
    assert_eq!((&health["status"], &health["database"]), (&json!("healthy"), &json!("connected")));
    assert_eq!(health["version"], "1.6.0", "of the wire");
    let installed = "SELECT extversion FROM pg_extension WHERE extname = 'queen'";
    let installed: String = http.sql().await.query_one(installed, &[]).await.unwrap().get(0);
    assert_eq!(health["extension"], installed);
    assert!(health["server"].is_string() && health.get("error").is_none(), "{health}");
}

#[tokio::test]
async fn a_database_without_the_extension_is_told_until_it_has_it() {
    let cluster = shared_cluster();
    // The roles belong to the cluster, and come with its first extension.
    cluster.fresh_database().await;
    let database = tokio::task::spawn_blocking(|| cluster.empty_database()).await.unwrap();
    let http = Sidecar::start(cluster, &database);
    let sentence = "the database has no extension queen: CREATE EXTENSION queen";
    // At the start, before anybody asks.
    logged(&http, &["WARN", sentence]).await;
    let health = http.get("/health").await.expect(503);
    assert_eq!((&health["status"], &health["database"]), (&json!("unhealthy"), &json!("connected")));
    assert_eq!(health["error"], sentence);
    assert!(push(&http).await["error"].as_str().unwrap().starts_with(sentence));
    assert_eq!(http.get("/health").await.status, 503);
    assert_eq!(logged(&http, &["WARN", &format!("\"message\":\"{sentence}")]).await, 1, "once: {}", http.log());
    assert_eq!(logged(&http, &["\"request\"", "/api/v1/push", sentence]).await, 1);
    http.sql().await.batch_execute("CREATE EXTENSION queen").await.unwrap();
    assert_eq!(http.get("/health").await.expect(200)["status"], "healthy");
    http.push("q", &[json!(1)]).await;
}

#[tokio::test]
async fn a_login_without_the_role_is_told() {
    let cluster = shared_cluster();
    cluster.create_login("no_sidecar", &[]);
    let http = server(&cluster.fresh_database().await, "no_sidecar");
    let sentence = "the login lacks the role: GRANT queen_sidecar TO";
    logged(&http, &["WARN", sentence]).await;
    let health = http.get("/health").await.expect(503);
    assert!(health["error"].as_str().unwrap().starts_with(sentence), "{health}");
    assert_eq!(health["database"], "connected");
    assert!(push(&http).await["error"].as_str().unwrap().starts_with(sentence));
    http.sql().await.batch_execute("GRANT queen_sidecar TO no_sidecar").await.unwrap();
    assert_eq!(http.get("/health").await.status, 200);
}

#[tokio::test]
async fn why_there_is_no_connection_is_logged_once_and_without_the_password() {
    let cluster = shared_cluster();
    let url = "postgresql://ada:never-to-be-logged@127.0.0.1:1/shop";
    let http = Sidecar::start_with(cluster, "postgres", &[("DATABASE_URL", url)]);
    for _ in 0..3 {
        assert_eq!(push(&http).await["error"], "pool");
    }
    assert_eq!(http.get("/health").await.expect(503)["database"], "disconnected");
    logged(&http, &["WARN", "/api/v1/push", "\"error\":\"pool\""]).await;
    let why = ["no database connection", "127.0.0.1:1/shop", "onnection refused"];
    assert_eq!(logged(&http, &why).await, 1, "{}", http.log());
    _ = http.get("/api/v1/pop/queue/q?wait=true&timeout=500").await;
    logged(&http, &["cannot listen for commits", "127.0.0.1:1/shop", "onnection refused"]).await;
    assert!(!http.log().contains("never-to-be-logged"), "{}", http.log());
}

#[tokio::test]
async fn a_request_that_is_refused_is_logged_with_its_sentence_when_debugging() {
    let http = crate::sidecar_with(&[("QUEEN_LOG", "debug")]).await;
    http.post("/api/v1/push", &json!({"items": [{"queue": "q"}]})).await.expect(400);
    logged(&http, &["\"request\"", "\"status\":400", "payload is missing"]).await;
}
