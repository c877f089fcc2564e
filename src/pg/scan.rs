//! Index scans with a choice of what they see.
#![allow(unsafe_code)]

use super::relation::{Row, Table};
use super::value::Value;
use pgrx::pg_sys::{self, Datum};

/// What a scan sees. Neither follows the transaction's snapshot: a REPEATABLE READ transaction that pops or pushes
/// works on the state of now, and SERIALIZABLE takes no predicate locks on the broker's tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Committed rows and our own.
    Committed,
    /// Also rows whose inserting or deleting transaction has not ended; see [`Scan::in_progress`].
    Everything,
    /// What was committed at the moment when the scan began, and our own rows. Costs more, but misses nothing: the others
    /// look at each row a while after they have read its index entry, and so may see neither of a row that is replaced
    /// meanwhile and its successor: the one too late, the other too early.
    Moment,
}

/// A condition on a column of the index.
pub struct Key<'a> {
    pub column: i16,
    pub compare: Compare,
    pub value: Value<'a>,
}

#[derive(Clone, Copy)]
pub enum Compare {
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// `column` (from 1) equals `value`.
pub fn eq(column: i16, value: Value<'_>) -> Key<'_> {
    Key { column, compare: Compare::Equal, value }
}

/// `column` (from 1) compared with `value`.
pub fn cmp(column: i16, compare: Compare, value: Value<'_>) -> Key<'_> {
    Key { column, compare, value }
}

fn procedure(key: &Key<'_>) -> u32 {
    use Compare::*;
    match (&key.value, key.compare) {
        (Value::Int8(_), LessOrEqual) => pg_sys::F_INT8LE,
        (Value::Int8(_), Equal) => pg_sys::F_INT8EQ,
        (Value::Int8(_), GreaterOrEqual) => pg_sys::F_INT8GE,
        (Value::Int8(_), Greater) => pg_sys::F_INT8GT,
        (Value::Time(_), LessOrEqual) => pg_sys::F_TIMESTAMPTZ_LE,
        (Value::Time(_), Equal) => pg_sys::F_TIMESTAMPTZ_EQ,
        (Value::Time(_), GreaterOrEqual) => pg_sys::F_TIMESTAMPTZ_GE,
        (Value::Time(_), Greater) => pg_sys::F_TIMESTAMPTZ_GT,
        (Value::Uuid(_), Equal) => pg_sys::F_UUID_EQ,
        (Value::Text(_), Equal) => pg_sys::F_TEXTEQ,
        _ => pgrx::error!("no comparison for this scan key"),
    }
}

fn strategy(compare: Compare) -> u16 {
    (match compare {
        Compare::LessOrEqual => pg_sys::BTLessEqualStrategyNumber,
        Compare::Equal => pg_sys::BTEqualStrategyNumber,
        Compare::GreaterOrEqual => pg_sys::BTGreaterEqualStrategyNumber,
        Compare::Greater => pg_sys::BTGreaterStrategyNumber,
    }) as u16
}

/// The server's part of a scan. Making one costs more than a probe, so a table keeps those that are done.
pub(super) struct Engine {
    desc: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    // Boxed: the scan keeps its address.
    snapshot: Box<pg_sys::SnapshotData>,
    index: usize,
    keys: usize,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // An error may have left it between two pages, one let go and not forgotten: see `Table`.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: made in `Scan::new`, ended once.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::index_endscan(self.desc);
        }
    }
}

/// A running scan. Rows borrow from it and are valid until the next one is asked for.
pub struct Scan<'t> {
    table: &'t Table,
    /// Some until the scan is dropped.
    engine: Option<Engine>,
    /// What [`Sight::Moment`] sees.
    moment: Option<Moment>,
}

/// A registered snapshot: what it sees is not cleaned away. Asked for each row, and not given to the scan, since a scan by
/// such a snapshot takes predicate locks under SERIALIZABLE.
struct Moment(pg_sys::Snapshot);

impl Moment {
    fn now() -> Moment {
        // SAFETY: registering copies the snapshot; our own changes are seen up to the last one.
        unsafe {
            let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
            (*snapshot).curcid = pg_sys::CommandId::MAX;
            Moment(snapshot)
        }
    }

    /// Whether it sees the row in this slot, which holds a pin on the row's page.
    unsafe fn sees(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        // SAFETY: the table's rows are in slots of this kind.
        unsafe {
            let slot = slot.cast::<pg_sys::BufferHeapTupleTableSlot>();
            pg_sys::LockBuffer((*slot).buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
            let seen = pg_sys::HeapTupleSatisfiesVisibility((*slot).base.tuple, self.0, (*slot).buffer);
            pg_sys::LockBuffer((*slot).buffer, pg_sys::BUFFER_LOCK_UNLOCK as i32);
            seen
        }
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: registered once.
            unsafe { pg_sys::UnregisterSnapshot(self.0) };
        }
    }
}

impl<'t> Scan<'t> {
    pub(super) fn new(table: &'t Table, index: usize, keys: &[Key<'_>], sight: Sight) -> Self {
        let mut engine = table.idle_engine(index, keys.len()).unwrap_or_else(|| {
            let mut snapshot = Box::new(pg_sys::SnapshotData::default());
            // SAFETY: the snapshot's box, the relation and the slot live as long as the scan.
            unsafe {
                let desc = begin(table.rel, table.index_relation(index), &mut *snapshot, keys.len() as i32);
                let slot = pg_sys::table_slot_create(table.rel, std::ptr::null_mut());
                Engine { desc, slot, snapshot, index, keys: keys.len() }
            }
        });
        engine.snapshot.snapshot_type = match sight {
            Sight::Committed => pg_sys::SnapshotType::SNAPSHOT_SELF,
            Sight::Everything => pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            Sight::Moment => pg_sys::SnapshotType::SNAPSHOT_ANY,
        };
        let moment = (sight == Sight::Moment).then(Moment::now);
        // SAFETY: the keys are copied by rescan; what they point to lives in the current memory context, longer than
        // the scan.
        unsafe {
            let mut entries = [pg_sys::ScanKeyData::default(); 4];
            for (entry, key) in entries.iter_mut().zip(keys) {
                let collation = match key.value {
                    Value::Text(_) => pg_sys::C_COLLATION_OID,
                    _ => pg_sys::Oid::INVALID,
                };
                pg_sys::ScanKeyEntryInitialize(
                    entry,
                    0,
                    key.column,
                    strategy(key.compare),
                    pg_sys::Oid::INVALID,
                    collation,
                    pg_sys::Oid::from(procedure(key)),
                    key.value.datum().unwrap_or(Datum::null()),
                );
            }
            let n = keys.len() as i32;
            pg_sys::index_rescan(engine.desc, entries.as_mut_ptr(), n, std::ptr::null_mut(), 0);
        }
        Scan { table, engine: Some(engine), moment }
    }

    fn step(&mut self, direction: pg_sys::ScanDirection::Type) -> Option<Row<'_>> {
        let engine = self.engine.as_ref()?;
        // SAFETY: the slot belongs to this scan; its arrays have the table's width once deformed.
        unsafe {
            loop {
                if !pg_sys::index_getnext_slot(engine.desc, direction, engine.slot) {
                    return None;
                }
                if self.moment.as_ref().is_none_or(|moment| moment.sees(engine.slot)) {
                    break;
                }
            }
            let width = self.table.columns();
            pg_sys::slot_getsomeattrs_int(engine.slot, width as i32);
            Some(Row {
                tid: (*engine.slot).tts_tid,
                values: std::slice::from_raw_parts((*engine.slot).tts_values, width),
                nulls: std::slice::from_raw_parts((*engine.slot).tts_isnull, width),
            })
        }
    }

    /// The next row in index order.
    pub fn forward(&mut self) -> Option<Row<'_>> {
        self.step(pg_sys::ScanDirection::ForwardScanDirection)
    }

    /// The next row against index order; the first one is the last of the range.
    pub fn backward(&mut self) -> Option<Row<'_>> {
        self.step(pg_sys::ScanDirection::BackwardScanDirection)
    }

    /// With [`Sight::Everything`]: the transaction, not ours, that is about to insert or delete the row just returned.
    pub fn in_progress(&self) -> Option<InProgress> {
        let snapshot = &self.engine.as_ref()?.snapshot;
        if snapshot.snapshot_type != pg_sys::SnapshotType::SNAPSHOT_DIRTY {
            return None;
        }
        let (xmin, xmax) = (snapshot.xmin, snapshot.xmax);
        if xmin != pg_sys::TransactionId::INVALID {
            Some(InProgress::Insert(xmin))
        } else if xmax != pg_sys::TransactionId::INVALID {
            Some(InProgress::Delete(xmax))
        } else {
            None
        }
    }
}

/// See [`Scan::in_progress`].
#[derive(Clone, Copy)]
pub enum InProgress {
    Insert(pg_sys::TransactionId),
    Delete(pg_sys::TransactionId),
}

impl InProgress {
    /// Waits until that transaction has ended (deadlocks are found as usual).
    pub fn wait(self) {
        let (InProgress::Insert(xid) | InProgress::Delete(xid)) = self;
        // SAFETY: a wait on a transaction id; no row is named in the message.
        unsafe {
            pg_sys::XactLockTableWait(xid, std::ptr::null_mut(), std::ptr::null_mut(), pg_sys::XLTW_Oper::XLTW_None)
        }
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take()
            && !std::thread::panicking()
        {
            // SAFETY: lets go of the pages that the scan still holds; the keys stay as they are.
            unsafe {
                if let Some(clear) = (*(*engine.slot).tts_ops).clear {
                    clear(engine.slot);
                }
                pg_sys::index_rescan(engine.desc, std::ptr::null_mut(), 0, std::ptr::null_mut(), 0);
            }
            self.table.keep_engine(engine);
        }
    }
}

impl Engine {
    pub(super) fn fits(&self, index: usize, keys: usize) -> bool {
        self.index == index && self.keys == keys
    }
}

#[cfg(not(feature = "pg18"))]
unsafe fn begin(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: i32,
) -> pg_sys::IndexScanDesc {
    // SAFETY: the caller keeps all three alive.
    unsafe { pg_sys::index_beginscan(heap, index, snapshot, keys, 0) }
}

/// 18 can count a scan's descents for EXPLAIN: nobody asks here.
#[cfg(feature = "pg18")]
unsafe fn begin(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: i32,
) -> pg_sys::IndexScanDesc {
    // SAFETY: the caller keeps all three alive.
    unsafe { pg_sys::index_beginscan(heap, index, snapshot, std::ptr::null_mut(), keys, 0) }
}
