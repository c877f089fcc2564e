//! How often each leased but uncommitted message was delivered to a group.
//!
//! Every delivery starts at the first uncommitted offset, so that counts never rise with the offset: a
//! short list of steps says it all. Each step is (last offset, count) and covers what lies above the
//! step before it.

/// Most steps kept. More would need a consumer that takes ever smaller batches of one span without
/// settling anything; the far end then loses precision, not the message in front.
pub const MAX_STEPS: usize = 16;

const STEP_BYTES: usize = 12;

/// Delivery counts of one (partition, consumer group).
///
/// Invariant: offsets rise strictly, counts fall strictly and are at least 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Deliveries {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    end: i64,
    count: i32,
}

impl Deliveries {
    /// Counts a delivery of the offsets `first` to `end` and answers how often `first` has been
    /// delivered, this time included. `first` is the first uncommitted offset: what lies below it is
    /// forgotten.
    pub fn deliver(&mut self, first: i64, end: i64) -> i32 {
        self.advance(first.saturating_sub(1));
        let end = end.max(first);
        let inside = self.steps.partition_point(|step| step.end <= end);
        let (delivered, rest) = self.steps.split_at(inside);
        let covered = delivered.last().is_some_and(|step| step.end == end);
        // The part of the step that `end` cuts through; beyond the last step nothing was delivered.
        let cut = if covered { None } else { Some(rest.first().map_or(0, |step| step.count)) };
        let mut steps: Vec<Step> = delivered.to_vec();
        steps.extend(cut.map(|count| Step { end, count }));
        for step in &mut steps {
            step.count = step.count.saturating_add(1);
        }
        steps.extend_from_slice(rest);
        while steps.len() > MAX_STEPS {
            // The last two become one with the lower count: never more than was really delivered.
            steps.remove(steps.len() - 2);
        }
        self.steps = steps;
        self.steps.first().map_or(1, |step| step.count)
    }

    /// How often the first uncommitted message has been delivered so far.
    pub fn attempts(&self) -> i32 {
        self.steps.first().map_or(0, |step| step.count)
    }

    /// How often the message at `offset` has been delivered so far; `offset` is not below the first uncommitted one.
    pub fn attempts_of(&self, offset: i64) -> i32 {
        self.steps.iter().find(|step| step.end >= offset).map_or(0, |step| step.count)
    }

    /// Forgets everything at or below `committed`.
    pub fn advance(&mut self, committed: i64) {
        self.steps.retain(|step| step.end > committed);
    }

    /// Forgets everything: the lease was completed, or the cursor was set elsewhere.
    pub fn clear(&mut self) {
        self.steps.clear();
    }

    /// The stored form: per step an i64 offset and an i32 count, little-endian; empty for none.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.steps.len() * STEP_BYTES);
        for step in &self.steps {
            bytes.extend_from_slice(&step.end.to_le_bytes());
            bytes.extend_from_slice(&step.count.to_le_bytes());
        }
        bytes
    }

    /// Reads the stored form. What does not hold the invariant counts as no delivery yet: a counter is
    /// no reason to refuse a message.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
        let steps: Vec<Step> = steps
            .iter()
            .map(|[a, b, c, d, e, f, g, h, i, j, k, l]| Step {
                end: i64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
                count: i32::from_le_bytes([*i, *j, *k, *l]),
            })
            .collect();
        let sound = rest.is_empty()
            && steps.len() <= MAX_STEPS
            && steps.is_sorted_by(|a, b| a.end < b.end && a.count > b.count)
            && steps.last().is_none_or(|step| step.count >= 1);
        if sound { Self { steps } } else { Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_popped_alone_twice_and_then_in_a_batch_is_on_its_third_delivery() {
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.deliver(1, 1), 1);
        assert_eq!(deliveries.deliver(1, 1), 2);
        assert_eq!(deliveries.deliver(1, 3), 3);
        deliveries.advance(1);
        assert_eq!(deliveries.deliver(2, 3), 2);
        deliveries.clear();
        assert_eq!(deliveries.attempts(), 0);
        assert_eq!(deliveries.deliver(2, 3), 1);
    }

    #[test]
    fn a_smaller_batch_counts_only_what_it_delivers() {
        let mut deliveries = Deliveries::default();
        deliveries.deliver(0, 9);
        assert_eq!(deliveries.deliver(0, 4), 2);
        deliveries.advance(4);
        assert_eq!(deliveries.attempts(), 1);
        assert_eq!(deliveries.deliver(5, 5), 2);
    }

    #[test]
    fn each_message_has_its_own_count() {
        let mut deliveries = Deliveries::default();
        deliveries.deliver(0, 9);
        deliveries.deliver(0, 4);
        assert_eq!([0, 4, 5, 9, 10].map(|offset| deliveries.attempts_of(offset)), [2, 2, 1, 1, 0]);
    }

    #[test]
    fn at_most_sixteen_steps_are_kept_and_the_front_stays_exact() {
        let mut deliveries = Deliveries::default();
        for n in 0..100 {
            assert_eq!(deliveries.deliver(0, 1000 - n), n as i32 + 1);
            assert!(deliveries.to_bytes().len() <= MAX_STEPS * STEP_BYTES);
            assert_eq!(Deliveries::from_bytes(&deliveries.to_bytes()), deliveries);
        }
    }

    #[test]
    fn unreadable_bytes_are_no_deliveries() {
        let mut deliveries = Deliveries::default();
        deliveries.deliver(0, 5);
        let mut bytes = deliveries.to_bytes();
        bytes.pop();
        assert_eq!(Deliveries::from_bytes(&bytes), Deliveries::default());
        assert_eq!(Deliveries::from_bytes(&[0; 24]), Deliveries::default());
        assert_eq!(Deliveries::from_bytes(&[]), Deliveries::default());
    }

    proptest! {
        /// Against one counter per message.
        #[test]
        fn counts_agree_with_one_counter_per_message(
            steps in proptest::collection::vec((0usize..6, 1usize..8, any::<bool>()), 1..12),
        ) {
            let mut counts = [0i32; 200];
            let mut first = 0;
            let mut deliveries = Deliveries::default();
            for (done, batch, stored) in steps {
                let end = first + batch - 1;
                counts[first..=end].iter_mut().for_each(|count| *count += 1);
                prop_assert_eq!(deliveries.deliver(first as i64, end as i64), counts[first]);
                first += done.min(batch);
                deliveries.advance(first as i64 - 1);
                if stored {
                    deliveries = Deliveries::from_bytes(&deliveries.to_bytes());
                }
                prop_assert_eq!(deliveries.attempts(), counts[first]);
                for (offset, &count) in counts.iter().enumerate().skip(first) {
                    prop_assert_eq!(deliveries.attempts_of(offset as i64), count);
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), end in any::<i64>(), first in any::<i64>()) {
            let mut deliveries = Deliveries::from_bytes(&bytes);
            deliveries.deliver(first, end);
            deliveries.advance(end);
        }
    }
}
