//! Segments: the log itself.

use crate::error::{ErrorKind, Result, error};
use crate::pg::relation::{Row, Tables};
use crate::pg::scan::{Compare, Sight, cmp, eq};
use crate::pg::value::Value;
use crate::rows::floor::Floor;
use queen_core::segment::{Frame, Opened, OwnedFrame, Segment};

/// A stored segment with its bytes.
pub struct Stored {
    pub pid: i64,
    pub base: i64,
    pub frames: i64,
    pub created_at: i64,
    pub data: Vec<u8>,
}

impl Stored {
    pub fn end(&self) -> i64 {
        self.base + self.frames - 1
    }

    /// Checked and parsed; a damaged segment is an error that says where it is and what is wrong.
    pub fn parse(&self) -> Result<Segment<'_>> {
        let segment = Segment::parse(&self.data).map_err(|e| self.damaged(&e.to_string(), e.kind()))?;
        if segment.len() as i64 != self.frames {
            return Err(self.damaged("its frame count is not that of its row", ErrorKind::CorruptSegment));
        }
        Ok(segment)
    }

    pub fn open(&self) -> Result<Opened<'_>> {
        self.parse()?.open().map_err(|e| self.damaged(&e.to_string(), e.kind()))
    }

    /// A frame of the segment that [`Stored::open`] gave, by its place in it.
    pub fn frame_of<'o>(&self, opened: &'o Opened<'_>, i: usize) -> Result<Frame<'o>> {
        opened.frame(i).map_err(|e| self.damaged(&e.to_string(), e.kind()))
    }

    /// One frame, without decompressing the others.
    pub fn frame(&self, offset: i64) -> Result<OwnedFrame> {
        let at = usize::try_from(offset - self.base).unwrap_or(usize::MAX);
        self.parse()?.open_frame(at).map_err(|e| self.damaged(&e.to_string(), e.kind()))
    }

    pub fn damaged(&self, what: &str, kind: ErrorKind) -> crate::error::Error {
        error(kind, format!("segment at offset {} of partition key {} is damaged: {what}", self.base, self.pid))
            .with_hint("SELECT * FROM queen.verify() lists all damage. Consumers can pass it with queen.seek().")
    }
}

/// The end of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Last offset ever written; -1 for none.
    pub offset: i64,
    /// When the last stored segment was written; None when nothing is stored.
    pub written_at: Option<i64>,
}

fn stored(row: &Row<'_>) -> Stored {
    Stored {
        pid: row.int8(0),
        base: row.int8(1),
        frames: i64::from(row.int4(2)),
        created_at: row.int8(3),
        data: row.bytes(4).to_vec(),
    }
}

thread_local! {
    static LAST_BASE: Floor<i64> = const { Floor::new() };
}

/// A transaction or subtransaction was rolled back: places that it wrote are not to be relied on.
pub fn forget_places() {
    LAST_BASE.with(Floor::clear);
}

/// The end of the lane: one index probe.
pub fn tail(tables: &Tables, pid: i64, sight: Sight) -> Tail {
    let table = tables.segment().borrow();
    let last = |from: Option<i64>| {
        let all = [eq(1, Value::Int8(pid)), cmp(2, Compare::GreaterOrEqual, Value::Int8(from.unwrap_or(0)))];
        let mut scan = table.scan(0, &all, sight);
        scan.backward().map(|row| (row.int8(1), row.int4(2), row.int8(3)))
    };
    let known = LAST_BASE.with(|floor| floor.get(pid));
    match known.and_then(|base| last(Some(base))).or_else(|| last(None)) {
        Some((base, frames, written_at)) => {
            LAST_BASE.with(|floor| floor.set(pid, base));
            Tail { offset: base + i64::from(frames) - 1, written_at: Some(written_at) }
        }
        None => Tail { offset: trimmed(tables, pid), written_at: None },
    }
}

/// Highest offset that retention has removed; -1 for none.
pub fn trimmed(tables: &Tables, pid: i64) -> i64 {
    let table = tables.trimmed().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(pid))], Sight::Committed);
    scan.backward().map_or(-1, |row| row.int8(1))
}

pub fn insert(tables: &Tables, pid: i64, base: i64, frames: usize, created_at: i64, data: &[u8]) {
    tables.segment().borrow_mut().insert(&[
        Value::Int8(pid),
        Value::Int8(base),
        Value::Int4(frames as i32),
        Value::Time(created_at),
        Value::Bytes(data),
    ]);
}

/// What a reader needs to know of a segment before it wants the bytes.
pub struct Head {
    pub base: i64,
    pub end: i64,
    pub created_at: i64,
}

/// Calls `read` with the row of the segment that holds `offset`, or the last one before it. Looks close below first: see
/// [`Floor`] for why.
fn last_from<T>(tables: &Tables, pid: i64, offset: i64, read: impl Fn(&Row<'_>) -> T) -> Option<T> {
    let table = tables.segment().borrow();
    for reach in [16, 1024, i64::MAX] {
        let keys = [
            eq(1, Value::Int8(pid)),
            cmp(2, Compare::GreaterOrEqual, Value::Int8(offset.saturating_sub(reach).max(0))),
            cmp(2, Compare::LessOrEqual, Value::Int8(offset)),
        ];
        let mut scan = table.scan(0, &keys, Sight::Committed);
        if let Some(row) = scan.backward() {
            return Some(read(&row));
        }
        if offset <= reach {
            break;
        }
    }
    None
}

/// The segment that holds `offset`, or the last one before it.
pub fn at_or_before(tables: &Tables, pid: i64, offset: i64) -> Option<Head> {
    last_from(tables, pid, offset, head)
}

/// The segment that holds `offset`.
pub fn holding(tables: &Tables, pid: i64, offset: i64) -> Option<Stored> {
    last_from(tables, pid, offset, stored).filter(|found| found.end() >= offset)
}

/// Walks the segments that hold offsets `[from, upto]`, in order and without a gap, until `visit` says stop.
///
/// A segment that is committed while the walk goes on may be seen without its predecessor: the walk ends at the gap.
pub fn walk(
    tables: &Tables,
    pid: i64,
    from: i64,
    upto: i64,
    mut visit: impl FnMut(Stored) -> Result<bool>,
) -> Result<()> {
    walk_heads(tables, pid, from, upto, |_, load| visit(load()))
}

/// As [`walk`], but the bytes are read only when asked for.
pub fn walk_heads(
    tables: &Tables,
    pid: i64,
    from: i64,
    upto: i64,
    mut visit: impl FnMut(Head, &dyn Fn() -> Stored) -> Result<bool>,
) -> Result<()> {
    // Most walks begin where a segment begins; the others begin inside one.
    if !walk_from(tables, pid, from, upto, &mut visit)?
        && let Some(inside) = at_or_before(tables, pid, from).filter(|head| head.end >= from)
    {
        walk_from(tables, pid, inside.base, upto, &mut visit)?;
    }
    Ok(())
}

/// False: no segment begins at `start`.
fn walk_from(
    tables: &Tables,
    pid: i64,
    start: i64,
    upto: i64,
    visit: &mut impl FnMut(Head, &dyn Fn() -> Stored) -> Result<bool>,
) -> Result<bool> {
    let table = tables.segment().borrow();
    let keys = [
        eq(1, Value::Int8(pid)),
        cmp(2, Compare::GreaterOrEqual, Value::Int8(start)),
        cmp(2, Compare::LessOrEqual, Value::Int8(upto)),
    ];
    let mut scan = table.scan(0, &keys, Sight::Committed);
    let mut expected = start;
    while let Some(row) = scan.forward() {
        let head = head(&row);
        if head.base != expected {
            break;
        }
        expected = head.end + 1;
        if !visit(head, &|| stored(&row))? {
            return Ok(true);
        }
    }
    Ok(expected != start)
}

fn head(row: &Row<'_>) -> Head {
    let base = row.int8(1);
    Head { base, end: base + i64::from(row.int4(2)) - 1, created_at: row.int8(3) }
}

/// The first segment written at or after `time`: a binary search over offsets, since both rise together.
pub fn first_since(tables: &Tables, pid: i64, time: i64) -> Option<i64> {
    let tail = tail(tables, pid, Sight::Committed);
    if tail.written_at.is_none_or(|at| at < time) {
        return None;
    }
    // Invariant: the segment that holds `high` is at or after `time`; everything below `low` is before it.
    let (mut low, mut high) = (trimmed(tables, pid) + 1, tail.offset);
    while low < high {
        let middle = low + (high - low) / 2;
        match at_or_before(tables, pid, middle) {
            Some(head) if head.created_at >= time => {
                if head.base <= low {
                    return Some(head.base.max(low));
                }
                high = head.base - 1;
                // The one before decides whether this is the first.
                match at_or_before(tables, pid, high) {
                    Some(before) if before.created_at >= time => {}
                    _ => return Some(head.base),
                }
            }
            Some(head) => low = head.end + 1,
            None => low = middle + 1,
        }
    }
    at_or_before(tables, pid, high).map(|head| head.base)
}

/// Searches the segments written in `[from, to]` from the oldest on for a frame with this message id.
pub fn find_by_id(tables: &Tables, pid: i64, id: u128, from: i64, to: i64) -> Result<Option<i64>> {
    let Some(start) = first_since(tables, pid, from) else { return Ok(None) };
    let mut found = None;
    walk(tables, pid, start, i64::MAX, |stored| {
        if stored.created_at > to {
            return Ok(false);
        }
        let segment = stored.parse()?;
        found = (0..segment.len()).find(|&i| segment.id(i) == Some(id)).map(|i| stored.base + i as i64);
        Ok(found.is_none())
    })?;
    Ok(found)
}

/// Walks every stored segment of the partition, gaps or not.
pub fn walk_all(tables: &Tables, pid: i64, mut visit: impl FnMut(Stored) -> Result<bool>) -> Result<()> {
    let table = tables.segment().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(pid))], Sight::Committed);
    while let Some(row) = scan.forward() {
        let segment = stored(&row);
        if !visit(segment)? {
            break;
        }
    }
    Ok(())
}

/// Offers the segments of a partition from the oldest on, without their bytes, until `visit` says stop.
pub fn heads(tables: &Tables, pid: i64, mut visit: impl FnMut(&Head) -> bool) {
    let table = tables.segment().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(pid))], Sight::Committed);
    while let Some(row) = scan.forward() {
        if !visit(&head(&row)) {
            break;
        }
    }
}

/// Removes the segments that end at or before `upto`, and remembers where the log starts now.
pub fn trim(tables: &Tables, pid: i64, upto: i64) {
    {
        let table = tables.segment().borrow();
        let mut old = Vec::new();
        let mut scan = table.scan(
            0,
            &[eq(1, Value::Int8(pid)), cmp(2, Compare::LessOrEqual, Value::Int8(upto))],
            Sight::Committed,
        );
        while let Some(row) = scan.forward() {
            if row.int8(1) + i64::from(row.int4(2)) - 1 <= upto {
                old.push(row.tid);
            }
        }
        drop(scan);
        for tid in old {
            table.delete(tid);
        }
    }
    let mut table = tables.trimmed().borrow_mut();
    let mut old = Vec::new();
    {
        let mut scan = table.scan(0, &[eq(1, Value::Int8(pid))], Sight::Committed);
        while let Some(row) = scan.forward() {
            old.push(row.tid);
        }
    }
    // The last one stays until the next time: whoever passes it now without seeing its successor still sees this.
    old.pop();
    table.insert(&[Value::Int8(pid), Value::Int8(upto)]);
    for tid in old {
        table.delete(tid);
    }
}
