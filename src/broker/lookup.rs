//! From a transaction id to an offset. The cost depends on the ids looked up, not on how much is stored.

use crate::error::Result;
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::rows::{segment, transaction_id};
use queen_core::id;
use queen_core::segment::transaction_hash;

/// A message whose transaction id is its message id can be found by the time inside the id, when it was stored at most
/// this long after it was made (microseconds); otherwise it has a row in `transaction_id`, like every explicit id.
const SELF_LOCATING: i64 = 10_000;

/// Whether a frame with the default transaction id is found without a row.
pub fn self_locating(message_id: u128, created_at: i64) -> bool {
    id::unix_micros(message_id).is_some_and(|t| (0..=SELF_LOCATING).contains(&(created_at - clock::from_unix(t))))
}

/// A stored message with this transaction id.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub offset: i64,
    pub message_id: u128,
    pub created_at: i64,
}

/// Every stored message of the partition with this transaction id, in order of offsets.
pub fn find(tables: &Tables, pid: i64, wanted: &str) -> Result<Vec<Found>> {
    let mut offsets = transaction_id::candidates(tables, pid, transaction_hash(wanted));
    if let Some(message_id) = id::parse_canonical(wanted)
        && let Some(time) = id::unix_micros(message_id)
    {
        let time = clock::from_unix(time);
        offsets.extend(segment::find_by_id(tables, pid, message_id, time, time + SELF_LOCATING)?);
    }
    offsets.sort_unstable();
    offsets.dedup();
    let mut found = Vec::new();
    for offset in offsets {
        let Some(stored) = segment::holding(tables, pid, offset) else { continue };
        let frame = stored.frame(offset)?;
        let frame = frame.as_frame();
        if frame.transaction_id_text() == wanted {
            found.push(Found { offset, message_id: frame.id, created_at: stored.created_at });
        }
    }
    Ok(found)
}

/// The message that makes a push of this transaction id a duplicate: stored at or after `since`.
pub fn duplicate(tables: &Tables, pid: i64, wanted: &str, since: i64) -> Result<Option<Found>> {
    Ok(find(tables, pid, wanted)?.into_iter().find(|f| f.created_at >= since))
}
