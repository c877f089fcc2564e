//! Times as the wire writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// Reads an ISO 8601 time with its offset; one without is UTC, and a date alone is its midnight.
pub fn parse(text: &str) -> Option<OffsetDateTime> {
    let text = text.trim();
    OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(&format!("{text}Z"), &Rfc3339))
        .or_else(|_| OffsetDateTime::parse(&format!("{text}T00:00:00Z"), &Rfc3339))
        .ok()
}

/// UTC with milliseconds.
pub fn format(time: OffsetDateTime) -> String {
    let shape = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    time.to_offset(time::UtcOffset::UTC).format(shape).unwrap_or_default()
}

/// The beginning of a minute counted from 1970.
pub fn format_minute(minute: u64) -> String {
    let seconds = i64::try_from(minute).unwrap_or(i64::MAX).saturating_mul(60);
    OffsetDateTime::from_unix_timestamp(seconds).map(format).unwrap_or_default()
}

/// How long ago a time was; nothing when it is ahead, as it may be by another machine's clock.
pub fn since(text: &str) -> Option<Duration> {
    let then = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let then = Duration::from_micros(u64::try_from(then.unix_timestamp_nanos() / 1000).ok()?);
    Some(now.saturating_sub(then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_many_spellings_are_read() {
        let wanted = "2026-07-30T12:34:00.000Z";
        for text in [
            "2026-07-30T12:34:00Z",
            "2026-07-30T14:34:00.000000+02:00",
            "2026-07-30T12:34:00",
            " 2026-07-30T12:34:00.000Z",
        ] {
            assert_eq!(parse(text).map(format).as_deref(), Some(wanted), "{text}");
        }
        assert_eq!(parse("2026-07-30").map(format).as_deref(), Some("2026-07-30T00:00:00.000Z"));
        for bad in ["", "x", "yesterday", "2026-13-01", "1753880040"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_minute_is_written_in_full() {
        assert_eq!(format_minute(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_minute(29_756_914), "2026-07-30T12:34:00.000Z");
    }

    #[test]
    fn the_past_is_some_time_ago_and_the_future_none() {
        assert!(since("2026-01-01T00:00:00.000000Z").is_some());
        assert_eq!(since("9000-01-01T00:00:00.000000Z"), Some(Duration::ZERO));
        assert_eq!(since("t"), None);
    }
}
