//! The items of an acknowledgement.

use super::{PayloadError, raw};
use crate::ack::Status;
use crate::names::clean_error_text;

/// One acknowledgement as the wire has it; ids are not yet checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AckItem {
    /// Whose message it is about.
    pub transaction_id: Option<String>,
    /// The partition, as text.
    pub partition_id: Option<String>,
    /// What the consumer says.
    pub status: Status,
    /// The lease, as text; an empty one counts as absent.
    pub lease_id: Option<String>,
    /// Why it failed; cleaned and cut, see [`clean_error_text`].
    pub error: Option<String>,
    /// A short word for why; cleaned and cut like the error.
    pub reason: Option<String>,
}

const NAMES: [&str; 6] = ["transactionId", "partitionId", "status", "leaseId", "error", "reason"];

/// Reads the wire items of an ack batch: an array of objects with `transactionId`, `partitionId` and
/// perhaps `status`, `leaseId`, `error` and `reason`. Other keys are ignored; null is as good as absent.
///
/// An `error` or `reason` is never a cause for refusal: what is not text is kept as its JSON.
///
/// # Errors
/// [`PayloadError`]: not such a list, or an item that names its index.
pub fn parse_acks(json: &str) -> Result<Vec<AckItem>, PayloadError> {
    raw::list(json, "acknowledgments", &NAMES, item)
}

pub(super) fn item(index: usize, fields: [Option<&str>; 6]) -> Result<AckItem, PayloadError> {
    let [transaction_id, partition_id, status, lease_id, error, reason] = fields;
    let text = |raw, problem| match raw::not_null(raw) {
        Some(raw) => match raw::text(raw) {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(PayloadError::Item { what: "ack", index, problem }),
        },
        None => Ok(None),
    };
    let free_text = |raw| {
        raw::not_null(raw).map(|raw| match raw::lossy_text(raw) {
            Some(text) => clean_error_text(&text),
            None => clean_error_text(raw),
        })
    };
    Ok(AckItem {
        transaction_id: text(transaction_id, "transactionId must be a string")?,
        partition_id: text(partition_id, "partitionId must be a string")?,
        status: Status::parse(text(status, "status must be a string")?.as_deref()),
        lease_id: text(lease_id, "leaseId must be a string")?.filter(|id| !id.is_empty()),
        error: free_text(error),
        reason: free_text(reason),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn one(json: &str) -> AckItem {
        parse_acks(json).unwrap().remove(0)
    }

    #[test]
    fn an_item_with_everything() {
        let item = one(
            r#"[{"transactionId":"t","partitionId":"p","status":"retry","leaseId":"l","error":"e","reason":"r","x":{}}]"#,
        );
        assert_eq!(item.transaction_id.as_deref(), Some("t"));
        assert_eq!(item.partition_id.as_deref(), Some("p"));
        assert_eq!(item.status, Status::Retry);
        assert_eq!(item.lease_id.as_deref(), Some("l"));
        assert_eq!((item.error.as_deref(), item.reason.as_deref()), (Some("e"), Some("r")));
    }

    #[test]
    fn absent_null_and_an_empty_lease_are_nothing() {
        let null = r#"[{"transactionId":null,"partitionId":null,"status":null,"leaseId":"","error":null}]"#;
        assert_eq!(one("[{}]"), one(null));
        assert_eq!(one("[{}]").status, Status::Completed);
        assert_eq!(one("[{}]").lease_id, None);
        assert_eq!(parse_acks("[]"), Ok(vec![]));
    }

    #[test]
    fn wrong_types_name_the_item() {
        for field in ["transactionId", "partitionId", "status", "leaseId"] {
            for value in ["5", "true", "{}", "[]"] {
                let error = parse_acks(&format!(r#"[{{}},{{"{field}":{value}}}]"#)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidItems);
                assert!(error.to_string().contains("item 1"), "{error}");
                assert!(error.to_string().contains(field), "{error}");
            }
        }
    }

    #[test]
    fn an_error_text_is_cleaned_and_never_a_reason_not_to_settle() {
        let error = |json: &str| one(&format!(r#"[{{"error":{json}}}]"#)).error.unwrap();
        assert_eq!(error(r#""a\u0000b\n""#), "a\u{fffd}b\n");
        assert!(error(r#""x\ud800y""#).starts_with('x'));
        assert_eq!(error(r#"{"code":1}"#), r#"{"code":1}"#);
        assert_eq!(error("5"), "5");
        assert_eq!(error(&format!("\"{}\"", "x".repeat(9000))).len(), 4096);
    }
}
