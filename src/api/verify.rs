//! Checking what is stored.

use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, jsonb, null_argument};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::pg::value::Value;
use crate::rows::{cursor, partition, queue, segment, subscription};
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
/// Reads and decodes every segment of the queue, or of all queues of the tenant.
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
                let trimmed = segment::trimmed(&tables, partition.pid);
                let tail = segment::tail(&tables, partition.pid, Sight::Committed);
                let mut expected = None;
                let mut written_at = i64::MIN;
                segment::walk_all(&tables, partition.pid, |stored| {
                    pgrx::check_for_interrupts!();
                    if let Some(e) = expected
                        && e != stored.base
                    {
                        problem(Some(stored.base), format!("offsets {e} to {} are missing", stored.base - 1));
                    } else if expected.is_none() && stored.base > trimmed + 1 {
                        problem(Some(stored.base), format!("offsets {} to {} are missing", trimmed + 1, stored.base - 1));
                    }
                    expected = Some(stored.end() + 1);
                    if stored.created_at <= written_at {
                        problem(Some(stored.base), "its time is not after its predecessor's".to_owned());
                    }
                    written_at = stored.created_at;
                    match stored.open() {
                        Err(e) => problem(Some(stored.base), e.message),
                        Ok(opened) => {
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
                    }
                    Ok(true)
                })?;
                for group in &groups {
                    if let Some(cursor) = cursor::newest(&tables, group.gid, partition.pid) {
                        if cursor.committed > tail.offset {
                            problem(None, format!("the cursor of a group is at {}, past the end {}", cursor.committed, tail.offset));
                        }
                        if cursor.lease.as_ref().is_some_and(|l| l.batch_end > tail.offset || l.batch_end < cursor.committed) {
                            problem(None, "a lease reaches outside what is stored".to_owned());
                        }
                    }
                }
            }
        }
    }
    rows.done()
}
