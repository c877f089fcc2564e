//! Names and transaction ids: what is allowed, and how they are shown in messages.
//!
//! Names are data, never identifiers: any text that is not blank, has no control characters and is not
//! too long will do.

use crate::error::{ErrorKind, into_error};

/// Longest queue, partition or consumer group name, in characters.
pub const MAX_NAME_CHARS: usize = 255;
/// Longest transaction id, in bytes: its length fits 16 bits on every door.
pub const MAX_TRANSACTION_ID_BYTES: usize = 65_535;
/// Longest stored error text, in bytes.
pub const MAX_ERROR_TEXT_BYTES: usize = 4096;
/// How much of an offending value a message shows, in characters.
pub const MAX_SHOWN_CHARS: usize = 64;

/// A name or transaction id that breaks the rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Empty or only white space.
    #[error("{what} name is blank: it must have 1 to 255 characters that are not all white space")]
    Blank {
        /// `queue`, `partition` or `consumer group`.
        what: &'static str,
    },
    /// More than [`MAX_NAME_CHARS`].
    #[error("{what} name \"{shown}\" has {chars} characters, the limit is 255")]
    TooLong {
        /// As above.
        what: &'static str,
        /// The value, cut.
        shown: String,
        /// Its length in characters.
        chars: usize,
    },
    /// Has a control character.
    #[error("{what} name \"{shown}\" contains a control character")]
    Control {
        /// As above.
        what: &'static str,
        /// The value, cut and escaped.
        shown: String,
    },
    /// An empty transaction id.
    #[error("transaction id is empty: leave it out to have one made")]
    TransactionIdEmpty,
    /// More than [`MAX_TRANSACTION_ID_BYTES`].
    #[error("transactionId \"{shown}\" has {bytes} bytes and exceeds the 65535-byte limit")]
    TransactionIdTooLong {
        /// The value, cut.
        shown: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A transaction id with a control character.
    #[error("transaction id \"{shown}\" contains a control character")]
    TransactionIdControl {
        /// The value, cut and escaped.
        shown: String,
    },
    /// A producer with a control character.
    #[error("producer \"{shown}\" contains a control character")]
    ProducerControl {
        /// The value, cut and escaped.
        shown: String,
    },
}

impl NameError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Blank { .. } | Self::TooLong { .. } | Self::Control { .. } => ErrorKind::InvalidName,
            Self::TransactionIdEmpty | Self::TransactionIdControl { .. } => ErrorKind::InvalidTransactionId,
            Self::TransactionIdTooLong { .. } => ErrorKind::TransactionIdTooLong,
            Self::ProducerControl { .. } => ErrorKind::InvalidItems,
        }
    }
}

into_error!(NameError);

/// Checks a queue name.
///
/// # Errors
/// [`NameError`] when it is blank, longer than 255 characters or has control characters.
pub fn check_queue(name: &str) -> Result<(), NameError> {
    check_name("queue", name)
}

/// Checks a partition name; same rules and errors as [`check_queue`].
///
/// # Errors
/// As [`check_queue`].
pub fn check_partition(name: &str) -> Result<(), NameError> {
    check_name("partition", name)
}

/// Checks a consumer group name; same rules and errors as [`check_queue`].
///
/// # Errors
/// As [`check_queue`].
pub fn check_group(name: &str) -> Result<(), NameError> {
    check_name("consumer group", name)
}

/// Checks a name of traces; same rules and errors as [`check_queue`].
///
/// # Errors
/// As [`check_queue`].
pub fn check_trace_name(name: &str) -> Result<(), NameError> {
    check_name("trace", name)
}

/// Checks the event type of a trace; same rules and errors as [`check_queue`].
///
/// # Errors
/// As [`check_queue`].
pub fn check_event_type(name: &str) -> Result<(), NameError> {
    check_name("event type", name)
}

/// Checks a transaction id: 1 to 65,535 bytes, no control characters.
///
/// # Errors
/// [`NameError`], one of the `TransactionId…` variants.
pub fn check_transaction_id(id: &str) -> Result<(), NameError> {
    if id.is_empty() {
        return Err(NameError::TransactionIdEmpty);
    }
    if id.len() > MAX_TRANSACTION_ID_BYTES {
        return Err(NameError::TransactionIdTooLong { shown: cut(id, MAX_SHOWN_CHARS), bytes: id.len() });
    }
    if has_control(id) {
        return Err(NameError::TransactionIdControl { shown: cut(id, MAX_SHOWN_CHARS) });
    }
    Ok(())
}

/// Checks who is said to have pushed: no control characters, so that a text of the server can hold it.
///
/// # Errors
/// [`NameError::ProducerControl`].
pub fn check_producer(producer: &str) -> Result<(), NameError> {
    if has_control(producer) {
        return Err(NameError::ProducerControl { shown: cut(producer, MAX_SHOWN_CHARS) });
    }
    Ok(())
}

fn check_name(what: &'static str, name: &str) -> Result<(), NameError> {
    // Bytes bound characters from above, so that the common short name is not counted.
    if name.len() > MAX_NAME_CHARS {
        let chars = name.chars().count();
        if chars > MAX_NAME_CHARS {
            return Err(NameError::TooLong { what, shown: cut(name, MAX_SHOWN_CHARS), chars });
        }
    }
    if has_control(name) {
        return Err(NameError::Control { what, shown: cut(name, MAX_SHOWN_CHARS) });
    }
    if name.trim().is_empty() {
        return Err(NameError::Blank { what });
    }
    Ok(())
}

/// Whether the text has a control character (C0, DEL, C1).
fn has_control(text: &str) -> bool {
    if text.is_ascii() {
        // A fold without a branch, which vectorises: transaction ids are checked on the hot path.
        return text.bytes().fold(false, |found, b| found | (b < 0x20) | (b == 0x7f));
    }
    text.chars().any(char::is_control)
}

/// The text as a message shows it: at most `max_chars` characters of it, then `…`; control characters
/// escaped.
pub fn cut(text: &str, max_chars: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(max_chars) + 3);
    for (n, c) in text.chars().enumerate() {
        if n == max_chars {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Namespace and task of a queue that a push creates: the text before the first `.`, and the text
/// between the first and the second; both empty without a dot.
pub fn namespace_task(queue: &str) -> (String, String) {
    match queue.split_once('.') {
        None => (String::new(), String::new()),
        Some((namespace, rest)) => {
            let task = rest.split('.').next().unwrap_or_default();
            (namespace.to_owned(), task.to_owned())
        }
    }
}

/// An error text fit to be stored: NUL and other control characters except `\n` and `\t` replaced by
/// U+FFFD, cut at 4 KiB on a character boundary. Never a reason not to settle a message.
pub fn clean_error_text(text: &str) -> String {
    // Nearly every text: 0xC2 starts, among others, the control characters that are not ASCII.
    let is_plain = |b: u8| (b >= b' ' || b == b'\n' || b == b'\t') && b != 0x7f && b != 0xc2;
    if text.len() <= MAX_ERROR_TEXT_BYTES && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut clean = String::with_capacity(text.len().min(MAX_ERROR_TEXT_BYTES));
    for c in text.chars() {
        let c = if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
        if clean.len() + c.len_utf8() > MAX_ERROR_TEXT_BYTES {
            break;
        }
        clean.push(c);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_1_to_255_characters_pass() {
        for name in ["a", "Default", "__QUEUE_MODE__", "ünïcode 名前", "a.b.c", " padded "] {
            assert_eq!(check_queue(name), Ok(()), "{name}");
        }
        assert_eq!(check_partition(&"é".repeat(255)), Ok(()));
        let long = "é".repeat(256);
        let error = check_group(&long).unwrap_err();
        assert!(matches!(error, NameError::TooLong { chars: 256, .. }));
        assert_eq!(error.kind(), ErrorKind::InvalidName);
        assert!(error.to_string().chars().count() < 150);
    }

    #[test]
    fn blank_and_control_names_are_refused() {
        for name in ["", " ", "   ", "\u{2003}"] {
            assert!(matches!(check_queue(name), Err(NameError::Blank { .. })), "{name:?}");
        }
        for name in ["a\0b", "a\nb", "\t", "a\u{7f}", "a\u{85}b"] {
            let error = check_queue(name).unwrap_err();
            assert!(matches!(error, NameError::Control { .. }), "{name:?}");
            assert!(!error.to_string().chars().any(char::is_control));
        }
    }

    #[test]
    fn transaction_ids_of_1_to_65535_bytes_pass() {
        assert_eq!(check_transaction_id("x"), Ok(()));
        assert_eq!(check_transaction_id(&"x".repeat(65_535)), Ok(()));
        let error = check_transaction_id(&"x".repeat(65_536)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TransactionIdTooLong);
        assert!(error.to_string().contains("65535-byte limit"));
        assert_eq!(check_transaction_id(""), Err(NameError::TransactionIdEmpty));
        assert_eq!(check_transaction_id("a\u{1}").unwrap_err().kind(), ErrorKind::InvalidTransactionId);
    }

    #[test]
    fn cut_keeps_characters_whole_and_escapes_controls() {
        assert_eq!(cut("ééé", 2), "éé…");
        assert_eq!(cut("ééé", 3), "ééé");
        assert_eq!(cut("a\0b", 64), "a\\u{0}b");
        assert_eq!(cut("", 0), "");
        assert_eq!(cut("a", 0), "…");
    }

    #[test]
    fn namespace_and_task_come_from_the_dots() {
        let of = |queue| {
            let (namespace, task) = namespace_task(queue);
            format!("{namespace}|{task}")
        };
        assert_eq!(of("orders"), "|");
        assert_eq!(of("billing.invoice"), "billing|invoice");
        assert_eq!(of("billing.invoice.eu.1"), "billing|invoice");
        assert_eq!(of(".x"), "|x");
        assert_eq!(of("x."), "x|");
    }

    #[test]
    fn error_texts_are_cleaned_and_cut() {
        assert_eq!(clean_error_text("a\0b\r\n\tc"), "a\u{fffd}b\u{fffd}\n\tc");
        let long = clean_error_text(&"é".repeat(3000));
        assert_eq!(long.len(), 4096);
        let odd = clean_error_text(&format!("x{}", "é".repeat(3000)));
        assert_eq!(odd.len(), 4095);
    }
}
