//! Business deadlines: the header `x-deadline`, a time after which a message is worth nothing to anybody.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The header.
pub const HEADER: &str = "x-deadline";

/// The header is there, and is no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the header x-deadline must be an ISO 8601 timestamp with an offset, such as \"2030-01-31T12:00:00Z\"")]
pub struct DeadlineError;

impl DeadlineError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> crate::error::ErrorKind {
        crate::error::ErrorKind::InvalidTimestamp
    }
}

crate::error::into_error!(DeadlineError);

/// The deadline in these headers (a JSON object), in microseconds since the Unix epoch. None: there is none, or it is null.
///
/// # Errors
/// [`DeadlineError`]: it is anything but an RFC 3339 timestamp (a blank in place of the `T` will do).
pub fn of_headers(headers: &[u8]) -> Result<Option<i64>, DeadlineError> {
    #[derive(Deserialize)]
    struct Headers<'a> {
        #[serde(borrow, rename = "x-deadline")]
        deadline: Option<&'a RawValue>,
    }
    // Most headers have none, and need not be parsed.
    if !headers.windows(HEADER.len()).any(|window| window == HEADER.as_bytes()) {
        return Ok(None);
    }
    // What is no object was refused when it was pushed.
    let Ok(headers) = serde_json::from_slice::<Headers<'_>>(headers) else { return Err(DeadlineError) };
    let Some(raw) = headers.deadline else { return Ok(None) };
    let text: String = serde_json::from_str(raw.get()).map_err(|_| DeadlineError)?;
    parse(text.trim()).map(Some).ok_or(DeadlineError)
}

/// An RFC 3339 timestamp as microseconds since the Unix epoch; digits beyond those are cut.
fn parse(text: &str) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, allowed: &[u8]| text.as_bytes().get(at).is_some_and(|b| allowed.contains(b));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    // A leap second is the next one.
    let ranges = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 60;
    if !separated || !ranges {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let shown = fraction.get(..digits.min(6)).filter(|shown| !shown.is_empty())?;
        micros = shown.parse::<i64>().ok()? * 10i64.pow(6 - shown.len() as u32);
        rest = fraction.get(digits..)?;
    }
    let offset = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, tail @ ..] => {
            let two = |a: u8, b: u8| {
                (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
            };
            let minutes = match tail {
                [] => 0,
                [b':', m1, m2] | [m1, m2] => two(*m1, *m2)?,
                _ => return None,
            };
            let hours = two(*h1, *h2)?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = days_from_epoch(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(seconds * 1_000_000 + micros)
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar. Years begin in March here, so that the leap day is the last.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(value: &str) -> Result<Option<i64>, DeadlineError> {
        of_headers(format!(r#"{{"a":1,"x-deadline":{value}}}"#).as_bytes())
    }

    #[test]
    fn a_deadline_is_an_iso_timestamp_with_an_offset() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01 00:00:01.5z", 1_500_000),
            ("2000-01-01T00:00:00+00:00", 946_684_800_000_000),
            ("2000-02-29T23:59:59.123456789Z", 951_868_799_123_456),
            ("2026-11-30T10:30:00+02:30", 1_796_025_600_000_000),
            ("2026-11-30T10:30:00-0230", 1_796_043_600_000_000),
            ("2026-11-30T10:30:00+02", 1_796_027_400_000_000),
            ("1969-12-31T23:59:59.999999Z", -1),
        ] {
            assert_eq!(of(&format!("\"{text}\"")), Ok(Some(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        for value in [
            r#""""#,
            r#""soon""#,
            "5",
            "true",
            "[]",
            "{}",
            r#""2026-11-30""#,
            r#""2026-11-30T10:30:00""#,
            r#""2026-13-01T00:00:00Z""#,
            r#""2026-02-29T00:00:00Z""#,
            r#""2026-01-01T24:00:00Z""#,
            r#""2026-01-01T00:00:00.Z""#,
            r#""2026-01-01T00:00:00+25:00""#,
            r#""2026-01-01T00:00:00Zx""#,
            r#""+026-01-01T00:00:00Z""#,
            r#""2026-01-01T00:00:00é""#,
        ] {
            assert_eq!(of(value), Err(DeadlineError), "{value}");
        }
    }

    #[test]
    fn headers_without_it_have_no_deadline() {
        assert_eq!(of_headers(b"{}"), Ok(None));
        assert_eq!(of_headers(br#"{"X-Deadline":"soon"}"#), Ok(None));
        assert_eq!(of_headers(br#"{"note":"x-deadline"}"#), Ok(None));
        assert_eq!(of("null"), Ok(None));
    }

    proptest! {
        #[test]
        fn days_follow_each_other(year in 1i64..9998, month in 1i64..=12, day in 1i64..=31) {
            prop_assume!(day <= days_in(year, month));
            let next = if day < days_in(year, month) { (year, month, day + 1) }
                       else if month < 12 { (year, month + 1, 1) } else { (year + 1, 1, 1) };
            prop_assert_eq!(days_from_epoch(next.0, next.1, next.2), days_from_epoch(year, month, day) + 1);
        }

        #[test]
        fn arbitrary_headers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in ".{0,40}") {
            _ = of_headers(&bytes);
            _ = of(&serde_json::json!(text).to_string());
            _ = parse(&text);
        }
    }
}
