//! Several ack batches in one call.

use super::acks::{self, AckItem};
use super::{PayloadError, raw};

/// One batch of acknowledgements, as one request of the wire makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AckRequest {
    /// For which group, not yet checked; `None` (absent, null or empty) is group-less.
    pub consumer_group: Option<String>,
    /// What is acknowledged.
    pub items: Vec<AckItem>,
}

const NAMES: [&str; 2] = ["consumerGroup", "acknowledgments"];

/// Reads several bodies of the wire's ack batch: an array of objects with `acknowledgments` (see
/// [`parse_acks`](acks::parse_acks); none if absent or null) and perhaps `consumerGroup`. Other keys are ignored.
///
/// # Errors
/// [`PayloadError`]: not such a list, or a request that names its index ([`PayloadError::Request`]).
pub fn parse_ack_requests(json: &str) -> Result<Vec<AckRequest>, PayloadError> {
    raw::list(json, "requests", &NAMES, |index, fields| {
        request(index, fields).map_err(|problem| PayloadError::Request { index, problem: Box::new(problem) })
    })
}

fn request(index: usize, [group, acknowledgments]: [Option<&str>; 2]) -> Result<AckRequest, PayloadError> {
    let consumer_group = match raw::not_null(group) {
        Some(raw) => {
            let problem = "consumerGroup must be a string";
            let name = raw::text(raw).ok_or(PayloadError::Item { what: "ack", index, problem })?;
            Some(name.into_owned()).filter(|name| !name.is_empty())
        }
        None => None,
    };
    let items = raw::not_null(acknowledgments).map_or(Ok(Vec::new()), acks::parse_acks)?;
    Ok(AckRequest { consumer_group, items })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn requests_keep_their_order_and_their_groups() {
        let json = r#"[{"consumerGroup":"g","acknowledgments":[{"transactionId":"a"},{"transactionId":"b"}]},
                       {"consumerGroup":"","acknowledgments":[]},{"consumerGroup":null},{"acknowledgments":null,"x":1}]"#;
        let requests = parse_ack_requests(json).unwrap();
        let shown: Vec<_> = requests.iter().map(|r| (r.consumer_group.as_deref(), r.items.len())).collect();
        assert_eq!(shown, [(Some("g"), 2), (None, 0), (None, 0), (None, 0)]);
        assert_eq!(parse_ack_requests("[]"), Ok(vec![]));
    }

    #[test]
    fn what_is_wrong_names_the_request() {
        for bad in [
            r#"{"consumerGroup":5}"#,
            r#"{"acknowledgments":{}}"#,
            r#"{"acknowledgments":"secret"}"#,
            r#"{"acknowledgments":[{"transactionId":5}]}"#,
            r#"{"acknowledgments":["secret"]}"#,
        ] {
            let error = parse_ack_requests(&format!("[{{}},{bad}]")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidItems, "{bad}");
            assert!(error.to_string().starts_with("request 1: "), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for bad in ["", "{}", "[1]", "[{}] x"] {
            assert_eq!(parse_ack_requests(bad).unwrap_err().kind(), ErrorKind::InvalidItems, "{bad}");
        }
    }
}
