//! What consumers noted about messages. Written and read by SQL: this is on no hot path.

use crate::pg::spi::{self, uuid};
use pgrx::datum::{DatumWithOid, TimestampWithTimeZone, Uuid};
use pgrx::spi::SpiHeapTupleData;

/// A note as stored.
pub struct Trace {
    pub id: u128,
    pub queue: String,
    pub partition: String,
    pub partition_id: u128,
    pub transaction_id: String,
    pub group: String,
    pub event_type: String,
    pub data: String,
    pub names: Vec<String>,
    pub created_at: i64,
}

/// A name and what was noted under it.
pub struct Name {
    pub name: String,
    pub traces: i64,
    pub messages: i64,
    pub last_seen_at: i64,
    /// Names in all.
    pub total: i64,
}

/// Columns in the order of [`Trace`].
const COLUMNS: &str = "t.id, t.queue, t.partition, t.partition_id, t.transaction_id, t.consumer_group, t.event_type, \
    t.data, t.names, t.created_at";

/// Stores a note, and an entry for each of its names.
pub fn insert(tenant: u128, t: &Trace) {
    spi::as_owner(|client| {
        client
            .update(
                "WITH noted AS (
                 INSERT INTO queen.trace (id, tenant, queue, partition, partition_id, transaction_id, transaction_hash,
                                          consumer_group, event_type, data, names, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, pg_catalog.hashtextextended($6, 0), $7, $8, $9, $10, $11)
                 RETURNING *)
             INSERT INTO queen.trace_name (tenant, name, created_at, trace_id, partition_id, transaction_hash)
             SELECT n.tenant, u.name, n.created_at, n.id, n.partition_id, n.transaction_hash
               FROM noted n CROSS JOIN unnest(n.names) AS u (name)",
                None,
                &[
                    uuid(t.id).into(),
                    uuid(tenant).into(),
                    t.queue.as_str().into(),
                    t.partition.as_str().into(),
                    uuid(t.partition_id).into(),
                    t.transaction_id.as_str().into(),
                    t.group.as_str().into(),
                    t.event_type.as_str().into(),
                    t.data.as_str().into(),
                    t.names.clone().into(),
                    spi::time(t.created_at),
                ],
            )
            .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("storing a trace: {e}"));
}

fn read(row: &SpiHeapTupleData<'_>) -> Result<Trace, pgrx::spi::Error> {
    let id = |n: usize| -> Result<u128, pgrx::spi::Error> {
        Ok(row[n].value::<Uuid>()?.map_or(0, |u| u128::from_be_bytes(*u.as_bytes())))
    };
    Ok(Trace {
        id: id(1)?,
        queue: row[2].value()?.unwrap_or_default(),
        partition: row[3].value()?.unwrap_or_default(),
        partition_id: id(4)?,
        transaction_id: row[5].value()?.unwrap_or_default(),
        group: row[6].value()?.unwrap_or_default(),
        event_type: row[7].value()?.unwrap_or_default(),
        data: row[8].value()?.unwrap_or_default(),
        names: row[9].value()?.unwrap_or_default(),
        created_at: time(row, 10)?,
    })
}

fn time(row: &SpiHeapTupleData<'_>, n: usize) -> Result<i64, pgrx::spi::Error> {
    Ok(row[n].value::<TimestampWithTimeZone>()?.map_or(0, i64::from))
}

fn select(rest: &str, args: &[DatumWithOid<'_>]) -> Vec<Trace> {
    spi::read_as_owner(|client| {
        client
            .select(&format!("SELECT {COLUMNS} FROM {rest}"), None, args)?
            .map(|row| read(&row))
            .collect::<Result<Vec<_>, _>>()
    })
    .unwrap_or_else(|e| pgrx::error!("reading traces: {e}"))
}

/// Oldest first.
pub fn of_message(tenant: u128, partition_id: u128, transaction_id: &str) -> Vec<Trace> {
    select(
        "queen.trace t WHERE t.tenant = $1 AND t.partition_id = $2 AND t.transaction_id = $3 \
         AND t.transaction_hash = pg_catalog.hashtextextended($3, 0) ORDER BY t.created_at, t.id",
        &[uuid(tenant).into(), uuid(partition_id).into(), transaction_id.into()],
    )
}

/// Newest first; a stable order.
pub fn of_name(tenant: u128, name: &str, limit: i32, skip: i32) -> Vec<Trace> {
    select(
        "(SELECT n.trace_id FROM queen.trace_name n WHERE n.tenant = $1 AND n.name = $2 \
           ORDER BY n.created_at DESC, n.trace_id DESC LIMIT $3 OFFSET $4) page \
         JOIN queen.trace t ON t.id = page.trace_id ORDER BY t.created_at DESC, t.id DESC",
        &[uuid(tenant).into(), name.into(), limit.into(), skip.into()],
    )
}

/// Names, the one used last first. They are found by leaping from one to the next in the index, and only those of the
/// page are counted.
pub fn names(tenant: u128, only: Option<&str>, limit: i32, skip: i32) -> Vec<Name> {
    let statement = "
        WITH RECURSIVE leap (name) AS (
            (SELECT n.name FROM queen.trace_name n WHERE n.tenant = $1 AND ($4::text IS NULL OR n.name >= $4)
              ORDER BY n.name LIMIT 1)
            UNION ALL
            SELECT (SELECT n.name FROM queen.trace_name n WHERE n.tenant = $1 AND n.name > l.name ORDER BY n.name LIMIT 1)
              FROM leap l WHERE l.name IS NOT NULL AND $4::text IS NULL),
        known AS (
            SELECT l.name, (SELECT n.created_at FROM queen.trace_name n WHERE n.tenant = $1 AND n.name = l.name
                             ORDER BY n.created_at DESC LIMIT 1) AS last_seen_at
              FROM leap l WHERE l.name IS NOT NULL AND ($4::text IS NULL OR l.name = $4)),
        page AS (
            SELECT k.name, k.last_seen_at, (SELECT count(*) FROM known) AS total FROM known k
             ORDER BY k.last_seen_at DESC, k.name LIMIT $2 OFFSET $3)
        SELECT p.name, c.traces, c.messages, p.last_seen_at, p.total
          FROM page p
         CROSS JOIN LATERAL (SELECT count(*) AS traces, count(DISTINCT (n.partition_id, n.transaction_hash)) AS messages
                               FROM queen.trace_name n WHERE n.tenant = $1 AND n.name = p.name) c
         ORDER BY p.last_seen_at DESC, p.name";
    spi::read_as_owner(|client| {
        client
            .select(statement, None, &[uuid(tenant).into(), limit.into(), skip.into(), only.into()])?
            .map(|row| {
                Ok(Name {
                    name: row[1].value()?.unwrap_or_default(),
                    traces: row[2].value()?.unwrap_or_default(),
                    messages: row[3].value()?.unwrap_or_default(),
                    last_seen_at: time(&row, 4)?,
                    total: row[5].value()?.unwrap_or_default(),
                })
            })
            .collect::<Result<Vec<_>, pgrx::spi::Error>>()
    })
    .unwrap_or_else(|e| pgrx::error!("listing trace names: {e}"))
}

/// Deletes notes made before `before`, with their names; answers how many notes.
pub fn delete_before(tenant: u128, before: i64) -> i64 {
    spi::as_owner(|client| {
        client
            .update(
                "WITH names AS (DELETE FROM queen.trace_name WHERE tenant = $1 AND created_at < $2)
                 DELETE FROM queen.trace WHERE tenant = $1 AND created_at < $2",
                None,
                &[uuid(tenant).into(), spi::time(before)],
            )
            .map(|done| done.len() as i64)
    })
    .unwrap_or_else(|e| pgrx::error!("deleting traces: {e}"))
}
