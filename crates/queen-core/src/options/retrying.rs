//! The values of options about retries that are neither number nor text.

use super::QueueOptions;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;

/// How the pause after a failure grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backoff {
    /// There is none: a failed message is delivered again at once.
    #[default]
    None,
    /// Every pause is as long.
    Fixed,
    /// Each is twice the one before.
    Exponential,
}

impl Backoff {
    /// Reads the word of the option.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::None),
            "fixed" => Some(Self::Fixed),
            "exponential" => Some(Self::Exponential),
            _ => None,
        }
    }
}

/// A share from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Jitter(f64);

// Never NaN.
impl Eq for Jitter {}

impl Jitter {
    /// None outside of 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl Serialize for Jitter {
    /// Whole numbers without a point, as they were most likely given.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0 == 0.0 || self.0 == 1.0 { to.serialize_u64(self.0 as u64) } else { to.serialize_f64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Jitter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        Self::new(share).ok_or_else(|| serde::de::Error::custom("a number from 0 to 1 is allowed"))
    }
}

/// How failures of a queue are retried. Reads both of its forms: as an object, and shorter as an array of the same values.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    retry_limit: i32,
    retry_backoff: Backoff,
    retry_delay: i32,
    retry_max_delay: i32,
    retry_jitter: Jitter,
    max_elapsed_seconds: i32,
    max_deliveries: i32,
}

impl Policy {
    fn of(options: &QueueOptions) -> Self {
        Self {
            retry_limit: options.retry_limit,
            retry_backoff: options.retry_backoff,
            retry_delay: options.retry_delay,
            retry_max_delay: options.retry_max_delay,
            retry_jitter: options.retry_jitter,
            max_elapsed_seconds: options.max_elapsed_seconds,
            max_deliveries: options.max_deliveries,
        }
    }

    fn short(&self) -> String {
        let values = (
            self.retry_limit,
            self.retry_backoff,
            self.retry_delay,
            self.retry_max_delay,
            self.retry_jitter,
            self.max_elapsed_seconds,
            self.max_deliveries,
        );
        // Numbers and words: it cannot fail.
        serde_json::to_string(&values).unwrap_or_default()
    }
}

thread_local! {
    // The last one written and the last one read: dead letters mostly come many from one queue.
    static WRITTEN: RefCell<Option<(Policy, String)>> = const { RefCell::new(None) };
    static READ: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// The retry options of a queue as a dead letter stores them: a JSON array of their values, without the names.
pub(super) fn policy(options: &QueueOptions) -> String {
    let policy = Policy::of(options);
    WRITTEN.with_borrow_mut(|last| match last {
        Some((of, short)) if *of == policy => short.clone(),
        _ => {
            let short = policy.short();
            *last = Some((policy, short.clone()));
            short
        }
    })
}

/// What a dead letter stores as its queue's retry options, as a JSON object; something else as it is.
pub fn policy_json(stored: &str) -> String {
    READ.with_borrow_mut(|last| match last {
        Some((of, json)) if of == stored => json.clone(),
        _ => {
            let policy = serde_json::from_str::<Policy>(stored).ok();
            let json =
                policy.and_then(|policy| serde_json::to_string(&policy).ok()).unwrap_or_else(|| stored.to_owned());
            *last = Some((stored.to_owned(), json.clone()));
            json
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_letter_stores_of_the_retry_options_is_read_as_an_object_of_them() {
        let options = QueueOptions { retry_limit: 7, retry_delay: 20, ..QueueOptions::default() };
        let object = r#"{"retryLimit":7,"retryBackoff":"none","retryDelay":20,"retryMaxDelay":0,"retryJitter":0,"maxElapsedSeconds":0,"maxDeliveries":0}"#;
        for _ in 0..2 {
            assert_eq!(policy(&options), r#"[7,"none",20,0,0,0,0]"#);
            assert_eq!(policy_json(r#"[7,"none",20,0,0,0,0]"#), object);
        }
        assert_eq!(policy_json(object), object);
        assert_eq!(policy_json("{}"), "{}");
        assert_ne!(policy(&QueueOptions::default()), policy(&options));
    }
}
