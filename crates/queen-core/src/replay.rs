//! The identity of a message that is delivered once more: which headers say where it comes from.
//!
//! A replayed message has an id of its own. That of the message it stands for, and how often it has been replayed so far,
//! travel in its headers, and pass from hop to hop: a message that is replayed three times names the first.

use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Message id of the first of the chain.
pub const CAUSATION_ID: &str = "x-causation-id";
/// Transaction id of the first of the chain.
pub const ORIGINAL_TRANSACTION_ID: &str = "x-original-transaction-id";
/// How many replays lie between the first of the chain and this message.
pub const REPLAY_HOPS: &str = "x-replay-hops";

/// Whether a transaction id is one that a move or a repair gives. Only then are the headers above the broker's own; on
/// any other message they are a producer's words.
fn is_replayed(transaction_id: &str) -> bool {
    ["dlq:", "repair:"].iter().any(|prefix| transaction_id.starts_with(prefix))
}

/// Headers of the replay of a message, and its hops.
///
/// `headers` are those of the message, a JSON object; all others are kept byte for byte. `message_id` and
/// `transaction_id` are the message's.
pub fn identity(headers: Option<&str>, message_id: &str, transaction_id: &str) -> (String, u32) {
    let mut map: BTreeMap<String, Box<RawValue>> =
        headers.and_then(|h| serde_json::from_str(h).ok()).unwrap_or_default();
    let text = |map: &BTreeMap<String, Box<RawValue>>, key: &str| -> Option<String> {
        serde_json::from_str(map.get(key)?.get()).ok()
    };
    let before: Option<u32> = map.get(REPLAY_HOPS).and_then(|h| h.get().parse().ok());
    let chain = match (before, text(&map, CAUSATION_ID), text(&map, ORIGINAL_TRANSACTION_ID)) {
        (Some(hops), Some(first), Some(first_transaction)) if is_replayed(transaction_id) => {
            (hops.saturating_add(1), first, first_transaction)
        }
        _ => (1, message_id.to_owned(), transaction_id.to_owned()),
    };
    let (hops, first, first_transaction) = chain;
    let values =
        [(CAUSATION_ID, first.into()), (ORIGINAL_TRANSACTION_ID, first_transaction.into()), (REPLAY_HOPS, hops.into())];
    for (key, value) in values {
        let value: serde_json::Value = value;
        if let Ok(raw) = RawValue::from_string(value.to_string()) {
            map.insert(key.to_owned(), raw);
        }
    }
    (serde_json::to_string(&map).unwrap_or_default(), hops)
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
            json!({"x-causation-id": "m1", "x-original-transaction-id": "t1", "x-replay-hops": 1})
        );
    }

    #[test]
    fn a_chain_names_the_first_and_counts() {
        let (first, hops) = identity(None, "m1", "t1");
        assert_eq!(hops, 1);
        let (second, hops) = identity(Some(&first), "m2", "dlq:r1");
        assert_eq!(hops, 2);
        let third = parsed(Some(&second), "m3", "repair:x");
        assert_eq!(third, json!({"x-causation-id": "m1", "x-original-transaction-id": "t1", "x-replay-hops": 3}));
    }

    #[test]
    fn a_producer_that_writes_these_headers_is_not_believed() {
        let forged = r#"{"x-causation-id": "other", "x-original-transaction-id": "o", "x-replay-hops": 7}"#;
        assert_eq!(parsed(Some(forged), "m1", "t1")["x-causation-id"], "m1");
        for bad in [r#"{"x-causation-id": 1, "x-replay-hops": 1}"#, r#"{"x-replay-hops": "1"}"#, "[]", "no json"] {
            assert_eq!(parsed(Some(bad), "m1", "dlq:r")["x-replay-hops"], 1, "{bad}");
        }
        assert_eq!(parsed(Some(&forged.replace('7', "4294967295")), "m", "dlq:r")["x-replay-hops"], u32::MAX);
    }

    #[test]
    fn other_headers_are_kept_byte_for_byte() {
        let (headers, _) = identity(Some(r#"{"n": 1.50, "big": 12345678901234567890123}"#), "m", "t");
        assert!(headers.contains("\"n\":1.50") && headers.contains("12345678901234567890123"), "{headers}");
    }
}
