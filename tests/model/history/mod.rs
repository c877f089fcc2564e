//! One random history: each call is made to the broker and to the model, and their answers are compared.

mod consuming;
mod operating;
mod producing;

use crate::random::Random;
use crate::reference::{Model, Options, Place, Push, STEP, Status, Verdict};
use queen_tests::Cluster;
use queen_tests::session::{Message, Row, Session, describe, quote};
use std::collections::BTreeMap;
use std::panic::Location;

const STEPS: usize = 120;
const LANES: [&str; 3] = ["one", "two", "three"];
const QUEUE_MODE: &str = "__QUEUE_MODE__";

pub async fn run(cluster: &Cluster, db: &str, seed: u64) {
    let mut random = Random::new(seed);
    let queues = [format!("a{seed}"), format!("b{seed}")];
    let mut history = History {
        cluster,
        db,
        seed,
        // Ids that say nothing of their time need no row to be found; time that is made to pass would hide them.
        time_passes: random.below(3) > 0,
        random,
        sessions: Vec::new(),
        at: 0,
        model: Model::default(),
        queues,
        leases: Vec::new(),
        number: 0,
        in_transaction: false,
        old_snapshot: false,
        trace: Vec::new(),
    };
    history.begin().await;
    for _ in 0..STEPS {
        history.step().await;
    }
    history.end().await;
}

struct History<'c> {
    cluster: &'c Cluster,
    db: &'c str,
    seed: u64,
    random: Random,
    time_passes: bool,
    sessions: Vec<Session>,
    /// The session whose turn it is.
    at: usize,
    model: Model,
    queues: [String; 2],
    /// Every lease there was.
    leases: Vec<String>,
    number: u64,
    in_transaction: bool,
    /// In a transaction whose snapshot is older than its last statement: administration is refused.
    old_snapshot: bool,
    trace: Vec<String>,
}

fn text(row: &Row, column: usize) -> &str {
    row[column].as_deref().unwrap_or_default()
}

impl History<'_> {
    #[track_caller]
    fn wrong(&self, what: &str) -> ! {
        let from = self.trace.len().saturating_sub(60);
        panic!("history {}, {}: {what}\n{}", self.seed, Location::caller(), self.trace[from..].join("\n"));
    }

    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, broker: T, model: T) {
        if broker != model {
            self.wrong(&format!("{what}\n  broker: {broker:?}\n  model:  {model:?}"));
        }
    }

    fn note(&mut self, sql: &str) {
        let line = format!("[{}] {sql}", self.at);
        if std::env::var_os("QUEEN_MODEL_SEED").is_some() {
            eprintln!("{line}");
        }
        self.trace.push(line);
    }

    async fn call(&mut self, sql: &str) -> Vec<Row> {
        self.note(sql);
        let answer = self.sessions[self.at].try_rows(sql).await;
        answer.unwrap_or_else(|e| self.wrong(&describe(&e)))
    }

    async fn one(&mut self, sql: &str) -> String {
        let rows = self.call(sql).await;
        rows.first().map(|row| text(row, 0).to_owned()).unwrap_or_default()
    }

    async fn count(&mut self, sql: &str) -> i64 {
        let answer = self.one(sql).await;
        answer.parse().unwrap_or_else(|_| self.wrong(&format!("{answer:?} is no number")))
    }

    fn queue(&mut self) -> String {
        self.random.pick(&self.queues).clone()
    }

    fn group(&mut self, queue: &str) -> &'static str {
        let groups = if queue == self.queues[0] { ["g1", "new"] } else { ["g1", QUEUE_MODE] };
        groups[self.random.below(2)]
    }

    async fn open(&mut self) {
        self.sessions.clear();
        for _ in 0..3 {
            self.sessions.push(Session::open(self.cluster, self.db).await);
        }
    }

    async fn begin(&mut self) {
        self.open().await;
        for n in 0..2 {
            self.configure(n).await;
        }
    }

    async fn configure(&mut self, n: usize) {
        let queue = self.queues[n].clone();
        let options = Options {
            retry_limit: self.random.below(3) as i32,
            dead_letter: n == 0 || self.random.once_in(2),
            window: if n == 0 { 3600 } else { 0 },
            completed: (n == 0).then_some(800),
            evict: (n == 1).then_some(2500),
        };
        let json = serde_json::json!({
            "retryLimit": options.retry_limit, "deadLetterQueue": options.dead_letter, "dlqAfterMaxRetries": false,
            "dedupWindowSeconds": options.window, "retentionEnabled": true, "leaseTime": 500,
            "completedRetentionSeconds": options.completed.unwrap_or(0), "maxWaitTimeSeconds": options.evict.unwrap_or(0),
        });
        self.call(&format!("SELECT queen.configure('{queue}', '{json}')")).await;
        self.model.options.insert(queue, options);
    }

    /// One call, or a transaction of several that ends well or badly.
    async fn step(&mut self) {
        self.at = self.random.below(self.sessions.len());
        if self.random.once_in(25) && self.time_passes {
            self.pass_time().await;
        } else if self.random.once_in(4) {
            self.transaction().await;
        } else {
            self.verb().await;
        }
    }

    async fn transaction(&mut self) {
        let before = self.model.clone();
        let isolation = *self.random.pick(&["READ COMMITTED", "REPEATABLE READ"]);
        self.old_snapshot = isolation == "REPEATABLE READ";
        self.call(&format!("BEGIN ISOLATION LEVEL {isolation}")).await;
        self.in_transaction = true;
        let mut savepoints: Vec<Model> = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            match self.random.below(6) {
                0 => {
                    self.call(&format!("SAVEPOINT s{}", savepoints.len())).await;
                    savepoints.push(self.model.clone());
                }
                1 if !savepoints.is_empty() => {
                    // Undo to one of them; it and those before it stay.
                    let n = self.random.below(savepoints.len());
                    self.call(&format!("ROLLBACK TO s{n}")).await;
                    savepoints.truncate(n + 1);
                    self.model = savepoints[n].clone();
                }
                2 if !savepoints.is_empty() => {
                    let n = self.random.below(savepoints.len());
                    self.call(&format!("RELEASE s{n}")).await;
                    savepoints.truncate(n);
                }
                _ => self.verb().await,
            }
        }
        self.in_transaction = false;
        self.old_snapshot = false;
        match self.random.below(6) {
            0 | 1 => {
                self.call("ROLLBACK").await;
                self.model = before;
            }
            2 => {
                self.note("the backend is killed");
                let (pid, other) = (self.sessions[self.at].pid, (self.at + 1) % self.sessions.len());
                self.sessions[other].terminate(pid).await;
                self.sessions[self.at] = Session::open(self.cluster, self.db).await;
                self.model = before;
            }
            _ => {
                self.call("COMMIT").await;
                self.model.flush();
            }
        }
    }

    async fn verb(&mut self) {
        self.call_something().await;
        if self.number.is_multiple_of(2) {
            self.cursors().await;
        }
    }

    async fn call_something(&mut self) {
        match self.random.below(100) {
            0..14 => self.push().await,
            14..28 => self.push_batch().await,
            28..30 => {
                let flushed = self.count("SELECT queen.flush()").await;
                let expected = self.model.flush();
                self.same("flush", flushed, expected);
            }
            30..55 => self.pop().await,
            55..73 => self.ack_batch().await,
            73..84 => self.lease().await,
            84..88 => self.nack().await,
            88..91 => self.seek().await,
            91..93 => self.maintain().await,
            93..97 => self.move_dead_letter().await,
            97 => self.drop_group().await,
            98 => self.check().await,
            _ if self.random.once_in(3) && !self.old_snapshot => {
                let n = self.random.below(2);
                let queue = self.queues[n].clone();
                // A push that is pending makes the queue again, with other options: not here.
                if !self.model.pending.iter().any(|p| p.queue == queue) {
                    self.call(&format!("SELECT queen.drop_queue('{queue}')")).await;
                    self.model.drop_queue(&queue);
                    self.configure(n).await;
                }
            }
            _ => {}
        }
    }
}
