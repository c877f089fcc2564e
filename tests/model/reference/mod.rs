//! What the broker does, as its semantics say, with vectors and maps: no time but what the history lets pass, no
//! concurrency, no storage.

mod settle;

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
        Self { committed, retries: 0, lease: None, delivered: BTreeMap::new() }
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
        self.lanes.keys().filter(|(q, _)| q == queue).map(|(_, lane)| lane.clone()).collect()
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
        let places: BTreeSet<(String, String)> = pushes.iter().map(|p| key(&p.queue, &p.lane)).collect();
        for place in places {
            let base = self.lanes.get(&place).map_or(0, |l| l.tail() + 1);
            let mut fresh: Vec<&Push> = Vec::new();
            for (n, push) in pushes.iter().enumerate() {
                if key(&push.queue, &push.lane) != place {
                    continue;
                }
                let repeated = fresh.iter().any(|f| f.effective() == push.effective());
                if repeated || self.duplicate(&push.queue, &push.lane, push.effective()).is_some() {
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
        let of_queue = self.lanes.iter().filter(|((q, _), _)| q == queue);
        let tails = of_queue.map(|((_, name), lane)| (name.clone(), lane.tail())).collect();
        let start = if new { Start::After(tails) } else { Start::All };
        self.groups.entry(key(queue, group)).or_insert(start);
    }

    /// Everything up to here is done for the group.
    fn done(&self, place: &Place) -> i64 {
        let (queue, group, lane) = place;
        match (self.cursors.get(place), &self.groups.get(&key(queue, group))) {
            (Some(cursor), _) => cursor.committed,
            (None, Some(Start::After(tails))) => tails.get(lane).copied().unwrap_or(-1),
            (None, _) => -1,
        }
    }

    /// First offset and number of the messages that the group may get from the lane.
    pub fn available(&self, queue: &str, group: &str, lane: &str) -> Option<(i64, i64)> {
        let place = (queue.to_owned(), group.to_owned(), lane.to_owned());
        if self.cursors.get(&place).is_some_and(|c| c.live(self.now).is_some()) {
            return None;
        }
        let stored = self.lanes.get(&key(queue, lane))?;
        let first = (self.done(&place) + 1).max(stored.start);
        (first <= stored.tail()).then_some((first, stored.tail() - first + 1))
    }

    /// The group gets `n` messages from `first` on; answers the delivery attempt.
    pub fn deliver(&mut self, place: &Place, first: i64, n: i64, lease: Option<(&str, i64)>) -> i32 {
        let end = first + n - 1;
        let now = self.now;
        let cursor = self.cursors.entry(place.clone()).or_insert_with(|| Cursor::at(-1));
        cursor.committed = first - 1;
        cursor.delivered.retain(|&o, _| o >= first);
        for offset in first..=end {
            *cursor.delivered.entry(offset).or_default() += 1;
        }
        let attempt = cursor.delivered[&first];
        match lease {
            Some((id, seconds)) => {
                cursor.lease = Some(Lease { id: id.to_owned(), end, expires: now + seconds });
            }
            None => {
                cursor.lease = None;
                cursor.committed = end;
                cursor.retries = 0;
            }
        }
        attempt
    }

    /// `to`: the last offset done of each lane named.
    pub fn seek(&mut self, queue: &str, group: &str, to: &[(String, i64)]) {
        for (lane, committed) in to {
            let start = self.lanes[&key(queue, lane)].start;
            let place = (queue.to_owned(), group.to_owned(), lane.clone());
            self.cursors.insert(place, Cursor::at((*committed).max(start - 1)));
        }
    }

    /// Answers how many cursors went.
    pub fn drop_group(&mut self, queue: &str, group: &str, metadata: bool) -> i64 {
        let before = self.cursors.len();
        self.cursors.retain(|(q, g, _), _| !(q == queue && g == group));
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
        let passed: BTreeMap<(String, String), i64> = self
            .lanes
            .keys()
            .map(|(queue, lane)| {
                let groups = self.groups.keys().filter(|(q, _)| q == queue);
                let done = groups.map(|(_, g)| self.done(&(queue.clone(), g.clone(), lane.clone())));
                // What nobody reads is kept.
                ((queue.clone(), lane.clone()), done.min().unwrap_or(-1))
            })
            .collect();
        let mut removed = 0;
        for (place, lane) in &mut self.lanes {
            let options = &self.options[&place.0];
            let passed = passed[place];
            let old = |stored_at: i64, age: Option<i64>| age.is_some_and(|age| stored_at < self.now - age);
            for &(base, end) in &lane.segments {
                if base < lane.start {
                    continue;
                }
                let stored_at = lane.messages[base as usize].stored_at;
                if old(stored_at, options.evict) || (old(stored_at, options.completed) && end <= passed) {
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
