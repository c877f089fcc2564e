//! When a failed message may be delivered again, as a pure function of the queue's options.
//!
//! The budget itself (how many failures there may be) is the state machine's: [`crate::ack`]. This is about time: the
//! pause after a failure, and how long failing may go on at all.

use crate::classify::Class;
use crate::options::{Backoff, QueueOptions};

/// Reasons that no waiting can change, so that the retry policy is not asked.
pub const STRUCTURAL_REASONS: [&str; 4] = ["fatal", "no_handler", "decode_error", "malformed_envelope"];

/// What a queue says about the time of retries.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// How the pause grows.
    pub backoff: Backoff,
    /// Milliseconds: the first pause, and with [`Backoff::Fixed`] every one.
    pub base: i64,
    /// Milliseconds: no pause is longer; 0: no cap.
    pub cap: i64,
    /// Share of the pause by which it is varied at most, 0 to 1.
    pub jitter: f64,
    /// Seconds since the first failure after which the next one is final; 0: without bound.
    pub max_elapsed: i64,
}

impl Policy {
    /// The policy of a queue.
    pub fn of(options: &QueueOptions) -> Self {
        Self {
            backoff: options.retry_backoff,
            base: i64::from(options.retry_delay),
            cap: i64::from(options.retry_max_delay),
            jitter: options.retry_jitter.share(),
            max_elapsed: i64::from(options.max_elapsed_seconds),
        }
    }

    /// Milliseconds until the next delivery after the `failures`th failure in a row (from 1 on). `random` is uniform in
    /// `[0, 1)`.
    ///
    /// The pause d is base, or base · 2^(failures − 1), cut at the cap. Jitter j makes it uniform in `[d − j·d, d + j·d]`,
    /// and it is cut at the cap once more, so that the cap is a promise. That is the rule of gRPC's connection backoff
    /// protocol (doc/connection-backoff.md in grpc/grpc) but for the second cut: spread evenly around the pause that was
    /// configured, so that its mean stays what the operator has asked for. ("Full jitter", uniform in `[0, d]`, would halve
    /// it, and answer some failures at once.)
    pub fn delay(&self, failures: i32, random: f64) -> i64 {
        let cap = if self.cap > 0 { self.cap } else { i64::MAX };
        let pause = match self.backoff {
            Backoff::None => return 0,
            Backoff::Fixed => self.base,
            Backoff::Exponential => {
                let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0);
                2i64.checked_pow(doublings).and_then(|factor| self.base.checked_mul(factor)).unwrap_or(i64::MAX)
            }
        }
        .clamp(0, cap);
        // Half of what can be represented: beyond any use, and nothing added to it overflows.
        let pause = pause.min(i64::MAX / 2);
        let spread = self.jitter.clamp(0.0, 1.0) * pause as f64;
        let shift = spread * (random.clamp(0.0, 1.0) * 2.0 - 1.0);
        pause.saturating_add(shift as i64).clamp(0, cap)
    }

    /// Whether failing has gone on for so long that this failure is final. Times are in microseconds of one clock.
    pub fn is_over(&self, failing_since: Option<i64>, now: i64) -> bool {
        let elapsed = failing_since.map_or(0, |since| now.saturating_sub(since));
        self.max_elapsed > 0 && elapsed >= self.max_elapsed.saturating_mul(1_000_000)
    }
}

/// Whether retrying cannot help: the reason is a structural one, or the class is one that time does not change, whoever has
/// found it ([`crate::classify::classify`]).
pub fn is_hopeless(reason: &str, class: Class) -> bool {
    STRUCTURAL_REASONS.contains(&reason) || class.is_hopeless()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPONENTIAL: Policy =
        Policy { backoff: Backoff::Exponential, base: 100, cap: 1000, jitter: 0.0, max_elapsed: 0 };

    #[test]
    fn an_exponential_pause_doubles_up_to_the_cap() {
        let delays: Vec<i64> = (1..=6).map(|n| EXPONENTIAL.delay(n, 0.5)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(Policy { cap: 0, ..EXPONENTIAL }.delay(8, 0.5), 12_800);
    }

    #[test]
    fn a_fixed_pause_stays_and_none_is_none() {
        let fixed = Policy { backoff: Backoff::Fixed, ..EXPONENTIAL };
        assert_eq!([fixed.delay(1, 0.0), fixed.delay(50, 0.9)], [100, 100]);
        assert_eq!(Policy { base: 5000, ..fixed }.delay(1, 0.5), 1000);
        assert_eq!(Policy { backoff: Backoff::None, jitter: 1.0, ..EXPONENTIAL }.delay(3, 0.7), 0);
    }

    #[test]
    fn jitter_spreads_evenly_around_the_pause() {
        let jittered = Policy { jitter: 0.5, ..EXPONENTIAL };
        assert_eq!([jittered.delay(2, 0.0), jittered.delay(2, 0.5), jittered.delay(2, 0.75)], [100, 200, 250]);
        let whole = Policy { jitter: 1.0, ..EXPONENTIAL };
        assert_eq!(whole.delay(1, 0.0), 0);
    }

    #[test]
    fn a_pause_saturates_and_never_wraps() {
        let long = Policy { base: i64::from(i32::MAX), cap: 0, jitter: 1.0, ..EXPONENTIAL };
        for failures in [60, 64, 65, i32::MAX] {
            assert!(long.delay(failures, 0.999) >= i64::MAX / 4);
            assert_eq!(long.delay(failures, 0.0), 0);
        }
        assert_eq!(EXPONENTIAL.delay(0, 0.5), 100);
        assert_eq!(EXPONENTIAL.delay(i32::MIN, 0.5), 100);
    }

    #[test]
    fn failing_is_over_after_the_elapsed_seconds() {
        let bounded = Policy { max_elapsed: 2, ..EXPONENTIAL };
        assert!(!bounded.is_over(None, i64::MAX));
        assert!(!bounded.is_over(Some(1_000_000), 2_999_999));
        assert!(bounded.is_over(Some(1_000_000), 3_000_000));
        assert!(!EXPONENTIAL.is_over(Some(0), i64::MAX));
        assert!(!bounded.is_over(Some(i64::MAX), i64::MIN));
    }

    #[test]
    fn structural_reasons_and_hopeless_classes_are_not_retried() {
        for reason in STRUCTURAL_REASONS {
            assert!(Class::ALL.into_iter().all(|class| is_hopeless(reason, class)), "{reason}");
        }
        let retried: Vec<Class> = Class::ALL.into_iter().filter(|&class| !is_hopeless("", class)).collect();
        assert_eq!(retried, [Class::Transient, Class::Unknown]);
        for reason in ["retries_exhausted", "Fatal", "", "timeout"] {
            assert!(!is_hopeless(reason, Class::Unknown), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn a_pause_is_within_its_spread_and_never_above_the_cap(
            base in 0i64..=i64::from(i32::MAX), cap in 0i64..=i64::from(i32::MAX), jitter in 0.0f64..=1.0,
            failures in any::<i32>(), random in 0.0f64..1.0, exponential in any::<bool>(),
        ) {
            let backoff = if exponential { Backoff::Exponential } else { Backoff::Fixed };
            let policy = Policy { backoff, base, cap, jitter, max_elapsed: 0 };
            let delay = policy.delay(failures, random);
            let plain = Policy { jitter: 0.0, ..policy }.delay(failures, random);
            prop_assert!(delay >= 0);
            prop_assert!(cap == 0 || delay <= cap);
            let (low, high) = (plain as f64 * (1.0 - jitter), plain as f64 * (1.0 + jitter));
            // Rounding of a double: one part in 2^52, and the milliseconds.
            let slack = 2.0 + plain as f64 * 1e-9;
            prop_assert!(delay as f64 >= low - slack && delay as f64 <= high + slack, "{delay} not in {low}..{high}");
        }

        #[test]
        fn pauses_never_shrink_with_the_failures(base in 0i64..100_000, cap in 0i64..10_000_000, random in 0.0f64..1.0, jitter in 0.0f64..=1.0) {
            let policy = Policy { backoff: Backoff::Exponential, base, cap, jitter, max_elapsed: 0 };
            let delays: Vec<i64> = (1..80).map(|n| policy.delay(n, random)).collect();
            prop_assert!(delays.is_sorted());
        }
    }
}
