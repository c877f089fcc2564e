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

#[derive(PartialEq, Serialize)]
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

thread_local! {
    // The last one written: dead letters mostly come many from one queue.
    static LAST: RefCell<Option<(Policy, String)>> = const { RefCell::new(None) };
}

/// How failures of a queue are retried, as a JSON object of the options that say so.
pub(super) fn policy_json(options: &QueueOptions) -> String {
    let policy = Policy {
        retry_limit: options.retry_limit,
        retry_backoff: options.retry_backoff,
        retry_delay: options.retry_delay,
        retry_max_delay: options.retry_max_delay,
        retry_jitter: options.retry_jitter,
        max_elapsed_seconds: options.max_elapsed_seconds,
        max_deliveries: options.max_deliveries,
    };
    LAST.with_borrow_mut(|last| match last {
        Some((of, json)) if *of == policy => json.clone(),
        _ => {
            // Numbers and words: it cannot fail.
            let json = serde_json::to_string(&policy).unwrap_or_default();
            *last = Some((policy, json.clone()));
            json
        }
    })
}
