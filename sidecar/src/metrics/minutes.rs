//! What happened in each minute of the last day, queue by queue, and how the process was.
//!
//! It is this process's own view: another server in front of the same database, and SQL, count elsewhere. A restart
//! begins anew.
//!
//! Bounds: [`KEPT_MINUTES`] minutes, [`MAX_QUEUES`] queues a minute and [`MAX_ENTRIES`] queue-minutes at all; the oldest
//! minutes go first, and queues beyond the bound are counted together under the empty name, which no queue has.

use super::tally::{Bucket, Health, Tally};
use crate::tenant::Tenant;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Minutes that are kept.
pub const KEPT_MINUTES: u64 = 24 * 60;
/// Queues of one minute that are told apart.
pub const MAX_QUEUES: usize = 1000;
/// Queue-minutes that are kept.
const MAX_ENTRIES: usize = 300_000;

/// The ring of minutes.
#[derive(Default, Debug)]
pub struct Minutes(Mutex<Ring>);

#[derive(Default, Debug)]
struct Ring {
    /// Oldest first.
    minutes: VecDeque<Minute>,
    /// Queue-minutes in it.
    entries: usize,
}

#[derive(Default, Debug)]
struct Minute {
    number: u64,
    tenants: HashMap<Tenant, HashMap<String, Tally>>,
    queues: usize,
    health: Health,
}

/// The minute it is now, counted from 1970.
pub fn this_minute() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60)
}

impl Minutes {
    /// Adds to a queue's counts; the empty name is for what has no queue.
    pub fn count(&self, tenant: Tenant, queue: &str, more: &Tally) {
        self.count_at(this_minute(), tenant, queue, more);
    }

    /// Adds a sample of how the process is.
    pub fn sample(&self, health: &Health) {
        self.ring().at(this_minute()).health.add(health);
    }

    fn count_at(&self, minute: u64, tenant: Tenant, queue: &str, more: &Tally) {
        let mut ring = self.ring();
        let minute = ring.at(minute);
        let known = minute.tenants.get_mut(&tenant).and_then(|queues| queues.get_mut(queue));
        if let Some(tally) = known {
            tally.add(more);
            return;
        }
        let queue = if minute.queues < MAX_QUEUES { queue } else { "" };
        let queues = minute.tenants.entry(tenant).or_default();
        let before = queues.len();
        queues.entry(queue.to_owned()).or_default().add(more);
        let new = queues.len() - before;
        minute.queues += new;
        ring.entries += new;
        ring.trim();
    }

    /// The minutes `from..=to`, so many in one; also those in which nothing happened, as far back as minutes are kept.
    /// Buckets begin at multiples of their length.
    pub fn buckets(&self, tenant: Tenant, from: u64, to: u64, length: u64) -> Vec<Bucket> {
        self.buckets_at(this_minute(), tenant, from, to, length)
    }

    fn buckets_at(&self, now: u64, tenant: Tenant, from: u64, to: u64, length: u64) -> Vec<Bucket> {
        let length = length.max(1);
        let from = from.max(now.saturating_sub(KEPT_MINUTES - 1));
        let to = to.min(now);
        if from > to {
            return Vec::new();
        }
        let start = |minute: u64| minute - minute % length;
        let mut buckets: BTreeMap<u64, Bucket> = (start(from)..=start(to))
            .step_by(length as usize)
            .map(|start| (start, Bucket { start, length, ..Bucket::default() }))
            .collect();
        for minute in self.ring().minutes.iter().filter(|m| (from..=to).contains(&m.number)) {
            let Some(bucket) = buckets.get_mut(&start(minute.number)) else { continue };
            bucket.health.add(&minute.health);
            for (queue, tally) in minute.tenants.get(&tenant).into_iter().flatten() {
                bucket.total.add(tally);
                bucket.queues.entry(queue.clone()).or_default().add(tally);
            }
        }
        buckets.into_values().collect()
    }

    /// What happened in the last whole minute, all tenants together.
    pub fn last_minute(&self) -> BTreeMap<String, Tally> {
        let wanted = this_minute().saturating_sub(1);
        let mut all = BTreeMap::<String, Tally>::new();
        let ring = self.ring();
        let Some(minute) = ring.minutes.iter().rev().take(2).find(|m| m.number == wanted) else { return all };
        for (queue, tally) in minute.tenants.values().flatten().filter(|(queue, _)| !queue.is_empty()) {
            all.entry(queue.clone()).or_default().add(tally);
        }
        all
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// The minute; a clock that went back writes to the newest.
    fn at(&mut self, number: u64) -> &mut Minute {
        if self.minutes.back().is_none_or(|last| last.number < number) {
            self.minutes.push_back(Minute { number, ..Minute::default() });
            self.trim();
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }

    fn trim(&mut self) {
        let oldest = self.minutes.back().map_or(0, |last| last.number.saturating_sub(KEPT_MINUTES - 1));
        while self.minutes.len() > 1
            && (self.entries > MAX_ENTRIES || self.minutes.front().is_some_and(|first| first.number < oldest))
        {
            self.entries -= self.minutes.pop_front().map_or(0, |minute| minute.queues);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Tenant = Tenant(uuid::Uuid::from_u128(1));

    fn pushed(n: u32) -> Tally {
        Tally { push_messages: n, ..Tally::default() }
    }

    fn counts(buckets: &[Bucket]) -> Vec<(u64, u32)> {
        buckets.iter().map(|b| (b.start, b.total.push_messages)).collect()
    }

    #[test]
    fn minutes_are_added_up_in_buckets_that_begin_at_multiples_and_empty_ones_are_there() {
        let minutes = Minutes::default();
        for (minute, n) in [(10_003, 1), (10_004, 2), (10_005, 4), (10_016, 8)] {
            minutes.count_at(minute, T, "q", &pushed(n));
        }
        let buckets = minutes.buckets_at(10_017, T, 10_003, 10_017, 5);
        assert_eq!(counts(&buckets), [(10_000, 3), (10_005, 4), (10_010, 0), (10_015, 8)]);
        assert_eq!(buckets[0].queues["q"].push_messages, 3);
    }

    #[test]
    fn a_window_is_exact_to_the_minute_and_ends_now() {
        let minutes = Minutes::default();
        for minute in 10_000..10_010 {
            minutes.count_at(minute, T, "q", &pushed(1));
        }
        assert_eq!(counts(&minutes.buckets_at(10_009, T, 10_002, 10_006, 5)), [(10_000, 3), (10_005, 2)]);
        assert_eq!(counts(&minutes.buckets_at(10_009, T, 10_009, 99_999, 5)), [(10_005, 1)]);
        assert!(minutes.buckets_at(10_009, T, 20_000, 30_000, 5).is_empty());
    }

    #[test]
    fn however_long_the_window_there_are_no_more_buckets_than_minutes_kept() {
        let minutes = Minutes::default();
        assert_eq!(minutes.buckets_at(30_000_000, T, 0, u64::MAX, 1).len() as u64, KEPT_MINUTES);
    }

    #[test]
    fn a_day_is_kept() {
        let minutes = Minutes::default();
        minutes.count_at(10_000, T, "q", &pushed(1));
        minutes.count_at(10_000 + KEPT_MINUTES - 1, T, "q", &pushed(2));
        assert_eq!(minutes.ring().minutes.len(), 2);
        minutes.count_at(10_000 + KEPT_MINUTES, T, "q", &pushed(4));
        assert_eq!(minutes.ring().minutes.len(), 2);
        assert_eq!(minutes.ring().entries, 2);
    }

    #[test]
    fn queues_beyond_the_bound_are_counted_together() {
        let minutes = Minutes::default();
        for n in 0..MAX_QUEUES + 10 {
            minutes.count_at(10_000, T, &format!("q{n}"), &pushed(1));
        }
        let buckets = minutes.buckets_at(10_000, T, 10_000, 10_000, 1);
        assert_eq!(buckets[0].queues.len(), MAX_QUEUES + 1);
        assert_eq!(buckets[0].queues[""].push_messages, 10);
        assert_eq!(buckets[0].total.push_messages as usize, MAX_QUEUES + 10);
    }

    #[test]
    fn a_tenant_sees_its_own_queues_only() {
        let minutes = Minutes::default();
        minutes.count_at(10_000, T, "q", &pushed(1));
        minutes.count_at(10_000, Tenant(uuid::Uuid::from_u128(2)), "secret", &pushed(5));
        let buckets = minutes.buckets_at(10_000, T, 10_000, 10_000, 1);
        assert_eq!((buckets[0].queues.len(), buckets[0].total.push_messages), (1, 1));
    }
}
