//! Pushes, at once and at commit.

use super::*;

impl History<'_> {
    /// What to push: sometimes with an id that is there already.
    pub(super) fn item(&mut self, queue: &str, lane: &str) -> Push {
        self.number += 1;
        let stored = self.model.lanes.get(&(queue.to_owned(), lane.to_owned()));
        let id = match self.random.below(5) {
            0 if !self.time_passes => None,
            // Where there is no window, a transaction that repeats itself is beyond this model.
            1 if self.model.options[queue].window > 0 || !self.in_transaction => {
                let n = stored.map_or(0, |l| l.messages.len());
                (n > 0).then(|| stored.map(|l| l.messages[self.random.below(n)].id.clone())).flatten()
            }
            _ => None,
        };
        let id = id.or_else(|| (self.time_passes || !self.random.once_in(5)).then(|| format!("i{}", self.number)));
        // The same id in two lanes is two messages.
        let id = id
            .map(|id| if self.random.once_in(8) && id.starts_with('i') { format!("i{}", self.number / 8) } else { id });
        let id = id.filter(|id| {
            let pushed_here = stored.is_some_and(|l| l.messages.iter().any(|m| m.id == *id));
            !(self.in_transaction && self.model.options[queue].window == 0 && pushed_here)
        });
        let id = id.or_else(|| self.time_passes.then(|| format!("n{}", self.number)));
        Push { queue: queue.to_owned(), lane: lane.to_owned(), id, message_id: String::new(), payload: self.number }
    }

    /// A push that lands at commit.
    pub(super) async fn push(&mut self) {
        let queue = self.queue();
        let lane = *self.random.pick(&LANES);
        let mut push = self.item(&queue, lane);
        let id = push.id.as_deref().map_or("NULL".to_owned(), quote);
        let sql = format!("SELECT status, message_id FROM queen.push('{queue}', '{}', '{lane}', {id})", push.payload);
        let row = self.call(&sql).await.remove(0);
        push.message_id = text(&row, 1).to_owned();
        let stored = push.id.as_deref().and_then(|id| self.model.duplicate(&queue, lane, id));
        let original = stored.map(|(_, m)| m.message_id.clone()).or_else(|| {
            let mut pending = self.model.pending.iter();
            let same = pending.find(|p| p.id.is_some() && p.id == push.id && p.queue == queue && p.lane == lane);
            same.map(|p| p.message_id.clone())
        });
        self.same("status", text(&row, 0), if original.is_some() { "duplicate" } else { "queued" });
        match original {
            Some(original) => self.same("original message", text(&row, 1), original.as_str()),
            None => self.model.pending.push(push),
        }
        if !self.in_transaction {
            self.model.flush();
        }
    }

    /// A push that is there at once.
    pub(super) async fn push_batch(&mut self) {
        let mut pushes = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let (queue, lane) = (self.queue(), *self.random.pick(&LANES));
            let mut push = self.item(&queue, lane);
            if self.random.once_in(6)
                && let Some(Push { queue, lane, id: Some(id), .. }) = pushes.last()
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
            self.same("status", text(row, 0), if answer.is_some() { "queued" } else { "duplicate" });
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
}
