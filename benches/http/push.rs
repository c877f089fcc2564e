//! Clients that push single messages: over HTTP, or into pgmq over SQL.

use crate::client::Client;
use crate::{Options, fail, summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// About 256 bytes.
fn payload(n: usize) -> String {
    format!("{{\"id\":{n},\"customer\":\"c{}\",\"note\":\"{:0>200}\"}}", n % 977, n.wrapping_mul(2_654_435_761))
}

async fn connect(dsn: &str) -> tokio_postgres::Client {
    match tokio_postgres::connect(dsn, NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            client
        }
        Err(e) => fail(&format!("cannot connect: {e}")),
    }
}

/// Commits of the database so far, those of this session left out as far as they are of one statement each.
async fn commits(dsn: &str) -> i64 {
    // Sessions report what they did after a second without work, at the latest at their end.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let client = connect(dsn).await;
    match client.query_one("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()", &[]).await {
        Ok(row) => row.get(0),
        Err(e) => fail(&e.to_string()),
    }
}

fn say(what: &str, seconds: f64, latencies: Vec<f64>, commits: i64) {
    let n = latencies.len();
    println!(
        "{what}: {:.0} messages/s, {:.1} messages a commit, {}",
        n as f64 / seconds,
        n as f64 / commits.max(1) as f64,
        summary(latencies)
    );
}

/// `--url --dsn --clients 32 --partitions 1 --seconds 5 --queue name`
pub async fn http(options: &Options) {
    let (url, dsn) = (options.need("url"), options.need("dsn"));
    let (clients, partitions) = (options.get("clients", 32_usize), options.get("partitions", 1_usize));
    let seconds = options.get("seconds", 5.0);
    let queue = options.get("queue", format!("load-{partitions}-{}", std::process::id()));
    let before = commits(&dsn).await;
    let over = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|n| {
            let (url, queue, over) = (url.clone(), queue.clone(), over.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(&url).await.unwrap_or_else(|e| fail(&e.to_string()));
                let mut latencies = Vec::new();
                let mut at = n * 1_000_003;
                while !over.load(Relaxed) {
                    at += 1;
                    let body = format!(
                        "{{\"items\":[{{\"queue\":\"{queue}\",\"partition\":\"p{}\",\"payload\":{}}}]}}",
                        at % partitions,
                        payload(at)
                    );
                    let began = Instant::now();
                    match client.call("POST", "/api/v1/push", &body).await {
                        Ok((201, _)) => latencies.push(began.elapsed().as_secs_f64() * 1000.0),
                        other => fail(&format!("{other:?}")),
                    }
                }
                latencies
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    over.store(true, Relaxed);
    let latencies = gather(tasks).await;
    let took = began.elapsed().as_secs_f64();
    say(&format!("http, {clients} clients, {partitions} partitions"), took, latencies, commits(&dsn).await - before);
}

/// `--dsn --clients 32 --seconds 5`; the schema pgmq is there.
pub async fn pgmq(options: &Options) {
    let dsn = options.need("dsn");
    let (clients, seconds) = (options.get("clients", 32_usize), options.get("seconds", 5.0));
    let queue = format!("load_{}", std::process::id());
    if let Err(e) = connect(&dsn).await.execute("SELECT pgmq.create($1)", &[&queue]).await {
        fail(&e.to_string());
    }
    let before = commits(&dsn).await;
    let over = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|n| {
            let (dsn, queue, over) = (dsn.clone(), queue.clone(), over.clone());
            tokio::spawn(async move {
                let client = connect(&dsn).await;
                let send = client.prepare("SELECT pgmq.send($1, $2::text::jsonb)").await;
                let send = send.unwrap_or_else(|e| fail(&e.to_string()));
                let mut latencies = Vec::new();
                let mut at = n * 1_000_003;
                while !over.load(Relaxed) {
                    at += 1;
                    let began = Instant::now();
                    match client.query_one(&send, &[&queue, &payload(at)]).await {
                        Ok(_) => latencies.push(began.elapsed().as_secs_f64() * 1000.0),
                        Err(e) => fail(&e.to_string()),
                    }
                }
                latencies
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    over.store(true, Relaxed);
    let latencies = gather(tasks).await;
    let took = began.elapsed().as_secs_f64();
    say(&format!("pgmq over SQL, {clients} clients"), took, latencies, commits(&dsn).await - before);
}

async fn gather(tasks: Vec<tokio::task::JoinHandle<Vec<f64>>>) -> Vec<f64> {
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap_or_default());
    }
    all
}
