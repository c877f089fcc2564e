//! Dead letters: snapshots that depend on no other row.

use crate::pg::spi;
use crate::pg::value::Value;
use crate::rows::queue::Queue;
use pgrx::datum::{TimestampWithTimeZone, Uuid};
use pgrx::spi::SpiHeapTupleData;

/// A dead letter as stored.
pub struct Record {
    pub id: u128,
    pub tenant: u128,
    pub qid: i64,
    pub queue: String,
    pub partition: String,
    pub partition_id: u128,
    pub group: String,
    pub offset: i64,
    pub message_id: u128,
    pub transaction_id: String,
    pub payload: Vec<u8>,
    pub headers: Option<Vec<u8>>,
    pub trace_id: Option<u128>,
    pub producer: Option<String>,
    pub error: Option<String>,
    pub reason: String,
    pub retry_count: i32,
    pub enqueued_at: i64,
    pub first_failed_at: i64,
    pub failed_at: i64,
    pub is_encrypted: bool,
}

/// Columns in the order of [`Record`].
const COLUMNS: &str = "id, tenant, qid, queue, partition, partition_id, consumer_group, at_offset, message_id, \
    transaction_id, payload, headers, trace_id, producer, error, reason, retry_count, enqueued_at, first_failed_at, \
    failed_at, is_encrypted";

fn uuid(id: u128) -> Uuid {
    Uuid::from_bytes(id.to_be_bytes())
}

fn time(micros: i64) -> TimestampWithTimeZone {
    TimestampWithTimeZone::try_from(micros).unwrap_or_else(|_| TimestampWithTimeZone::positive_infinity())
}

/// Files a dead letter. One message of one group makes one record: filing it again keeps the first.
pub fn file(r: &Record) {
    spi::as_owner(|client| {
        client.update(
            &format!(
                "INSERT INTO queen.dead_letter_record ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, \
                 $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) ON CONFLICT DO NOTHING"
            ),
            None,
            &[
                uuid(r.id).into(),
                uuid(r.tenant).into(),
                r.qid.into(),
                r.queue.as_str().into(),
                r.partition.as_str().into(),
                uuid(r.partition_id).into(),
                r.group.as_str().into(),
                r.offset.into(),
                uuid(r.message_id).into(),
                r.transaction_id.as_str().into(),
                r.payload.as_slice().into(),
                r.headers.as_deref().into(),
                r.trace_id.map(uuid).into(),
                r.producer.as_deref().into(),
                r.error.as_deref().into(),
                r.reason.as_str().into(),
                r.retry_count.into(),
                time(r.enqueued_at).into(),
                time(r.first_failed_at).into(),
                time(r.failed_at).into(),
                r.is_encrypted.into(),
            ],
        )
        .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("filing a dead letter: {e}"));
}

/// What tells one cause of dead letters from another, in SQL over a row of the table: the one place to change.
const FINGERPRINT: &str = "pg_catalog.md5(COALESCE(error, ''))";

/// Dead letters of a group that have the cause of one of them.
pub struct SameCause {
    pub fingerprint: String,
    /// With that one; no more than asked for.
    pub count: i64,
}

/// How many dead letters of a group have the cause of the one at this message, filed at or after `since`; counts up to
/// `enough`. None: the message has no record.
pub fn same_cause(
    queue: &Queue,
    group: &str,
    partition_id: u128,
    offset: i64,
    since: i64,
    enough: i32,
) -> Option<SameCause> {
    let statement = format!(
        "SELECT d.fingerprint, (SELECT pg_catalog.count(*) FROM (
                SELECT FROM queen.dead_letter_record
                 WHERE tenant = $1 AND queue = $2 AND consumer_group = $3 AND failed_at >= $6
                   AND {FINGERPRINT} = d.fingerprint
                 ORDER BY failed_at DESC LIMIT $7) same)
           FROM (SELECT {FINGERPRINT} AS fingerprint FROM queen.dead_letter_record
                  WHERE partition_id = $4 AND consumer_group = $3 AND at_offset = $5) d"
    );
    let read = |row: SpiHeapTupleData<'_>| -> Result<SameCause, pgrx::spi::Error> {
        Ok(SameCause { fingerprint: row[1].value()?.unwrap_or_default(), count: row[2].value()?.unwrap_or_default() })
    };
    // Written a moment ago: read as a change would.
    spi::as_owner(|client| {
        client
            .update(
                &statement,
                None,
                &[
                    uuid(queue.tenant).into(),
                    queue.name.as_str().into(),
                    group.into(),
                    uuid(partition_id).into(),
                    offset.into(),
                    spi::time(since),
                    i64::from(enough).into(),
                ],
            )?
            .map(read)
            .next()
            .transpose()
    })
    .unwrap_or_else(|e| pgrx::error!("counting dead letters: {e}"))
}

fn read(row: &SpiHeapTupleData<'_>) -> Result<Record, pgrx::spi::Error> {
    let id = |n: usize| -> Result<Option<u128>, pgrx::spi::Error> {
        Ok(row[n].value::<Uuid>()?.map(|u| u128::from_be_bytes(*u.as_bytes())))
    };
    let at = |n: usize| -> Result<i64, pgrx::spi::Error> {
        Ok(row[n].value::<TimestampWithTimeZone>()?.map_or(0, i64::from))
    };
    Ok(Record {
        id: id(1)?.unwrap_or_default(),
        tenant: id(2)?.unwrap_or_default(),
        qid: row[3].value()?.unwrap_or_default(),
        queue: row[4].value()?.unwrap_or_default(),
        partition: row[5].value()?.unwrap_or_default(),
        partition_id: id(6)?.unwrap_or_default(),
        group: row[7].value()?.unwrap_or_default(),
        offset: row[8].value()?.unwrap_or_default(),
        message_id: id(9)?.unwrap_or_default(),
        transaction_id: row[10].value()?.unwrap_or_default(),
        payload: row[11].value()?.unwrap_or_default(),
        headers: row[12].value()?,
        trace_id: id(13)?,
        producer: row[14].value()?,
        error: row[15].value()?,
        reason: row[16].value()?.unwrap_or_default(),
        retry_count: row[17].value()?.unwrap_or_default(),
        enqueued_at: at(18)?,
        first_failed_at: at(19)?,
        failed_at: at(20)?,
        is_encrypted: row[21].value()?.unwrap_or_default(),
    })
}

fn select(rest: &str, args: &[pgrx::datum::DatumWithOid<'_>]) -> Vec<Record> {
    spi::read_as_owner(|client| {
        client
            .select(&format!("SELECT {COLUMNS} FROM queen.dead_letter_record {rest}"), None, args)?
            .map(|row| read(&row))
            .collect::<Result<Vec<_>, _>>()
    })
    .unwrap_or_else(|e| pgrx::error!("reading dead letters: {e}"))
}

/// Which records a list has; None: all.
pub struct Only<'a> {
    pub queue: Option<&'a str>,
    pub group: Option<&'a str>,
    pub partition_id: Option<u128>,
    pub transaction_id: Option<&'a str>,
}

/// Newest failure first; a stable order.
pub fn list(tenant: u128, only: &Only<'_>, limit: i32, skip: i32) -> Vec<Record> {
    select(
        "WHERE tenant = $1 AND ($2 IS NULL OR queue = $2) AND ($3 IS NULL OR consumer_group = $3) \
         AND ($6 IS NULL OR partition_id = $6) AND ($7 IS NULL OR transaction_id = $7 \
         AND pg_catalog.hashtextextended(transaction_id, 0) = pg_catalog.hashtextextended($7, 0)) \
         ORDER BY failed_at DESC, id DESC LIMIT $4 OFFSET $5",
        &[
            uuid(tenant).into(),
            only.queue.into(),
            only.group.into(),
            limit.into(),
            skip.into(),
            only.partition_id.map(uuid).into(),
            only.transaction_id.into(),
        ],
    )
}

/// The record, locked until the transaction ends.
pub fn lock(tenant: u128, id: u128) -> Option<Record> {
    let statement = format!("SELECT {COLUMNS} FROM queen.dead_letter_record WHERE tenant = $1 AND id = $2 FOR UPDATE");
    spi::as_owner(|client| {
        client
            .update(&statement, None, &[uuid(tenant).into(), uuid(id).into()])?
            .map(|row| read(&row))
            .next()
            .transpose()
    })
    .unwrap_or_else(|e| pgrx::error!("locking a dead letter: {e}"))
}

fn delete(condition: &str, args: &[pgrx::datum::DatumWithOid<'_>]) -> i64 {
    spi::as_owner(|client| {
        client
            .update(&format!("DELETE FROM queen.dead_letter_record WHERE {condition}"), None, args)
            .map(|done| done.len() as i64)
    })
    .unwrap_or_else(|e| pgrx::error!("deleting dead letters: {e}"))
}

pub fn delete_row(tenant: u128, id: u128) -> i64 {
    delete("tenant = $1 AND id = $2", &[uuid(tenant).into(), uuid(id).into()])
}

/// Every group's record of one message.
pub fn delete_message(tenant: u128, partition_id: u128, transaction_id: &str) -> i64 {
    delete(
        "tenant = $1 AND partition_id = $2 AND transaction_id = $3 \
         AND pg_catalog.hashtextextended(transaction_id, 0) = pg_catalog.hashtextextended($3, 0)",
        &[uuid(tenant).into(), uuid(partition_id).into(), transaction_id.into()],
    )
}

pub fn purge(tenant: u128, queue: &str, group: Option<&str>) -> i64 {
    delete(
        "tenant = $1 AND queue = $2 AND ($3 IS NULL OR consumer_group = $3)",
        &[uuid(tenant).into(), queue.into(), group.into()],
    )
}

/// Offsets of a partition that some group has dead-lettered.
pub fn offsets(partition_id: u128) -> std::collections::HashSet<i64> {
    spi::read_as_owner(|client| {
        client
            .select(
                "SELECT at_offset FROM queen.dead_letter_record WHERE partition_id = $1",
                None,
                &[uuid(partition_id).into()],
            )?
            .filter_map(|row| row[1].value::<i64>().transpose())
            .collect::<Result<_, pgrx::spi::Error>>()
    })
    .unwrap_or_else(|e| pgrx::error!("reading dead letters: {e}"))
}

impl Record {
    /// The columns of type `dead_letter`; `text` is the payload as it may be shown.
    pub fn row<'a>(&'a self, text: &'a str, headers: Option<&'a str>, sealed: bool) -> [Value<'a>; 20] {
        [
            Value::Uuid(self.id),
            Value::Text(&self.queue),
            Value::Text(&self.partition),
            Value::Uuid(self.partition_id),
            Value::Text(&self.group),
            Value::Int8(self.offset),
            Value::Uuid(self.message_id),
            Value::Text(&self.transaction_id),
            crate::pg::call::jsonb(text),
            Value::Text(text),
            headers.map_or(Value::Null, crate::pg::call::jsonb),
            Value::opt_uuid(self.trace_id),
            Value::opt_text(self.producer.as_deref()),
            Value::opt_text(self.error.as_deref()),
            Value::Text(&self.reason),
            Value::Int4(self.retry_count),
            Value::Time(self.enqueued_at),
            Value::Time(self.first_failed_at),
            Value::Time(self.failed_at),
            Value::Bool(sealed),
        ]
    }
}
