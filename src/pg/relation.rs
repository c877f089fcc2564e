//! The broker's tables, reached directly through the heap and its B-trees: no planner, no executor, no triggers, and the
//! same answers at every isolation level. SQL gets to them only through the functions, so no permission is checked here.
#![allow(unsafe_code)]

use super::scan::{Engine, Key, Scan, Sight};
use super::value::{Room, Value, bytes_of, uuid_of};
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::{OnceCell, RefCell};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A table of `sql/20-tables.sql`, and its indexes in the order that this code names them.
pub struct Layout {
    name: &'static CStr,
    indexes: &'static [&'static CStr],
    /// Oids once looked up: of the table, then of its indexes. 0: not yet, or not any more.
    oids: [AtomicU32; 5],
}

const fn layout(name: &'static CStr, indexes: &'static [&'static CStr]) -> Layout {
    Layout { name, indexes, oids: [const { AtomicU32::new(0) }; 5] }
}

static LAYOUTS: [Layout; 11] = [
    layout(c"queue", &[c"queue_tenant_name_key", c"queue_pkey"]),
    layout(
        c"partition",
        &[c"partition_qid_name_key", c"partition_pkey", c"partition_partition_id_key", c"partition_qid_pid_idx"],
    ),
    layout(c"segment", &[c"segment_pkey"]),
    layout(c"trimmed", &[c"trimmed_pid_upto_idx"]),
    layout(c"transaction_id", &[c"transaction_id_pid_hash_idx"]),
    layout(c"subscription", &[c"subscription_qid_name_key", c"subscription_pkey"]),
    layout(c"cursor", &[c"cursor_pkey", c"cursor_lease_id_idx"]),
    layout(c"ready", &[c"ready_gid_due_at_pid_idx"]),
    layout(c"dropped_duplicate", &[c"dropped_duplicate_qid_idx"]),
    layout(
        c"dead_letter_record",
        &[
            c"dead_letter_record_message_key",
            c"dead_letter_record_pkey",
            c"dead_letter_record_failed_at_idx",
            c"dead_letter_record_kind_idx",
        ],
    ),
    layout(c"dlq_tally_filed", &[]),
];

/// Forgets oids when pg_class changes: the extension may have been dropped and created again.
unsafe extern "C-unwind" fn forget_oids(_arg: Datum, _cache: std::ffi::c_int, _hash: u32) {
    for oid in LAYOUTS.iter().flat_map(|l| &l.oids) {
        oid.store(0, Relaxed);
    }
}

/// How often queues may have changed as far as this backend knows.
static QUEUE_GENERATION: AtomicU64 = AtomicU64::new(1);

/// Rises when some queue was configured or dropped and that is committed.
pub fn queue_generation() -> u64 {
    // SAFETY: lets in what other backends have said; the server does the same with each lock.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    QUEUE_GENERATION.load(Relaxed)
}

unsafe extern "C-unwind" fn on_relcache(_arg: Datum, relid: Oid) {
    // The tables of queues and partitions; their oids may not be known yet.
    let known = [LAYOUTS[0].oids[0].load(Relaxed), LAYOUTS[1].oids[0].load(Relaxed)];
    if relid == Oid::INVALID || known.contains(&0) || known.contains(&relid.to_u32()) {
        QUEUE_GENERATION.fetch_add(1, Relaxed);
    }
}

/// Tells every backend, once this transaction has committed, that some queue has changed.
pub fn queues_changed() {
    QUEUE_GENERATION.fetch_add(1, Relaxed);
    // SAFETY: the oid is a table of ours.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(LAYOUTS[0].oid(0)) }
}

/// Called once, when the library is loaded.
pub fn register() {
    // SAFETY: the callbacks are plain functions that live for ever.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_relcache), Datum::null());
        let cache = pg_sys::SysCacheIdentifier::RELNAMENSP as i32;
        pg_sys::CacheRegisterSyscacheCallback(cache, Some(forget_oids), Datum::null());
    }
}

impl Layout {
    /// The oid of the table (0) or of its n-th index (n + 1).
    fn oid(&self, n: usize) -> Oid {
        let known = self.oids[n].load(Relaxed);
        if known != 0 {
            return Oid::from(known);
        }
        let oid = oid_of(if n == 0 { self.name } else { self.indexes[n - 1] });
        self.oids[n].store(oid.to_u32(), Relaxed);
        oid
    }
}

/// Where a row is.
pub type Tid = pg_sys::ItemPointerData;

/// What became of an attempt to lock a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Held,
    /// Somebody else holds it and the caller did not want to wait.
    Busy,
    /// The row was deleted (or is no row any more).
    Gone,
}

struct Index {
    rel: pg_sys::Relation,
    /// NULL of an index of a layout: a B-tree does not ask for it.
    info: *mut pg_sys::IndexInfo,
}

impl Index {
    /// Columns of the table that are its key, from 1, and whether it is unique.
    fn key(&self) -> (&[i16], bool) {
        // SAFETY: the index is open; its row in the catalog has as many columns as it says.
        unsafe {
            let row = (*self.rel).rd_index;
            let columns = (*row).indnatts as usize;
            (std::slice::from_raw_parts((*row).indkey.values.as_ptr(), columns), (*row).indisunique)
        }
    }
}

/// An open table; its indexes are opened when they are needed. Closed on drop; the table's lock stays until the
/// transaction ends, as usual, and covers the indexes.
pub struct Table {
    pub(super) rel: pg_sys::Relation,
    layout: &'static Layout,
    indexes: Vec<OnceCell<Index>>,
    columns: usize,
    /// Scans that are done and may be used again.
    idle: RefCell<Vec<Engine>>,
    /// Indexes that are not in the layout: one that is being rebuilt beside its successor, or that somebody has added.
    others: Option<Vec<Index>>,
}

/// No table is wider.
const MOST_COLUMNS: usize = 40;
/// No index is wider: INDEX_MAX_KEYS.
const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

fn schema() -> Oid {
    // SAFETY: a catalog look-up by name; missing_ok.
    let oid = unsafe { pg_sys::get_namespace_oid(c"queen".as_ptr(), true) };
    if oid == Oid::INVALID {
        pgrx::error!("schema \"queen\" does not exist: the extension is not installed in this database");
    }
    oid
}

fn oid_of(name: &CStr) -> Oid {
    // SAFETY: a catalog look-up by name.
    let oid = unsafe { pg_sys::get_relname_relid(name.as_ptr(), schema()) };
    if oid == Oid::INVALID {
        pgrx::error!("relation queen.{} does not exist: the extension is not whole", name.to_string_lossy());
    }
    oid
}

impl Table {
    fn open(layout: &'static Layout) -> Table {
        // SAFETY: the oid comes from the catalog; the relation is kept open until drop.
        unsafe {
            let rel = pg_sys::table_open(layout.oid(0), pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
            let columns = (*(*rel).rd_att).natts as usize;
            Table {
                rel,
                layout,
                indexes: layout.indexes.iter().map(|_| OnceCell::new()).collect(),
                columns,
                idle: RefCell::default(),
                others: None,
            }
        }
    }

    fn index(&self, n: usize) -> &Index {
        self.indexes[n].get_or_init(|| {
            // SAFETY: the table is open and locked, so its indexes cannot go away.
            let rel = unsafe { pg_sys::index_open(self.layout.oid(n + 1), pg_sys::NoLock as pg_sys::LOCKMODE) };
            Index { rel, info: std::ptr::null_mut() }
        })
    }

    pub(super) fn index_relation(&self, n: usize) -> pg_sys::Relation {
        self.index(n).rel
    }

    pub(super) fn idle_engine(&self, index: usize, keys: usize) -> Option<Engine> {
        let mut idle = self.idle.borrow_mut();
        let at = idle.iter().position(|e| e.fits(index, keys))?;
        Some(idle.swap_remove(at))
    }

    pub(super) fn keep_engine(&self, engine: Engine) {
        self.idle.borrow_mut().push(engine);
    }

    /// Opens every index that takes new entries, as the server lists them: those of the layout, and any other.
    fn index_infos(&mut self) {
        for n in 0..self.indexes.len() {
            self.index(n);
        }
        if self.others.is_some() {
            return;
        }
        // SAFETY: the list is a copy of the relation's; its table is locked, so what is listed cannot go away.
        self.others = Some(unsafe {
            let list = pgrx::PgList::<std::ffi::c_void>::from_pg(pg_sys::RelationGetIndexList(self.rel));
            list.iter_oid()
                .filter(|oid| !(0..self.indexes.len()).any(|n| self.layout.oid(n + 1) == *oid))
                .filter_map(|oid| {
                    let rel = pg_sys::index_open(oid, pg_sys::NoLock as pg_sys::LOCKMODE);
                    let info = pg_sys::BuildIndexInfo(rel);
                    // An index on expressions is none of ours, and nobody's to serve from here.
                    if (*(*rel).rd_index).indisready && (*info).ii_Expressions.is_null() {
                        return Some(Index { rel, info });
                    }
                    pg_sys::index_close(rel, pg_sys::NoLock as pg_sys::LOCKMODE);
                    None
                })
                .collect()
        });
    }

    /// Inserts a row and its index entries. A unique index raises 23505, as SQL would.
    pub fn insert(&mut self, row: &[Value<'_>]) -> Tid {
        self.put(row, false).0
    }

    /// Inserts a row, unless the first index of the layout, a unique one, has its key already or somebody is about to change
    /// that: then nothing is left of it, and the answer is false.
    pub fn insert_new(&mut self, row: &[Value<'_>]) -> bool {
        let (tid, new) = self.put(row, true);
        if !new {
            self.delete(tid);
        }
        new
    }

    /// Inserts a row; `tentative`: stops at a key of the first index that may be there already, and answers false.
    fn put(&mut self, row: &[Value<'_>], tentative: bool) -> (Tid, bool) {
        assert_eq!(row.len(), self.columns, "row and table differ in width");
        let mut values = [Datum::null(); MOST_COLUMNS];
        let mut nulls = [false; MOST_COLUMNS];
        let mut room = Room::of(row);
        for (i, v) in row.iter().enumerate() {
            match room.datum(*v) {
                Some(d) => values[i] = d,
                None => nulls[i] = true,
            }
        }
        self.index_infos();
        // SAFETY: values and nulls have the table's width and types in the order of its definition, and what they point to
        // lives to the end of this function; the tuple is ours until freed; each index reads only columns of this table (no expressions).
        unsafe {
            let tuple = pg_sys::heap_form_tuple((*self.rel).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            let cid = pg_sys::GetCurrentCommandId(true);
            pg_sys::heap_insert(self.rel, tuple, cid, 0, std::ptr::null_mut());
            let tid = (*tuple).t_self;
            let others = self.others.iter().flatten();
            for (n, index) in self.indexes.iter().filter_map(OnceCell::get).chain(others).enumerate() {
                let first = tentative && n == 0;
                let (columns, is_unique) = index.key();
                let mut key = [Datum::null(); MOST_KEYS];
                let mut null = [false; MOST_KEYS];
                for (k, column) in columns.iter().enumerate() {
                    key[k] = values[*column as usize - 1];
                    null[k] = nulls[*column as usize - 1];
                }
                // The only partial index of a layout, which is the only one on a column that may be NULL, is for what is not.
                let partial = index.info.is_null() || !(*index.info).ii_Predicate.is_null();
                if partial && null[0] {
                    continue;
                }
                let unique = if first {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_PARTIAL
                } else if is_unique {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES
                } else {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO
                };
                let mut at = tid;
                let new = pg_sys::index_insert(
                    index.rel,
                    key.as_mut_ptr(),
                    null.as_mut_ptr(),
                    &mut at,
                    self.rel,
                    unique,
                    false,
                    index.info,
                );
                if first && !new {
                    pg_sys::heap_freetuple(tuple);
                    return (tid, false);
                }
            }
            pg_sys::heap_freetuple(tuple);
            (tid, true)
        }
    }

    /// Deletes a row that the caller holds, or that nobody else can have changed; otherwise raises.
    pub fn delete(&self, tid: Tid) {
        // SAFETY: the row is one of this table's.
        unsafe {
            pg_sys::CommandCounterIncrement();
            let mut tid = tid;
            pg_sys::simple_heap_delete(self.rel, &mut tid);
        }
    }

    /// Locks a row without changing it, until the transaction ends.
    /// `exclusive`: against everybody (NO KEY UPDATE), else only against deletion (KEY SHARE).
    pub fn lock(&self, tid: Tid, exclusive: bool, wait: bool) -> Lock {
        self.lock_row(tid, None, exclusive, wait)
    }

    /// As [`Table::lock`], for a row that was found in an earlier transaction: gone, too, when another row has taken its
    /// place. `key` is the table's first column, a bigint that is never NULL.
    pub fn lock_key(&self, tid: Tid, key: i64, exclusive: bool, wait: bool) -> Lock {
        self.lock_row(tid, Some(key), exclusive, wait)
    }

    fn lock_row(&self, tid: Tid, key: Option<i64>, exclusive: bool, wait: bool) -> Lock {
        let mode = if exclusive {
            pg_sys::LockTupleMode::LockTupleNoKeyExclusive
        } else {
            pg_sys::LockTupleMode::LockTupleKeyShare
        };
        let policy = if wait { pg_sys::LockWaitPolicy::LockWaitBlock } else { pg_sys::LockWaitPolicy::LockWaitSkip };
        // SAFETY: heap_lock_tuple reads t_self, fills t_data from the page and returns the page pinned.
        unsafe {
            pg_sys::CommandCounterIncrement();
            // While we hold the page, no row of it can be removed for good.
            let page = key.map(|_| Page::pin(self.rel, tid));
            if page.as_ref().is_some_and(|page| !page.has_row(tid)) {
                return Lock::Gone;
            }
            let mut tuple = pg_sys::HeapTupleData { t_self: tid, t_tableOid: (*self.rel).rd_id, ..Default::default() };
            let mut buffer: pg_sys::Buffer = 0;
            let mut failure = pg_sys::TM_FailureData::default();
            let result = pg_sys::heap_lock_tuple(
                self.rel,
                &mut tuple,
                pg_sys::GetCurrentCommandId(true),
                mode,
                policy,
                true,
                &mut buffer,
                &mut failure,
            );
            let same = result != pg_sys::TM_Result::TM_Ok
                || key.is_none_or(|key| {
                    // The first column of a row starts where its header ends.
                    let data = tuple.t_data.cast::<u8>().add(usize::from((*tuple.t_data).t_hoff));
                    data.cast::<i64>().read_unaligned() == key
                });
            pg_sys::ReleaseBuffer(buffer);
            match result {
                pg_sys::TM_Result::TM_Ok if same => Lock::Held,
                pg_sys::TM_Result::TM_WouldBlock | pg_sys::TM_Result::TM_BeingModified => Lock::Busy,
                _ => Lock::Gone,
            }
        }
    }

    /// Starts a scan of one index; see [`Scan`].
    pub fn scan(&self, index: usize, keys: &[Key<'_>], sight: Sight) -> Scan<'_> {
        Scan::new(self, index, keys, sight)
    }

    /// What `read` makes of the row with this key that is committed, or our own; also of one that is replaced meanwhile.
    pub fn find<T>(&self, index: usize, keys: &[Key<'_>], read: impl Fn(&Row<'_>) -> T) -> Option<T> {
        [Sight::Committed, Sight::Moment]
            .into_iter()
            .find_map(|sight| self.scan(index, keys, sight).forward().map(|row| read(&row)))
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Invariant: while an error is on its way nothing here touches the server. What the transaction or subtransaction
        // holds goes with it; a second error, as of a page that is let go twice, would end the process.
        if std::thread::panicking() {
            return;
        }
        self.idle.borrow_mut().clear();
        // SAFETY: opened in `open`, closed once; no scan is left.
        unsafe {
            for index in self.indexes.iter().filter_map(OnceCell::get).chain(self.others.iter().flatten()) {
                if !index.info.is_null() {
                    let_go(index);
                }
                pg_sys::index_close(index.rel, pg_sys::NoLock as pg_sys::LOCKMODE);
            }
            pg_sys::table_close(self.rel, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
    }
}

/// From 17 on an index may keep pages from one new entry to the next, as BRIN does.
///
/// # Safety
/// The index must be open, and `info` its own.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
unsafe fn let_go(index: &Index) {
    // SAFETY: the caller's promise; does nothing when nothing was kept.
    unsafe { pg_sys::index_insert_cleanup(index.rel, index.info) }
}

/// Before 17 no index keeps anything between two entries.
#[cfg(any(feature = "pg15", feature = "pg16"))]
unsafe fn let_go(_index: &Index) {}

/// A page of a table, held in memory.
struct Page(pg_sys::Buffer);

impl Page {
    /// # Safety
    /// `rel` must be open, and the page of `tid` must exist: the table is never truncated.
    unsafe fn pin(rel: pg_sys::Relation, tid: Tid) -> Page {
        let block = u32::from(tid.ip_blkid.bi_hi) << 16 | u32::from(tid.ip_blkid.bi_lo);
        // SAFETY: the caller's promise.
        Page(unsafe { pg_sys::ReadBuffer(rel, block) })
    }

    /// Whether something is stored in the place of `tid`.
    fn has_row(&self, tid: Tid) -> bool {
        // SAFETY: the page is pinned and locked while its line pointers are read; their number is checked first.
        unsafe {
            pg_sys::LockBuffer(self.0, pg_sys::BUFFER_LOCK_SHARE as i32);
            let page = pg_sys::BufferGetPage(self.0);
            let rows = pg_sys::PageGetMaxOffsetNumber(page);
            let normal = (1..=rows).contains(&tid.ip_posid)
                && (*pg_sys::PageGetItemId(page, tid.ip_posid)).lp_flags() == pg_sys::LP_NORMAL;
            pg_sys::LockBuffer(self.0, pg_sys::BUFFER_LOCK_UNLOCK as i32);
            normal
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: pinned once.
            unsafe { pg_sys::ReleaseBuffer(self.0) }
        }
    }
}

/// One row, as the scan's slot holds it: valid until the scan moves on.
pub struct Row<'s> {
    pub tid: Tid,
    pub(super) values: &'s [Datum],
    pub(super) nulls: &'s [bool],
}

impl<'s> Row<'s> {
    pub fn bool(&self, column: usize) -> bool {
        self.values[column].value() as u8 != 0
    }
    pub fn int4(&self, column: usize) -> i32 {
        self.values[column].value() as i32
    }
    pub fn int8(&self, column: usize) -> i64 {
        self.values[column].value() as i64
    }
    pub fn opt_int8(&self, column: usize) -> Option<i64> {
        (!self.nulls[column]).then(|| self.int8(column))
    }
    pub fn uuid(&self, column: usize) -> u128 {
        // SAFETY: callers name a uuid column that is not NULL.
        unsafe { uuid_of(self.values[column]) }
    }
    pub fn opt_uuid(&self, column: usize) -> Option<u128> {
        (!self.nulls[column]).then(|| self.uuid(column))
    }
    pub fn text(&self, column: usize) -> &'s str {
        // SAFETY: callers name a text column that is not NULL; the row pins its page.
        let bytes = unsafe { bytes_of(self.values[column]) };
        std::str::from_utf8(bytes).unwrap_or_default()
    }
    pub fn opt_text(&self, column: usize) -> Option<&'s str> {
        (!self.nulls[column]).then(|| self.text(column))
    }
    pub fn bytes(&self, column: usize) -> &'s [u8] {
        // SAFETY: as for text.
        unsafe { bytes_of(self.values[column]) }
    }
    pub fn opt_bytes(&self, column: usize) -> Option<&'s [u8]> {
        (!self.nulls[column]).then(|| self.bytes(column))
    }
}

/// The tables one call uses, opened when first asked for.
#[derive(Default)]
pub struct Tables {
    slots: [OnceCell<RefCell<Table>>; 11],
}

macro_rules! tables {
    ($($n:literal $method:ident;)*) => {$(
        pub fn $method(&self) -> &RefCell<Table> {
            self.slots[$n].get_or_init(|| RefCell::new(Table::open(&LAYOUTS[$n])))
        }
    )*};
}

impl Tables {
    /// Opens, and so locks, every table that an append uses: afterwards nothing waits for whoever locks one of them whole.
    pub fn open_all(&self) {
        // Dead letters come last, and an append files none.
        for (slot, layout) in self.slots.iter().zip(&LAYOUTS[..9]) {
            slot.get_or_init(|| RefCell::new(Table::open(layout)));
        }
    }

    tables! {
        0 queue;
        1 partition;
        2 segment;
        3 trimmed;
        4 transaction_id;
        5 subscription;
        6 cursor;
        7 ready;
        8 dropped_duplicate;
        9 dead_letter_record;
        10 dlq_tally_filed;
    }
}

/// The next value of one of the extension's sequences, whatever the caller's rights.
pub fn next_value(sequence: &CStr) -> i64 {
    unsafe extern "C-unwind" {
        fn nextval_internal(relid: Oid, check_permissions: bool) -> i64;
    }
    let oid = oid_of(sequence);
    // SAFETY: the oid is a sequence of ours; an ERROR inside is turned into a Rust panic by the guard.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| nextval_internal(oid, false)) }
}
