//! Checking what is stored.

use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb, null_argument};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::pg::value::Value;
use crate::rows::segment::{self, Stored};
use crate::rows::{cursor, partition, queue, subscription};
use pgrx::pg_sys::Datum;
use queen_core::id;
use queen_core::segment::Segment;

/// `queen.decode_segment(segment bytea) → SETOF frame`: the codec itself.
///
/// Sealed payloads are shown as stored: what a key opens is for the functions that check who asks.
pub fn decode_segment(call: &Call) -> Result<Datum> {
    let bytes = call.bytes(0).ok_or_else(|| null_argument("segment"))?;
    let segment = Segment::parse(bytes)?;
    let opened = segment.open()?;
    let mut rows = call.rows();
    for i in 0..segment.len() {
        let frame = opened.frame(i)?;
        let text = std::str::from_utf8(frame.payload)
            .map_err(|_| error(ErrorKind::CorruptSegment, format!("frame {i}: the payload is not UTF-8")))?;
        let created_at = id::unix_micros(frame.id).map(clock::from_unix);
        rows.put(&[
            Value::Int4(i as i32),
            Value::Uuid(frame.id),
            Value::Text(&frame.transaction_id_text()),
            jsonb(text),
            Value::Text(text),
            frame.headers.and_then(|h| std::str::from_utf8(h).ok()).map_or(Value::Null, jsonb),
            Value::opt_uuid(frame.trace_id),
            Value::opt_text(frame.producer),
            Value::opt_time(frame.enqueued_at.or(created_at)),
            Value::Bool(frame.encrypted),
        ]);
    }
    rows.done()
}

/// `queen.verify(queue) → TABLE(partition_id, base_offset, problem)`: one row for each problem found.
///
/// Reads and decodes every segment of the queue, or of all queues of the tenant. Beside traffic, too: what looks wrong
/// because something was written or removed in between is looked at again.
pub fn verify(call: &Call) -> Result<Datum> {
    let only = call.text(0)?;
    let (tables, tenant) = (Tables::default(), guc::tenant()?);
    let opener = Opener::new();
    let mut rows = call.rows();
    for queue in queue::of_tenant(&tables, tenant)? {
        if only.is_some_and(|name| name != queue.name) {
            continue;
        }
        let groups = subscription::of_queue(&tables, queue.qid);
        let mut after = 0;
        loop {
            let page = partition::after(&tables, queue.qid, after, 256);
            let Some(last) = page.last() else { break };
            after = last.pid;
            for partition in page {
                let mut problem = |base: Option<i64>, text: String| {
                    rows.put(&[Value::Uuid(partition.id), Value::opt_int8(base), Value::Text(&text)]);
                };
                log(&tables, partition.pid, &opener, &mut problem)?;
                for group in &groups {
                    cursor(&tables, group.gid, partition.pid, &mut problem);
                }
            }
        }
    }
    rows.done()
}

/// Checks the segments of a partition, and that none is missing.
fn log(tables: &Tables, pid: i64, opener: &Opener, problem: &mut dyn FnMut(Option<i64>, String)) -> Result<()> {
    let mut expected = segment::trimmed(tables, pid) + 1;
    let mut written_at = i64::MIN;
    segment::walk_all(tables, pid, |stored| {
        if stored.base > expected {
            // Removed since, or committed out of the sight of this walk: then it is there now.
            let mut next = expected.max(segment::trimmed(tables, pid) + 1);
            segment::walk(tables, pid, next, stored.base - 1, |between| {
                next = between.end() + 1;
                content(&between, opener, problem);
                Ok(true)
            })?;
            next = next.max(segment::trimmed(tables, pid) + 1);
            if stored.base > next {
                problem(Some(stored.base), format!("offsets {next} to {} are missing", stored.base - 1));
            }
        } else if stored.base < expected {
            problem(Some(stored.base), format!("it begins below offset {expected}, which follows its predecessor"));
        }
        expected = stored.end() + 1;
        if stored.created_at <= written_at {
            problem(Some(stored.base), "its time is not after its predecessor's".to_owned());
        }
        written_at = stored.created_at;
        content(&stored, opener, problem);
        Ok(true)
    })
}

/// Checks one segment.
fn content(stored: &Stored, opener: &Opener, problem: &mut dyn FnMut(Option<i64>, String)) {
    pgrx::check_for_interrupts!();
    let opened = stored.open().and_then(|opened| {
        opened.segment().verify().map_err(|e| stored.damaged(&e.to_string(), e.kind()))?;
        Ok(opened)
    });
    let opened = match opened {
        Ok(opened) => opened,
        Err(e) => return problem(Some(stored.base), e.message),
    };
    for i in 0..stored.frames as usize {
        match opened.frame(i) {
            Err(e) => problem(Some(stored.base), e.to_string()),
            Ok(frame) if frame.encrypted && opener.open(frame.payload, true).1 => {
                problem(Some(stored.base), format!("frame {i} is sealed with a key that is not configured"));
            }
            Ok(_) => {}
        }
    }
}

/// Checks how far a group is. The end is read after the cursor, and so is not before what the cursor has seen.
fn cursor(tables: &Tables, gid: i64, pid: i64, problem: &mut dyn FnMut(Option<i64>, String)) {
    let Some(cursor) = cursor::newest(tables, gid, pid) else { return };
    let reaches = cursor.lease.as_ref().map_or(cursor.committed, |l| l.batch_end.max(cursor.committed));
    let mut end = segment::tail(tables, pid, Sight::Committed).offset;
    if reaches > end {
        // The last segment may have been passed while retention removed it and another one came.
        end = segment::tail(tables, pid, Sight::Committed).offset;
    }
    if cursor.committed > end {
        problem(None, format!("the cursor of a group is at {}, past the end {end}", cursor.committed));
    }
    if cursor.lease.is_some_and(|l| l.batch_end > end || l.batch_end < cursor.committed) {
        problem(None, "a lease reaches outside what is stored".to_owned());
    }
}
