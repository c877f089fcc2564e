//! What the broker does, as its semantics say, with vectors and maps: no time but what the history lets pass, no
//! concurrency, no storage.

use std::collections::{BTreeMap, BTreeSet};

/// The time that passes at once, in seconds; between two such steps, almost none does.
pub const STEP: i64 = 1000;

#[derive(Clone, Debug)]
pub struct Message {
    pub id: String,
    pub message_id: String,
    pub payload: u64,
    pub stored_at: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// By offset; those below `start` are gone.
    pub messages: Vec<Message>,
    /// (first offset, end) of each segment.
    pub segments: Vec<(i64, i64)>,
    pub start: i64,
}

impl Lane {
    pub fn tail(&self) -> i64 {
        self.messages.len() as i64 - 1
    }

    /// Offsets with this transaction id, of what is still stored.
    fn offsets(&self, id: &str) -> impl Iterator<Item = i64> {
        (self.start..=self.tail()).filter(move |&o| self.messages[o as usize].id == id)
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub retry_limit: i32,
    pub dead_letter: bool,
    /// Seconds.
    pub window: i64,
    /// Retention by age below every cursor, and by age alone.
    pub completed: Option<i64>,
    pub evict: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub id: String,
    pub end: i64,
    pub expires: i64,
}

#[derive(Clone, Debug)]
pub struct Cursor {
    pub committed: i64,
    pub retries: i32,
    pub lease: Option<Lease>,
    pub delivered: BTreeMap<i64, i32>,
}

impl Cursor {
    fn at(committed: i64) -> Self {
        Self {
            committed,
            retries: 0,
            lease: None,
            delivered: BTreeMap::new(),
        }
    }

    pub fn live(&self, now: i64) -> Option<&Lease> {
        self.lease.as_ref().filter(|l| l.expires > now)
    }
}

#[derive(Clone, Debug)]
pub enum Start {
    All,
    /// After what each lane held then; lanes made later from their start.
    After(BTreeMap<String, i64>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Completed,
    Failed,
    Retry,
    Dlq,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    pub success: bool,
    /// How the error text begins.
    pub error: Option<&'static str>,
    pub released: bool,
    pub dlq: bool,
    pub dropped: bool,
    pub noop: bool,
}

#[derive(Clone, Debug)]
pub struct Push {
    pub queue: String,
    pub lane: String,
    /// As given; the model learns the others from the answer.
    pub id: Option<String>,
    pub message_id: String,
    pub payload: u64,
}

impl Push {
    fn effective(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.message_id)
    }
}

/// (queue, group, lane)
pub type Place = (String, String, String);

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: i64,
    pub options: BTreeMap<String, Options>,
    /// By (queue, lane).
    pub lanes: BTreeMap<(String, String), Lane>,
    /// By (queue, group).
    pub groups: BTreeMap<(String, String), Start>,
    pub cursors: BTreeMap<Place, Cursor>,
    /// Place and offset; retry count.
    pub dead: BTreeMap<(Place, i64), (String, i32)>,
    pub pending: Vec<Push>,
}

fn key(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

impl Model {
    pub fn lanes_of(&self, queue: &str) -> Vec<String> {
        self.lanes
            .keys()
            .filter(|(q, _)| q == queue)
            .map(|(_, lane)| lane.clone())
            .collect()
    }

    /// The stored message that makes this id a duplicate.
    pub fn duplicate(&self, queue: &str, lane: &str, id: &str) -> Option<(i64, &Message)> {
        let lane = self.lanes.get(&key(queue, lane))?;
        let window = self.options[queue].window;
        lane.offsets(id)
            .map(|o| (o, &lane.messages[o as usize]))
            .find(|(_, m)| window > 0 && m.stored_at >= self.now - window)
    }

    /// Appends; answers the offset of each, or None for a duplicate (of the first of its id).
    pub fn append(&mut self, pushes: &[Push]) -> Vec<Option<i64>> {
        let mut answers = vec![None; pushes.len()];
        let places: BTreeSet<(String, String)> =
            pushes.iter().map(|p| key(&p.queue, &p.lane)).collect();
        for place in places {
            let base = self.lanes.get(&place).map_or(0, |l| l.tail() + 1);
            let mut fresh: Vec<&Push> = Vec::new();
            for (n, push) in pushes.iter().enumerate() {
                if key(&push.queue, &push.lane) != place {
                    continue;
                }
                let repeated = fresh.iter().any(|f| f.effective() == push.effective());
                if repeated
                    || self
                        .duplicate(&push.queue, &push.lane, push.effective())
                        .is_some()
                {
                    continue;
                }
                answers[n] = Some(base + fresh.len() as i64);
                fresh.push(push);
            }
            let now = self.now;
            let lane = self.lanes.entry(place).or_default();
            if !fresh.is_empty() {
                lane.segments.push((base, base + fresh.len() as i64 - 1));
            }
            lane.messages.extend(fresh.into_iter().map(|p| Message {
                id: p.effective().to_owned(),
                message_id: p.message_id.clone(),
                payload: p.payload,
                stored_at: now,
            }));
        }
        answers
    }

    /// What is pending lands; answers how many messages were stored.
    pub fn flush(&mut self) -> i64 {
        let pending = std::mem::take(&mut self.pending);
        self.append(&pending).into_iter().flatten().count() as i64
    }

    pub fn subscribe(&mut self, queue: &str, group: &str, new: bool) {
        let tails = || {
            let of_queue = self.lanes.iter().filter(|((q, _), _)| q == queue);
            of_queue
                .map(|((_, name), lane)| (name.clone(), lane.tail()))
                .collect()
        };
        if !self.groups.contains_key(&key(queue, group)) {
            let start = if new {
                Start::After(tails())
            } else {
                Start::All
            };
            self.groups.insert(key(queue, group), start);
        }
    }

    /// Everything up to here is done for the group.
    fn done(&self, place: &Place) -> i64 {
        let (queue, group, lane) = place;
        match (
            self.cursors.get(place),
            &self.groups.get(&key(queue, group)),
        ) {
            (Some(cursor), _) => cursor.committed,
            (None, Some(Start::After(tails))) => tails.get(lane).copied().unwrap_or(-1),
            (None, _) => -1,
        }
    }

    /// First offset and number of the messages that the group may get from the lane.
    pub fn available(&self, queue: &str, group: &str, lane: &str) -> Option<(i64, i64)> {
        let place = (queue.to_owned(), group.to_owned(), lane.to_owned());
        if self
            .cursors
            .get(&place)
            .is_some_and(|c| c.live(self.now).is_some())
        {
            return None;
        }
        let stored = self.lanes.get(&key(queue, lane))?;
        let first = (self.done(&place) + 1).max(stored.start);
        (first <= stored.tail()).then_some((first, stored.tail() - first + 1))
    }

    /// The group gets `n` messages from `first` on; answers the delivery attempt.
    pub fn deliver(
        &mut self,
        place: &Place,
        first: i64,
        n: i64,
        lease: Option<(&str, i64)>,
    ) -> i32 {
        let end = first + n - 1;
        let now = self.now;
        let cursor = self
            .cursors
            .entry(place.clone())
            .or_insert_with(|| Cursor::at(-1));
        cursor.committed = first - 1;
        cursor.delivered.retain(|&o, _| o >= first);
        for offset in first..=end {
            *cursor.delivered.entry(offset).or_default() += 1;
        }
        let attempt = cursor.delivered[&first];
        match lease {
            Some((id, seconds)) => {
                cursor.lease = Some(Lease {
                    id: id.to_owned(),
                    end,
                    expires: now + seconds,
                });
            }
            None => {
                cursor.lease = None;
                cursor.committed = end;
                cursor.retries = 0;
            }
        }
        attempt
    }

    /// Acks of one (queue, group, lane) with one lease id or none.
    pub fn settle(
        &mut self,
        place: &Place,
        lease: Option<&str>,
        items: &[(String, Status)],
    ) -> Vec<Verdict> {
        let refused = |error| {
            vec![
                Verdict {
                    error: Some(error),
                    ..Verdict::default()
                };
                items.len()
            ]
        };
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
        let placed: Vec<(Option<i64>, Status)> = items
            .iter()
            .map(|(id, status)| (inside(id), *status))
            .collect();

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
            self.dead
                .entry((place.clone(), s))
                .or_insert((id, cursor.retries));
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
                let error = |error| Verdict {
                    error: Some(error),
                    ..Verdict::default()
                };
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
                    None if below() && status == Status::Completed => Verdict {
                        success: true,
                        noop: true,
                        ..Verdict::default()
                    },
                    None if below() => error("already committed"),
                    None => error("unresolvable"),
                }
            })
            .collect()
    }

    /// Places whose live lease this is.
    pub fn holding(&self, lease: &str) -> Vec<Place> {
        let now = self.now;
        let held = self
            .cursors
            .iter()
            .filter(|(_, c)| c.live(now).is_some_and(|l| l.id == lease));
        held.map(|(place, _)| place.clone()).collect()
    }

    /// Places of the lease whose batch holds this id.
    pub fn holding_message(&self, lease: &str, id: &str) -> Vec<Place> {
        let mut places = self.holding(lease);
        places.retain(|p| {
            let cursor = &self.cursors[p];
            let end = cursor.lease.as_ref().map_or(-1, |l| l.end);
            self.lanes[&key(&p.0, &p.2)]
                .offsets(id)
                .any(|o| o > cursor.committed && o <= end)
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
            let lease = self
                .cursors
                .get_mut(place)
                .and_then(|c| c.lease.as_mut())
                .expect("a lease");
            lease.expires = lease.expires.max(until);
        }
        !places.is_empty()
    }

    /// `to`: the last offset done of each lane named.
    pub fn seek(&mut self, queue: &str, group: &str, to: &[(String, i64)]) {
        for (lane, committed) in to {
            let start = self.lanes[&key(queue, lane)].start;
            let place = (queue.to_owned(), group.to_owned(), lane.clone());
            self.cursors
                .insert(place, Cursor::at((*committed).max(start - 1)));
        }
    }

    /// Answers how many cursors went.
    pub fn drop_group(&mut self, queue: &str, group: &str, metadata: bool) -> i64 {
        let before = self.cursors.len();
        self.cursors
            .retain(|(q, g, _), _| !(q == queue && g == group));
        if metadata {
            self.groups.remove(&key(queue, group));
        }
        (before - self.cursors.len()) as i64
    }

    pub fn drop_queue(&mut self, queue: &str) {
        self.lanes.retain(|(q, _), _| q != queue);
        self.groups.retain(|(q, _), _| q != queue);
        self.cursors.retain(|(q, _, _), _| q != queue);
        self.dead.retain(|((q, _, _), _), _| q != queue);
    }

    /// Retention; answers how many messages went.
    pub fn maintain(&mut self) -> i64 {
        let mut removed = 0;
        for ((queue, name), lane) in &mut self.lanes {
            let options = &self.options[queue];
            let groups: Vec<&String> = self
                .groups
                .keys()
                .filter(|(q, _)| q == queue)
                .map(|(_, g)| g)
                .collect();
            let cursor = |group: &String| {
                self.cursors
                    .get(&(queue.clone(), group.clone(), name.clone()))
            };
            // A group that has not come to the lane holds it all.
            let passed = groups
                .iter()
                .map(|g| cursor(g).map_or(-1, |c| c.committed))
                .min()
                .unwrap_or(-1);
            let old = |stored_at: i64, age: Option<i64>| {
                age.is_some_and(|age| stored_at < self.now - age)
            };
            for &(base, end) in &lane.segments {
                if base < lane.start {
                    continue;
                }
                let stored_at = lane.messages[base as usize].stored_at;
                if old(stored_at, options.evict)
                    || (old(stored_at, options.completed) && end <= passed)
                {
                    removed += end - base + 1;
                    lane.start = end + 1;
                } else {
                    break;
                }
            }
        }
        removed
    }

    /// Messages that the group has neither done nor in hand, and those that it has in hand.
    pub fn depth(&self, queue: &str, group: &str) -> (i64, i64) {
        let (mut pending, mut processing) = (0, 0);
        for name in self.lanes_of(queue) {
            let lane = &self.lanes[&key(queue, &name)];
            let place = (queue.to_owned(), group.to_owned(), name);
            let settled = self.done(&place).max(lane.start - 1);
            let lease = self.cursors.get(&place).and_then(|c| c.live(self.now));
            let held = lease.map_or(settled, |l| l.end.max(settled));
            pending += lane.tail() - held;
            processing += held - settled;
        }
        (pending, processing)
    }
}
