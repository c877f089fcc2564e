//! The items of a push.

use super::{PayloadError, raw};
use std::borrow::Cow;
use uuid::Uuid;

/// The partition of an item that names none.
pub const DEFAULT_PARTITION: &str = "Default";

/// One message to push, borrowed from the request where it can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushItem<'a> {
    /// Queue name, not yet checked.
    pub queue: Cow<'a, str>,
    /// Partition name, not yet checked; [`DEFAULT_PARTITION`] when absent or null.
    pub partition: Cow<'a, str>,
    /// The payload, byte for byte as in the request; valid JSON.
    pub payload: &'a str,
    /// Transaction id, not yet checked.
    pub transaction_id: Option<Cow<'a, str>>,
    /// Trace id.
    pub trace_id: Option<u128>,
    /// The headers, byte for byte as in the request; a JSON object.
    pub headers: Option<&'a str>,
    /// Who pushes, not yet checked; only from a caller that may say so, see [`parse_signed_items`].
    pub producer: Option<Cow<'a, str>>,
}

const NAMES: [&str; 7] = ["queue", "payload", "partition", "transactionId", "traceId", "headers", "producer"];

/// Reads the wire items of a push: an array of objects with `queue`, `payload` and perhaps `partition`,
/// `transactionId`, `traceId` and `headers`. Other keys are ignored; null is as good as absent, but for
/// the payload, which may be null and must be there.
///
/// # Errors
/// [`PayloadError`]: not such a list, or an item that names its index.
pub fn parse_push_items(json: &str) -> Result<Vec<PushItem<'_>>, PayloadError> {
    raw::list(json, "items", &NAMES, |index, mut fields| {
        fields[6] = None;
        item(index, fields)
    })
}

/// As [`parse_push_items`], and reads the key `producer` of each item, too: for a caller that has authenticated who
/// pushes. To everybody else that key is one of those that are ignored.
///
/// # Errors
/// As [`parse_push_items`].
pub fn parse_signed_items(json: &str) -> Result<Vec<PushItem<'_>>, PayloadError> {
    raw::list(json, "items", &NAMES, item)
}

/// As [`parse_push_items`], for a push over HTTP: whatever `traceId` is, it is ignored. Who writes `data`, as a pop calls
/// it, instead of `payload`, is told.
///
/// # Errors
/// As [`parse_push_items`].
pub fn parse_wire_items(json: &str) -> Result<Vec<PushItem<'_>>, PayloadError> {
    const NAMES: [&str; 7] = ["queue", "payload", "partition", "transactionId", "data", "headers", "producer"];
    raw::list(json, "items", &NAMES, |index, mut fields| {
        let data = fields[4].take();
        fields[6] = None;
        match item(index, fields) {
            Err(PayloadError::NoPayload { index }) if data.is_some() => {
                let problem = "payload is missing; what a pop calls data is payload here";
                Err(PayloadError::Item { what: "push", index, problem })
            }
            read => read,
        }
    })
}

fn item<'a>(index: usize, fields: [Option<&'a str>; 7]) -> Result<PushItem<'a>, PayloadError> {
    let [queue, payload, partition, transaction_id, trace_id, headers, producer] = fields;
    let wrong = |problem| PayloadError::Item { what: "push", index, problem };
    let text = |raw: Option<&'a str>, problem| match raw::not_null(raw) {
        Some(raw) => raw::text(raw).map(Some).ok_or(wrong(problem)),
        None => Ok(None),
    };
    let queue = text(queue, "queue must be a string")?.ok_or(wrong("queue is missing"))?;
    let payload = payload.ok_or(PayloadError::NoPayload { index })?;
    let partition = text(partition, "partition must be a string")?;
    let transaction_id = text(transaction_id, "transactionId must be a string")?;
    let trace_id = match text(trace_id, "traceId must be a string")? {
        Some(text) => match Uuid::try_parse(&text) {
            Ok(id) => Some(id.as_u128()),
            Err(_) => {
                let shown = crate::names::cut(&text, crate::names::MAX_SHOWN_CHARS);
                return Err(PayloadError::TraceId { index, shown });
            }
        },
        None => None,
    };
    let headers = raw::not_null(headers);
    if headers.is_some_and(|raw| !raw.starts_with('{')) {
        return Err(PayloadError::Headers { index });
    }
    Ok(PushItem {
        queue,
        partition: partition.unwrap_or(Cow::Borrowed(DEFAULT_PARTITION)),
        payload,
        transaction_id,
        trace_id,
        headers,
        producer: text(producer, "producer must be a string")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn one(json: &str) -> PushItem<'_> {
        let mut items = parse_push_items(json).unwrap();
        assert_eq!(items.len(), 1);
        items.remove(0)
    }

    fn error(json: &str) -> PayloadError {
        parse_push_items(json).unwrap_err()
    }

    #[test]
    fn an_item_with_everything() {
        let item = one(r#"[{"queue":"q","partition":"p","payload":{"a" : 1.50,"a":2},"transactionId":"t",
                "traceId":"0190AAAA-0000-7000-8000-00000000000f","headers":{"h": 1},"other":[{}]}]"#);
        assert_eq!((&*item.queue, &*item.partition), ("q", "p"));
        assert_eq!(item.payload, r#"{"a" : 1.50,"a":2}"#);
        assert_eq!(item.transaction_id.as_deref(), Some("t"));
        assert_eq!(item.trace_id, Some(0x0190_aaaa_0000_7000_8000_0000_0000_000f));
        assert_eq!(item.headers, Some(r#"{"h": 1}"#));
        assert!(matches!(item.queue, Cow::Borrowed(_)));
        assert!(matches!(item.transaction_id, Some(Cow::Borrowed(_))));
    }

    #[test]
    fn over_http_the_trace_id_and_the_producer_are_not_read() {
        let json = r#"[{"queue":"q","payload":1,"traceId":"x","producer":5}]"#;
        let item = parse_wire_items(json).unwrap().remove(0);
        assert_eq!((item.trace_id, item.producer), (None, None));
    }

    #[test]
    fn over_http_data_for_payload_is_told() {
        let told = |json| parse_wire_items(json).unwrap_err().to_string();
        assert!(told(r#"[{"queue":"q","data":1}]"#).contains("what a pop calls data is payload here"));
        assert!(!told(r#"[{"queue":"q"}]"#).contains("data"));
        assert_eq!(parse_wire_items(r#"[{"queue":"q","data":1,"payload":2}]"#).unwrap()[0].payload, "2");
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let absent = one(r#"[{"queue":"q","payload":null}]"#);
        let null = one(
            r#"[{"queue":"q","payload":null,"partition":null,"transactionId":null,"traceId":null,"headers":null}]"#,
        );
        assert_eq!(absent, null);
        assert_eq!(absent.partition, "Default");
        assert_eq!(absent.payload, "null");
        assert_eq!(absent.transaction_id, None);
    }

    #[test]
    fn only_who_may_say_so_names_a_producer() {
        let json = |producer: &str| format!(r#"[{{"queue":"q","payload":1,"producer":{producer}}}]"#);
        let (named, wrong) = (json(r#""ada""#), json("5"));
        assert_eq!(one(&named).producer, None);
        assert_eq!(parse_signed_items(&named).unwrap()[0].producer.as_deref(), Some("ada"));
        assert_eq!(parse_signed_items(&json("null")).unwrap()[0].producer, None);
        assert_eq!(one(&wrong).producer, None, "ignored like any other key");
        assert_eq!(parse_signed_items(&wrong).unwrap_err().kind(), ErrorKind::InvalidItems);
    }

    #[test]
    fn payloads_are_faithful() {
        for payload in [
            "123456789012345678901234567890",
            r#""\u0000""#,
            r#""\ud800""#,
            "-0.0",
            r#"{"b":1,"a":{"b":1,"b":2}}"#,
            "[ 1,\n2 ]",
        ] {
            let json = format!(r#"[{{"payload":  {payload}  ,"queue":"q"}}]"#);
            assert_eq!(one(&json).payload, payload);
        }
    }

    #[test]
    fn escapes_in_names_are_read() {
        let item = one(r#"[{"que\u0075e":"a\"b","payload":1,"transactionId":"\u00e9\u0000"}]"#);
        assert_eq!(item.queue, "a\"b");
        assert_eq!(item.transaction_id.as_deref(), Some("é\0"));
        assert!(parse_push_items(r#"[{"\ud800":1,"queue":"q","payload":1}]"#).is_ok());
    }

    #[test]
    fn no_items_are_a_list_too() {
        assert_eq!(parse_push_items(" [] "), Ok(vec![]));
    }

    #[test]
    fn of_a_repeated_key_the_last_counts() {
        assert_eq!(one(r#"[{"queue":"a","queue":"b","payload":1}]"#).queue, "b");
    }

    #[test]
    fn what_is_wrong_names_the_item() {
        let good = r#"{"queue":"q","payload":1}"#;
        for (bad, kind, words) in [
            (r#"{"queue":"q"}"#, ErrorKind::InvalidPayload, "payload is missing"),
            (r#"{"payload":1}"#, ErrorKind::InvalidItems, "queue is missing"),
            (r#"{"queue":null,"payload":1}"#, ErrorKind::InvalidItems, "queue is missing"),
            (r#"{"queue":5,"payload":1}"#, ErrorKind::InvalidItems, "queue must be"),
            (r#"{"queue":"\ud800","payload":1}"#, ErrorKind::InvalidItems, "queue must be"),
            (r#"{"queue":"q","payload":1,"partition":1}"#, ErrorKind::InvalidItems, "partition"),
            (r#"{"queue":"q","payload":1,"transactionId":1}"#, ErrorKind::InvalidItems, "transac"),
            (r#"{"queue":"q","payload":1,"traceId":"x"}"#, ErrorKind::InvalidId, "\"x\""),
            (r#"{"queue":"q","payload":1,"headers":[]}"#, ErrorKind::InvalidPayload, "headers"),
        ] {
            let error = error(&format!("[{good},{bad}]"));
            assert_eq!(error.kind(), kind, "{bad}");
            assert!(error.to_string().contains("item 1"), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_no_list_of_objects_is_refused_without_being_quoted() {
        for json in ["", "{}", "\"secret\"", "[\"secret\"]", "[[\"secret\",1]]", "[{}", "[{\"secret\"}]", "[] x"] {
            let error = error(json);
            assert_eq!(error.kind(), ErrorKind::InvalidItems, "{json}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
