//! Message ids: UUIDv7, made so that they sort in log order.
//!
//! ```text
//! 48 bits  milliseconds since the Unix epoch
//!  4 bits  version, 7
//! 12 bits  microseconds of the millisecond, scaled to 4096 and rounded up (RFC 9562, method 3)
//!  2 bits  variant, 0b10
//! 62 bits  random at the start of a run, then counting up
//! ```
//!
//! Rounded up, because then scaling back and rounding down gives the very microseconds: the step from
//! one microsecond to the next is 4.096 units, and rounding up adds less than one.

use std::cell::RefCell;
use uuid::{Uuid, Variant};

const COUNTER_BITS: u32 = 62;
const COUNTER_MASK: u128 = (1 << COUNTER_BITS) - 1;
/// The counter starts below half of its range, so that every run has at least 2^61 ids of room.
const START_MASK: u128 = COUNTER_MASK >> 1;
const MAX_MILLIS: u64 = (1 << 48) - 1;
/// No run is longer; half of the counter's range.
const MAX_RUN: u64 = 1 << 61;

/// Makes message ids that strictly increase.
#[derive(Debug, Default)]
pub struct IdGenerator {
    /// The last id handed out; 0 before the first.
    last: u128,
}

impl IdGenerator {
    /// A generator that has handed out nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first of `n` consecutive ids: first, first + 1, … (`n` = 0 counts as 1, and more than 2^61
    /// as 2^61).
    ///
    /// The time part is `unix_micros` (clamped to what 48 bits of milliseconds hold), unless that would
    /// not sort after the last id handed out: then the run continues at last + 1, whatever its time.
    /// The counter never overflows into the time part inside a run.
    pub fn reserve(&mut self, unix_micros: u64, n: u64) -> u128 {
        let n = u128::from(n.clamp(1, MAX_RUN));
        let mut first = at(unix_micros, random_start());
        // Same microsecond: the random start alone must not decide the order of two runs.
        if first | COUNTER_MASK <= self.last | COUNTER_MASK {
            first = self.last.wrapping_add(1);
            let room = COUNTER_MASK - (self.last & COUNTER_MASK);
            if n > room {
                let micros = self::unix_micros(self.last).unwrap_or_default();
                first = at(micros.saturating_add(1), random_start());
            }
        }
        self.last = first + (n - 1);
        first
    }
}

/// The id of a time with a counter of at most 62 bits.
fn at(unix_micros: u64, counter: u128) -> u128 {
    let millis = (unix_micros / 1000).min(MAX_MILLIS);
    let scaled = (unix_micros % 1000 * 4096).div_ceil(1000);
    (u128::from(millis) << 80) | (0x7 << 76) | (u128::from(scaled) << 64) | (0b10 << COUNTER_BITS) | counter
}

/// Bytes fetched from the system at once: one call for many ids.
const RANDOM_BYTES: usize = 256;

/// Random bytes, and how many of them, from the end on, are not handed out yet.
struct Random {
    bytes: [u8; RANDOM_BYTES],
    left: usize,
}

thread_local! {
    static RANDOM: RefCell<Random> = const { RefCell::new(Random { bytes: [0; RANDOM_BYTES], left: 0 }) };
}

fn random_start() -> u128 {
    let word = RANDOM.with_borrow_mut(|random| {
        if random.left == 0 && getrandom::fill(&mut random.bytes).is_ok() {
            random.left = RANDOM_BYTES;
        }
        let (rest, word) = random.bytes[..random.left].split_last_chunk()?;
        random.left = rest.len();
        Some(u64::from_ne_bytes(*word))
    });
    // Without the system's random numbers nothing is made: this panics then. The low 62 bits of a version 4 UUID are random.
    word.map_or_else(|| Uuid::new_v4().as_u128(), u128::from) & START_MASK
}

/// Microseconds since the Unix epoch that the id was made at; `Some` only for version 7 with the RFC
/// variant. Exact for ids made here, within a microsecond for others that use the sub-millisecond bits,
/// and within a millisecond for those that fill them with noise.
pub fn unix_micros(id: u128) -> Option<u64> {
    let uuid = Uuid::from_u128(id);
    if uuid.get_version_num() != 7 || uuid.get_variant() != Variant::RFC4122 {
        return None;
    }
    let millis = (id >> 80) as u64;
    let scaled = (id >> 64) as u64 & 0xfff;
    Some(millis * 1000 + scaled * 1000 / 4096)
}

/// The canonical text: hyphenated, lower-case, 36 bytes.
pub fn format(id: u128) -> String {
    Uuid::from_u128(id).hyphenated().to_string()
}

/// Writes the canonical text.
pub fn write(id: u128, out: &mut [u8; 36]) {
    Uuid::from_u128(id).hyphenated().encode_lower(out);
}

/// Reads the canonical text and nothing else: no braces, no upper case, no missing hyphens. For where
/// text stands for an id only if it is spelled exactly as the broker spells it.
pub fn parse_canonical(text: &str) -> Option<u128> {
    if text.len() != 36 || text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    // Of the forms that the parser takes, only the hyphenated one is 36 bytes long.
    Uuid::try_parse(text).ok().map(|uuid| uuid.as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_strictly_increase_and_micros_recover(
            calls in proptest::collection::vec((0u64..3_000_000, 1u64..5000), 1..50),
        ) {
            let base = 1_760_000_000_000_000;
            let mut generator = IdGenerator::new();
            let (mut last, mut newest) = (0, 0);
            for (step, n) in calls {
                let micros = base + step;
                let first = generator.reserve(micros, n);
                prop_assert!(first > last);
                newest = newest.max(micros);
                prop_assert_eq!(unix_micros(first), Some(newest));
                last = first + u128::from(n - 1);
                prop_assert_eq!(unix_micros(last), Some(newest));
            }
        }

        #[test]
        fn text_round_trips(id in any::<u128>()) {
            let text = format(id);
            let mut written = [0; 36];
            write(id, &mut written);
            prop_assert_eq!(text.as_bytes(), &written);
            prop_assert_eq!(parse_canonical(&text), Some(id));
            let upper = text.to_uppercase();
            prop_assert_eq!(parse_canonical(&upper).is_some(), upper == text);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", id in any::<u128>()) {
            let _ = (parse_canonical(&text), unix_micros(id));
        }
    }

    #[test]
    fn every_microsecond_of_a_millisecond_recovers_exactly() {
        for micros in 0..1000 {
            assert_eq!(unix_micros(at(1_000 + micros, 0)), Some(1_000 + micros));
        }
    }

    #[test]
    fn ids_are_version_7_with_the_rfc_variant() {
        let id = Uuid::from_u128(IdGenerator::new().reserve(1_760_000_000_123_456, 1));
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id.get_variant(), Variant::RFC4122);
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos / 1_000_000), (1_760_000_000, 123));
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_continues_the_run() {
        let mut generator = IdGenerator::new();
        let first = generator.reserve(5_000_000, 10);
        assert_eq!(generator.reserve(5_000_000, 1), first + 10);
        assert_eq!(generator.reserve(4_000_000, 1), first + 11);
        assert!(generator.reserve(5_000_001, 1) > first + 12);
    }

    #[test]
    fn the_counter_never_overflows_inside_a_run() {
        let mut generator = IdGenerator::new();
        let mut last = 0;
        for _ in 0..8 {
            let first = generator.reserve(5_000_000, u64::MAX);
            assert!(first > last);
            last = first + u128::from(MAX_RUN - 1);
            assert_eq!(first >> COUNTER_BITS, last >> COUNTER_BITS);
        }
    }

    #[test]
    fn extreme_clocks_are_clamped() {
        let mut generator = IdGenerator::new();
        let first = generator.reserve(u64::MAX, 1);
        assert!(generator.reserve(0, 1) > first);
        assert_eq!(IdGenerator::new().reserve(0, 1) >> 80, 0);
    }

    #[test]
    fn only_the_exact_canonical_form_is_read() {
        for text in [
            "",
            "0190000000007000800000000000000f",
            "{01900000-0000-7000-8000-00000000000f}",
            "01900000-0000-7000-8000-00000000000F",
            "01900000-0000-7000-8000-00000000000g",
            "01900000-0000-7000-80000-0000000000f",
            "urn:uuid:01900000-0000-7000-8000-000",
        ] {
            assert_eq!(parse_canonical(text), None, "{text}");
        }
        assert!(parse_canonical("01900000-0000-7000-8000-00000000000f").is_some());
        assert_eq!(unix_micros(0), None);
    }
}
