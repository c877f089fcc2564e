//! A connection with its backend's pid, and calls of the broker that answer plain text: what tests of several sessions
//! need. Everything goes through the simple protocol, so that a transaction can be left open between calls.

use crate::Cluster;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// How long a test waits for something that must happen, before it says that it did not.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Text of each column; None for NULL.
pub type Row = Vec<Option<String>>;

/// A connection that tasks can share.
#[derive(Clone)]
pub struct Session {
    client: Arc<Client>,
    pub pid: i32,
}

/// A delivered message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub partition: String,
    pub partition_id: String,
    pub offset: i64,
    pub id: String,
    pub transaction_id: String,
    pub payload: String,
    pub lease: Option<String>,
    pub attempt: i32,
}

/// An SQL literal.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Session {
    pub async fn open(cluster: &Cluster, database: &str) -> Self {
        Self::try_open(cluster, database).await.unwrap_or_else(|e| panic!("cannot connect to {database}: {e}"))
    }

    /// For servers that may be down.
    pub async fn try_open(cluster: &Cluster, database: &str) -> Result<Self, Error> {
        let client = cluster.try_client_as(database, crate::SUPERUSER).await?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        Ok(Self { pid: row.get(0), client: Arc::new(client) })
    }

    /// The rows of the last statement that has any.
    pub async fn try_rows(&self, sql: &str) -> Result<Vec<Row>, Error> {
        let mut rows: Vec<Row> = Vec::new();
        for message in self.client.simple_query(sql).await? {
            match message {
                SimpleQueryMessage::RowDescription(_) => rows.clear(),
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect())
                }
                _ => {}
            }
        }
        Ok(rows)
    }

    pub async fn rows(&self, sql: &str) -> Vec<Row> {
        match self.try_rows(sql).await {
            Ok(rows) => rows,
            Err(e) => panic!("{sql}\n{}", describe(&e)),
        }
    }

    /// The first column of the first row; empty for NULL and for no row.
    pub async fn one(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        let first = rows.into_iter().next().and_then(|r| r.into_iter().next());
        first.flatten().unwrap_or_default()
    }

    pub async fn number(&self, sql: &str) -> i64 {
        let text = self.one(sql).await;
        text.parse().unwrap_or_else(|_| panic!("{sql} answered {text:?}"))
    }

    pub async fn run(&self, sql: &str) {
        self.rows(sql).await;
    }

    /// `queen.pop(…)` with these arguments.
    pub async fn pop(&self, arguments: &str) -> Vec<Message> {
        self.try_pop(arguments).await.unwrap_or_else(|e| panic!("pop({arguments})\n{}", describe(&e)))
    }

    pub async fn try_pop(&self, arguments: &str) -> Result<Vec<Message>, Error> {
        let rows = self
            .try_rows(&format!(
                "SELECT partition, partition_id, \"offset\", message_id, transaction_id, payload_text, lease_id,
                        delivery_attempt FROM queen.pop({arguments})"
            ))
            .await?;
        Ok(rows.into_iter().map(message).collect())
    }

    /// Appends one message for each transaction id, in one `push_batch`.
    pub async fn append(&self, queue: &str, partition: &str, ids: &[&str]) {
        self.run(&format!("SELECT queen.push_batch({})", batch(queue, partition, ids))).await;
    }

    /// Transaction ids of everything that is stored in the queue, by partition, in order of offset. Offsets must be
    /// dense.
    pub async fn stored(&self, queue: &str) -> HashMap<String, Vec<String>> {
        let rows = self
            .rows(&format!(
                "SELECT partition, \"offset\", transaction_id FROM queen.messages({}, max_rows => 1000000)
                  ORDER BY partition, \"offset\"",
                quote(queue)
            ))
            .await;
        let mut stored: HashMap<String, Vec<String>> = HashMap::new();
        for row in rows {
            let [Some(partition), Some(offset), Some(id)] = row.as_slice() else {
                panic!("a message without a name: {row:?}")
            };
            let lane = stored.entry(partition.clone()).or_default();
            assert_eq!(*offset, lane.len().to_string(), "offsets of {partition} are not dense");
            lane.push(id.clone());
        }
        stored
    }

    /// Starts SQL in the background.
    pub fn start(&self, sql: &str) -> Started {
        let (session, sql) = (self.clone(), sql.to_owned());
        let pid = self.pid;
        Started { pid, task: tokio::spawn(async move { session.try_rows(&sql).await }) }
    }

    /// As [`Self::start`]; comes back when the call has ended, or waits for a lock. `observer` looks.
    pub async fn start_and_watch(&self, observer: &Session, sql: &str) -> (Started, bool) {
        let started = self.start(sql);
        let waits = started.waits(observer).await;
        (started, waits)
    }

    /// Ends the backend, and waits until it is gone.
    pub async fn terminate(&self, pid: i32) {
        self.run(&format!("SELECT pg_terminate_backend({pid})")).await;
        let begun = Instant::now();
        let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        while self.number(&alive).await > 0 {
            assert!(begun.elapsed() < PATIENCE, "backend {pid} does not end");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn message(row: Row) -> Message {
    let mut row = row.into_iter();
    let mut next = || row.next().flatten();
    let mut text = || next().unwrap_or_default();
    Message {
        partition: text(),
        partition_id: text(),
        offset: text().parse().expect("offset"),
        id: text(),
        transaction_id: text(),
        payload: text(),
        lease: Some(text()).filter(|t| !t.is_empty()),
        attempt: text().parse().expect("delivery_attempt"),
    }
}

/// The argument of `push_batch` for messages that say only their transaction id.
pub fn batch(queue: &str, partition: &str, ids: &[&str]) -> String {
    let items: Vec<_> = ids
        .iter()
        .map(|id| {
            serde_json::json!({
                "queue": queue, "partition": partition, "payload": {"id": id}, "transactionId": id,
            })
        })
        .collect();
    quote(&serde_json::Value::Array(items).to_string())
}

/// A call under way.
pub struct Started {
    pid: i32,
    task: JoinHandle<Result<Vec<Row>, Error>>,
}

impl Started {
    /// Comes back when the call has ended (false) or waits for a lock that somebody holds (true).
    pub async fn waits(&self, observer: &Session) -> bool {
        // A lock is seen as awaited only when it is at two looks in a row: short waits pass.
        let mut before = String::new();
        let begun = Instant::now();
        while !self.task.is_finished() {
            let now = observer
                .one(&format!(
                    "SELECT string_agg(concat_ws(' ', locktype, mode, transactionid, objid, objsubid, waitstart), ',')
                       FROM pg_locks WHERE pid = {} AND NOT granted",
                    self.pid
                ))
                .await;
            if !now.is_empty() && now == before {
                return true;
            }
            before = now;
            assert!(begun.elapsed() < PATIENCE, "neither ends nor waits for a lock");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        false
    }

    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    pub async fn try_end(self) -> Result<Vec<Row>, Error> {
        tokio::time::timeout(PATIENCE, self.task).await.expect("the call does not end").expect("the call's task")
    }

    pub async fn end(self) -> Vec<Row> {
        self.try_end().await.unwrap_or_else(|e| panic!("{}", describe(&e)))
    }
}

/// SQLSTATE of a server error; empty for a lost connection.
pub fn sqlstate(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}

/// What the server said.
pub fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(e) => format!("{} {} {}", e.code().code(), e.message(), e.detail().unwrap_or_default()),
        None => error.to_string(),
    }
}
