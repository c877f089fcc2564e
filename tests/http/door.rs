//! What every request passes: routes, methods, bodies, headers; clients that stall; and what is not logged.

use crate::{data, queue, raw, shared, sidecar_with};
use queen_tests::shared_cluster;
use queen_tests::sidecar::{Method, Sidecar, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[tokio::test]
async fn routes_that_there_are_not_say_so() {
    let http = shared();
    for (method, path) in [
        // Families of the wire that are left out.
        ("POST", "/api/v1/kv"),
        ("GET", "/api/v1/kv/ns/a/b"),
        ("PUT", "/api/v1/kv/ns/key"),
        ("DELETE", "/api/v1/kv/ns/key"),
        ("GET", "/api/v1/resources/kv/namespaces"),
        ("POST", "/api/v1/resources/kv/list"),
        ("POST", "/api/v1/timers"),
        ("GET", "/api/v1/timers/q"),
        ("DELETE", "/api/v1/timers/q/some/key"),
        ("POST", "/api/v1/ephemeral/push"),
        ("GET", "/api/v1/ephemeral/pop"),
        ("POST", "/api/v1/ephemeral/ack"),
        ("POST", "/api/v1/ephemeral/configure"),
        ("GET", "/api/v1/ephemeral/queues"),
        ("DELETE", "/api/v1/ephemeral/queue/q"),
        ("POST", "/streams/v1/queries"),
        ("POST", "/streams/v1/state/get"),
        ("POST", "/streams/v1/cycle"),
        ("POST", "/api/v1/fetch"),
        ("POST", "/api/v1/partitions/changed"),
        ("GET", "/api/v1/system/kv-timers"),
        ("POST", "/api/v1/system/ephemeral"),
        // What SDKs call though no server has it.
        ("DELETE", "/api/v1/queues/q/clear"),
        ("GET", "/api/v1/resources/partitions"),
        ("POST", "/api/v1/messages/p/t/dlq"),
        ("GET", "/api/v1/messages/t"),
        ("POST", "/api/v1/lease/renew"),
        ("POST", "/api/v1/lease/l/renew"),
        ("GET", "/api/v1/locks"),
        // And what nobody does.
        ("GET", "/api/v1/nope"),
        ("GET", "/api"),
        ("GET", "/api/v1/"),
        ("GET", "/api/v1/pop/queue/"),
        ("GET", "/api/v1/pop/queue/q/partition"),
        ("GET", "/api/v1/pop/queue/q/partition/p/more"),
        ("POST", "/api/v1/push/"),
        ("POST", "/api/v1/ack/many"),
        ("POST", "/nope"),
        ("BREW", "/api/v1/coffee"),
    ] {
        let answer = http.send(http.request(method.parse().unwrap(), path)).await;
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
        assert_eq!(answer.headers["content-type"], "application/json", "{method} {path}");
        assert_eq!(answer.json(), json!({"error": "Not Found", "code": "no_such_route"}), "{method} {path}");
    }
}

#[tokio::test]
async fn another_method_on_a_route_is_405() {
    let http = shared();
    for (method, path) in [
        ("GET", "/api/v1/push"),
        ("OPTIONS", "/api/v1/push"),
        ("DELETE", "/api/v1/ack"),
        ("POST", "/api/v1/pop"),
        ("POST", "/api/v1/pop/queue/q"),
        ("PUT", "/api/v1/configure"),
        ("GET", "/api/v1/lease/l/extend"),
        ("POST", "/health"),
    ] {
        let answer = http.send(http.request(method.parse().unwrap(), path)).await;
        let allowed = answer.headers["allow"].to_str().unwrap().replace(',', " or ");
        assert_eq!(answer.expect(405), json!({ "error": format!("use {allowed}") }), "{method} {path}");
    }
}

// Where HEAD is GET without the body, it would take messages and show them to nobody.
#[tokio::test]
async fn head_takes_no_messages() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    for path in [
        format!("/api/v1/pop/queue/{q}?autoAck=true"),
        format!("/api/v1/pop/queue/{q}/partition/Default"),
        "/api/v1/pop?namespace=n".to_owned(),
    ] {
        let answer = http.send(http.request(Method::HEAD, &path)).await;
        assert_eq!((answer.status, &answer.headers["allow"]), (405, &"GET".parse().unwrap()), "{path}");
    }
    assert_eq!(http.pop(&q, "").await[0]["deliveryAttempt"], 1);
    assert_eq!(http.send(http.request(Method::HEAD, "/health")).await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_413_and_nothing_is_stored() {
    let http = sidecar_with(&[("QUEEN_MAX_BODY_BYTES", "1000")]).await;
    let body = |n: usize| {
        let frame = r#"{"items":[{"queue":"q","payload":""}]}"#;
        frame.replace("\"\"", &format!("\"{}\"", "x".repeat(n - frame.len())))
    };
    assert_eq!(http.post_text("/api/v1/push", &body(1000)).await.status, 201);
    for path in ["/api/v1/push", "/api/v1/ack", "/api/v1/transaction", "/api/v1/configure"] {
        assert_eq!(http.post_text(path, &body(1001)).await.status, 413, "{path}");
    }
    // Its length is not told before.
    let mut chunked = raw::send(
        &http,
        "POST /api/v1/push HTTP/1.1\r\nhost: queen\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    for part in body(2000).as_bytes().chunks(500) {
        _ = write!(chunked, "{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part));
    }
    _ = chunked.write_all(b"0\r\n\r\n");
    let answer =
        tokio::task::spawn_blocking(move || raw::until_closed(&mut chunked)).await.unwrap().expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // A length that cannot be is answered, not awaited.
    let huge = "POST /api/v1/push HTTP/1.1\r\nhost: queen\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n";
    let mut huge = raw::send(&http, huge);
    let answer = tokio::task::spawn_blocking(move || raw::until_closed(&mut huge)).await.unwrap().expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(http.pop("q", "").await.len(), 1);
}

#[tokio::test]
async fn any_content_type_is_json() {
    let (http, q) = (shared(), queue());
    let body = json!({"items": [{"queue": q, "payload": 1}]}).to_string();
    for kind in [
        "application/json; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/xml",
        "",
        "nonsense",
    ] {
        let request = http.request(Method::POST, "/api/v1/push").header("content-type", kind).body(body.clone());
        assert_eq!(http.send(request).await.status, 201, "{kind}");
    }
    assert_eq!(http.pop(&q, "").await.len(), 6);
}

#[tokio::test]
async fn a_body_that_is_missing_or_of_another_kind_is_named() {
    let http = shared();
    for path in ["push", "ack", "ack/batch", "transaction", "configure", "traces"] {
        let answer = http.post_text(&format!("/api/v1/{path}"), "").await.expect(400);
        assert_eq!(answer["error"], "bad body: the body is empty", "{path}");
    }
    for (path, words) in [
        ("push", "bad body: the body must be an object {\"items\": […]}"),
        ("ack/batch", "bad body: the body must be an object {\"acknowledgments\": […]}"),
        ("ack", "bad body: the body must be an object"),
        ("configure", "bad body: the body must be an object"),
    ] {
        assert_eq!(http.post_text(&format!("/api/v1/{path}"), "[{}]").await.expect(400)["error"], words, "{path}");
    }
}

#[tokio::test]
async fn a_request_id_is_echoed_or_made() {
    let http = shared();
    for path in ["/health", "/api/v1/nope", "/api/v1/pop/queue/a%01", "/api/v1/pop/queue/nothing-here"] {
        let answer = http.send(http.request(Method::GET, path).header("x-request-id", "mine-42")).await;
        assert_eq!(answer.headers["x-request-id"], "mine-42", "{path}");
        let made = http.get(path).await.headers["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(made.len(), 36, "{path}");
        assert_ne!(http.get(path).await.headers["x-request-id"], made.as_str(), "{path}");
    }
    for strange in ["", "two words", &"x".repeat(129), "ü"] {
        let answer = http.send(http.request(Method::GET, "/health").header("x-request-id", strange)).await;
        assert_eq!(answer.headers["x-request-id"].len(), 36, "{strange}");
    }
}

#[tokio::test]
async fn there_is_no_cors_and_no_compression() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!("x".repeat(10_000))]).await;
    for (method, path) in
        [(Method::GET, format!("/api/v1/pop/queue/{q}")), (Method::OPTIONS, "/api/v1/push".to_owned())]
    {
        let request = http
            .request(method, &path)
            .header("origin", "https://elsewhere.example")
            .header("access-control-request-method", "POST")
            .header("accept-encoding", "gzip, br, zstd");
        let answer = http.send(request).await;
        let names: Vec<&str> = answer.headers.keys().map(|name| name.as_str()).collect();
        assert!(!names.iter().any(|name| name.starts_with("access-control-")), "{names:?}");
        assert!(!names.contains(&"content-encoding"), "{names:?}");
    }
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let (http, q) = (shared(), queue());
    let body = json!({"items": [{"queue": q, "payload": 1}]}).to_string();
    let one = format!("POST /api/v1/push HTTP/1.1\r\nhost: queen\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let last = raw::get(&format!("/api/v1/pop/queue/{q}")).replace("host:", "connection: close\r\nhost:");
    // Sent at once, answered in order.
    let mut stream = raw::send(http, &format!("{one}{one}{one}{last}"));
    let answers = tokio::task::spawn_blocking(move || raw::until_closed(&mut stream)).await.unwrap().expect("answers");
    assert_eq!(answers.matches("HTTP/1.1 201 ").count(), 3, "{answers}");
    assert_eq!(answers.matches("\"data\":1}").count(), 3, "{answers}");
}

#[tokio::test]
async fn what_is_no_http_harms_nobody() {
    let http = shared();
    for bytes in [
        "\0\0\0\0\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /api/v1/push HTTP/1.1\r\nhost: q\r\ncontent-length: -1\r\n\r\n",
        "POST /api/v1/push HTTP/1.1\r\nhost: q\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        "POST /api/v1/push HTTP/1.1\r\nhost: q\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "GET /%ff%fe HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n",
        "GET /api/v1/pop/queue/%ff HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n",
        "GET /api/v1/pop/queue/%zz?batch=%zz HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n",
    ] {
        let mut stream = raw::send(http, bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = tokio::task::spawn_blocking(move || raw::until_closed(&mut stream)).await.unwrap();
        let answer = answer.unwrap_or_else(|| panic!("{bytes:?} is not answered, and not ended"));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: q\r\n\r\n", "x".repeat(1_000_000));
    let mut stream = TcpStream::connect(http.url().strip_prefix("http://").unwrap()).unwrap();
    _ = stream.write_all(long.as_bytes());
    drop(stream);
    assert_eq!(http.get("/health").await.status, 200);
}

// It lies in memory before anybody knows whose it is.
#[tokio::test]
async fn a_long_head_of_a_request_is_not_read_to_its_end() {
    let http = shared();
    for (bytes, served) in [(50_000, true), (200_000, false)] {
        let head = format!("GET /health HTTP/1.1\r\nhost: q\r\nconnection: close\r\nx: {}\r\n\r\n", "x".repeat(bytes));
        let mut stream = raw::send(http, "");
        // It may be ended halfway.
        _ = stream.write_all(head.as_bytes());
        let answer = tokio::task::spawn_blocking(move || raw::until_closed(&mut stream)).await.unwrap();
        assert_eq!(answer.unwrap_or_default().starts_with("HTTP/1.1 200"), served, "{bytes}");
    }
}

#[tokio::test]
async fn a_thousand_connections_that_stall_hinder_nobody() {
    let (http, q) = (shared(), queue());
    let mut stalled = Vec::new();
    for n in 0..1000 {
        stalled.push(raw::send(
            http,
            [
                "",
                "GET /health HTTP/1.1\r\nho",
                "POST /api/v1/push HTTP/1.1\r\nhost: q\r\ncontent-length: 1000\r\n\r\n{\"items\":[",
                "GET /api/v1/pop/queue/stalled?wait=true&timeout=60000 HTTP/1.1\r\nhost: q\r\n\r\n",
            ][n % 4],
        ));
    }
    for n in 0..20 {
        http.push(&q, &[json!(n)]).await;
        let popped = http.pop(&q, "wait=true&timeout=20000").await;
        assert_eq!(data(&popped), [n]);
        assert_eq!(http.ack(&popped[0], "completed").await["success"], true);
    }
    drop(stalled);
}

/// Whether the server ends this connection, with or without a word, before the client does.
async fn is_ended(mut stream: TcpStream) -> bool {
    tokio::task::spawn_blocking(move || raw::until_closed(&mut stream).is_some()).await.unwrap()
}

#[tokio::test]
async fn who_stalls_is_dropped_and_who_waits_is_not() {
    let http = sidecar_with(&[("QUEEN_CLIENT_TIMEOUT_SECONDS", "1")]).await;
    let began = Instant::now();
    let head = raw::send(&http, "GET /health HTTP/1.1\r\nhost: qu");
    let body = raw::send(
        &http,
        "POST /api/v1/push HTTP/1.1\r\nhost: q\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{\"items\"",
    );
    let idle = raw::send(&http, &raw::get("/health"));
    let silent = raw::send(&http, "");
    let waiting = http.get("/api/v1/pop/queue/q?wait=true&timeout=3000");
    let (head, body, idle, silent, waiting) =
        tokio::join!(is_ended(head), is_ended(body), is_ended(idle), is_ended(silent), waiting);
    assert_eq!((head, body, idle, silent), (true, true, true, true));
    assert_eq!(waiting.status, 204);
    assert!(began.elapsed() >= Duration::from_secs(3));
}

#[tokio::test]
async fn who_sends_slowly_but_steadily_is_served() {
    let http = sidecar_with(&[("QUEEN_CLIENT_TIMEOUT_SECONDS", "1")]).await;
    let body = r#"{"items":[{"queue":"q","payload":"slow"}]}"#;
    let mut stream =
        raw::send(&http, &raw::post("/api/v1/push", "").replace("length: 0", &format!("length: {}", body.len())));
    for part in body.as_bytes().chunks(10) {
        tokio::time::sleep(Duration::from_millis(400)).await;
        stream.write_all(part).unwrap();
    }
    let answer = tokio::task::spawn_blocking(move || raw::until_closed(&mut stream)).await.unwrap().expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

// A client that does not read its answer keeps its connection, and nothing of anybody else's.
#[tokio::test]
async fn who_does_not_read_hinders_nobody() {
    let (http, q) = (shared(), queue());
    let payload = json!("x".repeat(1 << 20));
    for _ in 0..8 {
        http.push(&q, std::slice::from_ref(&payload)).await;
    }
    let mut deaf: Vec<TcpStream> = (0..20)
        .map(|n| raw::send(http, &raw::get(&format!("/api/v1/pop/queue/{q}?consumerGroup=g{n}&subscriptionMode=all"))))
        .collect();
    let other = queue();
    for n in 0..10 {
        http.push(&other, &[json!(n)]).await;
        assert_eq!(data(&http.pop(&other, "autoAck=true").await), [n]);
    }
    // And the answer is there when they do read.
    let mut first = [0; 15];
    deaf[0].read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn payloads_and_error_texts_are_never_logged() {
    const MARKER: &str = "never-to-be-logged";
    let http: Sidecar = sidecar_with(&[("QUEEN_LOG", "debug")]).await;
    http.push("q", &[json!(MARKER), json!({ MARKER: MARKER })]).await;
    let popped = http.pop("q", "").await;
    for status in ["failed", "dlq", MARKER] {
        let body = json!({
            "transactionId": popped[0]["transactionId"], "partitionId": popped[0]["partitionId"],
            "leaseId": popped[0]["leaseId"], "status": status, "error": MARKER,
        });
        http.post("/api/v1/ack", &body).await.expect(200);
    }
    // What is refused, here and in the database.
    for path in ["/api/v1/push", "/api/v1/ack", "/api/v1/ack/batch", "/api/v1/transaction", "/api/v1/configure"] {
        for body in [
            format!("{{\"items\":[{{\"queue\":\"q\",\"payload\":{MARKER}}}]}}"),
            format!("\"{MARKER}\""),
            format!(
                "{{\"items\":[{{\"queue\":\"q\\n\",\"payload\":\"{MARKER}\"}}],\"operations\":[{{\"type\":\"push\",\"queue\":\"\\n\",\"payload\":\"{MARKER}\"}}]}}"
            ),
        ] {
            let answer = http.post_text(path, &body).await;
            assert!(!answer.text.contains(MARKER), "{path}: {}", answer.text);
        }
    }
    http.configure("secret", &json!({"encryptionEnabled": true})).await;
    let body = json!({"items": [{"queue": "secret", "payload": MARKER}]});
    assert!(!http.post("/api/v1/push", &body).await.expect(503).to_string().contains(MARKER));
    let request = http.request(Method::GET, "/health").header("authorization", format!("Bearer {MARKER}"));
    http.send(request).await;
    let log = http.log();
    assert!(log.lines().filter(|line| line.contains("\"request\"")).count() > 10, "each request is logged: {log}");
    assert!(!log.contains(MARKER), "{log}");
    assert!(!shared_cluster().log().contains(MARKER), "in the log of the database");
}
