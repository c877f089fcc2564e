//! Acks and leases.

use super::*;

impl Model {
    /// Acks of one (queue, group, lane) with one lease id or none.
    pub fn settle(&mut self, place: &Place, lease: Option<&str>, items: &[(String, Status)]) -> Vec<Verdict> {
        let refused = |error| vec![Verdict { error: Some(error), ..Verdict::default() }; items.len()];
        let now = self.now;
        let Some(stored) = self.lanes.get(&key(&place.0, &place.2)) else {
            return refused("partition not found");
        };
        let Some(cursor) = self.cursors.get_mut(place) else {
            return refused("consumer not found");
        };
        let live = cursor.live(now).cloned();
        if let Some(lease) = lease
            && live.as_ref().is_none_or(|l| l.id != lease)
        {
            return refused("invalid or expired lease");
        }
        let holds = lease.is_some() || (cursor.lease.is_some() && live.is_none());
        let committed = cursor.committed;
        let end = cursor.lease.as_ref().map_or(i64::MAX, |l| l.end);
        let inside = |id: &str| stored.offsets(id).find(|&o| o > committed && o <= end);
        let placed: Vec<(Option<i64>, Status)> = items.iter().map(|(id, status)| (inside(id), *status)).collect();

        let strength = |status: Status| match status {
            Status::Dlq => 0,
            Status::Failed => 1,
            Status::Retry => 2,
            Status::Completed => 3,
        };
        let failure = placed
            .iter()
            .filter_map(|&(offset, status)| Some((offset?, status)))
            .filter(|(_, status)| *status != Status::Completed)
            .min_by_key(|&(offset, status)| (offset, strength(status)));
        let completed = placed
            .iter()
            .filter(|(_, status)| *status == Status::Completed)
            .filter_map(|(offset, _)| *offset)
            .filter(|&o| failure.is_none_or(|(s, _)| o < s))
            .max();
        let prefix = completed.unwrap_or(committed).max(committed);

        let options = &self.options[&place.0];
        let exhausted = cursor.retries >= options.retry_limit;
        let (mut released, mut filed, mut dropped) = (false, None, None);
        match failure.filter(|_| holds) {
            Some((s, Status::Dlq)) => filed = Some(s),
            Some((s, Status::Failed)) if exhausted && options.dead_letter => filed = Some(s),
            Some((s, Status::Failed)) if exhausted => dropped = Some(s),
            Some((_, status)) => {
                cursor.retries += i32::from(status == Status::Failed);
                cursor.committed = prefix;
                released = true;
            }
            None => {
                cursor.committed = prefix;
                if cursor.lease.is_some() && prefix == end {
                    released = true;
                    cursor.retries = 0;
                }
            }
        }
        if let Some(s) = filed {
            let id = stored.messages[s as usize].id.clone();
            // Filing a message again keeps the record that is there.
            self.dead.entry((place.clone(), s)).or_insert((id, cursor.retries));
        }
        if let Some(s) = filed.or(dropped) {
            cursor.committed = s;
            cursor.retries = 0;
            released = true;
        }
        if released {
            cursor.lease = None;
        }
        let done = cursor.committed;
        cursor.delivered.retain(|&o, _| o > done);

        placed
            .iter()
            .zip(items)
            .map(|(&(offset, status), (id, _))| {
                let error = |error| Verdict { error: Some(error), ..Verdict::default() };
                let below = || stored.offsets(id).any(|o| o <= committed);
                match offset {
                    Some(o) if status == Status::Completed || holds => Verdict {
                        success: true,
                        released,
                        dlq: filed == Some(o),
                        dropped: dropped == Some(o),
                        ..Verdict::default()
                    },
                    Some(_) if live.is_some() => error("invalid or expired lease"),
                    Some(_) => error("no leased batch"),
                    None if below() && status == Status::Completed => {
                        Verdict { success: true, noop: true, ..Verdict::default() }
                    }
                    None if below() => error("already committed"),
                    None => error("unresolvable"),
                }
            })
            .collect()
    }

    /// Places whose live lease this is.
    pub fn holding(&self, lease: &str) -> Vec<Place> {
        let now = self.now;
        let held = self.cursors.iter().filter(|(_, c)| c.live(now).is_some_and(|l| l.id == lease));
        held.map(|(place, _)| place.clone()).collect()
    }

    /// Places of the lease whose batch holds this id.
    pub fn holding_message(&self, lease: &str, id: &str) -> Vec<Place> {
        let mut places = self.holding(lease);
        places.retain(|p| {
            let cursor = &self.cursors[p];
            let end = cursor.lease.as_ref().map_or(-1, |l| l.end);
            self.lanes[&key(&p.0, &p.2)].offsets(id).any(|o| o > cursor.committed && o <= end)
        });
        places
    }

    pub fn ack_lease(&mut self, lease: &str) -> i64 {
        let mut completed = 0;
        for place in self.holding(lease) {
            let cursor = self.cursors.get_mut(&place).expect("a cursor");
            let end = cursor.lease.take().expect("a lease").end;
            completed += end - cursor.committed;
            cursor.committed = end;
            cursor.retries = 0;
            cursor.delivered.retain(|&o, _| o > end);
        }
        completed
    }

    pub fn release(&mut self, lease: &str) -> i64 {
        let places = self.holding(lease);
        for place in &places {
            self.cursors.get_mut(place).expect("a cursor").lease = None;
        }
        places.len() as i64
    }

    /// Whether the lease was live.
    pub fn renew(&mut self, lease: &str, seconds: i64) -> bool {
        let until = self.now + seconds;
        let places = self.holding(lease);
        for place in &places {
            let lease = self.cursors.get_mut(place).and_then(|c| c.lease.as_mut()).expect("a lease");
            lease.expires = lease.expires.max(until);
        }
        !places.is_empty()
    }
}
