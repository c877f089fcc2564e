//! Parked polls: what they cost while nothing happens, and how soon one is woken by a push in SQL.

use crate::client::Client;
use crate::{Options, cpu, fail, summary};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// `--url --dsn --polls 2000 --queues 500 --seconds 20 --server PID --database PID --wakes 200`
pub async fn run(options: &Options) {
    let (url, dsn) = (options.need("url"), options.need("dsn"));
    let (polls, queues) = (options.get("polls", 2000_usize), options.get("queues", 500_usize));
    let (server, database) = (options.get("server", 0_u32), options.get("database", 0_u32));
    let (seconds, wakes) = (options.get("seconds", 20.0), options.get("wakes", 200_usize));
    let empty = cpu::resident(server);
    let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel::<(usize, Instant)>();
    for n in 0..polls {
        let (url, sender) = (url.clone(), sender.clone());
        tokio::spawn(async move {
            let mut client = Client::connect(&url).await.unwrap_or_else(|e| fail(&e.to_string()));
            let path = format!(
                "/api/v1/pop/queue/parked-{}?consumerGroup=g&wait=true&timeout=120000&batch=1&autoAck=true",
                n % queues
            );
            loop {
                match client.call("GET", &path, "").await {
                    Ok((200, _)) => _ = sender.send((n % queues, Instant::now())),
                    Ok((204, _)) => {}
                    other => fail(&format!("{other:?}")),
                }
            }
        });
    }
    // Until all are parked.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = (cpu::seconds(server), cpu::seconds(database), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let took = before.2.elapsed().as_secs_f64();
    let share = |now: f64, before: f64| (now - before) / took * 100.0;
    println!(
        "{polls} polls on {queues} queues: server {:.1} % and database {:.1} % of a core; server {} MiB ({} MiB with none)",
        share(cpu::seconds(server), before.0),
        share(cpu::seconds(database), before.1),
        cpu::resident(server) >> 20,
        empty >> 20,
    );
    let (client, connection) = match tokio_postgres::connect(&dsn, NoTls).await {
        Ok(connected) => connected,
        Err(e) => fail(&e.to_string()),
    };
    tokio::spawn(connection);
    let mut latencies = Vec::new();
    for n in 0..wakes {
        let queue = (n * 7919) % queues;
        let (name, began) = (format!("parked-{queue}"), Instant::now());
        if let Err(e) = client.execute("SELECT queen.push($1, '{\"n\": 1}')", &[&name]).await {
            fail(&e.to_string());
        }
        match tokio::time::timeout(Duration::from_secs(5), woken.recv()).await {
            Ok(Some((_, at))) => latencies.push((at - began).as_secs_f64() * 1000.0),
            _ => fail("nobody was woken"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("from before a push in SQL to its consumer over HTTP: {}", summary(latencies));
}
