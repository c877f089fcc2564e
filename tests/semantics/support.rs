//! Short words for what the tests say again and again.
//!
//! A query's answer is text: rows by line, columns by `|`, NULL as `~`. The tests compare that text.

use queen_tests::{Client, SUPERUSER, shared_cluster};
use tokio_postgres::SimpleQueryMessage;

/// A session in a database of its own.
pub struct Db {
    pub name: String,
    pub client: Client,
}

/// What one pop brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Transaction ids in order, by blanks.
    pub ids: String,
    /// Empty with `auto_ack`, or when nothing came.
    pub lease: String,
    /// Of the first message.
    pub partition_id: String,
    /// Of the first message.
    pub attempt: i32,
    /// Partition names in order, each once, by blanks.
    pub partitions: String,
    pub group: String,
}

/// A text as an SQL literal.
pub fn lit(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn show(rows: &[SimpleQueryMessage]) -> String {
    let mut lines = Vec::new();
    for message in rows {
        if let SimpleQueryMessage::Row(row) = message {
            let cells: Vec<&str> = (0..row.len()).map(|i| row.get(i).unwrap_or("~")).collect();
            lines.push(cells.join("|"));
        }
    }
    lines.join("\n")
}

impl Db {
    pub async fn new() -> Self {
        let name = shared_cluster().fresh_database().await;
        let client = shared_cluster().client(&name).await;
        Self { name, client }
    }

    /// Another session in the same database.
    pub async fn session(&self) -> Self {
        self.session_as(SUPERUSER).await
    }

    pub async fn session_as(&self, role: &str) -> Self {
        Self { name: self.name.clone(), client: shared_cluster().client_as(&self.name, role).await }
    }

    /// The answer, see above; panics with the server's error.
    pub async fn rows(&self, sql: &str) -> String {
        match self.client.simple_query(sql).await {
            Ok(messages) => show(&messages),
            Err(e) => panic!("{}\n{e:?}", sql.chars().take(2000).collect::<String>()),
        }
    }

    pub async fn run(&self, sql: &str) {
        self.rows(sql).await;
    }

    /// SQLSTATE and message of the error that this must raise.
    pub async fn error(&self, sql: &str) -> (String, String) {
        match self.client.simple_query(sql).await {
            Ok(messages) => panic!("no error from {sql}\n{}", show(&messages)),
            Err(e) => {
                let e = e.as_db_error().unwrap_or_else(|| panic!("connection lost in {sql:.200}: {e}"));
                (e.code().code().to_owned(), e.message().to_owned())
            }
        }
    }

    /// SQLSTATE of the error that this must raise.
    pub async fn state(&self, sql: &str) -> String {
        self.error(sql).await.0
    }

    /// Pushes one message for each of these transaction ids (by blanks), as one append.
    pub async fn push(&self, queue: &str, ids: &str) {
        self.push_to(queue, "Default", ids).await;
    }

    pub async fn push_to(&self, queue: &str, partition: &str, ids: &str) {
        let ids: Vec<String> = ids.split_whitespace().map(lit).collect();
        let payloads: Vec<String> = (0..ids.len()).map(|n| format!("'{n}'")).collect();
        self.run(&format!(
            "SELECT queen.push_many({}, ARRAY[{}]::jsonb[], {}, ARRAY[{}])",
            lit(queue),
            payloads.join(","),
            lit(partition),
            ids.join(",")
        ))
        .await;
    }

    /// Pops; `arguments` as written in SQL.
    pub async fn pop(&self, arguments: &str) -> Batch {
        self.popped(&format!("queen.pop({arguments})")).await
    }

    pub async fn popped(&self, call: &str) -> Batch {
        let text = self
            .rows(&format!(
                "SELECT transaction_id, coalesce(lease_id::text, ''), partition_id, delivery_attempt, partition, consumer_group FROM {call}"
            ))
            .await;
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split('|').collect()).collect();
        let first = |n: usize| rows.first().map_or(String::new(), |r| r[n].to_owned());
        let mut partitions: Vec<&str> = rows.iter().map(|r| r[4]).collect();
        partitions.dedup();
        for row in &rows {
            assert_eq!(row[1], rows[0][1], "one call, one lease id");
        }
        Batch {
            ids: rows.iter().map(|r| r[0]).collect::<Vec<_>>().join(" "),
            lease: first(1),
            partition_id: first(2),
            attempt: first(3).parse().unwrap_or(0),
            partitions: partitions.join(" "),
            group: first(5),
        }
    }

    /// Settles one message of a batch under its lease, and says what came of it; see [`verdict_columns`].
    pub async fn ack(&self, batch: &Batch, id: &str, status: &str) -> String {
        self.ack_with(batch, id, status, &batch.lease, "NULL").await
    }

    /// The same without naming the lease.
    pub async fn ack_unleased(&self, batch: &Batch, id: &str, status: &str) -> String {
        self.ack_with(batch, id, status, "", "NULL").await
    }

    /// `error` as written in SQL.
    pub async fn ack_with(&self, batch: &Batch, id: &str, status: &str, lease: &str, error: &str) -> String {
        self.rows(&format!(
            "SELECT {} FROM queen.ack({}, {}, {}, {}, {}::uuid, {error}) a",
            verdict_columns("a"),
            lit(&batch.partition_id),
            lit(id),
            lit(status),
            lit(&batch.group),
            if lease.is_empty() { "NULL".to_owned() } else { lit(lease) },
        ))
        .await
    }

    /// Settles several messages of a batch in one `ack_batch`; one verdict a line.
    pub async fn ack_all(&self, batch: &Batch, items: &[(&str, &str)]) -> String {
        self.rows(&format!(
            "SELECT {} FROM queen.ack_batch({}, {}) a",
            verdict_columns("a"),
            lit(&ack_items(batch, items)),
            lit(&batch.group)
        ))
        .await
    }

    /// Moves the end of every lease into the past, hints included, as time would.
    pub async fn expire(&self) {
        self.run(
            "DO $$
             DECLARE c record; t timestamptz;
             BEGIN
               FOR c IN SELECT gid, pid, seq, expires_at FROM queen.cursor WHERE expires_at > clock_timestamp() LOOP
                 t := clock_timestamp();
                 UPDATE queen.ready SET due_at = t WHERE gid = c.gid AND pid = c.pid AND due_at = c.expires_at;
                 UPDATE queen.cursor SET expires_at = t WHERE gid = c.gid AND pid = c.pid AND seq = c.seq;
               END LOOP;
             END $$",
        )
        .await;
    }

    /// Makes everything stored in a queue older by this many seconds.
    pub async fn age(&self, queue: &str, seconds: i32) {
        self.run(&format!(
            "UPDATE queen.segment s SET created_at = s.created_at - make_interval(secs => {seconds})
               FROM queen.partition p JOIN queen.queue q USING (qid) WHERE p.pid = s.pid AND q.name = {}",
            lit(queue)
        ))
        .await;
    }

    pub async fn configure(&self, queue: &str, options: &str) {
        self.run(&format!("SELECT queen.configure({}, {})", lit(queue), lit(options))).await;
    }

    /// Transaction ids stored in a queue, partition by partition, in order.
    pub async fn stored(&self, queue: &str) -> String {
        self.rows(&format!(
            "SELECT string_agg(r.transaction_id, ' ' ORDER BY p.partition, r.\"offset\")
               FROM queen.partitions p CROSS JOIN queen.read(p.partition_id, 0, 1000000) r WHERE p.queue = {}",
            lit(queue)
        ))
        .await
        .replace('~', "")
    }

    /// What the cursor of a group says: committed offset, retry counter, whether a lease stands.
    pub async fn cursor(&self, queue: &str, group: &str) -> String {
        self.rows(&format!(
            "SELECT DISTINCT ON (c.pid) c.committed, c.retries, c.lease_id IS NOT NULL
               FROM queen.cursor c JOIN queen.subscription s USING (gid) JOIN queen.queue q ON q.qid = s.qid
              WHERE q.name = {} AND s.name = {} ORDER BY c.pid, c.seq DESC",
            lit(queue),
            lit(group)
        ))
        .await
    }

    pub async fn partition_id(&self, queue: &str, partition: &str) -> String {
        self.rows(&format!(
            "SELECT partition_id FROM queen.partitions WHERE queue = {} AND partition = {}",
            lit(queue),
            lit(partition)
        ))
        .await
    }

    /// Nothing that is stored is damaged or out of range.
    pub async fn verify(&self) {
        assert_eq!(self.rows("SELECT * FROM queen.verify()").await, "");
    }
}

/// The messages of what a JSON twin of pop answers, each with what the answer says once for several.
pub fn messages(text: &str) -> Vec<serde_json::Value> {
    let answer: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text:.2000}"));
    let list = |value: &serde_json::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for batch in list(&answer, "batches") {
        for segment in list(&batch, "segments") {
            for (n, mut message) in list(&segment, "messages").into_iter().enumerate() {
                message["leaseId"] = answer["leaseId"].clone();
                for key in ["queue", "partition", "partitionId", "consumerGroup", "deliveryAttempt"] {
                    message[key] = batch[key].clone();
                }
                message["createdAt"] = segment["createdAt"].clone();
                message["offset"] = (segment["offset"].as_i64().unwrap_or_default() + n as i64).into();
                if message["transactionId"].is_null() {
                    message["transactionId"] = message["id"].clone();
                }
                found.push(message);
            }
        }
    }
    found
}

/// The verdict of an `ack_result` in words: `ok`, and what else is true; or `no: <error>`.
pub fn verdict_columns(alias: &str) -> String {
    format!(
        "CASE WHEN {alias}.success THEN concat_ws(' ', 'ok', CASE WHEN lease_released THEN 'released' END,
             CASE WHEN {alias}.dlq THEN 'dlq' END, CASE WHEN dropped THEN 'dropped' END, CASE WHEN noop THEN 'noop' END,
             'error: ' || {alias}.error)
         ELSE concat_ws(' ', 'no: ' || {alias}.error, CASE WHEN lease_released THEN 'released' END,
             CASE WHEN {alias}.dlq THEN 'dlq' END, CASE WHEN dropped THEN 'dropped' END, CASE WHEN noop THEN 'noop' END) END"
    )
}

/// The wire's items for `(transaction id, status)` pairs of one batch.
pub fn ack_items(batch: &Batch, items: &[(&str, &str)]) -> String {
    let items: Vec<serde_json::Value> = items
        .iter()
        .map(|(id, status)| {
            serde_json::json!({"transactionId": id, "partitionId": batch.partition_id,
                               "leaseId": batch.lease, "status": status})
        })
        .collect();
    serde_json::Value::Array(items).to_string()
}

/// Names and error texts of refusals, as they are on the wire.
pub const INVALID_LEASE: &str = "no: invalid or expired lease";
pub const ALREADY: &str = "no: already committed: the cursor moved past this message before this ack";
pub const UNRESOLVABLE: &str = "no: unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers";
pub const NO_LEASE: &str = "no: no leased batch";

/// Files message `a` of queue `q` for a group, and answers the record's id.
pub async fn filed(db: &Db, group: &str) -> String {
    db.push("q", "a").await;
    file_dead_letter(db, group).await
}

/// Files message `a` of queue `q`, pushed before.
pub async fn file_dead_letter(db: &Db, group: &str) -> String {
    let batch = db.pop(&format!("'q', '{group}', subscription_mode => 'all'")).await;
    assert_eq!(db.ack_with(&batch, "a", "dlq", &batch.lease, "'boom'").await, "ok released dlq");
    db.rows(&format!("SELECT id FROM queen.dlq(consumer_group => '{group}')")).await
}

/// The verdict of a move; `arguments` as written in SQL.
pub async fn moved(db: &Db, arguments: &str) -> serde_json::Value {
    serde_json::from_str(&db.rows(&format!("SELECT queen.dlq_move_v1({arguments})")).await).unwrap()
}
