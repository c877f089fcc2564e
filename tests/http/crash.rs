//! Kills under load: what was answered is true, whoever dies.
//!
//! Producers number their messages and try again until they have an answer, as the SDKs do; consumers pop and ack all the
//! time. Afterwards: every push that was answered is delivered, nothing whose ack was answered is delivered again, no
//! message is there twice, and each producer's messages are in its order.

use crate::raw;
use queen_tests::sidecar::{Sidecar, Value, json};
use queen_tests::{Cluster, shared_cluster};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 4;
const KILLS: usize = 10;
/// Between two kills.
const PEACE: Duration = Duration::from_millis(300);
/// How long the rest may take when peace is back.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Default)]
struct Load {
    /// Where the server is at present.
    url: Mutex<String>,
    /// No more pushes.
    enough: AtomicBool,
    /// No more pops.
    over: AtomicBool,
    /// Transaction ids whose push was answered.
    accepted: Mutex<HashSet<String>>,
    delivered: Mutex<HashSet<String>>,
    /// When the ack of a transaction id was answered.
    acked: Mutex<HashMap<String, Instant>>,
    wrong: Mutex<Vec<String>>,
}

impl Load {
    async fn ask(&self, client: &reqwest::Client, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let url = format!("{}{path}", self.url.lock().unwrap());
        let request = match body {
            Some(body) => client.post(url).body(body.to_string()),
            None => client.get(url),
        };
        let response = request.timeout(Duration::from_secs(10)).send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or_default()))
    }

    fn complain(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    async fn produce(self: Arc<Self>, producer: usize) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for n in 0.. {
            let id = format!("{producer}-{n}");
            let item = json!({"queue": "q", "partition": format!("p{producer}"), "payload": n, "transactionId": id});
            let body = json!({ "items": [item] });
            loop {
                if self.enough.load(SeqCst) {
                    return;
                }
                match self.ask(&client, "/api/v1/push", Some(&body)).await {
                    Some((201, answer)) if answer[0]["status"] == "queued" || answer[0]["status"] == "duplicate" => {
                        self.accepted.lock().unwrap().insert(id);
                        break;
                    }
                    Some((status, answer)) if status < 500 => self.complain(format!("push: {status} {answer}")),
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        }
    }

    async fn consume(self: Arc<Self>) {
        const POP: &str = "/api/v1/pop/queue/q?consumerGroup=g&subscriptionMode=all&batch=20&partitions=2&wait=true&timeout=1000&leaseSeconds=2";
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        while !self.over.load(SeqCst) {
            let asked = Instant::now();
            match self.ask(&client, POP, None).await {
                Some((200, answer)) => {
                    let messages = answer["messages"].as_array().cloned().unwrap_or_default();
                    self.check(&messages, asked);
                    self.settle(&client, &messages).await;
                }
                Some((204, _)) => {}
                Some((status, answer)) if status < 500 => self.complain(format!("pop: {status} {answer}")),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn check(&self, messages: &[Value], asked: Instant) {
        let acked = self.acked.lock().unwrap();
        let mut delivered = self.delivered.lock().unwrap();
        for message in messages {
            let id = message["transactionId"].as_str().unwrap();
            if acked.get(id).is_some_and(|answered| *answered < asked) {
                self.complain(format!("{id} was acknowledged and delivered again"));
            }
            delivered.insert(id.to_owned());
        }
    }

    async fn settle(&self, client: &reqwest::Client, messages: &[Value]) {
        let items: Vec<Value> = messages
            .iter()
            .map(|m| json!({"transactionId": m["transactionId"], "partitionId": m["partitionId"], "leaseId": m["leaseId"]}))
            .collect();
        let body = json!({"consumerGroup": "g", "acknowledgments": items});
        for _ in 0..3 {
            match self.ask(client, "/api/v1/ack/batch", Some(&body)).await {
                Some((200, answers)) => {
                    let answers = answers.as_array().cloned().unwrap_or_default();
                    if answers.len() != items.len() {
                        self.complain(format!("{} acks, {} answers", items.len(), answers.len()));
                    }
                    let mut acked = self.acked.lock().unwrap();
                    for answer in answers.iter().filter(|answer| answer["success"] == true) {
                        acked.insert(answer["transactionId"].as_str().unwrap().to_owned(), Instant::now());
                    }
                    return;
                }
                Some((status, answer)) if status < 500 => self.complain(format!("ack: {status} {answer}")),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Starts the load; `kill` is called again and again, and answers where the server is.
async fn under_load(http: Sidecar, mut kill: impl AsyncFnMut(Sidecar) -> Sidecar) {
    let load = Arc::new(Load::default());
    http.url().clone_into(&mut load.url.lock().unwrap());
    let mut http = http;
    let mut tasks = JoinSet::new();
    for producer in 0..PRODUCERS {
        tasks.spawn(load.clone().produce(producer));
    }
    for _ in 0..CONSUMERS {
        tasks.spawn(load.clone().consume());
    }
    for _ in 0..KILLS {
        tokio::time::sleep(PEACE).await;
        let before = load.accepted.lock().unwrap().len();
        http = kill(http).await;
        http.url().clone_into(&mut load.url.lock().unwrap());
        // Killing what does nothing proves nothing.
        let again = Instant::now();
        while load.accepted.lock().unwrap().len() < before + 20 {
            assert!(again.elapsed() < PATIENCE, "pushes do not go on: {:?}", load.wrong.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    load.enough.store(true, SeqCst);
    let sql = http.sql().await;
    let began = Instant::now();
    loop {
        let pending = "SELECT coalesce(sum(pending), 0)::bigint FROM queen.consumer_groups WHERE consumer_group = 'g'";
        let pending: i64 = sql.query_one(pending, &[]).await.expect("a count").get(0);
        let lost = load.accepted.lock().unwrap().difference(&load.delivered.lock().unwrap()).count();
        if pending == 0 && lost == 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{lost} accepted messages were not delivered, {pending} are pending");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    load.over.store(true, SeqCst);
    tasks.join_all().await;

    assert_eq!(*load.wrong.lock().unwrap(), Vec::<String>::new());
    let stored = "SELECT partition, transaction_id FROM queen.messages('q', max_rows => 10000000) ORDER BY partition, \"offset\"";
    let stored: Vec<(String, String)> =
        sql.query(stored, &[]).await.expect("messages").iter().map(|row| (row.get(0), row.get(1))).collect();
    let ids: HashSet<&String> = stored.iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), stored.len(), "a message is there twice");
    assert!(load.accepted.lock().unwrap().iter().all(|id| ids.contains(id)));
    for producer in 0..PRODUCERS {
        let numbers: Vec<u32> = stored
            .iter()
            .filter(|(partition, _)| *partition == format!("p{producer}"))
            .map(|(_, id)| id.split_once('-').unwrap().1.parse().unwrap())
            .collect();
        assert!(!numbers.is_empty() && numbers.is_sorted(), "the order of producer {producer}: {numbers:?}");
    }
    assert_eq!(sql.query("SELECT FROM queen.verify('q')", &[]).await.expect("verify").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_may_be_killed_at_any_time() {
    let database = shared_cluster().fresh_database().await;
    let http = Sidecar::start(shared_cluster(), &database);
    under_load(http, async |mut http: Sidecar| {
        http.signal(9);
        http.wait(Duration::from_secs(10)).expect("it is dead");
        drop(http);
        Sidecar::start(shared_cluster(), &database)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_may_be_killed_at_any_time() {
    // Leaked for the server wants a cluster that stays; its guard takes it away when this process ends.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::durable()));
    let database = cluster.fresh_database().await;
    let http = Sidecar::start(cluster, &database);
    let mut kills = 0;
    under_load(http, async move |http: Sidecar| {
        kills += 1;
        if kills % 2 == 0 {
            cluster.stop_immediate();
        } else {
            kill_postmaster(cluster).await;
        }
        cluster.restart();
        http
    })
    .await;
}

/// SIGKILL to the postmaster alone; its children notice, and the next one has to wait for them.
async fn kill_postmaster(cluster: &Cluster) {
    let file = std::fs::read_to_string(cluster.data().join("postmaster.pid")).expect("a pid file");
    let postmaster: i32 = file.lines().next().and_then(|line| line.parse().ok()).expect("a pid");
    let children = children_of(postmaster);
    raw::kill(postmaster);
    let began = Instant::now();
    while children.iter().any(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()) {
        assert!(began.elapsed() < PATIENCE, "children of a dead postmaster live on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn children_of(parent: i32) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // pid (name) state ppid …; the name may have anything in it.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(parent.to_string().as_str()))
    };
    pids.filter(is_child).collect()
}
