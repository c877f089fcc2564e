//! Seek, housekeeping, dead letters, time, and a look at everything.

use super::*;

impl History<'_> {
    pub(super) async fn seek(&mut self) {
        let queue = self.queue();
        let group = self.group(&queue);
        let known = self.model.groups.contains_key(&(queue.clone(), group.to_owned()));
        let lanes = self.model.lanes_of(&queue);
        if known && !lanes.is_empty() && self.random.once_in(2) {
            // To a segment of one lane.
            let name = self.random.pick(&lanes).clone();
            let lane = &self.model.lanes[&(queue.clone(), name.clone())];
            let stored: Vec<i64> = lane.segments.iter().map(|s| s.0).filter(|&base| base >= lane.start).collect();
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
            let sql = format!("SELECT queen.seek('{queue}', '{group}', to_timestamp => '{at}', partition => '{name}')");
            let moved = self.count(&sql).await;
            self.same("cursors", moved, 1);
            self.model.seek(&queue, group, &[(name, base - 1)]);
            return;
        }
        let to_end = self.random.once_in(3);
        let target = if to_end { "to_end => true" } else { "to_timestamp => '-infinity'" };
        let moved = self.count(&format!("SELECT queen.seek('{queue}', '{group}', {target})")).await;
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

    pub(super) async fn maintain(&mut self) {
        let removed = self.count("SELECT (queen.maintain()->>'messagesRemoved')::int").await;
        let expected = self.model.maintain();
        self.same("messages removed", removed, expected);
    }

    pub(super) async fn drop_group(&mut self) {
        let queue = self.queue();
        let group = self.group(&queue);
        let metadata = self.random.once_in(2);
        let dropped = self.count(&format!("SELECT queen.drop_consumer_group('{group}', '{queue}', {metadata})")).await;
        let expected = self.model.drop_group(&queue, group, metadata);
        self.same("cursors dropped", dropped, expected);
    }

    pub(super) async fn move_dead_letter(&mut self) {
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
        let queue = if self.random.once_in(3) { self.queue() } else { place.0.clone() };
        let lane = if self.random.once_in(3) { (*self.random.pick(&LANES)).to_owned() } else { place.2.clone() };
        let row = self
            .call(&format!(
                "SELECT v->>'result', v->>'offset', v->>'messageId' FROM queen.dlq_move_v1('{id}', '{queue}', '{lane}') v"
            ))
            .await
            .remove(0);
        let origin = &self.model.lanes[&(place.0.clone(), place.2.clone())].messages[offset as usize];
        let push = Push {
            queue: queue.clone(),
            lane: lane.clone(),
            id: Some(format!("dlq:{id}")),
            message_id: text(&row, 2).to_owned(),
            payload: origin.payload,
        };
        let moved = self.model.append(&[push])[0];
        self.same("result", text(&row, 0), "moved");
        self.same("offset", text(&row, 1).to_owned(), moved.map(|o| o.to_string()).unwrap_or_default());
        self.model.dead.remove(&(place, offset));
        let again = self.one(&format!("SELECT queen.dlq_move_v1('{id}')->>'result'")).await;
        self.same("second move", again.as_str(), "gone");
    }

    /// Time passes: everything that is stored gets older by a step, and backends begin anew.
    pub(super) async fn pass_time(&mut self) {
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

    /// Each cursor and its retry counter are as in the model. Left out are those that retention has overtaken: a pop that
    /// comes by may move them up, or make them.
    pub(super) async fn cursors(&mut self) {
        let [a, b] = &self.queues;
        let sql = format!(
            "SELECT q.name, s.name, p.name, c.committed, c.retries
               FROM (SELECT DISTINCT ON (gid, pid) * FROM queen.cursor ORDER BY gid, pid, seq DESC) c
               JOIN queen.subscription s USING (gid) JOIN queen.partition p USING (pid)
               JOIN queen.queue q ON q.qid = p.qid
              WHERE q.name IN ('{a}', '{b}')
                AND c.committed > coalesce((SELECT max(upto) FROM queen.trimmed t WHERE t.pid = c.pid), -2)
              ORDER BY 1, 2, 3"
        );
        let rows = match self.sessions[self.at].try_rows(&sql).await {
            Ok(rows) => rows,
            Err(e) => self.wrong(&describe(&e)),
        };
        let broker: Vec<String> =
            rows.iter().map(|r| (0..5).map(|n| text(r, n)).collect::<Vec<_>>().join(" ")).collect();
        let start = |q: &String, l: &String| self.model.lanes.get(&(q.clone(), l.clone())).map_or(0, |lane| lane.start);
        let overtaken = |q, l, committed: i64| start(q, l) > 0 && committed < start(q, l);
        let cursors = self.model.cursors.iter().filter(|((q, _, l), c)| !overtaken(q, l, c.committed));
        let expected: Vec<String> =
            cursors.map(|((q, g, l), c)| format!("{q} {g} {l} {} {}", c.committed, c.retries)).collect();
        self.same("cursors and retries", &broker, &expected);
    }

    /// Everything that can be looked at is as in the model.
    pub(super) async fn check(&mut self) {
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
                broker.entry(text(&row, 0).to_owned()).or_default().push(columns);
            }
            for name in self.model.lanes_of(&queue) {
                let lane = &self.model.lanes[&(queue.clone(), name.clone())];
                let expected: Vec<[String; 4]> = (lane.start..=lane.tail())
                    .map(|o| (o, &lane.messages[o as usize]))
                    .map(|(o, m)| [o.to_string(), m.id.clone(), m.message_id.clone(), m.payload.to_string()])
                    .collect();
                self.same(&format!("stored in {name}"), broker.remove(&name).unwrap_or_default(), expected);
            }
            self.same("further partitions", broker.len(), 0);
            let rows = self
                .call(&format!(
                    "SELECT consumer_group, partition, \"offset\", transaction_id, retry_count FROM queen.dlq('{queue}', NULL, 10000)"
                ))
                .await;
            let mut broker: Vec<String> =
                rows.iter().map(|r| (0..5).map(|n| text(r, n)).collect::<Vec<_>>().join(" ")).collect();
            broker.sort();
            let of_queue = self.model.dead.iter().filter(|((place, _), _)| place.0 == queue);
            let mut expected: Vec<String> = of_queue
                .map(|(((_, group, lane), offset), (id, retries))| format!("{group} {lane} {offset} {id} {retries}"))
                .collect();
            expected.sort();
            self.same("dead letters", broker, expected);
            for group in ["g1", "new", QUEUE_MODE] {
                let rows = self
                    .call(&format!(
                        "SELECT pending, processing FROM queen.consumer_groups WHERE queue = '{queue}' AND consumer_group = '{group}'"
                    ))
                    .await;
                let known = self.model.groups.contains_key(&(queue.clone(), group.to_owned()));
                self.same(&format!("group {group} is known"), !rows.is_empty(), known);
                if let Some(row) = rows.first() {
                    let number = |n: usize| text(row, n).parse::<i64>().expect("a number");
                    let expected = self.model.depth(&queue, group);
                    self.same(&format!("pending and processing of {group}"), (number(0), number(1)), expected);
                }
            }
        }
        let problems = self.call("SELECT * FROM queen.verify()").await;
        self.same("problems", problems.len(), 0);
    }

    /// Whatever is left is found by pops of any partition; then nothing is left of the history.
    pub(super) async fn end(&mut self) {
        self.check().await;
        for lease in std::mem::take(&mut self.leases) {
            self.call(&format!("SELECT queen.release('{lease}')")).await;
            self.model.release(&lease);
        }
        for queue in self.queues.clone() {
            for group in ["g1", "new", QUEUE_MODE] {
                if !self.model.groups.contains_key(&(queue.clone(), group.to_owned())) {
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
            self.call(&format!("SELECT queen.drop_queue('{queue}')")).await;
        }
    }
}
