//! Claiming: what a pop gets from one partition.

use crate::broker::append::{due_at, mint};
use crate::broker::recent::{self, Piece};
use crate::error::Result;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::pg::{clock, commit};
use crate::rows::cursor::{self, Cursor, Taken};
use crate::rows::partition::Partition;
use crate::rows::queue::Queue;
use crate::rows::ready;
use crate::rows::segment;
use crate::rows::subscription::{BEGINNING, Subscription};
use queen_core::ack::Lease;
use std::cell::Cell;
use triage::Triage;

mod triage;

/// With `windowBuffer`, a partition is delivered early once this many messages wait.
pub const WINDOW_FULL: i32 = 100;

/// Uncompressed bytes of the segments that one pop decodes; the messages of one more segment may come on top. A larger
/// batch is delivered in parts: it has to fit into the server's memory, and into one value of at most 1 GB as JSON.
pub const POP_BYTES: usize = 64 << 20;

/// How a pop wants its messages.
pub struct Wish {
    /// Messages still wanted.
    pub budget: i64,
    /// Bytes that segments still to be claimed may have; the one that goes over it is the last.
    pub bytes: usize,
    /// No message goes over `bytes`, but for the first of all.
    pub strict: bool,
    /// There is a message already.
    pub begun: bool,
    /// The next message does not fit.
    pub full: Cell<bool>,
    /// Seconds; None: the queue's `leaseTime`.
    pub lease_seconds: Option<i32>,
    /// The cursor moves with the delivery, no lease.
    pub auto_ack: bool,
    /// One lease id for everything a call claims.
    pub lease_id: u128,
}

impl Wish {
    /// `max_bytes`: the messages together have at most so many, counted as by [`recent::size`].
    pub fn new(batch: i32, lease_seconds: Option<i32>, auto_ack: bool, max_bytes: Option<usize>) -> Wish {
        Wish {
            budget: i64::from(batch),
            bytes: max_bytes.unwrap_or(POP_BYTES).min(POP_BYTES),
            strict: max_bytes.is_some(),
            begun: false,
            full: Cell::new(false),
            lease_seconds,
            auto_ack,
            lease_id: mint(clock::now(), 1),
        }
    }

    /// Whether a message of so many bytes is too much after others.
    fn refuses(&self, bytes: usize) -> bool {
        let full = self.strict && self.begun && bytes > self.bytes;
        self.full.set(self.full.get() || full);
        full
    }
}

/// Messages of one partition, leased or committed for the caller.
pub struct Batch {
    pub queue: String,
    pub partition: Partition,
    pub group: String,
    pub first: i64,
    pub last: i64,
    pub lease: Option<u128>,
    pub attempt: i32,
    pub pieces: Vec<Piece>,
    /// Uncompressed bytes of the pieces.
    pub bytes: usize,
}

/// What a look at one partition brought.
pub enum Claim {
    Batch(Box<Batch>),
    /// Nothing to deliver before this time: a live lease, or a delay.
    NotBefore(i64),
    /// Nothing to deliver after this offset, where the group is.
    Empty(i64),
    /// Somebody else is at it.
    Busy,
}

/// Offset before the first one that a group without cursor gets: its start.
pub fn start_of(tables: &Tables, group: &Subscription, partition: &Partition) -> Result<i64> {
    let log_start = segment::trimmed(tables, partition.pid) + 1;
    if group.start_at == BEGINNING || partition.created_at > group.start_at {
        return Ok(log_start - 1);
    }
    let first = segment::first_since(tables, partition.pid, group.start_at)
        .unwrap_or_else(|| segment::tail(tables, partition.pid, Sight::Committed).offset + 1);
    Ok(first.max(log_start) - 1)
}

/// Claims what the group may get from the partition now. `hinted`: a hint led here.
///
/// # Errors
/// The first segment that it would deliver is damaged; nothing was written then.
pub fn claim(
    tables: &Tables,
    queue: &Queue,
    partition: &Partition,
    group: &Subscription,
    wish: &Wish,
    hinted: bool,
) -> Result<Claim> {
    let (mut cursor, missing) = match cursor::take(tables, group.gid, partition.pid, false) {
        Taken::Busy => return Ok(Claim::Busy),
        Taken::Held(cursor) => (*cursor, false),
        Taken::Missing => (Cursor::initial(group.gid, partition.pid, start_of(tables, group, partition)?), true),
    };
    let claiming = Claiming { tables, queue, partition, group, wish, hinted };
    let mut given_up = triage::GivenUp::default();
    let claimed = claiming.from(&mut cursor, &mut given_up);
    let written = match claimed {
        Ok(Claim::Batch(_)) => true,
        Ok(ref nothing) if given_up.any() => {
            claiming.leave_off(&mut cursor, nothing);
            true
        }
        Ok(Claim::Empty(_)) => hinted && catch_up(tables, &mut cursor, missing),
        _ => false,
    };
    if missing && !written {
        cursor::leave(group.gid, partition.pid);
    }
    match claimed {
        Ok(Claim::Empty(_)) => Ok(Claim::Empty(cursor.committed)),
        other => other,
    }
}

/// Before a hint is dropped: a cursor that has nothing left because retention removed it moves to the start of the log.
/// An append that read the end before that still counts on the hint; now it finds the cursor drained, or its segment is
/// seen by whoever looks at the end next. True: the cursor was written.
fn catch_up(tables: &Tables, cursor: &mut Cursor, missing: bool) -> bool {
    let trimmed = segment::trimmed(tables, cursor.pid);
    // A group without a cursor starts there at the latest.
    let behind = cursor.committed < trimmed || (missing && trimmed >= 0 && cursor.committed == trimmed);
    if behind {
        cursor.committed = trimmed;
        cursor.lease = None;
        cursor.deliveries.advance(trimmed);
        cursor::replace(tables, cursor);
    }
    behind
}

/// One claim: whose, of what.
struct Claiming<'a> {
    tables: &'a Tables,
    queue: &'a Queue,
    partition: &'a Partition,
    group: &'a Subscription,
    wish: &'a Wish,
    hinted: bool,
}

impl Claiming<'_> {
    fn from(&self, cursor: &mut Cursor, given_up: &mut triage::GivenUp) -> Result<Claim> {
        let Claiming { tables, queue, partition, group, wish, hinted } = *self;
        let now = clock::now();
        if let Some(time) = cursor.busy_until(now) {
            return Ok(Claim::NotBefore(time));
        }
        let trimmed = segment::trimmed(tables, partition.pid);
        let seen = loop {
            let from = (cursor.committed + 1).max(trimmed + 1);
            let delay = i64::from(queue.options.delayed_processing) * 1_000_000;
            let look = Look { tables, pid: partition.pid, from, now, delay };
            let seen = if group.conflation { look.newest(wish)? } else { look.in_order(wish)? };
            let mut seen = match seen {
                Ok(seen) => seen,
                Err(later) => return Ok(later.map_or(Claim::Empty(cursor.committed), Claim::NotBefore)),
            };
            if queue.options.window_buffer > 0 {
                let open_at = due_at(queue, seen.written_at);
                let waiting = segment::tail(tables, partition.pid, Sight::Committed).offset - cursor.committed;
                if open_at > now && waiting < i64::from(WINDOW_FULL) {
                    return Ok(Claim::NotBefore(open_at));
                }
            }
            if !triage::needed(&queue.options, cursor, &seen) {
                break seen;
            }
            match self.triage(cursor, &mut seen, given_up, now)? {
                Triage::Deliver => break seen,
                Triage::LookOn => {}
                // The next pop goes on.
                Triage::Enough => return Ok(Claim::NotBefore(now)),
            }
        };
        let Seen { pieces, bytes, first, last, behind, written_at } = seen;

        let hinted_at = cursor.hinted_at();
        cursor.lease = None;
        cursor.not_before = None;
        let attempt = cursor.deliveries.deliver(first, last);
        let lease = if wish.auto_ack {
            cursor.committed = last;
            cursor.retries = 0;
            cursor.failing_since = None;
            cursor.deliveries.advance(last);
            commit::settled();
            None
        } else {
            let seconds = wish.lease_seconds.unwrap_or(queue.options.lease_time);
            // What retention removed below the batch is behind the cursor.
            cursor.committed = behind;
            let expires_at = now + i64::from(seconds) * 1_000_000;
            cursor.lease = Some(Lease { id: wish.lease_id, batch_end: last, expires_at });
            Some(expires_at)
        };
        cursor::replace(tables, cursor);
        if group.registered {
            if !hinted {
                // Found without its hint: the one written with the oldest message, or for the lease or pause that ended.
                ready::delete_exact(tables, group.gid, due_at(queue, written_at), partition.pid);
            }
            if let Some(time) = hinted_at {
                ready::delete_exact(tables, group.gid, time, partition.pid);
            }
            match lease {
                Some(expires_at) => ready::insert(tables, group.gid, expires_at, partition.pid),
                None => hint_rest(tables, cursor),
            }
        }
        Ok(Claim::Batch(Box::new(Batch {
            queue: queue.name.clone(),
            partition: partition.clone(),
            group: group.name.clone(),
            first,
            last,
            lease: lease.map(|_| wish.lease_id),
            attempt: if wish.auto_ack { 1.max(attempt) } else { attempt },
            pieces,
            bytes,
        })))
    }

    /// Messages were given up, and there is nothing to deliver behind them: writes where the group is now.
    fn leave_off(&self, cursor: &mut Cursor, nothing: &Claim) {
        let hinted_at = cursor.hinted_at();
        cursor.lease = None;
        cursor.not_before = None;
        cursor::replace(self.tables, cursor);
        if self.group.registered {
            if let Some(time) = hinted_at {
                ready::delete_exact(self.tables, self.group.gid, time, self.partition.pid);
            }
            match nothing {
                Claim::NotBefore(time) => ready::insert(self.tables, self.group.gid, *time, self.partition.pid),
                _ => hint_rest(self.tables, cursor),
            }
        }
    }
}

/// A look at what a partition has for a group.
struct Look<'a> {
    tables: &'a Tables,
    pid: i64,
    /// The first offset that the group has not settled and retention has left.
    from: i64,
    now: i64,
    /// How long messages stay invisible, in microseconds.
    delay: i64,
}

/// Something to deliver.
struct Seen {
    pieces: Vec<Piece>,
    bytes: usize,
    /// Offsets that are delivered.
    first: i64,
    last: i64,
    /// A lease holds everything after this offset, up to the last.
    behind: i64,
    /// When the oldest message after that was stored.
    written_at: i64,
}

/// Or when there will be something, as far as that is known.
type Or<T> = std::result::Result<T, Option<i64>>;

impl Look<'_> {
    /// Whole segments from the first message on, until the wish is met.
    fn in_order(&self, wish: &Wish) -> Result<Or<Seen>> {
        let Look { tables, pid, from, now, delay } = *self;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut bytes = 0;
        let mut later = None;
        let mut cut = i64::MAX;
        segment::walk_heads(tables, pid, from, from.saturating_add(wish.budget - 1), |head, load| {
            let visible = head.created_at + delay;
            // Without a delay a stamp of the future is no reason to wait: the clock was set back since.
            if delay > 0 && visible > now {
                later = Some(visible);
                return Ok(false);
            }
            let enough = head.end - from + 1 >= wish.budget;
            let piece = recent::piece(pid, head, load);
            match piece.check() {
                Ok(raw) if wish.strict && bytes + piece.counted(raw) > wish.bytes => {
                    let upto = piece.end.min(from.saturating_add(wish.budget - 1));
                    let one = !wish.begun && pieces.is_empty();
                    match piece.fitting(from, upto, wish.bytes - bytes, one) {
                        Ok((fits, more)) => {
                            if fits < upto {
                                wish.full.set(true);
                                cut = fits;
                            }
                            if fits >= piece.base.max(from) {
                                bytes += more;
                                pieces.push(piece);
                            } else if pieces.is_empty() {
                                // The next pop goes on.
                                later = Some(now);
                            }
                        }
                        Err(e) if pieces.is_empty() => return Err(e),
                        Err(_) => return Ok(false),
                    }
                }
                Ok(raw) => {
                    bytes += if wish.strict { piece.counted(raw) } else { raw };
                    pieces.push(piece);
                }
                // What is whole is delivered up to there.
                Err(e) if pieces.is_empty() => return Err(e),
                Err(_) => return Ok(false),
            }
            Ok(!enough && !wish.full.get() && bytes < wish.bytes)
        })?;
        let Some((oldest, newest)) = pieces.first().zip(pieces.last()) else { return Ok(Err(later)) };
        // The first segment may begin before the cursor; retention may have left a gap below it.
        let first = from.max(oldest.base);
        let last = newest.end.min(first + wish.budget - 1).min(cut);
        let written_at = oldest.created_at;
        Ok(Ok(Seen { pieces, bytes, first, last, behind: first - 1, written_at }))
    }

    /// The newest message that is visible, alone. Offsets are given in the order of commits, so there is none below it
    /// that is still to come.
    fn newest(&self, wish: &Wish) -> Result<Or<Seen>> {
        let Look { tables, pid, from, now, delay } = *self;
        let tail = segment::tail(tables, pid, Sight::Committed);
        let Some(oldest) = tail.written_at.and_then(|_| segment::at_or_before(tables, pid, from)) else {
            return Ok(Err(None));
        };
        let invisible = if delay > 0 { segment::first_since(tables, pid, now - delay + 1) } else { None };
        let last = invisible.map_or(tail.offset, |base| base - 1);
        if last < from {
            return Ok(Err((tail.offset >= from).then_some(oldest.created_at + delay)));
        }
        // Retention may be faster than we are.
        let Some(stored) = segment::holding(tables, pid, last) else { return Ok(Err(None)) };
        let piece = recent::single(&stored, last)?;
        let bytes = piece.check()?;
        if wish.refuses(bytes) {
            return Ok(Err(Some(now)));
        }
        let written_at = oldest.created_at;
        Ok(Ok(Seen { pieces: vec![piece], bytes, first: last, last, behind: from - 1, written_at }))
    }
}

/// After a cursor without lease was written: a hint when there is more in the lane, also when that is not committed yet.
pub fn hint_rest(tables: &Tables, cursor: &Cursor) {
    if segment::tail(tables, cursor.pid, Sight::Everything).offset > cursor.committed {
        ready::insert(tables, cursor.gid, clock::now(), cursor.pid);
    }
}
