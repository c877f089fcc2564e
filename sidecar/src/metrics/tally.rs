//! What is counted in a minute, and how minutes are added up.

use std::collections::BTreeMap;

/// Counts of one queue, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Push requests that had a message for it.
    pub push_requests: u32,
    /// Messages pushed; duplicates as well.
    pub push_messages: u32,
    /// Pops answered, empty ones as well.
    pub pop_requests: u32,
    /// Messages delivered.
    pub pop_messages: u32,
    /// Pops that found nothing.
    pub pop_empty: u32,
    /// Ack requests. They name partitions, not queues: counted under the empty name.
    pub ack_requests: u32,
    /// Acknowledgements that were accepted.
    pub ack_success: u32,
    /// Acknowledgements that were not.
    pub ack_failed: u32,
    /// Acknowledgements that made a dead letter.
    pub dead_letters: u32,
    /// Transactions; under the empty name.
    pub transactions: u32,
    /// Pops whose lag is known: the age of the first message delivered.
    pub lag_count: u32,
    /// Longest lag in milliseconds.
    pub lag_max_ms: u32,
    /// Sum of the lags in milliseconds.
    pub lag_sum_ms: u64,
    /// Sum of the waiting pops over all samples.
    pub parked_sum: u32,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        let sums = [
            (&mut self.push_requests, other.push_requests),
            (&mut self.push_messages, other.push_messages),
            (&mut self.pop_requests, other.pop_requests),
            (&mut self.pop_messages, other.pop_messages),
            (&mut self.pop_empty, other.pop_empty),
            (&mut self.ack_requests, other.ack_requests),
            (&mut self.ack_success, other.ack_success),
            (&mut self.ack_failed, other.ack_failed),
            (&mut self.dead_letters, other.dead_letters),
            (&mut self.transactions, other.transactions),
            (&mut self.lag_count, other.lag_count),
            (&mut self.parked_sum, other.parked_sum),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.lag_max_ms = self.lag_max_ms.max(other.lag_max_ms);
        self.lag_sum_ms = self.lag_sum_ms.saturating_add(other.lag_sum_ms);
    }

    /// Average lag in milliseconds.
    pub fn lag_avg_ms(&self) -> u64 {
        self.lag_sum_ms.checked_div(u64::from(self.lag_count)).unwrap_or(0)
    }
}

/// Average, least, greatest and newest of some samples.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Stat {
    /// How many.
    pub count: u32,
    /// Their sum.
    pub sum: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The newest.
    pub last: f64,
}

impl Stat {
    /// One sample.
    pub fn of(value: f64) -> Stat {
        Stat { count: 1, sum: value, min: value, max: value, last: value }
    }

    /// Adds newer samples.
    pub fn add(&mut self, newer: &Stat) {
        match (self.count, newer.count) {
            (_, 0) => {}
            (0, _) => *self = *newer,
            _ => {
                self.count += newer.count;
                self.sum += newer.sum;
                self.min = self.min.min(newer.min);
                self.max = self.max.max(newer.max);
                self.last = newer.last;
            }
        }
    }

    /// Their average; 0 of none.
    pub fn avg(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / f64::from(self.count) }
    }
}

/// How the process was.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Health {
    /// Processor time in user mode since the sample before, microseconds.
    pub cpu_user: Stat,
    /// The same in system mode.
    pub cpu_system: Stat,
    /// Share of one processor in user mode, percent.
    pub cpu_user_percent: Stat,
    /// The same in system mode.
    pub cpu_system_percent: Stat,
    /// Resident memory in bytes.
    pub resident: Stat,
    /// Connections to the database.
    pub pool_size: Stat,
    /// Of these, unused.
    pub pool_idle: Stat,
    /// Of these, in use.
    pub pool_active: Stat,
    /// Calls that wait for a connection.
    pub pool_waiting: Stat,
    /// Seconds since the start.
    pub uptime: Stat,
    /// How late the runtime woke up, milliseconds.
    pub loop_lag: Stat,
    /// Calls that failed though the request was not at fault.
    pub database_errors: u32,
}

impl Health {
    /// Adds newer samples.
    pub fn add(&mut self, newer: &Health) {
        let stats = [
            (&mut self.cpu_user, &newer.cpu_user),
            (&mut self.cpu_system, &newer.cpu_system),
            (&mut self.cpu_user_percent, &newer.cpu_user_percent),
            (&mut self.cpu_system_percent, &newer.cpu_system_percent),
            (&mut self.resident, &newer.resident),
            (&mut self.pool_size, &newer.pool_size),
            (&mut self.pool_idle, &newer.pool_idle),
            (&mut self.pool_active, &newer.pool_active),
            (&mut self.pool_waiting, &newer.pool_waiting),
            (&mut self.uptime, &newer.uptime),
            (&mut self.loop_lag, &newer.loop_lag),
        ];
        for (sum, more) in stats {
            sum.add(more);
        }
        self.database_errors = self.database_errors.saturating_add(newer.database_errors);
    }
}

/// Some minutes together.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Bucket {
    /// The first minute, counted from 1970.
    pub start: u64,
    /// How many.
    pub length: u64,
    /// By queue; the empty name is what has none.
    pub queues: BTreeMap<String, Tally>,
    /// All queues together.
    pub total: Tally,
    /// The process.
    pub health: Health,
}

impl Bucket {
    /// Waiting pops of these counts, on average.
    pub fn parked(&self, tally: &Tally) -> f64 {
        f64::from(tally.parked_sum) / f64::from(self.health.uptime.count.max(1))
    }

    /// So many in the bucket, as a rate.
    pub fn per_second(&self, count: u32) -> f64 {
        (f64::from(count) / (self.length.max(1) * 60) as f64 * 1000.0).round() / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_the_longest_lag_stays() {
        let mut sum = Tally { pop_messages: 1, lag_count: 1, lag_sum_ms: 10, lag_max_ms: 10, ..Tally::default() };
        sum.add(&Tally { pop_messages: u32::MAX, lag_count: 1, lag_sum_ms: 4, lag_max_ms: 4, ..Tally::default() });
        assert_eq!((sum.pop_messages, sum.lag_max_ms, sum.lag_avg_ms()), (u32::MAX, 10, 7));
        assert_eq!(Tally::default().lag_avg_ms(), 0);
    }

    #[test]
    fn a_stat_without_samples_changes_nothing() {
        let mut stat = Stat::default();
        stat.add(&Stat::of(3.0));
        stat.add(&Stat::default());
        stat.add(&Stat::of(1.0));
        assert_eq!((stat.avg(), stat.min, stat.max, stat.last), (2.0, 1.0, 3.0, 1.0));
        assert_eq!(Stat::default().avg(), 0.0);
    }
}
