//! The rows of those who wait.

use super::{Answer, Polls, Popped, Target, Wanted};
use crate::error::CallError;
use crate::peer::Peer;
use crate::tenant::Tenant;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// First and longest pause of a row that is due in vain.
const FUTILE: Duration = Duration::from_millis(50);
const FUTILE_MAX: Duration = Duration::from_secs(1);

/// What a row waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub tenant: Tenant,
    pub target: Target,
    pub group: String,
}

/// One who waits.
pub struct Waiter {
    pub wanted: Arc<Wanted>,
    pub reply: oneshot::Sender<Answer>,
    pub standing: Arc<Standing>,
    pub peer: Peer,
}

/// What a waiter and those who serve it tell each other.
#[derive(Default)]
pub struct Standing {
    given_up: AtomicBool,
    no_room: AtomicBool,
}

impl Standing {
    /// Its time is over.
    pub fn give_up(&self) {
        self.given_up.store(true, SeqCst);
    }

    pub fn has_given_up(&self) -> bool {
        self.given_up.load(SeqCst)
    }

    /// Whether there was memory for its answer when the database was last asked.
    pub fn has_room(&self, room: bool) {
        self.no_room.store(!room, SeqCst);
    }

    /// The answer of one that was not served until its time was over.
    pub fn in_vain(&self, nothing: Popped) -> Answer {
        if self.no_room.load(SeqCst) { Err(CallError::NoRoom) } else { Ok(nothing) }
    }
}

impl Waiter {
    /// Nobody would take an answer.
    pub fn is_gone(&self) -> bool {
        self.reply.is_closed() || self.peer.has_left()
    }

    /// It is gone, or its time is over.
    pub fn wants_no_more(&self) -> bool {
        self.standing.has_given_up() || self.is_gone()
    }
}

#[derive(Default)]
struct Row {
    waiters: BTreeMap<u64, Waiter>,
    /// Somebody asks the database for it.
    running: bool,
    /// Something happened since the last asking began.
    dirty: bool,
    /// When it is worth to ask again without a commit.
    due: Option<Instant>,
    /// Rests since `due` was last found out.
    fresh: bool,
    /// How often it was found due in vain, since something last happened.
    futile: u32,
    /// What is known of the group's delivery policy.
    conflation: Option<bool>,
}

/// All rows.
#[derive(Default)]
pub struct Rows {
    rows: HashMap<Arc<Key>, Row>,
    /// Rows by queue; those of a namespace or task have the empty name, which no queue has.
    by_queue: HashMap<(Tenant, String), Vec<Arc<Key>>>,
    places: u64,
}

fn queue_of(key: &Key) -> (Tenant, String) {
    let name = match &key.target {
        Target::Queue(queue) | Target::Partition { queue, .. } => queue.clone(),
        Target::Matching { .. } => String::new(),
    };
    (key.tenant, name)
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn parked(&self) -> Vec<(Tenant, String, usize)> {
        let waiters = |keys: &[Arc<Key>]| keys.iter().map(|key| self.rows[key].waiters.len()).sum::<usize>();
        let counts = self.by_queue.iter().map(|((tenant, queue), keys)| (*tenant, queue.clone(), waiters(keys)));
        let mut counts: Vec<_> = counts.filter(|(_, _, count)| *count > 0).collect();
        counts.sort();
        counts
    }

    pub fn policy(&self, wanted: &Wanted) -> Option<bool> {
        self.rows.get(&wanted.key()).and_then(|row| row.conflation)
    }

    /// Adds a waiter; the row's key, its place, and whether the row has to be started.
    fn add(&mut self, waiter: Waiter) -> (Arc<Key>, u64, bool) {
        self.places += 1;
        let key = waiter.wanted.key();
        let key = match self.rows.get_key_value(&key) {
            Some((key, _)) => key.clone(),
            None => {
                let key = Arc::new(key);
                self.by_queue.entry(queue_of(&key)).or_default().push(key.clone());
                // New: nothing is known of it.
                self.rows.insert(key.clone(), Row { dirty: true, ..Row::default() });
                key
            }
        };
        let mut start = false;
        if let Some(row) = self.rows.get_mut(&key) {
            row.waiters.insert(self.places, waiter);
            start = row.dirty && !row.running;
            row.running |= start;
        }
        (key, self.places, start)
    }

    /// Takes the first waiter that is still there. None: the row ends, or rests.
    pub fn next(&mut self, key: &Arc<Key>) -> Option<(u64, Waiter)> {
        let row = self.rows.get_mut(key)?;
        row.dirty = false;
        while let Some((place, waiter)) = row.waiters.pop_first() {
            if !waiter.is_gone() {
                return Some((place, waiter));
            }
        }
        row.running = false;
        self.remove_if_empty(key);
        None
    }

    /// A waiter for whom nothing was found stands in its place again; one whose time is over is answered. True: ask again,
    /// something happened meanwhile.
    pub fn put_back(&mut self, key: &Arc<Key>, place: u64, waiter: Waiter, nothing: Popped) -> bool {
        let Some(row) = self.rows.get_mut(key) else { return false };
        row.conflation = nothing.policy().or(row.conflation);
        waiter.standing.has_room(true);
        if waiter.standing.has_given_up() {
            _ = waiter.reply.send(Ok(nothing));
        } else if !waiter.is_gone() {
            row.waiters.insert(place, waiter);
        }
        if row.dirty {
            return true;
        }
        row.running = false;
        row.fresh = true;
        row.due = None;
        self.remove_if_empty(key);
        false
    }

    /// As [`Rows::put_back`], and the row is left alone for a while.
    pub fn rest(&mut self, key: &Arc<Key>, place: u64, waiter: Waiter, time: Duration) {
        let Some(row) = self.rows.get_mut(key) else { return };
        if !waiter.wants_no_more() {
            row.waiters.insert(place, waiter);
        }
        row.running = false;
        row.fresh = false;
        row.due = Some(Instant::now() + time);
        self.remove_if_empty(key);
    }

    fn remove_if_empty(&mut self, key: &Arc<Key>) {
        if self.rows.get(key).is_some_and(|row| row.waiters.is_empty() && !row.running) {
            self.rows.remove(key);
            let queue = queue_of(key);
            if let Some(keys) = self.by_queue.get_mut(&queue) {
                keys.retain(|k| k != key);
                if keys.is_empty() {
                    self.by_queue.remove(&queue);
                }
            }
        }
    }

    fn leave(&mut self, key: &Arc<Key>, place: u64) -> bool {
        let Some(row) = self.rows.get_mut(key) else { return false };
        let was_there = row.waiters.remove(&place).is_some();
        self.remove_if_empty(key);
        was_there
    }

    /// Something may be there for this row. True: it has to be started.
    pub fn kick(&mut self, key: &Arc<Key>) -> bool {
        let Some(row) = self.rows.get_mut(key) else { return false };
        row.dirty = true;
        row.due = None;
        let start = !row.running;
        row.running = true;
        start
    }

    /// A commit touched this queue: its rows, and those of the tenant that wait for a namespace or task.
    pub fn touched(&mut self, tenant: Tenant, queue: String) -> Vec<Arc<Key>> {
        let mut keys = self.by_queue.get(&(tenant, queue)).cloned().unwrap_or_default();
        keys.extend(self.by_queue.get(&(tenant, String::new())).into_iter().flatten().cloned());
        for key in &keys {
            if let Some(row) = self.rows.get_mut(key) {
                row.futile = 0;
            }
        }
        keys.retain(|key| self.kick(key));
        keys
    }

    /// A resting row is due, says the database. What it means may be under somebody else's hands still (an append that is
    /// not committed): a row that finds nothing asks less and less often. True: it has to be started.
    pub fn due_now(&mut self, key: &Arc<Key>) -> bool {
        let Some(row) = self.rows.get_mut(key).filter(|row| !row.running) else { return false };
        row.futile += 1;
        if row.futile > 2 {
            let wait = (FUTILE * 2_u32.pow(row.futile.min(8) - 2)).min(FUTILE_MAX);
            row.due = Some(Instant::now() + wait);
            return false;
        }
        self.kick(key)
    }

    /// Somebody of the row was served.
    pub fn served(&mut self, key: &Arc<Key>) {
        if let Some(row) = self.rows.get_mut(key) {
            row.futile = 0;
        }
    }

    /// Rows whose time has come.
    pub fn due(&mut self, now: Instant) -> Vec<Arc<Key>> {
        let keys: Vec<_> =
            self.rows.iter().filter(|(_, r)| r.due.is_some_and(|due| due <= now)).map(|(k, _)| k.clone()).collect();
        keys.into_iter().filter(|key| self.kick(key)).collect()
    }

    /// The next time that is known.
    pub fn next_due(&self) -> Option<Instant> {
        self.rows.values().filter(|row| !row.running).filter_map(|row| row.due).min()
    }

    /// Resting rows: all, or only those whose next time is not known.
    pub fn resting(&mut self, all: bool) -> Vec<Arc<Key>> {
        let mut keys = Vec::new();
        for (key, row) in &mut self.rows {
            if !row.running && (all || row.fresh) {
                row.fresh = false;
                keys.push(key.clone());
            }
        }
        keys
    }

    pub fn any_fresh(&self) -> bool {
        self.rows.values().any(|row| row.fresh && !row.running)
    }

    /// What was found out about a resting row.
    pub fn set_due(&mut self, key: &Arc<Key>, due: Option<Instant>) {
        if let Some(row) = self.rows.get_mut(key)
            && !row.running
        {
            row.due = due;
        }
    }
}

/// A place in a row; given up when dropped.
pub struct Ticket {
    polls: Polls,
    key: Arc<Key>,
    place: u64,
}

impl Ticket {
    pub fn enter(polls: &Polls, waiter: Waiter) -> Ticket {
        let (key, place, start) = polls.rows().add(waiter);
        polls.0.parked.notify_one();
        if start {
            polls.start([key.clone()]);
        }
        Ticket { polls: polls.clone(), key, place }
    }

    /// Gives the place up. False: the waiter is not in its place, but being served.
    pub fn leave(&self) -> bool {
        self.polls.rows().leave(&self.key, self.place)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}
