//! Dead letters: snapshots that depend on no other row.

use crate::pg::relation::Tables;
use crate::pg::scan::{InProgress, Sight, eq};
use crate::pg::spi::{self, uuid};
use crate::pg::value::Value;
use crate::rows::dlq_tally::{self, Filter};
use pgrx::datum::{TimestampWithTimeZone, Uuid};
use pgrx::spi::SpiHeapTupleData;
use queen_core::classify::Class;
use queen_core::options::retry_policy_json;
use queen_core::redact::payload_hash;
use queen_core::segment::transaction_hash;
use xxhash_rust::xxh3::xxh3_128;

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
    pub class: String,
    pub code: String,
    pub fingerprint: String,
    /// None: the payload could not be opened; or, of a record that is being filed, its payload is stored as it was pushed.
    pub payload_hash: Option<String>,
    /// Deliveries of the message to the group.
    pub attempts: i32,
    /// A JSON object; of a record that is being filed, what is stored for it.
    pub retry_policy: String,
    pub traceparent: Option<String>,
    pub redaction: String,
    pub status: String,
    pub hops: i32,
}

/// Nothing was taken away.
pub const KEPT: &str = "none";
/// Payload, headers, error and reason are redacted.
pub const REDACTED: &str = "redacted";
/// As [`REDACTED`], but the payload is whole, and sealed.
pub const SEALED: &str = "encrypted";
/// What a record is until somebody decides about it.
pub const PENDING: &str = "pending";
/// Statuses of records that are still to be dealt with: what lists and counts have by default.
pub const OPEN: [&str; 2] = [PENDING, "approved"];

/// Columns in the order of [`Record`].
const COLUMNS: &str = "r.id, r.tenant, r.qid, r.queue, r.partition, r.partition_id, r.consumer_group, r.at_offset, \
    r.message_id, r.transaction_id, r.payload, r.headers, r.trace_id, r.producer, r.error, r.reason, r.retry_count, \
    r.enqueued_at, r.first_failed_at, r.failed_at, r.is_encrypted, r.failure_class, r.error_code, r.fingerprint, \
    r.payload_hash, r.attempts, r.retry_policy, r.traceparent, r.redaction, r.status, r.hops";

/// What the tally counts a record under.
fn kind(r: &Record) -> u128 {
    let parts = [&r.queue, &r.group, &r.class, &r.code, &r.fingerprint];
    let mut named = Vec::with_capacity(16 + parts.iter().map(|part| part.len() + 1).sum::<usize>());
    named.extend_from_slice(&r.tenant.to_be_bytes());
    for part in parts {
        named.extend_from_slice(part.as_bytes());
        named.push(0);
    }
    xxh3_128(&named)
}

/// Whether this message of this group has a record already. Waits for whoever is about to delete it; not for who changes it,
/// who may be waiting for us: the key is there whatever comes of that.
fn is_filed(tables: &Tables, partition_id: u128, transaction_id: &str, group: &str, offset: i64) -> bool {
    let table = tables.dead_letter_record().borrow();
    loop {
        let keys = [
            eq(1, Value::Uuid(partition_id)),
            eq(2, Value::Int8(transaction_hash(transaction_id) as i64)),
            eq(3, Value::Int8(offset)),
            eq(4, Value::Text(group)),
        ];
        let (mut deleted, mut inserted) = (None, None);
        {
            let mut scan = table.scan(0, &keys, Sight::Everything);
            while scan.forward().is_some() {
                match scan.in_progress() {
                    None => return true,
                    Some(InProgress::Delete(xid)) => deleted = Some(xid),
                    Some(InProgress::Insert(xid)) => inserted = Some(xid),
                }
            }
        }
        match (deleted, inserted) {
            (None, None) => return false,
            (Some(before), Some(after)) if before == after => return true,
            (Some(xid), _) => InProgress::Delete(xid).wait(),
            (None, Some(xid)) => InProgress::Insert(xid).wait(),
        }
    }
}

/// Files a dead letter, and counts it, unless the message has one of this group already: then the answer is false. The caller
/// holds the cursor of the group and partition, so that nobody else files it.
pub fn file(tables: &Tables, r: &Record) -> bool {
    let kind = kind(r);
    let row = [
        Value::Uuid(r.id),
        Value::Uuid(r.tenant),
        Value::Int8(r.qid),
        Value::Text(&r.queue),
        Value::Text(&r.partition),
        Value::Uuid(r.partition_id),
        Value::Text(&r.group),
        Value::Int8(r.offset),
        Value::Uuid(r.message_id),
        Value::Text(&r.transaction_id),
        Value::Bytes(&r.payload),
        r.headers.as_deref().map_or(Value::Null, Value::Bytes),
        Value::opt_uuid(r.trace_id),
        Value::opt_text(r.producer.as_deref()),
        Value::opt_text(r.error.as_deref()),
        Value::Text(&r.reason),
        Value::Int4(r.retry_count),
        Value::Time(r.enqueued_at),
        Value::Time(r.first_failed_at),
        Value::Time(r.failed_at),
        Value::Bool(r.is_encrypted),
        Value::Text(&r.class),
        Value::Text(&r.code),
        Value::Text(&r.fingerprint),
        Value::opt_text(r.payload_hash.as_deref()),
        Value::Int4(r.attempts),
        Value::Text(&r.retry_policy),
        Value::opt_text(r.traceparent.as_deref()),
        Value::Text(&r.redaction),
        Value::Text(&r.status),
        Value::Int4(r.hops),
        Value::Int8(transaction_hash(&r.transaction_id) as i64),
        Value::Uuid(kind),
    ];
    let mut new = tables.dead_letter_record().borrow_mut().insert_new(&row);
    // Rarely: looked at only then.
    while !new && !is_filed(tables, r.partition_id, &r.transaction_id, &r.group, r.offset) {
        new = tables.dead_letter_record().borrow_mut().insert_new(&row);
    }
    if new {
        dlq_tally::count_filed(tables, r, kind);
    }
    new
}

/// What a dead letter has in common with others of its cause.
pub struct Cause {
    pub id: u128,
    /// Of each class that its group may have filed the same failure under.
    kinds: [u128; Class::ALL.len()],
    pub fingerprint: String,
    pub failed_at: i64,
}

impl Cause {
    /// The cause of a record.
    pub fn of(mut record: Record) -> Self {
        let kinds = Class::ALL.map(|class| {
            class.as_str().clone_into(&mut record.class);
            kind(&record)
        });
        Self { id: record.id, kinds, fingerprint: record.fingerprint, failed_at: record.failed_at }
    }
}

/// How many dead letters of a group have this cause and were filed at or after `since`, whatever has become of them; counts
/// up to `enough`. 0: the record itself is not there.
pub fn count_cause(cause: &Cause, since: i64, enough: i32) -> i64 {
    // Each kind and status is a look in the index from `since` on, however many older ones there are.
    let statement = "SELECT count(*) FROM (SELECT FROM unnest($2::uuid[]) k (kind) CROSS JOIN unnest($3::text[]) s (status) \
          CROSS JOIN LATERAL (SELECT FROM queen.dead_letter_record r \
                               WHERE r.kind = k.kind AND r.status = s.status COLLATE \"C\" AND r.failed_at >= $4 LIMIT $5) one \
          WHERE EXISTS (SELECT FROM queen.dead_letter_record WHERE id = $1) LIMIT $5) same";
    let kinds: Vec<Uuid> = cause.kinds.iter().map(|&kind| uuid(kind)).collect();
    let statuses: Vec<String> = dlq_tally::STATUSES.iter().map(|&status| status.to_owned()).collect();
    // Written a moment ago: read as a change would.
    spi::as_owner(|client| {
        client
            .update(
                statement,
                None,
                &[uuid(cause.id).into(), kinds.into(), statuses.into(), spi::time(since), i64::from(enough).into()],
            )?
            .first()
            .get_one::<i64>()
    })
    .unwrap_or_else(|e| pgrx::error!("counting dead letters: {e}"))
    .unwrap_or(0)
}

fn read(row: &SpiHeapTupleData<'_>) -> Result<Record, pgrx::spi::Error> {
    let id = |n: usize| -> Result<Option<u128>, pgrx::spi::Error> {
        Ok(row[n].value::<Uuid>()?.map(|u| u128::from_be_bytes(*u.as_bytes())))
    };
    let at = |n: usize| -> Result<i64, pgrx::spi::Error> {
        Ok(row[n].value::<TimestampWithTimeZone>()?.map_or(0, i64::from))
    };
    let mut record = Record {
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
        class: row[22].value()?.unwrap_or_default(),
        code: row[23].value()?.unwrap_or_default(),
        fingerprint: row[24].value()?.unwrap_or_default(),
        payload_hash: row[25].value()?,
        attempts: row[26].value()?.unwrap_or_default(),
        retry_policy: retry_policy_json(row[27].value()?.unwrap_or_default()),
        traceparent: row[28].value()?,
        redaction: row[29].value()?.unwrap_or_default(),
        status: row[30].value()?.unwrap_or_default(),
        hops: row[31].value()?.unwrap_or_default(),
    };
    if record.payload_hash.is_none() && record.redaction == KEPT && !record.is_encrypted {
        record.payload_hash = Some(payload_hash(&record.payload));
    }
    Ok(record)
}

fn select(rest: &str, args: &[pgrx::datum::DatumWithOid<'_>]) -> Vec<Record> {
    spi::read_as_owner(|client| {
        client
            .select(&format!("SELECT {COLUMNS} FROM {rest}"), None, args)?
            .map(|row| read(&row))
            .collect::<Result<Vec<_>, _>>()
    })
    .unwrap_or_else(|e| pgrx::error!("reading dead letters: {e}"))
}

/// A part of a list, newest failure first.
#[derive(Default)]
pub struct Page {
    /// Failed at or after this time, server microseconds.
    pub from: Option<i64>,
    /// Failed before this time.
    pub to: Option<i64>,
    /// Behind the record with this time and id.
    pub after: Option<(i64, u128)>,
    pub limit: i32,
    pub skip: i32,
}

/// Index entries that a list may read kind by kind, whatever the other way would cost.
const ENTRIES: i64 = 5_000;

/// The records that pass a filter, newest failure first; a stable order.
///
/// The tally says which kinds there are, and how many of each. Few: each is read in the index of its own, from its newest
/// record on. Many: all records are read by time until enough of them have passed the filter.
pub fn list(tenant: u128, filter: &Filter<'_>, page: &Page) -> Vec<Record> {
    let kinds = dlq_tally::kinds(tenant, filter);
    let wanted = i64::from(page.limit) + i64::from(page.skip);
    let by_kind: i64 = kinds.found.iter().map(|k| 1 + k.count.min(wanted)).sum();
    let passing: i64 = kinds.found.iter().map(|k| k.count).sum();
    if passing == 0 || page.limit == 0 {
        return Vec::new();
    }
    let by_time = wanted.saturating_mul(kinds.total / passing + 1);
    // One condition for each end: of two, PostgreSQL 18 starts at the wider, and passes over all that lies between.
    let time = "r.failed_at >= $3 AND (r.failed_at, r.id) < ($4, $5)";
    // The ends of the type are the infinities: no record is there.
    let (end, end_id) = [page.to.map(|to| (to, 0)), page.after].into_iter().flatten().min().unwrap_or((i64::MAX, 0));
    let from = page.from.unwrap_or(i64::MIN);
    if by_kind <= by_time.max(ENTRIES) {
        let ids: Vec<Uuid> = kinds.found.iter().map(|k| uuid(k.kind)).collect();
        let statuses: Vec<String> = kinds.found.iter().map(|k| k.status.clone()).collect();
        return select(
            &format!(
                "(SELECT p.id FROM unnest($1::uuid[], $2::text[]) k (kind, status) \
                  CROSS JOIN LATERAL (SELECT r.id, r.failed_at FROM queen.dead_letter_record r \
                                       WHERE r.kind = k.kind AND r.status = k.status COLLATE \"C\" AND {time} \
                                       ORDER BY r.failed_at DESC, r.id DESC LIMIT $6 + $7) p \
                  ORDER BY p.failed_at DESC, p.id DESC LIMIT $6 OFFSET $7) page \
                 JOIN queen.dead_letter_record r ON r.id = page.id ORDER BY r.failed_at DESC, r.id DESC"
            ),
            &[
                ids.into(),
                statuses.into(),
                spi::time(from),
                spi::time(end),
                uuid(end_id).into(),
                i64::from(page.limit).into(),
                i64::from(page.skip).into(),
            ],
        );
    }
    select(
        &format!(
            "queen.dead_letter_record r WHERE r.tenant = $1 AND {time} AND r.status = ANY ($2) \
             AND ($8 IS NULL OR r.queue = $8) AND ($9 IS NULL OR r.consumer_group = $9) \
             AND ($10 IS NULL OR r.failure_class = $10) AND ($11 IS NULL OR r.error_code = $11) \
             AND ($12 IS NULL OR r.fingerprint = $12) \
             ORDER BY r.failed_at DESC, r.id DESC LIMIT $6 OFFSET $7"
        ),
        &[
            uuid(tenant).into(),
            filter.statuses().into(),
            spi::time(from),
            spi::time(end),
            uuid(end_id).into(),
            i64::from(page.limit).into(),
            i64::from(page.skip).into(),
            filter.queue.into(),
            filter.group.into(),
            filter.class.into(),
            filter.code.into(),
            filter.fingerprint.into(),
        ],
    )
}

/// The open records of a partition, or of one of its messages; newest failure first.
pub fn at(
    tenant: u128,
    partition_id: Option<u128>,
    transaction_id: Option<&str>,
    filter: &Filter<'_>,
    page: &Page,
) -> Vec<Record> {
    select(
        "queen.dead_letter_record r WHERE r.tenant = $1 AND ($2 IS NULL OR r.partition_id = $2) \
         AND ($3 IS NULL OR r.transaction_id = $3) AND ($4 IS NULL OR r.transaction_hash = $4) \
         AND ($5 IS NULL OR r.queue = $5) AND ($6 IS NULL OR r.consumer_group = $6) AND r.status = ANY ($7) \
         ORDER BY r.failed_at DESC, r.id DESC LIMIT $8 OFFSET $9",
        &[
            uuid(tenant).into(),
            partition_id.map(uuid).into(),
            transaction_id.into(),
            transaction_id.map(|t| transaction_hash(t) as i64).into(),
            filter.queue.into(),
            filter.group.into(),
            filter.statuses().into(),
            page.limit.into(),
            page.skip.into(),
        ],
    )
}

/// The record, whatever has become of it.
pub fn find(tenant: u128, id: u128) -> Option<Record> {
    select("queen.dead_letter_record r WHERE r.tenant = $1 AND r.id = $2", &[uuid(tenant).into(), uuid(id).into()])
        .pop()
}

/// The record, locked until the transaction ends.
pub fn lock(tenant: u128, id: u128) -> Option<Record> {
    let statement = format!(
        "SELECT {COLUMNS} FROM queen.dead_letter_record r WHERE r.tenant = $1 AND r.id = $2 \
         AND r.status IN ('pending', 'approved') FOR UPDATE"
    );
    spi::as_owner(|client| {
        client
            .update(&statement, None, &[uuid(tenant).into(), uuid(id).into()])?
            .map(|row| read(&row))
            .next()
            .transpose()
    })
    .unwrap_or_else(|e| pgrx::error!("locking a dead letter: {e}"))
}

/// The record, locked until the transaction ends, if nobody has decided on it; of whatever tenant.
pub fn lock_open(id: u128) -> Option<Record> {
    let statement = format!(
        "SELECT {COLUMNS} FROM queen.dead_letter_record r WHERE r.id = $1 AND r.status IN ('pending', 'approved') FOR UPDATE"
    );
    spi::as_owner(|client| {
        client.update(&statement, None, &[uuid(id).into()])?.map(|row| read(&row)).next().transpose()
    })
    .unwrap_or_else(|e| pgrx::error!("locking a dead letter: {e}"))
}

/// The record's message is in a queue again.
pub fn set_replayed(id: u128) {
    spi::as_owner(|client| {
        client
            .update("UPDATE queen.dead_letter_record SET status = 'replayed' WHERE id = $1", None, &[uuid(id).into()])
            .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("marking a dead letter: {e}"));
}

fn delete(condition: &str, args: &[pgrx::datum::DatumWithOid<'_>]) -> i64 {
    spi::as_owner(|client| {
        client
            .update(
                &format!(
                    "WITH held AS MATERIALIZED (SELECT id FROM queen.dead_letter_record WHERE {condition} ORDER BY id FOR UPDATE) \
                     DELETE FROM queen.dead_letter_record r USING held WHERE r.id = held.id"
                ),
                None,
                args,
            )
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
        "tenant = $1 AND partition_id = $2 AND transaction_id = $3 AND transaction_hash = $4",
        &[
            uuid(tenant).into(),
            uuid(partition_id).into(),
            transaction_id.into(),
            (transaction_hash(transaction_id) as i64).into(),
        ],
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
    /// Where a list goes on behind this record: opaque to whoever has it.
    pub fn page_cursor(&self) -> String {
        format!("{:x}-{:032x}", self.failed_at, self.id)
    }

    /// The columns of type `dead_letter`; `text` is the payload as it may be shown.
    pub fn row<'a>(
        &'a self,
        text: &'a str,
        headers: Option<&'a str>,
        sealed: bool,
        cursor: &'a str,
    ) -> [Value<'a>; 31] {
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
            Value::Text(&self.class),
            Value::Text(&self.code),
            Value::Text(&self.fingerprint),
            Value::opt_text(self.payload_hash.as_deref()),
            Value::Int4(self.attempts),
            crate::pg::call::jsonb(&self.retry_policy),
            Value::opt_text(self.traceparent.as_deref()),
            Value::Text(&self.redaction),
            Value::Text(&self.status),
            Value::Int4(self.hops),
            Value::Text(cursor),
        ]
    }
}

/// Reads what [`Record::page_cursor`] wrote.
pub fn parse_page_cursor(text: &str) -> Option<(i64, u128)> {
    let (time, id) = text.split_once('-').filter(|(_, id)| id.len() == 32)?;
    Some((i64::from_str_radix(time, 16).ok()?, u128::from_str_radix(id, 16).ok()?))
}
