//! Measuring: the server's CPU time for a call, on two sides in turns, as the ratio of the two medians.
//!
//! CPU time of the one backend that works, so that other load on the machine counts little; in turns and as medians, so
//! that what it does count hits both sides alike.

use queen_tests::{Client, Cluster, shared_cluster};
use std::sync::Once;
use std::time::Duration;
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// Rounds of one comparison; a first one that warms caches is not counted.
pub const ROUNDS: usize = 21;

/// The shared cluster, with enough memory for the large sides. Loading need not wait for a disk.
pub fn cluster() -> &'static Cluster {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        shared_cluster().configure(&[
            ("shared_buffers", "512MB"),
            ("synchronous_commit", "off"),
            ("max_wal_size", "8GB"),
        ]);
        shared_cluster().restart();
    });
    shared_cluster()
}

/// A connection whose server process is watched.
pub struct Backend {
    pub client: Client,
    pub pid: i32,
}

impl Backend {
    pub async fn open(database: &str) -> Self {
        let client = cluster().client(database).await;
        // What does not end fails.
        let limited = client.batch_execute("SET statement_timeout = '2min'").await;
        limited.expect("statement_timeout");
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        Self { pid: row.expect("pg_backend_pid").get(0), client }
    }

    /// Nanoseconds of CPU time that the server process has used.
    async fn cpu(&self) -> u64 {
        let path = format!("/proc/{}/schedstat", self.pid);
        let mut before = None;
        // The answer is here before the process is idle: wait until it is.
        loop {
            let text = std::fs::read_to_string(&path).expect("schedstat");
            let first = text.split_whitespace().next().expect("schedstat");
            let now: u64 = first.parse().expect("schedstat");
            if before == Some(now) {
                return now;
            }
            before = Some(now);
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
    }

    /// CPU time in microseconds that one of `operations` costs.
    pub async fn cost(&self, operations: usize, work: impl Future<Output = ()>) -> f64 {
        let before = self.cpu().await;
        work.await;
        (self.cpu().await - before) as f64 / 1000.0 / operations as f64
    }

    pub async fn run(&self, sql: &str) {
        let done = self.client.batch_execute(sql).await;
        done.unwrap_or_else(|e| panic!("{sql}\n{e:?}"));
    }

    pub async fn prepare(&self, sql: &str) -> Statement {
        let prepared = self.client.prepare(sql).await;
        prepared.unwrap_or_else(|e| panic!("{sql}\n{e:?}"))
    }

    /// One number from a prepared statement or SQL text.
    pub async fn number<S>(&self, statement: &S, arguments: &[&(dyn ToSql + Sync)]) -> i64
    where
        S: tokio_postgres::ToStatement + ?Sized + Sync,
    {
        let row = self.client.query_one(statement, arguments).await;
        row.unwrap_or_else(|e| panic!("{e:?}")).get(0)
    }
}

/// Pushes to one queue.
pub struct Producer {
    pub backend: Backend,
    batch: Statement,
}

impl Producer {
    pub async fn open(database: &str) -> Self {
        let backend = Backend::open(database).await;
        let batch =
            backend.prepare("SELECT count(*) FROM queen.push_batch($1::text::json) WHERE status = 'queued'").await;
        Self { backend, batch }
    }

    /// Pushes the items of a batch, all of which must be new.
    pub async fn push(&self, items: &[String]) {
        let text = format!("[{}]", items.join(","));
        let queued = self.backend.number(&self.batch, &[&text]).await;
        assert_eq!(queued, items.len() as i64, "messages queued");
    }

    /// Fills partition Default of `orders` with `count` messages, a thousand a segment. Ids are minted, or `explicit`:
    /// order-0 and so on.
    pub async fn fill(&self, count: usize, explicit: bool) {
        for from in (0..count).step_by(1000) {
            let items: Vec<String> = (from..count.min(from + 1000))
                .map(|n| item("Default", n, explicit.then(|| format!("order-{n}"))))
                .collect();
            self.push(&items).await;
        }
    }
}

/// A wire item of queue `orders`: some 100 bytes of payload.
pub fn item(partition: &str, n: usize, transaction_id: Option<String>) -> String {
    let id = transaction_id.map_or_else(String::new, |t| format!(r#","transactionId":"{t}""#));
    let payload = format!(
        r#"{{"order":{n},"customer":"c-{:08x}","note":"to be delivered before noon, please ring twice"}}"#,
        n.wrapping_mul(2_654_435_761) as u32
    );
    format!(r#"{{"queue":"orders","partition":"{partition}","payload":{payload}{id}}}"#)
}

pub struct Message {
    pub partition_id: Uuid,
    pub transaction_id: String,
    pub lease: Option<Uuid>,
}

/// Pops and acknowledges for one group of `orders`.
pub struct Consumer {
    pub backend: Backend,
    group: String,
    pop: Statement,
    take: Statement,
    ack_lease: Statement,
    ack: Statement,
    ack_batch: Statement,
}

impl Consumer {
    /// `partition`: None pops from any.
    pub async fn open(database: &str, group: &str, partition: Option<&str>) -> Self {
        let backend = Backend::open(database).await;
        let pop = |rest: &str| {
            let partition = partition.map_or_else(|| "NULL".into(), |p| format!("'{p}'"));
            format!(
                "SELECT partition_id, transaction_id, lease_id FROM queen.pop('orders', '{group}', $1, {partition}, $2,
                    3600, {rest}, 'all')"
            )
        };
        Self {
            pop: backend.prepare(&pop("false")).await,
            take: backend.prepare(&pop("true")).await,
            ack_lease: backend.prepare("SELECT queen.ack_lease($1)").await,
            ack: backend.prepare("SELECT success FROM queen.ack($1, $2, 'completed', $3, $4)").await,
            ack_batch: backend.prepare("SELECT count(*) FROM queen.ack_batch($1::text::json, $2) WHERE success").await,
            group: group.to_owned(),
            backend,
        }
    }

    /// Leases messages of at most so many partitions (0: any number).
    pub async fn pop_from(&self, partitions: i32, batch: usize) -> Vec<Message> {
        self.messages(&self.pop, partitions, batch).await
    }

    /// Leases exactly `batch` messages of one partition.
    pub async fn pop(&self, batch: usize) -> Vec<Message> {
        let messages = self.pop_from(1, batch).await;
        assert_eq!(messages.len(), batch, "messages popped");
        messages
    }

    /// Consumes everything there is.
    pub async fn drain(&self) -> usize {
        let mut total = 0;
        loop {
            let got = self.messages(&self.take, 0, 10_000).await.len();
            total += got;
            if got == 0 {
                return total;
            }
        }
    }

    async fn messages(&self, pop: &Statement, partitions: i32, batch: usize) -> Vec<Message> {
        let rows = self.backend.client.query(pop, &[&(batch as i32), &partitions]).await;
        rows.unwrap_or_else(|e| panic!("{e:?}"))
            .iter()
            .map(|row| Message { partition_id: row.get(0), transaction_id: row.get(1), lease: row.get(2) })
            .collect()
    }

    pub async fn ack_lease(&self, messages: &[Message]) {
        let done = self.backend.number(&self.ack_lease, &[&messages[0].lease]).await;
        assert_eq!(done, messages.len() as i64, "messages completed");
    }

    pub async fn ack(&self, m: &Message) {
        let arguments: &[&(dyn ToSql + Sync)] = &[&m.partition_id, &m.transaction_id, &self.group, &m.lease];
        let row = self.backend.client.query_one(&self.ack, arguments).await;
        assert!(row.expect("ack").get::<_, bool>(0), "acknowledged");
    }

    pub async fn ack_batch(&self, messages: &[Message]) {
        let items: Vec<_> = messages
            .iter()
            .map(|m| {
                serde_json::json!({
                    "partitionId": m.partition_id.to_string(),
                    "transactionId": m.transaction_id,
                    "leaseId": m.lease.map(|l| l.to_string()),
                })
            })
            .collect();
        let text = serde_json::Value::Array(items).to_string();
        let done = self.backend.number(&self.ack_batch, &[&text, &self.group]).await;
        assert_eq!(done, messages.len() as i64, "messages acknowledged");
    }
}

/// How often what is above its limit is measured.
const TRIES: u64 = 6;

/// What a test measured; says at its end what was above its limit.
#[derive(Default)]
pub struct Report {
    missed: Vec<String>,
}

impl Report {
    /// Measures `work` on both sides in turns; it answers what one operation cost. What is above the limit is measured
    /// again, a while later: on a busy machine it may be chance some times, hardly [`TRIES`] times.
    pub async fn compare<T>(&mut self, name: &str, limit: f64, few: &T, many: &T, work: impl AsyncFn(&T) -> f64) {
        let mut line = String::new();
        for attempt in 0..TRIES {
            tokio::time::sleep(Duration::from_secs(attempt)).await;
            let mut costs = (Vec::new(), Vec::new());
            for round in 0..=ROUNDS {
                let (a, b) = if round % 2 == 0 {
                    let a = work(few).await;
                    (a, work(many).await)
                } else {
                    let b = work(many).await;
                    (work(few).await, b)
                };
                if round > 0 {
                    costs.0.push(a);
                    costs.1.push(b);
                }
            }
            let within;
            (line, within) = show(name, limit, costs.0, costs.1);
            if within {
                return;
            }
        }
        self.missed.push(line);
    }

    /// Notes the ratio of two medians.
    pub fn ratio(&mut self, name: &str, limit: f64, few: Vec<f64>, many: Vec<f64>) {
        let (line, within) = show(name, limit, few, many);
        if !within {
            self.missed.push(line);
        }
    }

    /// Fails when a ratio was above its limit.
    pub fn end(self) {
        assert!(self.missed.is_empty(), "above the limit:\n{}", self.missed.join("\n"));
    }
}

fn show(name: &str, limit: f64, few: Vec<f64>, many: Vec<f64>) -> (String, bool) {
    let (few, many) = (median(few), median(many));
    let ratio = many / few;
    let line = format!("{name}: {ratio:.2} (limit {limit}) [{many:.1} against {few:.1} us]");
    println!("{line}");
    (line, ratio <= limit)
}

fn median(mut of: Vec<f64>) -> f64 {
    assert!(of.len() >= 5, "too few rounds");
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
