//! The operations of a transaction bundle.

use super::acks::{self, AckItem};
use super::items::{DEFAULT_PARTITION, PushItem};
use super::{PayloadError, raw};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One step of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// One message to push.
    Push(PushItem<'a>),
    /// One message to settle.
    Ack {
        /// What is acknowledged.
        item: AckItem,
        /// For which group; `None` is group-less.
        consumer_group: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    operations: Option<&'a RawValue>,
    #[serde(default)]
    required_leases: Option<Vec<String>>,
    #[serde(borrow)]
    kv: Option<&'a RawValue>,
    #[serde(borrow)]
    timers: Option<&'a RawValue>,
}

/// The wire's other two lists are not served: only an empty one is as good as none.
fn absent(name: &'static str, list: Option<&RawValue>) -> Result<(), PayloadError> {
    let text = list.map_or("[]", RawValue::get);
    let problem = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inside) if inside.trim().is_empty() => return Ok(()),
        Some(_) => format!("{name} is not supported"),
        None => format!("{name} must be an array"),
    };
    Err(PayloadError::Operations { problem: Cow::Owned(problem) })
}

const NAMES: [&str; 15] = [
    "type",
    "items",
    "queue",
    "payload",
    "data",
    "partition",
    "transactionId",
    "traceId",
    "headers",
    "partitionId",
    "status",
    "consumerGroup",
    "leaseId",
    "error",
    "reason",
];

/// Reads a transaction: the wire's body (`operations`, perhaps `requiredLeases`) or a bare array of operations. A push
/// holds its fields itself or a list `items`; `payload` wins over `data`, and with neither the payload is `{}`.
///
/// # Errors
/// [`PayloadError`]: no operations, a type other than `push` and `ack`, an operation that names its index, or `kv` or
/// `timers` that hold anything.
pub fn parse_operations(json: &str) -> Result<(Vec<Operation<'_>>, Vec<String>), PayloadError> {
    const NONE: PayloadError = PayloadError::Operations {
        problem: Cow::Borrowed("transaction requires an operations array (or a top-level kv/timers array)"),
    };
    let (list, required) = if json.trim_start().starts_with('[') {
        (json, Vec::new())
    } else {
        let body: Body<'_> = serde_json::from_str(json).map_err(|e| PayloadError::Operations {
            problem: Cow::Owned(format!("not a transaction body: {}", raw::unquoted(&e))),
        })?;
        absent("kv", body.kv)?;
        absent("timers", body.timers)?;
        let list = body.operations.ok_or(NONE)?.get();
        (list, body.required_leases.unwrap_or_default())
    };
    let steps = raw::list(list, "operations", &NAMES, operation)?;
    if steps.is_empty() {
        return Err(NONE);
    }
    Ok((steps.into_iter().flatten().collect(), required))
}

fn operation<'a>(index: usize, fields: [Option<&'a str>; 15]) -> Result<Vec<Operation<'a>>, PayloadError> {
    let [
        kind,
        items,
        queue,
        payload,
        data,
        partition,
        transaction_id,
        trace_id,
        headers,
        partition_id,
        status,
        consumer_group,
        lease_id,
        error,
        reason,
    ] = fields;
    let wrong = |problem| PayloadError::Item { what: "operation", index, problem };
    match kind.and_then(raw::text).as_deref() {
        Some("push") => {
            let flat = [queue, payload, data, partition, transaction_id, trace_id, headers];
            match raw::not_null(items) {
                Some(list) => raw::list(list, "items", &PUSH_NAMES, push),
                None => push(index, flat).map(|p| vec![p]),
            }
        }
        Some("ack") => {
            let fields = [transaction_id, partition_id, status, lease_id, error, reason];
            let item = acks::item(index, fields)?;
            let consumer_group = match raw::not_null(consumer_group) {
                Some(raw) => Some(raw::text(raw).ok_or(wrong("consumerGroup must be a string"))?.into_owned()),
                None => None,
            };
            Ok(vec![Operation::Ack { item, consumer_group }])
        }
        Some("") | None => Err(PayloadError::Operations {
            problem: Cow::Borrowed("every transaction operation needs a `type` of push or ack"),
        }),
        Some(other) => Err(PayloadError::Operations {
            problem: Cow::Owned(format!(
                "segments transaction supports only push and ack operations, got `{}`",
                crate::names::cut(other, crate::names::MAX_SHOWN_CHARS)
            )),
        }),
    }
}

const PUSH_NAMES: [&str; 7] = ["queue", "payload", "data", "partition", "transactionId", "traceId", "headers"];

fn push<'a>(index: usize, fields: [Option<&'a str>; 7]) -> Result<Operation<'a>, PayloadError> {
    let [queue, payload, data, partition, transaction_id, trace_id, headers] = fields;
    let text = |raw: Option<&'a str>, problem| match raw::not_null(raw) {
        Some(raw) => raw::text(raw).map(Some).ok_or(PayloadError::Item { what: "push", index, problem }),
        None => Ok(None),
    };
    let queue = text(queue, "queue must be a string")?.ok_or(PayloadError::Item {
        what: "push",
        index,
        problem: "queue is missing",
    })?;
    let headers = raw::not_null(headers);
    if headers.is_some_and(|raw| !raw.starts_with('{')) {
        return Err(PayloadError::Headers { index });
    }
    Ok(Operation::Push(PushItem {
        queue,
        partition: text(partition, "partition must be a string")?.unwrap_or(Cow::Borrowed(DEFAULT_PARTITION)),
        payload: payload.or(data).unwrap_or("{}"),
        transaction_id: text(transaction_id, "transactionId must be a string")?,
        // The wire keeps a trace id only when it is one.
        trace_id: raw::not_null(trace_id)
            .and_then(raw::text)
            .and_then(|t| uuid::Uuid::try_parse(&t).ok())
            .map(|id| id.as_u128()),
        headers,
        producer: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(json: &str) -> Vec<Operation<'_>> {
        parse_operations(json).unwrap().0
    }

    fn refusal(json: &str) -> String {
        parse_operations(json).unwrap_err().to_string()
    }

    #[test]
    fn flat_and_listed_pushes_and_acks() {
        let json = r#"{"operations":[
            {"type":"push","queue":"q","payload":{"a":1}},
            {"type":"push","items":[{"queue":"q","data":2},{"queue":"r","partition":"p"}]},
            {"type":"ack","transactionId":"t","partitionId":"x","consumerGroup":"g"}],"requiredLeases":["l"]}"#;
        let (steps, required) = parse_operations(json).unwrap();
        assert_eq!(required, ["l"]);
        let payloads: Vec<_> = steps
            .iter()
            .filter_map(|s| match s {
                Operation::Push(p) => Some((p.queue.as_ref(), p.partition.as_ref(), p.payload)),
                Operation::Ack { .. } => None,
            })
            .collect();
        assert_eq!(payloads, [("q", "Default", r#"{"a":1}"#), ("q", "Default", "2"), ("r", "p", "{}")]);
        assert!(matches!(&steps[3], Operation::Ack { consumer_group: Some(g), .. } if g == "g"), "{steps:?}");
    }

    #[test]
    fn a_bare_array_is_a_body() {
        assert_eq!(steps(r#"[{"type":"push","queue":"q"}]"#).len(), 1);
    }

    #[test]
    fn what_is_refused_says_why() {
        for (json, why) in [
            ("{}", "requires an operations array"),
            ("[]", "requires an operations array"),
            (r#"[{"type":"kv"}]"#, "got `kv`"),
            (r#"[{"queue":"q"}]"#, "needs a `type`"),
            (r#"[{"type":"push"}]"#, "queue is missing"),
            ("nonsense", "not a transaction body"),
            (r#"{"operations":[{"type":"push","queue":"q"}],"kv":[1]}"#, "kv is not supported"),
            (r#"{"timers":[{}]}"#, "timers is not supported"),
            (r#"{"kv":{},"operations":[{"type":"push","queue":"q"}]}"#, "kv must be an array"),
            (r#"{"kv":[],"timers":null}"#, "requires an operations array (or a top-level kv/timers array)"),
            (r#"{"operations":null}"#, "requires an operations array"),
            (r#"[{"type":""}]"#, "every transaction operation needs a `type` of push or ack"),
        ] {
            assert!(refusal(json).contains(why), "{json}: {}", refusal(json));
        }
    }

    #[test]
    fn lists_of_other_families_that_are_empty_are_as_good_as_none() {
        let json = r#"{"operations":[{"type":"push","queue":"q"}],"kv":[ ],"timers":null}"#;
        assert_eq!(steps(json).len(), 1);
    }

    #[test]
    fn a_trace_id_that_is_none_is_dropped() {
        let json = r#"[{"type":"push","queue":"q","traceId":"nope"}]"#;
        assert!(matches!(&steps(json)[0], Operation::Push(p) if p.trace_id.is_none()));
    }
}
