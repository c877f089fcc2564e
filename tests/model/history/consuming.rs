//! Pops, acks and leases.

use super::*;

impl History<'_> {
    pub(super) async fn pop(&mut self) {
        let queue = self.queue();
        let group = self.group(&queue);
        let batch = 1 + self.random.below(6) as i64;
        let known = self.model.groups.contains_key(&(queue.clone(), group.to_owned()));
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
                self.wrong(&format!("{lane} has nothing for {group}, and got {messages:?}"));
            };
            self.same("number of messages", messages.len() as i64, available.min(left));
            let place = (queue.clone(), group.to_owned(), lane.clone());
            let lease = lease.as_deref().map(|l| (l, seconds.unwrap_or(500)));
            let attempt = self.model.deliver(&place, first, messages.len() as i64, lease);
            for (n, m) in messages.iter().enumerate() {
                let stored = &self.model.lanes[&(queue.clone(), lane.clone())].messages[first as usize + n];
                let payload = stored.payload.to_string();
                let expected =
                    (first + n as i64, &stored.id, &stored.message_id, &payload, attempt, lease.map(|l| l.0));
                let actual = (m.offset, &m.transaction_id, &m.id, &m.payload, m.attempt, m.lease.as_deref());
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
                self.same(&format!("what {group} did not find in {lane}"), None, missed);
            }
        }
        self.leases.extend(lease);
    }

    pub(super) fn some_place(&mut self) -> Option<Place> {
        let held = self.leases.last().map(|l| self.model.holding(l)).unwrap_or_default();
        if !held.is_empty() && self.random.once_in(2) {
            return Some(self.random.pick(&held).clone());
        }
        let places: Vec<&Place> = self.model.cursors.keys().collect();
        (!places.is_empty()).then(|| self.random.pick(&places).to_owned().clone())
    }

    pub(super) fn some_lease(&mut self) -> Option<String> {
        // Rather one of late, best the last.
        if self.random.once_in(2) {
            return self.leases.last().cloned();
        }
        let recent = &self.leases[self.leases.len().saturating_sub(6)..];
        (!recent.is_empty()).then(|| self.random.pick(recent).clone())
    }

    pub(super) async fn partition_id(&mut self, queue: &str, lane: &str) -> String {
        self.one(&format!("SELECT partition_id FROM queen.partitions WHERE queue = '{queue}' AND partition = '{lane}'"))
            .await
    }

    /// An id from around the place's batch, or an unknown one.
    pub(super) fn some_id(&mut self, place: &Place) -> String {
        let lane = &self.model.lanes[&(place.0.clone(), place.2.clone())];
        let cursor = &self.model.cursors[place];
        let end = cursor.lease.as_ref().map(|l| l.end);
        let offset = match end.filter(|_| self.random.once_in(3)) {
            Some(end) => end,
            None => cursor.committed + 1 - 2 + self.random.below(7) as i64,
        };
        match usize::try_from(offset).ok().and_then(|o| lane.messages.get(o)) {
            Some(m) => m.id.clone(),
            None => "unknown".to_owned(),
        }
    }

    pub(super) async fn ack_batch(&mut self) {
        let Some(place) = self.some_place() else {
            return;
        };
        let current = self.model.cursors[&place].lease.as_ref().map(|l| l.id.clone());
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

    pub(super) fn verdict(&self, row: &Row, expected: &Verdict) {
        let flag = |n: usize| text(row, n) == "t";
        let error = row[1].as_deref();
        let begins = match (error, expected.error) {
            (Some(error), Some(begin)) if error.starts_with(begin) => Some(begin),
            (None, None) => None,
            _ => self.wrong(&format!("error\n  broker: {error:?}\n  model:  {:?}", expected.error)),
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

    pub(super) async fn lease(&mut self) {
        let Some(lease) = self.some_lease() else {
            return;
        };
        match self.random.below(4) {
            0 => {
                let answer = self.count(&format!("SELECT queen.release('{lease}')")).await;
                let expected = self.model.release(&lease);
                self.same("release", answer, expected);
            }
            1 => {
                let seconds = *self.random.pick(&[500, 50_000]);
                let answer = self.one(&format!("SELECT queen.renew_lease('{lease}', {seconds})")).await;
                let expected = self.model.renew(&lease, seconds);
                self.same("renew_lease", !answer.is_empty(), expected);
            }
            _ => {
                let answer = self.count(&format!("SELECT queen.ack_lease('{lease}')")).await;
                let expected = self.model.ack_lease(&lease);
                self.same("ack_lease", answer, expected);
            }
        }
    }

    pub(super) async fn nack(&mut self) {
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
        let (status, word) =
            *self.random.pick(&[(Status::Failed, "failed"), (Status::Retry, "retry"), (Status::Dlq, "dlq")]);
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
            self.same("sqlstate", &queen_tests::session::sqlstate(&error)[..2], "QN");
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
}
