//! The window of time a request asks about: `from`, `to`, and how it is cut into buckets.

use crate::metrics::minutes::this_minute;
use crate::times;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The query of such a request.
pub type Params = HashMap<String, String>;

/// A window, in minutes counted from 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// Minutes of a bucket.
    pub bucket: u64,
}

impl Window {
    /// What is asked for; what cannot be read counts as absent. Absent, `to` is now and `from` so many minutes before.
    pub fn of(params: &Params, minutes: u64) -> Window {
        Window::at(this_minute(), params, minutes)
    }

    fn at(now: u64, params: &Params, minutes: u64) -> Window {
        let given = |name: &str| {
            let seconds = times::parse(params.get(name)?)?.unix_timestamp();
            u64::try_from(seconds).ok().map(|seconds| seconds / 60)
        };
        let to = given("to").unwrap_or(now);
        let from = given("from").filter(|from| *from <= to).unwrap_or_else(|| to.saturating_sub(minutes));
        Window { from, to, bucket: bucket(to - from) }
    }

    /// The wire's `timeRange`.
    pub fn range(&self) -> Value {
        json!({ "from": times::format_minute(self.from), "to": times::format_minute(self.to) })
    }
}

/// Minutes of a bucket for a window of so many.
fn bucket(minutes: u64) -> u64 {
    match minutes {
        0..=60 => 1,
        61..=360 => 5,
        361..=1440 => 15,
        1441..=10_080 => 60,
        _ => 360,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(params: &[(&str, &str)]) -> Window {
        let params = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Window::at(30_000_000, &params, 60)
    }

    #[test]
    fn the_longer_the_window_the_longer_the_bucket() {
        let hours = [(1, 1), (6, 5), (24, 15), (7 * 24, 60), (8 * 24, 360)];
        for (hours, length) in hours {
            assert_eq!(bucket(hours * 60), length, "{hours} hours");
        }
        assert_eq!((bucket(61), bucket(361), bucket(1441), bucket(10_081)), (5, 15, 60, 360));
    }

    #[test]
    fn what_is_absent_or_cannot_be_read_is_the_last_hour() {
        let hour = Window { from: 29_999_940, to: 30_000_000, bucket: 1 };
        assert_eq!(at(&[]), hour);
        assert_eq!(at(&[("from", "x"), ("to", "")]), hour);
        assert_eq!(at(&[("from", "2999-01-01T00:00:00Z")]), hour, "from after to");
        assert_eq!(at(&[("from", "1900-01-01T00:00:00Z")]), hour, "before 1970");
    }

    #[test]
    fn what_is_given_is_taken() {
        let given = at(&[("from", "2026-07-30T00:00:00Z"), ("to", "2026-07-30T06:00:30+00:00")]);
        assert_eq!((given.to - given.from, given.bucket), (360, 5));
    }
}
