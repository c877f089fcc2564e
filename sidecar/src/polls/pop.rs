//! One pop: what is asked for, and the wire's answer.

use super::row::Key;
use crate::answers::Allowance;
use crate::budget::Room;
use crate::coalesce::push_string;
use crate::database::{self, Database, Param, Statement};
use crate::error::CallError;
use crate::tenant::Tenant;
use crate::times;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;
use tokio_postgres::types::Type;

/// A pop takes messages only as far as there is memory for. Where a single one is longer than that, it fails, and so claims
/// nothing. The cast is what fails; its error tells how long the answer would be.
macro_rules! unless_too_long {
    ($pop:literal) => {
        concat!(
            "SELECT CASE WHEN octet_length(answer) <= $12 THEN answer \
             ELSE (octet_length(answer) || ' bytes are too many')::int::text END \
             FROM (SELECT ",
            $pop,
            " AS answer OFFSET 0) popped"
        )
    };
}

const POP: Statement = Statement {
    sql: unless_too_long!("queen.pop_json($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::TEXT,
        Type::INT4,
        Type::INT4,
        Type::BOOL,
        Type::TEXT,
        Type::TEXT,
        Type::BOOL,
        Type::INT4,
        Type::INT4,
    ],
};

const POP_MATCHING: Statement = Statement {
    sql: unless_too_long!("queen.pop_matching_json($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::BOOL,
        Type::TEXT,
        Type::TEXT,
        Type::BOOL,
        Type::INT4,
        Type::INT4,
    ],
};

/// Bytes that a name may have which only the database knows; it is seldom longer.
const UNKNOWN_NAME: usize = 256;

/// Where to pop.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// Any partitions of a queue.
    Queue(String),
    /// This partition.
    Partition {
        /// Its queue.
        queue: String,
        /// Its name.
        partition: String,
    },
    /// Any queue of a namespace, a task, or both.
    Matching {
        /// Option `namespace` of the queue.
        namespace: Option<String>,
        /// Option `task` of the queue.
        task: Option<String>,
    },
}

/// A pop as asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose queues.
    pub tenant: Tenant,
    /// Where.
    pub target: Target,
    /// The consumer group.
    pub group: String,
    /// Messages at most.
    pub batch: i32,
    /// Partitions at most; less than 1: no cap.
    pub partitions: i32,
    /// Seconds; None: the queue's.
    pub lease_seconds: Option<i32>,
    /// Settled as delivered.
    pub auto_ack: bool,
    /// Where a new group starts: `all` or `new`.
    pub mode: &'static str,
    /// Where a new group starts: `now` or a timestamp.
    pub from: Option<String>,
    /// The delivery policy that is asked for, if any.
    pub conflation: Option<bool>,
}

/// The answer to a pop.
#[derive(Debug)]
pub struct Popped {
    /// The wire's body; None: nothing to say (204).
    pub body: Option<String>,
    /// How many messages there are in it.
    pub messages: usize,
    /// The lease to give back when nobody takes the answer.
    pub lease: Option<String>,
    /// Whose lease.
    pub tenant: Tenant,
    /// The first queue of the answer, when it was not named.
    pub queue: Option<String>,
    /// Age of the first message.
    pub lag: Option<Duration>,
    /// The memory that the body takes, unless it is small.
    pub room: Option<Room>,
    policy: Option<bool>,
}

/// Why a pop brought nothing.
#[derive(Debug)]
pub enum Missed {
    /// The database's answer would have had so many bytes, more than allowed.
    TooLong(usize),
    /// The call failed.
    Failed(CallError),
}

impl From<CallError> for Missed {
    fn from(error: CallError) -> Self {
        database::too_long(&error).map_or(Missed::Failed(error), Missed::TooLong)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claimed<'a> {
    lease_id: Option<&'a str>,
    #[serde(borrow)]
    batches: Vec<Batch<'a>>,
    #[serde(default)]
    conflation: bool,
    #[serde(default)]
    conflation_conflict: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch<'a> {
    #[serde(borrow)]
    queue: &'a RawValue,
    partition: &'a RawValue,
    partition_id: &'a str,
    delivery_attempt: i32,
    segments: Vec<Segment<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Segment<'a> {
    created_at: &'a str,
    offset: i64,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    id: &'a str,
    #[serde(borrow)]
    transaction_id: Option<&'a RawValue>,
    trace_id: Option<&'a RawValue>,
    producer_sub: Option<&'a RawValue>,
    headers: Option<&'a RawValue>,
    // Not an Option: a payload may be null.
    data: &'a RawValue,
}

impl Wanted {
    /// The row it stands in when it waits.
    pub fn key(&self) -> Key {
        Key { tenant: self.tenant, target: self.target.clone(), group: self.group.clone() }
    }

    /// About how many bytes of names each message of the answer repeats: group, partition, and the queue where it was not
    /// named.
    pub fn names(&self) -> usize {
        let mut text = String::new();
        push_string(&mut text, &self.group);
        match &self.target {
            Target::Queue(queue) => push_string(&mut text, queue),
            Target::Partition { queue, partition } => {
                push_string(&mut text, queue);
                push_string(&mut text, partition);
            }
            Target::Matching { .. } => {}
        }
        let unknown = match &self.target {
            Target::Queue(_) => 1,
            Target::Partition { .. } => 0,
            Target::Matching { .. } => 2,
        };
        text.len() + unknown * UNKNOWN_NAME
    }

    /// Asks the database for what is allowed.
    ///
    /// # Errors
    /// As [`Database::call`], and [`Missed::TooLong`]; then nothing was claimed.
    pub async fn pop(&self, database: &Database, allowed: Allowance) -> Result<Popped, Missed> {
        let (batch, payload) = (self.batch.min(allowed.messages), allowed.payload());
        let pop_queue = async |queue: &String, partition: Option<&String>| {
            let params: [Param<'_>; 12] = [
                queue,
                &self.group,
                &batch,
                &partition,
                &self.partitions,
                &self.lease_seconds,
                &self.auto_ack,
                &self.mode,
                &self.from,
                &self.conflation,
                &payload,
                &allowed.text,
            ];
            database.call(self.tenant, POP, &params).await
        };
        let text = match &self.target {
            Target::Queue(queue) => pop_queue(queue, None).await,
            Target::Partition { queue, partition } => pop_queue(queue, Some(partition)).await,
            Target::Matching { namespace, task } => {
                let params: [Param<'_>; 12] = [
                    namespace,
                    task,
                    &self.group,
                    &batch,
                    &self.partitions,
                    &self.lease_seconds,
                    &self.auto_ack,
                    &self.mode,
                    &self.from,
                    &self.conflation,
                    &payload,
                    &allowed.text,
                ];
                database.call(self.tenant, POP_MATCHING, &params).await
            }
        };
        let text = text.map_err(Missed::from)?;
        // It came from our own function: what cannot be read was cut off on the way.
        let claimed = serde_json::from_str(&text).map_err(|_| CallError::Lost)?;
        Ok(self.render(&claimed))
    }

    fn render(&self, claimed: &Claimed<'_>) -> Popped {
        let messages = claimed.batches.iter().flat_map(|b| &b.segments).map(|s| s.messages.len()).sum();
        let echo = claimed.conflation || claimed.conflation_conflict;
        let body = (messages > 0 || echo).then(|| self.body(claimed));
        Popped {
            body,
            messages,
            lease: claimed.lease_id.map(Cow::Borrowed).map(Cow::into_owned),
            tenant: self.tenant,
            queue: self.queue_of(claimed.batches.first()),
            lag: claimed.batches.first().and_then(|b| b.segments.first()).and_then(|s| times::since(s.created_at)),
            room: None,
            policy: Some(claimed.conflation),
        }
    }

    fn queue_of(&self, batch: Option<&Batch<'_>>) -> Option<String> {
        let Target::Matching { .. } = self.target else { return None };
        serde_json::from_str(batch?.queue.get()).ok()
    }

    fn body(&self, claimed: &Claimed<'_>) -> String {
        let mut group = String::new();
        push_string(&mut group, &self.group);
        let lease = claimed.lease_id.unwrap_or_default();
        let discovery = matches!(self.target, Target::Matching { .. });
        let mut out = String::with_capacity(1024);
        out.push_str("{\"success\":true,\"queue\":");
        match &self.target {
            Target::Queue(queue) | Target::Partition { queue, .. } => push_string(&mut out, queue),
            Target::Matching { .. } => out.push_str("\"\""),
        }
        let first = claimed.batches.first();
        _ = write!(
            out,
            ",\"partition\":{},\"partitionId\":\"{}\",\"leaseId\":\"{lease}\",\"consumerGroup\":{group},\"partitionsClaimed\":{}",
            first.map_or("\"\"", |b| b.partition.get()),
            first.map_or("", |b| b.partition_id),
            claimed.batches.len(),
        );
        echo(&mut out, claimed.conflation, claimed.conflation_conflict);
        out.push_str(",\"messages\":[");
        let mut comma = "";
        for batch in &claimed.batches {
            for segment in &batch.segments {
                for (offset, message) in (segment.offset..).zip(&segment.messages) {
                    let null = |raw: Option<&'_ RawValue>| raw.map_or("null", RawValue::get).to_owned();
                    _ = write!(out, "{comma}{{\"id\":\"{}\",\"transactionId\":", message.id);
                    match message.transaction_id {
                        Some(id) => out.push_str(id.get()),
                        None => _ = write!(out, "\"{}\"", message.id),
                    }
                    _ = write!(
                        out,
                        ",\"traceId\":{},\"producerSub\":{},\"createdAt\":\"{}\",\"partitionId\":\"{}\",\"partition\":{},\
                         \"leaseId\":\"{lease}\",\"consumerGroup\":{group},\"deliveryAttempt\":{},\"offset\":{offset}",
                        null(message.trace_id),
                        null(message.producer_sub),
                        segment.created_at,
                        batch.partition_id,
                        batch.partition.get(),
                        batch.delivery_attempt,
                    );
                    if discovery {
                        _ = write!(out, ",\"queue\":{}", batch.queue.get());
                    }
                    if let Some(headers) = message.headers {
                        _ = write!(out, ",\"headers\":{}", headers.get());
                    }
                    _ = write!(out, ",\"data\":{}}}", message.data.get());
                    comma = ",";
                }
            }
        }
        out.push_str("]}");
        out
    }
}

fn echo(out: &mut String, conflation: bool, conflict: bool) {
    if conflation {
        out.push_str(",\"conflation\":true");
    }
    if conflict {
        out.push_str(",\"conflationConflict\":true");
    }
}

impl Popped {
    /// What is answered when nothing was found. `policy`: whether the group conflates, as far as that is known.
    pub fn nothing(wanted: &Wanted, policy: Option<bool>) -> Popped {
        let conflation = policy.or(wanted.conflation).unwrap_or(false);
        let conflict = wanted.conflation.is_some_and(|asked| asked != conflation);
        let mut popped = Popped {
            body: None,
            messages: 0,
            lease: None,
            tenant: wanted.tenant,
            queue: None,
            lag: None,
            room: None,
            policy,
        };
        if conflation || conflict {
            let claimed = Claimed { lease_id: None, batches: Vec::new(), conflation, conflation_conflict: conflict };
            popped.body = Some(wanted.body(&claimed));
        }
        popped
    }

    /// Whether the group conflates, as far as that is known.
    pub fn policy(&self) -> Option<bool> {
        self.policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            tenant: Tenant::default(),
            target: Target::Queue("orders".to_owned()),
            group: "billing".to_owned(),
            batch: 10,
            partitions: 1,
            lease_seconds: None,
            auto_ack: false,
            mode: "new",
            from: None,
            conflation: None,
        }
    }

    #[test]
    fn messages_are_rendered_with_their_payload_byte_for_byte() {
        let text = r#"{"leaseId":"l","batches":[{"queue":"orders","partition":"p\"1","partitionId":"i","consumerGroup":"billing","deliveryAttempt":2,"segments":[{"createdAt":"t","offset":7,"messages":[{"id":"a","data":null},{"id":"b","transactionId":"x\u0041","traceId":"r","producerSub":"s","headers":{"h" : 1},"data":{"b":1.50, "a":2}}]}]}]}"#;
        let popped = wanted().render(&serde_json::from_str(text).unwrap());
        assert_eq!((popped.messages, popped.lease.as_deref()), (2, Some("l")));
        assert_eq!(
            popped.body.unwrap(),
            r#"{"success":true,"queue":"orders","partition":"p\"1","partitionId":"i","leaseId":"l","consumerGroup":"billing","partitionsClaimed":1,"messages":[{"id":"a","transactionId":"a","traceId":null,"producerSub":null,"createdAt":"t","partitionId":"i","partition":"p\"1","leaseId":"l","consumerGroup":"billing","deliveryAttempt":2,"offset":7,"data":null},{"id":"b","transactionId":"x\u0041","traceId":"r","producerSub":"s","createdAt":"t","partitionId":"i","partition":"p\"1","leaseId":"l","consumerGroup":"billing","deliveryAttempt":2,"offset":8,"headers":{"h" : 1},"data":{"b":1.50, "a":2}}]}"#
        );
    }

    #[test]
    fn the_database_says_how_long_an_answer_would_be_in_any_language() {
        let told = |message: &str, state: &str| {
            Missed::from(CallError::Refused { state: state.to_owned(), message: message.to_owned() })
        };
        let english = "invalid input syntax for type integer: \"70000 bytes are too many\"";
        let german = "ungültige Eingabesyntax für Typ integer: »70000 bytes are too many«";
        for message in [english, german] {
            assert!(matches!(told(message, "22P02"), Missed::TooLong(70_000)), "{message}");
        }
        assert!(matches!(told(english, "22023"), Missed::Failed(_)));
        assert!(matches!(told("invalid input syntax for type uuid", "22P02"), Missed::Failed(_)));
    }

    #[test]
    fn nothing_is_no_body_unless_conflation_has_to_be_echoed() {
        assert!(Popped::nothing(&wanted(), None).body.is_none());
        assert!(Popped::nothing(&wanted(), Some(false)).body.is_none());
        let asked = Wanted { conflation: Some(true), ..wanted() };
        let body = Popped::nothing(&asked, None).body.unwrap();
        assert!(body.contains("\"conflation\":true") && body.ends_with("\"messages\":[]}"), "{body}");
        let body = Popped::nothing(&asked, Some(false)).body.unwrap();
        assert!(body.contains("\"conflationConflict\":true") && !body.contains("\"conflation\":true"), "{body}");
    }
}
