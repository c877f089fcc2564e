//! Giving a message up: the dead letter is written in the transaction that moves the cursor past it.

use crate::broker::append::mint;
use crate::broker::pause;
use crate::error::{ErrorKind, Result, error};
use crate::pg::relation::Tables;
use crate::rows::dead_letter::{self, Record};
use crate::rows::partition::Partition;
use crate::rows::queue::Queue;
use crate::rows::segment;
use crate::rows::subscription::Subscription;
use queen_core::names;

/// What failed, and why.
pub struct Failure {
    pub offset: i64,
    /// The error text.
    pub text: String,
    /// One word.
    pub reason: String,
    /// The failure class, where the broker itself knows it.
    #[expect(dead_code, reason = "the record has no column for it yet")]
    pub class: Option<&'static str>,
    /// How often the message was delivered to the group.
    #[expect(dead_code, reason = "the record has no column for it yet")]
    pub attempts: i32,
    /// How often the budget was charged.
    pub retries: i32,
    /// Microseconds: the first failure of this message, and this one.
    pub failing_since: i64,
    pub now: i64,
}

/// Files the message as a dead letter. One message of one group makes one record: filing it again keeps the first.
/// If the queue says so, it is counted towards a pause of the group. The caller holds the cursor of the group and partition.
///
/// # Errors
/// The segment with the message is damaged or gone.
pub fn file(
    tables: &Tables,
    queue: &Queue,
    partition: &Partition,
    group: &Subscription,
    failure: &Failure,
) -> Result<()> {
    let Some(stored) = segment::holding(tables, partition.pid, failure.offset) else {
        return Err(error(
            ErrorKind::CorruptSegment,
            format!("the message at offset {} cannot be dead-lettered: its segment is gone", failure.offset),
        ));
    };
    let frame = stored.frame(failure.offset)?;
    let frame = frame.as_frame();
    dead_letter::file(&Record {
        id: mint(failure.now, 1),
        tenant: queue.tenant,
        qid: queue.qid,
        queue: queue.name.clone(),
        partition: partition.name.clone(),
        partition_id: partition.id,
        group: group.name.clone(),
        offset: failure.offset,
        message_id: frame.id,
        transaction_id: frame.transaction_id_text().into_owned(),
        payload: frame.payload.to_vec(),
        headers: frame.headers.map(<[u8]>::to_vec),
        trace_id: frame.trace_id,
        producer: frame.producer.map(str::to_owned),
        error: Some(names::clean_error_text(&failure.text)),
        reason: names::clean_error_text(&failure.reason),
        retry_count: failure.retries,
        enqueued_at: stored.created_at,
        first_failed_at: failure.failing_since,
        failed_at: failure.now,
        is_encrypted: frame.encrypted,
    });
    pause::note(queue, group, partition.id, failure.offset, failure.now);
    Ok(())
}
