//! Putting a dead letter's message back into a queue: one way for moves, plans and repairs.

use crate::broker::append::{Push, When, append};
use crate::broker::dead::{Unplayable, replayable_payload};
use crate::broker::lookup;
use crate::error::{ErrorKind, Result, error};
use crate::pg::relation::Tables;
use crate::pg::spi;
use crate::rows::dead_letter::Record;
use crate::rows::{partition, queue};
use queen_core::{id, names, replay};
use std::borrow::Cow;

/// Where a message goes; None: where it came from.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    pub queue: Option<&'a str>,
    pub partition: Option<&'a str>,
}

impl Destination<'_> {
    /// Names are checked before anything is locked.
    pub fn check(&self) -> Result<()> {
        if let Some(queue) = self.queue {
            names::check_queue(queue)?;
        }
        if let Some(partition) = self.partition {
            names::check_partition(partition)?;
        }
        Ok(())
    }
}

/// What became of it. A duplicate: a message with that transaction id was there already.
pub struct Replayed {
    pub duplicate: bool,
    pub queue: String,
    pub partition: String,
    pub partition_id: u128,
    pub message_id: u128,
    pub transaction_id: String,
    pub offset: i64,
    pub hops: u32,
}

impl Replayed {
    /// The verdict on the wire.
    pub fn json(&self, record: &Record, result: &str) -> serde_json::Value {
        serde_json::json!({
            "result": result,
            "queue": self.queue,
            "partition": self.partition,
            "consumerGroup": record.group,
            "dlqId": id::format(record.id),
            "originalTransactionId": record.transaction_id,
            "messageId": id::format(self.message_id),
            "transactionId": self.transaction_id,
            "offset": self.offset,
        })
    }
}

/// Refuses where the record's queue wants an approval and the record has none: of a plan that has not ended, is not past its
/// time, goes to the same place and sends the same: what was filed, or this repair.
pub fn check_approval(record: &Record, to: Destination<'_>, repaired: Option<&str>) -> Result<()> {
    let unapproved = spi::read_as_owner(|client| {
        client
            .select(
                "SELECT queen.dlq_needs_approval(tenant, queue) AND NOT queen.dlq_is_approved(id, $2, $3, $4::pg_catalog.json) \
                   FROM queen.dead_letter_record WHERE id = $1",
                Some(1),
                &[
                    spi::uuid(record.id).into(),
                    to.queue.unwrap_or(&record.queue).into(),
                    to.partition.unwrap_or(&record.partition).into(),
                    repaired.into(),
                ],
            )?
            .first()
            .get_one::<bool>()
    })
    .unwrap_or_else(|e| pgrx::error!("reading a dead letter's approval: {e}"));
    if unapproved == Some(true) {
        let (what, hint) = match repaired {
            None => ("is replayed", "Make a plan with queen.dlq_plan and have somebody else approve it."),
            Some(_) => (
                "is repaired with this payload",
                "Make a plan with queen.dlq_plan, whose argument repair is the payload, and have somebody else approve it.",
            ),
        };
        let queue = names::cut(&record.queue, 64);
        return Err(error(
            ErrorKind::ApprovalRequired,
            format!("queue \"{queue}\" wants an approval before a dead letter {what}"),
        )
        .with_hint(hint));
    }
    Ok(())
}

/// Appends the message of a record, which the caller has locked. Transaction id: `dlq:<record id>`; of a repair, which
/// brings a payload of its own, `repair:<new uuid>`. Nothing is stored twice, whatever the deduplication window. None: the
/// record is redacted and the log has lost the message.
pub fn replay(record: &Record, to: Destination<'_>, repaired: Option<&str>) -> Result<Option<Replayed>> {
    let tables = Tables::default();
    let original = replayable_payload(&tables, record)?;
    let (payload, headers) = match (&original, repaired) {
        (Ok(original), None) => (original.text.as_str(), original.headers.as_deref()),
        (Ok(original), Some(payload)) => (payload, original.headers.as_deref()),
        // What nobody can read any more can still be written anew.
        (Err(_), Some(payload)) => (payload, record.headers.as_deref().and_then(|h| std::str::from_utf8(h).ok())),
        (Err(Unplayable::Redacted), None) => return Ok(None),
        (Err(Unplayable::Sealed), None) => {
            return Err(error(
                ErrorKind::EncryptionUnavailable,
                "the dead letter is sealed with a key that is not configured: it cannot be moved",
            )
            .with_hint("Add the key it was sealed with to queen.encryption_keys."));
        }
    };
    let transaction_id = match repaired {
        Some(_) => format!("repair:{}", uuid::Uuid::new_v4()),
        None => format!("dlq:{}", id::format(record.id)),
    };
    let queue_name = to.queue.unwrap_or(&record.queue);
    let partition_name = to.partition.unwrap_or(&record.partition);
    let (headers, hops) = replay::identity(headers, &id::format(record.message_id), &record.transaction_id);
    let mut replayed = Replayed {
        duplicate: true,
        queue: queue_name.to_owned(),
        partition: partition_name.to_owned(),
        partition_id: 0,
        message_id: 0,
        transaction_id,
        offset: 0,
        hops,
    };
    let there = queue::find(&tables, record.tenant, queue_name)?
        .and_then(|queue| partition::find(&tables, queue.qid, partition_name));
    if let Some(lane) = there
        && let Some(found) = lookup::find(&tables, lane.pid, &replayed.transaction_id)?.first()
    {
        replayed.partition_id = lane.id;
        (replayed.message_id, replayed.offset) = (found.message_id, found.offset);
        return Ok(Some(replayed));
    }
    let pushed = append(
        &tables,
        &[Push {
            tenant: record.tenant,
            queue: Cow::Borrowed(queue_name),
            partition: Cow::Borrowed(partition_name),
            payload: Cow::Borrowed(payload),
            transaction_id: Some(Cow::Borrowed(&replayed.transaction_id)),
            trace_id: record.trace_id,
            headers: Some(Cow::Borrowed(&headers)),
            producer: record.producer.as_deref().map(Cow::Borrowed),
            id: None,
        }],
        When::Now,
    )?;
    let pushed = pushed.first().ok_or_else(|| error(ErrorKind::Internal, "the moved message was not appended"))?;
    replayed.duplicate = pushed.duplicate;
    replayed.partition_id = pushed.partition_id;
    (replayed.message_id, replayed.offset) = (pushed.message_id, pushed.offset);
    Ok(Some(replayed))
}
