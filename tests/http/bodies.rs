//! Memory for bodies: clients that do not read answers, or do not send requests to the end, keep a bounded part of it, and
//! what they are refused is not claimed.

use crate::{data, raw, sidecar_with};
use queen_tests::sidecar::{Sidecar, Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// What the server is given for answers.
const BUDGET: usize = 64 * MIB;
/// Clients that do not read; four times the budget together.
const DEAF: usize = 16;
/// What each of them asks for.
const ANSWER: usize = 16 * MIB;

async fn server() -> Sidecar {
    server_with(&[]).await
}

async fn server_with(environment: &[(&str, &str)]) -> Sidecar {
    let budget = BUDGET.to_string();
    let http = sidecar_with(&[environment, &[("QUEEN_ANSWER_BUDGET_BYTES", &budget)]].concat()).await;
    // In SQL, so that the server's memory knows nothing of it yet.
    http.sql()
        .await
        .execute(&format!("SELECT queen.push('large', to_jsonb(repeat('x', {ANSWER})))"), &[])
        .await
        .unwrap();
    http
}

fn large(group: usize, more: &str) -> String {
    format!("/api/v1/pop/queue/large?subscriptionMode=all&leaseSeconds=600&consumerGroup=g{group}&{more}")
}

/// The server's resident memory: the most there was, and forgets it.
fn peak(http: &Sidecar) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", http.pid())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    std::fs::write(format!("/proc/{}/clear_refs", http.pid()), "5").expect("a new peak");
    line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
}

async fn metric(http: &Sidecar, name: &str) -> usize {
    let text = http.get("/metrics/prometheus").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.trim().parse::<f64>().expect("a number") as usize
}

/// Waits until something is so.
async fn until(http: &Sidecar, name: &str, is: impl Fn(usize) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is(metric(http, name).await) {
        assert!(Instant::now() < end, "{name} stays {}", metric(http, name).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The status of an answer, of which nothing else is read.
async fn status(mut stream: TcpStream) -> (TcpStream, u16) {
    tokio::task::spawn_blocking(move || {
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("an answer");
        let status = String::from_utf8_lossy(&head[9..]).parse().expect("a status");
        (stream, status)
    })
    .await
    .unwrap()
}

async fn ordinary_clients_are_served(http: &Sidecar) {
    for n in 0..20 {
        http.push("other", &[json!(n)]).await;
        assert_eq!(data(&http.pop("other", "wait=true&timeout=20000&autoAck=true").await), [n]);
    }
    // More than what is not counted.
    let payloads: Vec<Value> = (0..200).map(|n| json!(format!("{n}{}", "x".repeat(4000)))).collect();
    http.push("other", &payloads).await;
    let popped = http.pop("other", "autoAck=true").await;
    assert_eq!((popped.len(), data(&popped)), (200, payloads.iter().collect()));
}

#[tokio::test]
async fn clients_that_do_not_read_keep_no_more_than_the_budget_and_what_is_refused_is_not_claimed() {
    let http = server().await;
    ordinary_clients_are_served(&http).await;
    let before = peak(&http);
    let mut deaf = Vec::new();
    for n in 0..DEAF {
        deaf.push(raw::send(&http, &raw::get(&large(n, if n % 2 == 0 { "" } else { "autoAck=true" }))));
    }
    until(&http, "queen_answer_bytes_in_flight", |bytes| bytes >= ANSWER).await;
    ordinary_clients_are_served(&http).await;
    until(&http, "queen_answers_refused_total", |refused| refused >= DEAF / 2).await;

    let mut refused = Vec::new();
    let mut kept = Vec::new();
    for (n, stream) in deaf.into_iter().enumerate() {
        match status(stream).await {
            (stream, 200) => kept.push(stream),
            (_, 503) => refused.push(n),
            (_, other) => panic!("{other}"),
        }
    }
    // Until it is full.
    let mut n = DEAF;
    let last = loop {
        match status(raw::send(&http, &raw::get(&large(n, "")))).await {
            (stream, 200) => kept.push(stream),
            _ => break n,
        }
        n += 1;
    };
    assert!(!kept.is_empty() && kept.len() * ANSWER <= BUDGET, "{}", kept.len());
    let grown = peak(&http).saturating_sub(before);
    assert!(grown < 2 * BUDGET, "{} MiB for a budget of {} MiB", grown / MIB, BUDGET / MIB);

    let answer = http.get(&large(last, "")).await;
    let body = answer.expect(503);
    assert_eq!((&body["code"], &body["success"], &body["messages"]), (&json!("no_room"), &json!(false), &json!([])));
    assert_eq!(answer.headers["retry-after"], "1");

    drop(kept);
    until(&http, "queen_answer_bytes_in_flight", |bytes| bytes == 0).await;
    for n in refused {
        let popped = http.pop("large", large(n, "").split_once('?').unwrap().1).await;
        assert_eq!((popped.len(), &popped[0]["deliveryAttempt"]), (1, &json!(1)), "group {n}");
        assert_eq!(popped[0]["data"].as_str().unwrap().len(), ANSWER);
    }
    ordinary_clients_are_served(&http).await;
}

#[tokio::test]
async fn pops_that_are_sent_at_once_and_never_read_keep_no_more_than_the_budget() {
    let http = server().await;
    ordinary_clients_are_served(&http).await;
    let before = peak(&http);
    let requests = |first: usize| (first..first + DEAF).map(|n| raw::get(&large(n, ""))).collect::<String>();
    let deaf: Vec<TcpStream> = (0..4).map(|n| raw::send(&http, &requests(n * DEAF))).collect();
    until(&http, "queen_answers_refused_total", |refused| refused >= 2).await;
    ordinary_clients_are_served(&http).await;
    let grown = peak(&http).saturating_sub(before);
    assert!(grown < 2 * BUDGET, "{} MiB for a budget of {} MiB", grown / MIB, BUDGET / MIB);
    drop(deaf);
    until(&http, "queen_answer_bytes_in_flight", |bytes| bytes == 0).await;
    assert_eq!(http.pop("large", "subscriptionMode=all&consumerGroup=new").await.len(), 1);
}

#[tokio::test]
async fn a_pop_that_waits_is_served_when_there_is_room_and_told_when_there_was_none() {
    let http = server().await;
    let mut deaf = Vec::new();
    for n in 0..4 {
        deaf.push(raw::send(&http, &raw::get(&large(n, ""))));
    }
    until(&http, "queen_answers_refused_total", |refused| refused > 0).await;
    let told = http.get(&large(100, "wait=true&timeout=1000")).await;
    assert_eq!(told.expect(503)["code"], "no_room");
    let path = large(100, "wait=true&timeout=60000");
    let waiting = http.get(&path);
    let leave = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(deaf);
    };
    let (answer, ()) = tokio::join!(waiting, leave);
    assert_eq!(answer.expect(200)["messages"][0]["deliveryAttempt"], 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up_and_its_room_with_it() {
    let http = server_with(&[("QUEEN_CLIENT_TIMEOUT_SECONDS", "1")]).await;
    let deaf = raw::send(&http, &raw::get(&large(0, "")));
    until(&http, "queen_answer_bytes_in_flight", |bytes| bytes >= ANSWER).await;
    until(&http, "queen_answer_bytes_in_flight", |bytes| bytes == 0).await;
    drop(deaf);
}

// The largest message there may be, and the smallest budget.
#[tokio::test]
async fn a_message_that_is_larger_than_the_budget_is_delivered() {
    let http = sidecar_with(&[("QUEEN_ANSWER_BUDGET_BYTES", "16777216")]).await;
    let sql = http.sql().await;
    sql.batch_execute(&format!("SELECT queen.push('q', to_jsonb(repeat('x', {})))", 60 * MIB)).await.unwrap();
    for n in 0..2 {
        let popped = http.pop("q", &format!("subscriptionMode=all&consumerGroup=g{n}")).await;
        assert_eq!(popped[0]["data"].as_str().unwrap().len(), 60 * MIB);
    }
}

// Of what only looks.
#[tokio::test]
async fn a_listing_takes_room_too() {
    let http = server().await;
    let listed = format!("SELECT queen.push('listed', to_jsonb(repeat('x', {})))", 12 * MIB);
    http.sql().await.batch_execute(&listed).await.unwrap();
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        deaf.push(raw::send(&http, &raw::get("/api/v1/messages?queue=listed")));
    }
    until(&http, "queen_answers_refused_total", |refused| refused > 0).await;
    assert!(metric(&http, "queen_answer_bytes_in_flight").await <= BUDGET);
    ordinary_clients_are_served(&http).await;
}

/// A push whose body has this length; so many bytes of it are sent.
fn unfinished(http: &Sidecar, head: &str, bytes: usize) -> TcpStream {
    let mut stream = raw::send(http, head);
    let body = format!("{{\"items\":[{{\"queue\":\"uploads\",\"payload\":\"{}", "x".repeat(bytes));
    if head.contains("chunked") {
        _ = stream.write_all(format!("{:x}\r\n", 64 * MIB).as_bytes());
    }
    // Refused ones are ended halfway.
    _ = stream.write_all(body.as_bytes());
    stream
}

#[tokio::test]
async fn clients_that_do_not_send_their_bodies_to_the_end_keep_no_more_than_the_budget() {
    let http: &'static Sidecar =
        Box::leak(Box::new(sidecar_with(&[("QUEEN_REQUEST_BUDGET_BYTES", &BUDGET.to_string())]).await));
    ordinary_clients_are_served(http).await;
    let before = peak(http);
    let head = "POST /api/v1/push HTTP/1.1\r\nhost: queen\r\n";
    let told = format!("{head}content-length: {}\r\n\r\n", 60 * MIB);
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let sending: Vec<_> = (0..DEAF)
        .map(|n| {
            let head = if n % 2 == 0 { told.clone() } else { chunked.clone() };
            tokio::task::spawn_blocking(move || unfinished(http, &head, ANSWER))
        })
        .collect();
    let mut stalled = Vec::new();
    for stream in sending {
        stalled.push(stream.await.expect("a client"));
    }
    until(http, "queen_requests_refused_total", |refused| refused >= DEAF / 2).await;
    assert!(metric(http, "queen_request_bytes_in_flight").await >= ANSWER);
    ordinary_clients_are_served(http).await;
    let grown = peak(http).saturating_sub(before);
    assert!(grown < 2 * BUDGET, "{} MiB for a budget of {} MiB", grown / MIB, BUDGET / MIB);

    // One that is sent to the end is refused, too; whoever does not send to the end is gone some time.
    let body = json!({"items": [{"queue": "uploads", "payload": "x".repeat(ANSWER)}]});
    let answer = http.post("/api/v1/push", &body).await;
    assert_eq!(
        (answer.expect(503)["code"].clone(), &answer.headers["retry-after"]),
        (json!("no_room"), &"1".parse().unwrap())
    );
    drop(stalled);
    until(http, "queen_request_bytes_in_flight", |bytes| bytes == 0).await;
    http.post("/api/v1/push", &body).await.expect(201);
    assert_eq!(http.pop("uploads", "").await.len(), 1);
    http.signal(9);
}

#[tokio::test]
async fn a_batch_that_is_larger_than_its_part_of_the_memory_comes_in_parts() {
    let http = sidecar_with(&[("QUEEN_ANSWER_BUDGET_BYTES", &(16 * MIB).to_string())]).await;
    http.sql()
        .await
        .execute(
            "SELECT queen.push_batch((SELECT json_agg(json_build_object('queue', 'many', 'payload', n || repeat('x', 1000000)))
                                        FROM generate_series(10, 39) n))",
            &[],
        )
        .await
        .unwrap();
    let mut next = 10;
    while next < 40 {
        let popped = http.pop("many", "batch=30&autoAck=true&subscriptionMode=all&consumerGroup=g").await;
        assert!((1..=6).contains(&popped.len()), "{} messages of a megabyte", popped.len());
        for message in popped {
            assert!(message["data"].as_str().unwrap().starts_with(&next.to_string()), "{next}");
            next += 1;
        }
    }
    assert_eq!(metric(&http, "queen_answers_refused_total").await, 0);
}

/// So many messages of a megabyte.
async fn megabytes(http: &Sidecar, queue: &str, count: usize) {
    let push = "SELECT queen.push_batch((SELECT json_agg(json_build_object('queue', $1::text, 'payload', repeat('x', 1048576)))
                                           FROM generate_series(1, $2::int)))";
    http.sql().await.execute(push, &[&queue, &i32::try_from(count).unwrap()]).await.unwrap();
}

// The payload is in it twice.
#[tokio::test]
async fn a_listing_that_is_too_long_is_refused_before_it_is_sent() {
    let http = sidecar_with(&[]).await;
    megabytes(&http, "q", 60).await;
    http.get("/api/v1/messages?queue=q&limit=1").await.expect(200);
    let before = peak(&http);
    let answers = tokio::join!(
        http.get("/api/v1/messages?queue=q&limit=60"),
        http.get("/api/v1/messages?queue=q&limit=60"),
        http.get("/api/v1/messages?queue=q&limit=60"),
    );
    for answer in [answers.0, answers.1, answers.2] {
        let body = answer.expect(400);
        assert_eq!(body["code"], "too_large");
        let error = body["error"].as_str().unwrap();
        assert!(error.contains("limit") && error.contains("33554432"), "{error}");
        let told: usize = error.split(' ').find_map(|word| word.parse().ok()).expect("how long it would be");
        assert!(told > 120 * MIB && told < 130 * MIB, "{error}");
    }
    let grown = peak(&http).saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
    let page = http.get("/api/v1/messages?queue=q&limit=15&offset=45").await;
    assert_eq!(page.expect(200)["messages"].as_array().unwrap().len(), 15);
    until(&http, "queen_answer_bytes_in_flight", |bytes| bytes == 0).await;
}

// There is no less to ask for.
#[tokio::test]
async fn one_message_is_shown_however_long_it_is() {
    let http = sidecar_with(&[("QUEEN_ANSWER_BUDGET_BYTES", &(16 * MIB).to_string())]).await;
    let push = format!("SELECT queen.push('q', to_jsonb(repeat('x', {})), transaction_id => 't')", 40 * MIB);
    http.sql().await.batch_execute(&push).await.unwrap();
    assert_eq!(http.get("/api/v1/messages?queue=q").await.expect(400)["code"], "too_large");
    let partition: String = {
        let sql = http.sql().await;
        sql.query_one("SELECT partition_id::text FROM queen.partitions WHERE queue = 'q'", &[]).await.unwrap().get(0)
    };
    let shown = http.get(&format!("/api/v1/messages/{partition}/t")).await;
    assert_eq!(shown.expect(200)["payload"].as_str().unwrap().len(), 40 * MIB);
}

fn list(element: &str, count: usize) -> String {
    format!("[{}]", vec![element; count].join(","))
}

#[tokio::test]
async fn no_list_of_a_request_has_more_elements_than_are_read() {
    let http = sidecar_with(&[]).await;
    let many = |element: &str| list(element, 100_001);
    let push = format!("{{\"type\":\"push\",\"items\":{}}}", list("{\"queue\":\"q\",\"payload\":1}", 60_000));
    for (path, name, body) in [
        ("/api/v1/ack/batch", "acknowledgments", format!("{{\"acknowledgments\":{}}}", many("{}"))),
        ("/api/v1/push", "items", format!("{{\"items\":{}}}", many("{\"queue\":\"q\",\"payload\":1}"))),
        ("/api/v1/transaction", "operations", format!("{{\"operations\":{}}}", many("{\"type\":\"ack\"}"))),
        ("/api/v1/transaction", "operations", many("{\"type\":\"ack\"}")),
        ("/api/v1/transaction", "operations", format!("{{\"operations\":[{push},{push}]}}")),
        ("/api/v1/transaction", "requiredLeases", format!("{{\"operations\":[],\"requiredLeases\":{}}}", many("\"\""))),
        ("/api/v1/dlq/discard", "ids", format!("{{\"cause\":\"a\",\"note\":\"b\",\"ids\":{}}}", many("\"\""))),
        ("/api/v1/dlq/plans", "ids", format!("{{\"reason\":\"a\",\"remediation\":\"b\",\"ids\":{}}}", many("\"\""))),
        (
            "/api/v1/traces",
            "traceNames",
            format!("{{\"transactionId\":\"a\",\"partitionId\":\"b\",\"data\":1,\"traceNames\":{}}}", many("\"\"")),
        ),
    ] {
        let answer = http.post_text(path, &body).await;
        let error = answer.expect(400)["error"].as_str().unwrap().to_owned();
        assert_eq!(error, format!("bad body: {name} has more than 100000 elements: send them in parts"), "{path}");
    }
    // A payload may be any list.
    let item = format!("{{\"items\":[{{\"queue\":\"q\",\"payload\":{}}}]}}", many("0"));
    http.post_text("/api/v1/push", &item).await.expect(201);
}

#[tokio::test]
async fn of_a_body_no_more_is_made_than_it_weighs() {
    let http = sidecar_with(&[]).await;
    let zeros = list("0", 8 * MIB);
    let keys: String = (0..MIB).map(|n| format!("\"{n:06x}\":0,")).collect();
    let bodies = [
        ("/api/v1/ack/batch", format!("{{\"acknowledgments\":{}}}", list("{}", 5 * MIB))),
        ("/api/v1/push", format!("{{\"items\":{}}}", list("{}", 5 * MIB))),
        ("/api/v1/transaction", format!("{{\"operations\":{}}}", list("{}", 5 * MIB))),
        ("/api/v1/dlq/discard", format!("{{\"ids\":{}}}", list("\"\"", 5 * MIB))),
        ("/api/v1/dlq/discard", format!("{{{keys}\"ids\":[]}}")),
        ("/api/v1/configure", format!("{{\"queue\":\"a\",\"options\":{{\"x\":{zeros}}}}}")),
        ("/api/v1/system/maintenance", format!("{{\"enabled\":1,\"x\":{zeros}}}")),
    ];
    // As long, and refused at its end.
    http.post_text("/api/v1/push", &format!("{{\"x\":\"{}\"", "x".repeat(16 * MIB))).await.expect(400);
    let before = peak(&http);
    for (path, body) in bodies {
        http.post_text(path, &body).await.expect(400);
        let grown = peak(&http).saturating_sub(before);
        assert!(grown < 64 * MIB, "{path}: {} MiB", grown / MIB);
    }
}

// A frame costs more than a byte.
#[tokio::test]
async fn a_body_in_tiny_chunks_takes_what_another_takes() {
    let http: &'static Sidecar = Box::leak(Box::new(sidecar_with(&[]).await));
    ordinary_clients_are_served(http).await;
    let body = format!("{{\"items\":[{{\"queue\":\"tiny\",\"payload\":\"{}\"}}]}}", "x".repeat(2 * MIB));
    http.post_text("/api/v1/push", &body).await.expect(201);
    let before = peak(http);
    let mut stream = raw::send(http, "POST /api/v1/push HTTP/1.1\r\nhost: queen\r\ntransfer-encoding: chunked\r\n\r\n");
    let sent = tokio::task::spawn_blocking(move || {
        let chunks: Vec<u8> = body.bytes().flat_map(|byte| [b'1', b'\r', b'\n', byte, b'\r', b'\n']).collect();
        stream.write_all(&chunks).and_then(|()| stream.write_all(b"0\r\n\r\n")).expect("a reader");
        stream
    });
    let (_stream, answered) = status(sent.await.unwrap()).await;
    assert_eq!(answered, 201);
    let grown = peak(http).saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
    http.signal(9);
}
