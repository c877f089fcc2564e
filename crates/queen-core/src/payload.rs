//! Payloads, and the wire forms of push and ack.
//!
//! A payload is JSON text and stays exactly the text it was: it is checked, never rebuilt, so that
//! duplicate keys, long numbers, `\u0000` and lone surrogate escapes survive. Checking is iterative:
//! nesting costs one byte a level and no stack.

mod acks;
mod items;
mod operations;
mod raw;
mod requests;

pub use acks::{AckItem, parse_acks};
pub use items::{DEFAULT_PARTITION, PushItem, parse_push_items, parse_signed_items, parse_wire_items};
pub use operations::{Operation, parse_operations};
pub use raw::{not_null, read_object, text};
pub use requests::{AckRequest, parse_ack_requests};

use crate::error::{ErrorKind, into_error};
use serde_json::value::RawValue;

/// A payload or a list that cannot be read. Never shows any of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// Not RFC 8259 JSON.
    #[error("payload is not valid JSON: {problem}")]
    NotJson {
        /// What and where.
        problem: String,
    },
    /// Longer than allowed.
    #[error("payload has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The list as a whole is not a JSON array of objects.
    #[error("{what} is not a JSON array of objects: {problem}")]
    NotAList {
        /// `items` or `acknowledgments`.
        what: &'static str,
        /// What and where.
        problem: String,
    },
    /// Not a JSON object.
    #[error("not a JSON object: {problem}")]
    NotAnObject {
        /// What and where.
        problem: String,
    },
    /// An entry lacks a key or has a wrong type.
    #[error("{what} item {index}: {problem}")]
    Item {
        /// `push` or `ack`.
        what: &'static str,
        /// Which entry, from 0.
        index: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// One of several requests cannot be read.
    #[error("request {index}: {problem}")]
    Request {
        /// Which request, from 0.
        index: usize,
        /// What is wrong with it.
        problem: Box<PayloadError>,
    },
    /// A transaction without operations, or with one of another kind.
    #[error("{problem}")]
    Operations {
        /// What is wrong.
        problem: std::borrow::Cow<'static, str>,
    },
    /// A push without a payload; JSON `null` would be one.
    #[error("push item {index}: payload is missing (null is a payload)")]
    NoPayload {
        /// Which entry, from 0.
        index: usize,
    },
    /// Headers that are not a JSON object.
    #[error("push item {index}: headers must be a JSON object")]
    Headers {
        /// Which entry, from 0.
        index: usize,
    },
    /// A trace id that is not a UUID.
    #[error("push item {index}: traceId \"{shown}\" is not a UUID")]
    TraceId {
        /// Which entry, from 0.
        index: usize,
        /// The value, cut.
        shown: String,
    },
}

impl PayloadError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotJson { .. } | Self::NoPayload { .. } | Self::Headers { .. } => ErrorKind::InvalidPayload,
            Self::TooLarge { .. } => ErrorKind::PayloadTooLarge,
            Self::NotAList { .. } | Self::NotAnObject { .. } | Self::Item { .. } | Self::Operations { .. } => {
                ErrorKind::InvalidItems
            }
            Self::TraceId { .. } => ErrorKind::InvalidId,
            Self::Request { problem, .. } => problem.kind(),
        }
    }
}

into_error!(PayloadError);

/// Checks that a text is one JSON value of at most `max_bytes` bytes, white space around it included.
///
/// Takes any depth of nesting.
///
/// # Errors
/// [`PayloadError::TooLarge`], or [`PayloadError::NotJson`] with line and column.
pub fn check_json(text: &str, max_bytes: usize) -> Result<(), PayloadError> {
    if text.len() > max_bytes {
        return Err(PayloadError::TooLarge { bytes: text.len(), limit: max_bytes });
    }
    // A raw value is only skipped over, and syntax errors quote nothing of the text.
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(PayloadError::NotJson { problem: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_of_every_kind_passes() {
        for text in [
            "null",
            "true",
            "0",
            "-1.5e+300",
            "123456789012345678901234567890.123456789012345678901234567890",
            "1e999999",
            r#""""#,
            r#""\u0000\ud800\\ é""#,
            "[]",
            r#"{"a":1,"a":2,"":{}}"#,
            " \t\r\n[1 , 2]\n",
        ] {
            assert_eq!(check_json(text, 1000), Ok(()), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_without_being_quoted() {
        for text in [
            "",
            " ",
            "nul",
            "01",
            "1.",
            ".5",
            "+1",
            "NaN",
            "'secret'",
            "\"secret",
            "\"secret\nsecret\"",
            r#""\x""#,
            r#""\u12""#,
            "[1,]",
            r#"{"secret":1,}"#,
            "{secret:1}",
            "[1] 2",
            "\u{feff}1",
            "[1}",
        ] {
            let error = check_json(text, 1000).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidPayload, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn length_is_checked_before_content() {
        let error = check_json("\"aaaaaaaaaa\"", 11).unwrap_err();
        assert_eq!(error, PayloadError::TooLarge { bytes: 12, limit: 11 });
        assert_eq!(check_json("\"aaaaaaaaaa\"", 12), Ok(()));
    }

    #[test]
    fn any_depth_is_taken_and_no_depth_is_a_crash() {
        for depth in [129, 10_000, 10_000_000] {
            let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(check_json(&text, usize::MAX), Ok(()));
            let open = "[".repeat(depth);
            assert!(check_json(&open, usize::MAX).is_err());
        }
        let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert_eq!(check_json(&objects, usize::MAX), Ok(()));
        let items = format!(
            "[{{\"queue\":\"q\",\"x\":{0}1{1},\"payload\":{0}1{1}}}]",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(parse_push_items(&items).unwrap()[0].payload.len(), 200_001);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,80}", near in "[\\[\\]{}\",:\\\\a-e0-9 ]{0,60}") {
            for text in [text, near] {
                let _ = check_json(&text, 100);
                let _ = parse_push_items(&text);
                let _ = parse_acks(&text);
            }
        }
    }
}
