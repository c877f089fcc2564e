//! One random history: each call is made to the broker and to the model, and their answers are compared.

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
    trace: Vec<String>,
}

fn text(row: &Row, column: usize) -> &str {
    row[column].as_deref().unwrap_or_default()
}

impl History<'_> {
    #[track_caller]
    fn wrong(&self, what: &str) -> ! {
        let from = self.trace.len().saturating_sub(60);
        panic!(
            "history {}, {}: {what}\n{}",
            self.seed,
            Location::caller(),
            self.trace[from..].join("\n")
        );
    }

    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, broker: T, model: T) {
        if broker != model {
            self.wrong(&format!(
                "{what}\n  broker: {broker:?}\n  model:  {model:?}"
            ));
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
        rows.first()
            .map(|row| text(row, 0).to_owned())
            .unwrap_or_default()
    }

    async fn count(&mut self, sql: &str) -> i64 {
        let answer = self.one(sql).await;
        answer
            .parse()
            .unwrap_or_else(|_| self.wrong(&format!("{answer:?} is no number")))
    }

    fn queue(&mut self) -> String {
        self.random.pick(&self.queues).clone()
    }

    fn group(&mut self, queue: &str) -> &'static str {
        let groups = if queue == self.queues[0] {
            ["g1", "new"]
        } else {
            ["g1", QUEUE_MODE]
        };
        groups[self.random.below(2)]
    }

    async fn open(&mut self) {
        self.sessions.clear();
        for _ in 0..3 {
            self.sessions
                .push(Session::open(self.cluster, self.db).await);
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
        self.call(&format!("SELECT queen.configure('{queue}', '{json}')"))
            .await;
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
        self.call(&format!("BEGIN ISOLATION LEVEL {isolation}"))
            .await;
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
        match self.random.below(6) {
            0 | 1 => {
                self.call("ROLLBACK").await;
                self.model = before;
            }
            2 => {
                self.note("the backend is killed");
                let (pid, other) = (
                    self.sessions[self.at].pid,
                    (self.at + 1) % self.sessions.len(),
                );
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
            _ if self.random.once_in(3) => {
                let n = self.random.below(2);
                let queue = self.queues[n].clone();
                // A push that is pending makes the queue again, with other options: not here.
                if !self.model.pending.iter().any(|p| p.queue == queue) {
                    self.call(&format!("SELECT queen.drop_queue('{queue}')"))
                        .await;
                    self.model.drop_queue(&queue);
                    self.configure(n).await;
                }
            }
            _ => {}
        }
    }

    /// What to push: sometimes with an id that is there already.
    fn item(&mut self, queue: &str, lane: &str) -> Push {
        self.number += 1;
        let stored = self.model.lanes.get(&(queue.to_owned(), lane.to_owned()));
        let id = match self.random.below(5) {
            0 if !self.time_passes => None,
            // Where there is no window, a transaction that repeats itself is beyond this model.
            1 if self.model.options[queue].window > 0 || !self.in_transaction => {
                let n = stored.map_or(0, |l| l.messages.len());
                (n > 0)
                    .then(|| stored.map(|l| l.messages[self.random.below(n)].id.clone()))
                    .flatten()
            }
            _ => None,
        };
        let id = id.or_else(|| {
            (self.time_passes || !self.random.once_in(5)).then(|| format!("i{}", self.number))
        });
        // The same id in two lanes is two messages.
        let id = id.map(|id| {
            if self.random.once_in(8) && id.starts_with('i') {
                format!("i{}", self.number / 8)
            } else {
                id
            }
        });
        let id = id.filter(|id| {
            let pushed_here = stored.is_some_and(|l| l.messages.iter().any(|m| m.id == *id));
            !(self.in_transaction && self.model.options[queue].window == 0 && pushed_here)
        });
        let id = id.or_else(|| self.time_passes.then(|| format!("n{}", self.number)));
        Push {
            queue: queue.to_owned(),
            lane: lane.to_owned(),
            id,
            message_id: String::new(),
            payload: self.number,
        }
    }

    /// A push that lands at commit.
    async fn push(&mut self) {
        let queue = self.queue();
        let lane = *self.random.pick(&LANES);
        let mut push = self.item(&queue, lane);
        let id = push.id.as_deref().map_or("NULL".to_owned(), quote);
        let sql = format!(
            "SELECT status, message_id FROM queen.push('{queue}', '{}', '{lane}', {id})",
            push.payload
        );
        let row = self.call(&sql).await.remove(0);
        push.message_id = text(&row, 1).to_owned();
        let stored = push
            .id
            .as_deref()
            .and_then(|id| self.model.duplicate(&queue, lane, id));
        let original = stored.map(|(_, m)| m.message_id.clone()).or_else(|| {
            let mut pending = self.model.pending.iter();
            let same = pending
                .find(|p| p.id.is_some() && p.id == push.id && p.queue == queue && p.lane == lane);
            same.map(|p| p.message_id.clone())
        });
        self.same(
            "status",
            text(&row, 0),
            if original.is_some() {
                "duplicate"
            } else {
                "queued"
            },
        );
        match original {
            Some(original) => self.same("original message", text(&row, 1), original.as_str()),
            None => self.model.pending.push(push),
        }
        if !self.in_transaction {
            self.model.flush();
        }
    }

    /// A push that is there at once.
    async fn push_batch(&mut self) {
        let mut pushes = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let (queue, lane) = (self.queue(), *self.random.pick(&LANES));
            let mut push = self.item(&queue, lane);
            if self.random.once_in(6)
                && let Some(Push {
                    queue,
                    lane,
                    id: Some(id),
                    ..
                }) = pushes.last()
            {
                (push.queue, push.lane, push.id) = (queue.clone(), lane.clone(), Some(id.clone()));
            }
            pushes.push(push);
        }
        let items: Vec<_> = pushes
            .iter()
            .map(|p| {
                let mut item = serde_json::json!({"queue": p.queue, "partition": p.lane, "payload": p.payload});
                if let Some(id) = &p.id {
                    item["transactionId"] = id.clone().into();
                }
                item
            })
            .collect();
        let items = quote(&serde_json::Value::Array(items).to_string());
        let rows = self
            .call(&format!(r#"SELECT status, message_id, "offset" FROM queen.push_batch({items}) ORDER BY index"#))
            .await;
        for (push, row) in pushes.iter_mut().zip(&rows) {
            push.message_id = text(row, 1).to_owned();
        }
        // The ids of the answer are those of the originals: taken for their own, duplicates are told by their offsets.
        let answers = self.model.append(&pushes);
        for ((push, row), answer) in pushes.iter().zip(&rows).zip(answers) {
            self.same(
                "status",
                text(row, 0),
                if answer.is_some() {
                    "queued"
                } else {
                    "duplicate"
                },
            );
            let offset: i64 = text(row, 2).parse().expect("offset");
            match answer {
                Some(expected) => self.same("offset", offset, expected),
                None => {
                    let lane = &self.model.lanes[&(push.queue.clone(), push.lane.clone())];
                    let original = &lane.messages[offset as usize];
                    self.same("original", Some(&original.id), push.id.as_ref());
                    self.same("original message", &push.message_id, &original.message_id);
                }
            }
        }
    }

    async fn pop(&mut self) {
        let queue = self.queue();
        let group = self.group(&queue);
        let batch = 1 + self.random.below(6) as i64;
        let known = self
            .model
            .groups
            .contains_key(&(queue.clone(), group.to_owned()));
        let pinned = (known && self.random.once_in(3)).then(|| *self.random.pick(&LANES));
        let cap = self.random.below(4);
        let auto_ack = self.random.once_in(5);
        let seconds = *self.random.pick(&[None, Some(500), Some(50_000)]);
        let arguments = format!(
            "'{queue}', '{group}', {batch}, {}, {cap}, {}, {auto_ack}, '{}'",
            pinned.map_or("NULL".to_owned(), quote),
            seconds.map_or("NULL".to_owned(), |s: i64| s.to_string()),
            if group == "new" { "new" } else { "all" },
        );
        self.note(&format!("pop({arguments})"));
        let got = match self.sessions[self.at].try_pop(&arguments).await {
            Ok(got) => got,
            Err(e) => self.wrong(&describe(&e)),
        };
        self.model.subscribe(&queue, group, group == "new");
        let mut batches: Vec<Vec<Message>> = Vec::new();
        for message in got {
            match batches.last_mut() {
                Some(last) if last[0].partition == message.partition => last.push(message),
                _ => batches.push(vec![message]),
            }
        }
        let cap = if pinned.is_some() { 1 } else { cap };
        let mut left = batch;
        let lease = batches.first().and_then(|b| b[0].lease.clone());
        self.same("a lease", lease.is_some(), !batches.is_empty() && !auto_ack);
        for messages in &batches {
            let lane = messages[0].partition.clone();
            if pinned.is_some_and(|p| p != lane) {
                self.wrong(&format!("a message of {lane}"));
            }
            let Some((first, available)) = self.model.available(&queue, group, &lane) else {
                self.wrong(&format!(
                    "{lane} has nothing for {group}, and got {messages:?}"
                ));
            };
            self.same(
                "number of messages",
                messages.len() as i64,
                available.min(left),
            );
            let place = (queue.clone(), group.to_owned(), lane.clone());
            let lease = lease.as_deref().map(|l| (l, seconds.unwrap_or(500)));
            let attempt = self
                .model
                .deliver(&place, first, messages.len() as i64, lease);
            for (n, m) in messages.iter().enumerate() {
                let stored =
                    &self.model.lanes[&(queue.clone(), lane.clone())].messages[first as usize + n];
                let payload = stored.payload.to_string();
                let expected = (
                    first + n as i64,
                    &stored.id,
                    &stored.message_id,
                    &payload,
                    attempt,
                    lease.map(|l| l.0),
                );
                let actual = (
                    m.offset,
                    &m.transaction_id,
                    &m.id,
                    &m.payload,
                    m.attempt,
                    m.lease.as_deref(),
                );
                self.same("message", actual, expected);
            }
            left -= messages.len() as i64;
        }
        if cap > 0 && batches.len() > cap {
            self.wrong(&format!("{} partitions", batches.len()));
        }
        if left > 0 && (cap == 0 || batches.len() < cap) {
            let lanes = match pinned {
                Some(lane) => vec![lane.to_owned()],
                None => self.model.lanes_of(&queue),
            };
            for lane in lanes {
                let missed = self.model.available(&queue, group, &lane);
                self.same(
                    &format!("what {group} did not find in {lane}"),
                    None,
                    missed,
                );
            }
        }
        self.leases.extend(lease);
    }

    fn some_place(&mut self) -> Option<Place> {
        let places: Vec<&Place> = self.model.cursors.keys().collect();
        (!places.is_empty()).then(|| self.random.pick(&places).to_owned().clone())
    }

    fn some_lease(&mut self) -> Option<String> {
        // Rather one of late.
        let recent = &self.leases[self.leases.len().saturating_sub(6)..];
        (!recent.is_empty()).then(|| self.random.pick(recent).clone())
    }

    async fn partition_id(&mut self, queue: &str, lane: &str) -> String {
        self.one(&format!(
            "SELECT partition_id FROM queen.partitions WHERE queue = '{queue}' AND partition = '{lane}'"
        ))
        .await
    }

    /// An id from around the place's batch, or an unknown one.
    fn some_id(&mut self, place: &Place) -> String {
        let lane = &self.model.lanes[&(place.0.clone(), place.2.clone())];
        let cursor = &self.model.cursors[place];
        let offset = cursor.committed + 1 - 2 + self.random.below(7) as i64;
        match usize::try_from(offset)
            .ok()
            .and_then(|o| lane.messages.get(o))
        {
            Some(m) => m.id.clone(),
            None => "unknown".to_owned(),
        }
    }

    async fn ack_batch(&mut self) {
        let Some(place) = self.some_place() else {
            return;
        };
        let current = self.model.cursors[&place]
            .lease
            .as_ref()
            .map(|l| l.id.clone());
        let lease = match self.random.below(8) {
            0..5 => current,
            5..7 => None,
            _ => self.some_lease(),
        };
        let mut items = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let status = match self.random.below(12) {
                0 | 1 => Status::Failed,
                2 => Status::Retry,
                3 => Status::Dlq,
                _ => Status::Completed,
            };
            items.push((self.some_id(&place), status));
        }
        let partition = self.partition_id(&place.0, &place.2).await;
        let json: Vec<_> = items
            .iter()
            .map(|(id, status)| {
                let status = format!("{status:?}").to_lowercase();
                serde_json::json!({"transactionId": id, "partitionId": partition, "leaseId": lease, "status": status})
            })
            .collect();
        let rows = self
            .call(&format!(
                "SELECT success, error, lease_released, dlq, dropped, noop FROM queen.ack_batch({}, '{}') ORDER BY index",
                quote(&serde_json::Value::Array(json).to_string()),
                place.1
            ))
            .await;
        let expected = self.model.settle(&place, lease.as_deref(), &items);
        self.same("answers", rows.len(), expected.len());
        for (row, expected) in rows.iter().zip(&expected) {
            self.verdict(row, expected);
        }
    }

    fn verdict(&self, row: &Row, expected: &Verdict) {
        let flag = |n: usize| text(row, n) == "t";
        let error = row[1].as_deref();
        let begins = match (error, expected.error) {
            (Some(error), Some(begin)) if error.starts_with(begin) => Some(begin),
            (None, None) => None,
            _ => self.wrong(&format!(
                "error\n  broker: {error:?}\n  model:  {:?}",
                expected.error
            )),
        };
        let actual = Verdict {
            success: flag(0),
            error: begins,
            // Of an item that was done before, a released lease says nothing.
            released: flag(2) && !expected.noop,
            dlq: flag(3),
            dropped: flag(4),
            noop: flag(5),
        };
        self.same("verdict", &actual, expected);
    }

    async fn lease(&mut self) {
        let Some(lease) = self.some_lease() else {
            return;
        };
        match self.random.below(4) {
            0 => {
                let answer = self
                    .count(&format!("SELECT queen.release('{lease}')"))
                    .await;
                let expected = self.model.release(&lease);
                self.same("release", answer, expected);
            }
            1 => {
                let seconds = *self.random.pick(&[500, 50_000]);
                let answer = self
                    .one(&format!("SELECT queen.renew_lease('{lease}', {seconds})"))
                    .await;
                let expected = self.model.renew(&lease, seconds);
                self.same("renew_lease", !answer.is_empty(), expected);
            }
            _ => {
                let answer = self
                    .count(&format!("SELECT queen.ack_lease('{lease}')"))
                    .await;
                let expected = self.model.ack_lease(&lease);
                self.same("ack_lease", answer, expected);
            }
        }
    }

    async fn nack(&mut self) {
        let Some(lease) = self.some_lease() else {
            return;
        };
        let held = self.model.holding(&lease);
        let id = match held.is_empty() {
            true => "unknown".to_owned(),
            false => {
                let place = self.random.pick(&held).clone();
                self.some_id(&place)
            }
        };
        let (status, word) = *self.random.pick(&[
            (Status::Failed, "failed"),
            (Status::Retry, "retry"),
            (Status::Dlq, "dlq"),
        ]);
        let sql = format!(
            "SELECT success, error, lease_released, dlq, dropped, noop FROM queen.nack('{lease}', {}, 'no', '{word}')",
            quote(&id)
        );
        let places = self.model.holding_message(&lease, &id);
        if places.len() > 1 {
            self.note(&format!("{sql} -- ambiguous"));
            let session = self.sessions[self.at].clone();
            if self.in_transaction {
                session.run("SAVEPOINT ambiguous").await;
            }
            let error = session.try_rows(&sql).await.expect_err("ambiguous");
            self.same(
                "sqlstate",
                &queen_tests::session::sqlstate(&error)[..2],
                "QN",
            );
            if self.in_transaction {
                session.run("ROLLBACK TO ambiguous").await;
            }
            return;
        }
        let row = self.call(&sql).await.remove(0);
        match places.first() {
            Some(place) => {
                let expected = self.model.settle(place, Some(&lease), &[(id, status)]);
                self.verdict(&row, &expected[0]);
            }
            None => self.same("nack", text(&row, 0), "f"),
        }
    }

    async fn seek(&mut self) {
        let queue = self.queue();
        let group = self.group(&queue);
        let known = self
            .model
            .groups
            .contains_key(&(queue.clone(), group.to_owned()));
        let lanes = self.model.lanes_of(&queue);
        if known && !lanes.is_empty() && self.random.once_in(2) {
            // To a segment of one lane.
            let name = self.random.pick(&lanes).clone();
            let lane = &self.model.lanes[&(queue.clone(), name.clone())];
            let stored: Vec<i64> = lane
                .segments
                .iter()
                .map(|s| s.0)
                .filter(|&base| base >= lane.start)
                .collect();
            if stored.is_empty() {
                return;
            }
            let base = *self.random.pick(&stored);
            let at = self
                .one(&format!(
                    "SELECT s.created_at FROM queen.segment s JOIN queen.partition p USING (pid) JOIN queen.queue q USING (qid)
                      WHERE q.name = '{queue}' AND p.name = '{name}' AND s.base = {base}"
                ))
                .await;
            let sql = format!(
                "SELECT queen.seek('{queue}', '{group}', to_timestamp => '{at}', partition => '{name}')"
            );
            let moved = self.count(&sql).await;
            self.same("cursors", moved, 1);
            self.model.seek(&queue, group, &[(name, base - 1)]);
            return;
        }
        let to_end = self.random.once_in(3);
        let target = if to_end {
            "to_end => true"
        } else {
            "to_timestamp => '-infinity'"
        };
        let moved = self
            .count(&format!(
                "SELECT queen.seek('{queue}', '{group}', {target})"
            ))
            .await;
        self.same("cursors", moved, lanes.len() as i64);
        self.model.subscribe(&queue, group, to_end);
        let to: Vec<(String, i64)> = lanes
            .into_iter()
            .map(|name| {
                let tail = self.model.lanes[&(queue.clone(), name.clone())].tail();
                (name, if to_end { tail } else { -1 })
            })
            .collect();
        self.model.seek(&queue, group, &to);
    }

    async fn maintain(&mut self) {
        let removed = self
            .count("SELECT (queen.maintain()->>'messagesRemoved')::int")
            .await;
        let expected = self.model.maintain();
        self.same("messages removed", removed, expected);
    }

    async fn drop_group(&mut self) {
        let queue = self.queue();
        let group = self.group(&queue);
        let metadata = self.random.once_in(2);
        let dropped = self
            .count(&format!(
                "SELECT queen.drop_consumer_group('{group}', '{queue}', {metadata})"
            ))
            .await;
        let expected = self.model.drop_group(&queue, group, metadata);
        self.same("cursors dropped", dropped, expected);
    }

    async fn move_dead_letter(&mut self) {
        let dead: Vec<(Place, i64)> = self.model.dead.keys().cloned().collect();
        if dead.is_empty() {
            return;
        }
        let (place, offset) = self.random.pick(&dead).clone();
        let id = self
            .one(&format!(
                "SELECT id FROM queen.dlq('{}', '{}', 10000) WHERE partition = '{}' AND \"offset\" = {offset}",
                place.0, place.1, place.2
            ))
            .await;
        if id.is_empty() {
            self.wrong(&format!("no dead letter of {place:?} at {offset}"));
        }
        let queue = if self.random.once_in(3) {
            self.queue()
        } else {
            place.0.clone()
        };
        let lane = if self.random.once_in(3) {
            (*self.random.pick(&LANES)).to_owned()
        } else {
            place.2.clone()
        };
        let row = self
            .call(&format!(
                "SELECT v->>'result', v->>'offset', v->>'messageId' FROM queen.dlq_move_v1('{id}', '{queue}', '{lane}') v"
            ))
            .await
            .remove(0);
        let origin =
            &self.model.lanes[&(place.0.clone(), place.2.clone())].messages[offset as usize];
        let push = Push {
            queue: queue.clone(),
            lane: lane.clone(),
            id: Some(format!("dlq:{id}")),
            message_id: text(&row, 2).to_owned(),
            payload: origin.payload,
        };
        let moved = self.model.append(&[push])[0];
        self.same("result", text(&row, 0), "moved");
        self.same(
            "offset",
            text(&row, 1).to_owned(),
            moved.map(|o| o.to_string()).unwrap_or_default(),
        );
        self.model.dead.remove(&(place, offset));
        let again = self
            .one(&format!("SELECT queen.dlq_move_v1('{id}')->>'result'"))
            .await;
        self.same("second move", again.as_str(), "gone");
    }

    /// Time passes: everything that is stored gets older by a step, and backends begin anew.
    async fn pass_time(&mut self) {
        self.note("time passes");
        let old = format!("- interval '{STEP} seconds'");
        self.sessions[0]
            .run(&format!(
                "BEGIN;
                 UPDATE queen.segment SET created_at = created_at {old};
                 UPDATE queen.partition SET created_at = created_at {old};
                 UPDATE queen.subscription SET start_at = start_at {old} WHERE start_at > '-infinity';
                 UPDATE queen.cursor SET expires_at = expires_at {old} WHERE expires_at IS NOT NULL;
                 UPDATE queen.ready SET due_at = due_at {old};
                 COMMIT"
            ))
            .await;
        self.model.now += STEP;
        self.open().await;
    }

    /// Everything that can be looked at is as in the model.
    async fn check(&mut self) {
        for queue in self.queues.clone() {
            let rows = self
                .call(&format!(
                    "SELECT partition, \"offset\", transaction_id, message_id, payload_text
                       FROM queen.messages('{queue}', max_rows => 100000) ORDER BY 1, 2"
                ))
                .await;
            let mut broker: BTreeMap<String, Vec<[String; 4]>> = BTreeMap::new();
            for row in rows {
                let columns = [1, 2, 3, 4].map(|n| text(&row, n).to_owned());
                broker
                    .entry(text(&row, 0).to_owned())
                    .or_default()
                    .push(columns);
            }
            for name in self.model.lanes_of(&queue) {
                let lane = &self.model.lanes[&(queue.clone(), name.clone())];
                let expected: Vec<[String; 4]> = (lane.start..=lane.tail())
                    .map(|o| (o, &lane.messages[o as usize]))
                    .map(|(o, m)| {
                        [
                            o.to_string(),
                            m.id.clone(),
                            m.message_id.clone(),
                            m.payload.to_string(),
                        ]
                    })
                    .collect();
                self.same(
                    &format!("stored in {name}"),
                    broker.remove(&name).unwrap_or_default(),
                    expected,
                );
            }
            self.same("further partitions", broker.len(), 0);
            let rows = self
                .call(&format!(
                    "SELECT consumer_group, partition, \"offset\", transaction_id, retry_count FROM queen.dlq('{queue}', NULL, 10000)"
                ))
                .await;
            let mut broker: Vec<String> = rows
                .iter()
                .map(|r| (0..5).map(|n| text(r, n)).collect::<Vec<_>>().join(" "))
                .collect();
            broker.sort();
            let of_queue = self
                .model
                .dead
                .iter()
                .filter(|((place, _), _)| place.0 == queue);
            let mut expected: Vec<String> = of_queue
                .map(|(((_, group, lane), offset), (id, retries))| {
                    format!("{group} {lane} {offset} {id} {retries}")
                })
                .collect();
            expected.sort();
            self.same("dead letters", broker, expected);
            for group in ["g1", "new", QUEUE_MODE] {
                let rows = self
                    .call(&format!(
                        "SELECT pending, processing FROM queen.consumer_groups WHERE queue = '{queue}' AND consumer_group = '{group}'"
                    ))
                    .await;
                let known = self
                    .model
                    .groups
                    .contains_key(&(queue.clone(), group.to_owned()));
                self.same(&format!("group {group} is known"), !rows.is_empty(), known);
                if let Some(row) = rows.first() {
                    let number = |n: usize| text(row, n).parse::<i64>().expect("a number");
                    let expected = self.model.depth(&queue, group);
                    self.same(
                        &format!("pending and processing of {group}"),
                        (number(0), number(1)),
                        expected,
                    );
                }
            }
        }
        let problems = self.call("SELECT * FROM queen.verify()").await;
        self.same("problems", problems.len(), 0);
    }

    /// Whatever is left is found by pops of any partition; then nothing is left of the history.
    async fn end(&mut self) {
        self.check().await;
        for lease in std::mem::take(&mut self.leases) {
            self.call(&format!("SELECT queen.release('{lease}')")).await;
            self.model.release(&lease);
        }
        for queue in self.queues.clone() {
            for group in ["g1", "new", QUEUE_MODE] {
                if !self
                    .model
                    .groups
                    .contains_key(&(queue.clone(), group.to_owned()))
                {
                    continue;
                }
                self.at = self.random.below(self.sessions.len());
                let sql = format!(
                    "SELECT count(*) FROM queen.pop('{queue}', '{group}', 1000000, max_partitions => 0, auto_ack => true)"
                );
                let drained = self.count(&sql).await;
                let (pending, _) = self.model.depth(&queue, group);
                self.same(&format!("the rest for {group}"), drained, pending);
            }
            self.call(&format!("SELECT queen.drop_queue('{queue}')"))
                .await;
        }
    }
}
