//! The identity of a message that is delivered once more: which headers say where it comes from.
//!
//! A replayed message has an id of its own. That of the message it stands for, and how often it has been replayed so far,
//! travel in its headers, and pass from hop to hop: a message that is replayed three times names the first.

use crate::headers::{Headers, REPLAY_HOPS};

/// Message id of the first of the chain.
pub const CAUSATION_ID: &str = "x-causation-id";
/// Transaction id of the first of the chain.
pub const ORIGINAL_TRANSACTION_ID: &str = "x-original-transaction-id";

/// Whether a transaction id is one that a move or a repair gives. Only then are the headers above the broker's own; on
/// any other message they are a producer's words.
fn is_replayed(transaction_id: &str) -> bool {
    ["dlq:", "repair:"].iter().any(|prefix| transaction_id.starts_with(prefix))
}

/// Headers of the replay of a message, and how many replays lie between it and the first of the chain.
///
/// `headers` are those of the message, a JSON object; all others are kept as they are written. `message_id` and
/// `transaction_id` are the message's.
pub fn identity(headers: Option<&str>, message_id: &str, transaction_id: &str) -> (String, u32) {
    let headers = headers.and_then(Headers::parse).unwrap_or_default();
    let before: Option<u32> = headers.get(REPLAY_HOPS).and_then(|hops| hops.parse().ok());
    let (hops, first, first_transaction) =
        match (before, headers.get(CAUSATION_ID), headers.get(ORIGINAL_TRANSACTION_ID)) {
            (Some(hops), Some(first), Some(transaction)) if is_replayed(transaction_id) => {
                (hops.saturating_add(1), first, transaction)
            }
            _ => (1, message_id.to_owned(), transaction_id.to_owned()),
        };
    let own = [(CAUSATION_ID, first), (ORIGINAL_TRANSACTION_ID, first_transaction), (REPLAY_HOPS, hops.to_string())];
    (headers.with(&own), hops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parsed(headers: Option<&str>, id: &str, transaction: &str) -> Value {
        serde_json::from_str(&identity(headers, id, transaction).0).unwrap()
    }

    #[test]
    fn a_first_replay_names_its_original() {
        assert_eq!(
            parsed(None, "m1", "t1"),
            json!({"x-causation-id": "m1", "x-original-transaction-id": "t1", "x-replay-hops": "1"})
        );
    }

    #[test]
    fn a_chain_names_the_first_and_counts() {
        let (first, hops) = identity(None, "m1", "t1");
        assert_eq!(hops, 1);
        let (second, hops) = identity(Some(&first), "m2", "dlq:r1");
        assert_eq!(hops, 2);
        let third = parsed(Some(&second), "m3", "repair:x");
        assert_eq!(third, json!({"x-causation-id": "m1", "x-original-transaction-id": "t1", "x-replay-hops": "3"}));
    }

    #[test]
    fn a_producer_that_writes_these_headers_is_not_believed() {
        let forged = r#"{"x-causation-id": "other", "x-original-transaction-id": "o", "x-replay-hops": 7}"#;
        assert_eq!(parsed(Some(forged), "m1", "t1")["x-causation-id"], "m1");
        for bad in [r#"{"x-causation-id": "m0", "x-replay-hops": 1}"#, r#"{"x-replay-hops": "1"}"#, "[]", "no json"] {
            assert_eq!(parsed(Some(bad), "m1", "dlq:r")["x-replay-hops"], "1", "{bad}");
        }
        assert_eq!(
            parsed(Some(&forged.replace('7', "4294967295")), "m", "dlq:r")["x-replay-hops"],
            u32::MAX.to_string()
        );
    }

    #[test]
    fn other_headers_are_kept_byte_for_byte() {
        let (headers, _) = identity(Some(r#"{"n": 1.50, "big": 12345678901234567890123}"#), "m", "t");
        assert!(headers.contains("\"n\":1.50") && headers.contains("12345678901234567890123"), "{headers}");
    }
}
