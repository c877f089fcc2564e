//! From the moment a message should be pushed to the moment a consumer has it, at a given rate, over HTTP alone.

use crate::client::Client;
use crate::{Options, fail, summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// `--url --rate 500 --seconds 10 --partitions 16 --producers 16 --consumers 8 --batch 100`; rate 0: as fast as it goes,
/// `--items` messages a push.
pub async fn run(options: &Options) {
    let url = options.need("url");
    let (rate, seconds) = (options.get("rate", 500_u64), options.get("seconds", 10.0));
    let (partitions, items) = (options.get("partitions", 16_usize), options.get("items", 1_usize));
    let (producers, consumers) = (options.get("producers", 16_usize), options.get("consumers", 8_usize));
    let batch = options.get("batch", 100_usize);
    let queue = format!("latency-{rate}-{}", std::process::id());
    let began = Instant::now();
    let (over, pushed, received) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // The group is there before the first message.
    let path = format!("/api/v1/pop/queue/{queue}?consumerGroup=load&batch={batch}&partitions=4&subscriptionMode=all");
    let mut first = Client::connect(&url).await.unwrap_or_else(|e| fail(&e.to_string()));
    _ = first.call("GET", &path, "").await;

    let consuming: Vec<_> = (0..consumers)
        .map(|_| {
            let (url, over, received) = (url.clone(), over.clone(), received.clone());
            let path = format!("{path}&wait=true&timeout=500");
            tokio::spawn(async move {
                let mut client = Client::connect(&url).await.unwrap_or_else(|e| fail(&e.to_string()));
                let mut latencies = Vec::new();
                loop {
                    match client.call("GET", &path, "").await {
                        Ok((200, body)) => {
                            let now = began.elapsed().as_secs_f64();
                            let acks = note(&body, now, &mut latencies);
                            received.fetch_add(acks.1, Relaxed);
                            match client.call("POST", "/api/v1/ack/batch", &acks.0).await {
                                Ok((200, answer)) if !answer.windows(15).any(|w| w == b"\"success\":false") => {}
                                other => fail(&format!("ack: {other:?}")),
                            }
                        }
                        Ok((204, _)) if over.load(Relaxed) => return latencies,
                        Ok((204, _)) => {}
                        other => fail(&format!("pop: {other:?}")),
                    }
                }
            })
        })
        .collect();

    let producing: Vec<_> = (0..producers)
        .map(|n| {
            let (url, queue, pushed) = (url.clone(), queue.clone(), pushed.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(&url).await.unwrap_or_else(|e| fail(&e.to_string()));
                let start = began.elapsed().as_secs_f64();
                let mut k = 0_usize;
                loop {
                    let due = match rate {
                        0 => began.elapsed().as_secs_f64(),
                        rate => start + (k * producers + n) as f64 / rate as f64,
                    };
                    if due - start >= seconds {
                        return;
                    }
                    let wait = due - began.elapsed().as_secs_f64();
                    if wait > 0.0 {
                        tokio::time::sleep(Duration::from_secs_f64(wait)).await;
                    }
                    k += 1;
                    let item = format!(
                        "{{\"queue\":\"{queue}\",\"partition\":\"p{}\",\"payload\":{{\"at\":{due:.6},\"pad\":\"{:0>200}\"}}}}",
                        (k * producers + n) % partitions,
                        k
                    );
                    let body = format!("{{\"items\":[{}]}}", vec![item; items].join(","));
                    match client.call("POST", "/api/v1/push", &body).await {
                        Ok((201, _)) => pushed.fetch_add(items as u64, Relaxed),
                        other => fail(&format!("push: {other:?}")),
                    };
                }
            })
        })
        .collect();
    for task in producing {
        _ = task.await;
    }
    let pushing = began.elapsed().as_secs_f64();
    while received.load(Relaxed) < pushed.load(Relaxed) && began.elapsed().as_secs_f64() < pushing + 30.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let consumed = began.elapsed().as_secs_f64();
    over.store(true, Relaxed);
    let mut latencies = Vec::new();
    for task in consuming {
        latencies.extend(task.await.unwrap_or_default());
    }
    let (n, got) = (pushed.load(Relaxed), received.load(Relaxed));
    println!(
        "{}: pushed {:.0}/s, consumed {:.0}/s, {n} pushed, {got} received; {}",
        if rate == 0 { "as fast as it goes".to_owned() } else { format!("{rate} messages/s") },
        n as f64 / pushing,
        got as f64 / consumed,
        summary(latencies)
    );
}

/// Notes how old the messages are, and makes the body that acknowledges them.
fn note(body: &[u8], now: f64, latencies: &mut Vec<f64>) -> (String, u64) {
    let popped: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = popped["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut acks = Vec::new();
    for message in messages {
        if let Some(at) = message["data"]["at"].as_f64() {
            latencies.push((now - at) * 1000.0);
        }
        acks.push(serde_json::json!({
            "transactionId": message["transactionId"], "partitionId": message["partitionId"], "leaseId": message["leaseId"],
        }));
    }
    let n = acks.len() as u64;
    (serde_json::json!({ "consumerGroup": "load", "acknowledgments": acks }).to_string(), n)
}
