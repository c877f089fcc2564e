//! What an acknowledgement does to a cursor, as a pure function.
//!
//! A cursor has committed offset C, and perhaps a lease over `(C, E]` with an id and an expiry, and a
//! retry counter R. One call of [`settle`] takes all acknowledgements that one request makes for one
//! (partition, consumer group) under one lease id, already resolved to offsets, and answers what the
//! cursor becomes and what each of them is told. It charges, files and drops nothing itself: the caller
//! does that in the same transaction.

pub use crate::deliveries::Deliveries;

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;

/// The lease id given is not the live one, or a failure without one meets somebody's live lease.
pub const INVALID_LEASE: &str = "invalid or expired lease";
/// A failure signal for a message that is already done.
pub const ALREADY_COMMITTED: &str = "already committed: the cursor moved past this message before this ack";
/// The transaction id is not that of a message that can be acknowledged.
pub const UNRESOLVABLE: &str =
    "unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers";
/// A failure signal where nothing is leased.
pub const NO_LEASED_BATCH: &str = "no leased batch";

/// What a consumer says about a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Done.
    Completed,
    /// Not done; charges the retry budget.
    Failed,
    /// Not done, and trying again cannot help: as a failure that finds the budget used up. No word of the wire says so,
    /// but what a consumer says about the failure: [`crate::retry::is_hopeless`].
    Hopeless,
    /// Not done; deliver again and charge nothing.
    Retry,
    /// Hopeless; file it now.
    DeadLetter,
}

impl Status {
    /// Reads the word of the wire, exactly and case-sensitively; every word that is not known is a
    /// failure, so that a misspelled success is never a lost message.
    pub fn parse(word: Option<&str>) -> Self {
        match word {
            None | Some("completed" | "success" | "acked" | "ok") => Self::Completed,
            Some("retry") => Self::Retry,
            Some("dlq") => Self::DeadLetter,
            Some(_) => Self::Failed,
        }
    }

    /// Which signal counts when one offset carries several: dlq, then failed (the hopeless first), then retry; a
    /// completion is none.
    fn strength(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Retry => 1,
            Self::Failed => 2,
            Self::Hopeless => 3,
            Self::DeadLetter => 4,
        }
    }
}

/// State of one (partition, consumer group).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// C: everything at or below this offset is done; -1 before the first.
    pub committed: i64,
    /// The lease, live or expired; expiry is found out lazily.
    pub lease: Option<Lease>,
    /// R: how often the budget was charged.
    pub retries: i32,
}

/// The span `(committed, batch_end]` in a consumer's hands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// W: never reused.
    pub id: u128,
    /// E: last offset of the batch.
    pub batch_end: i64,
    /// X: microseconds since the Unix epoch; dead from this very moment on.
    pub expires_at: i64,
}

/// What the queue says about failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// L: how many `failed` are redelivered; the next one is terminal.
    pub retry_limit: i32,
    /// Whether exhausted messages are filed; else they are dropped.
    pub dead_letter: bool,
    /// The group conflates: a lease's last message was delivered, those before it are superseded by it.
    pub conflating: bool,
}

/// Where the message of an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this stored offset. If the transaction id occurs several times, the lowest occurrence inside
    /// the lease, else (no lease) above the cursor; a place at or below the cursor only if there is none.
    At(i64),
    /// No stored message has this transaction id.
    Nowhere,
}

/// One acknowledgement, resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// Where its message is.
    pub place: Place,
    /// What the consumer says about it.
    pub status: Status,
}

/// The answer for one item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Accepted.
    pub success: bool,
    /// Why not; `None` on success.
    pub error: Option<&'static str>,
    /// This call ended the lease.
    pub lease_released: bool,
    /// This message was filed as a dead letter.
    pub dlq: bool,
    /// This message was given up without being filed.
    pub dropped: bool,
    /// It was done before.
    pub noop: bool,
    /// This item settled the one delivered message of a conflating lease, and so many superseded ones with it.
    pub conflated: Option<i64>,
}

/// What a call leaves behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    /// The cursor after the call.
    pub cursor: Cursor,
    /// The lease was ended.
    pub released: bool,
    /// The budget was charged: the messages are to be delivered again, perhaps after a pause.
    pub charged: bool,
    /// The offset to file as a dead letter in the same transaction.
    pub file: Option<i64>,
    /// R at the time of filing, before it was reset; 0 when nothing is filed.
    pub retries_recorded: i32,
    /// Delivery counts start again: [`Deliveries::clear`]. Else they [`Deliveries::advance`].
    pub reset_attempts: bool,
    /// The cursor differs from before, so that there is something to write.
    pub changed: bool,
    /// One answer per item, in the order of the items.
    pub verdicts: Vec<Verdict>,
}

/// Who is calling, which decides what they may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Proved the live lease, or nobody else does and the expired lease still stands: may do all.
    Holder,
    /// Without lease id, while somebody's lease lives: may complete.
    Bystander,
    /// Without lease id, and there is no lease: may complete.
    Unleased,
}

impl Standing {
    /// What a failure signal above the cursor is told, if it is not heard.
    fn refuses_failures(self) -> Option<&'static str> {
        match self {
            Self::Holder => None,
            Self::Bystander => Some(INVALID_LEASE),
            Self::Unleased => Some(NO_LEASED_BATCH),
        }
    }
}

/// Settles all items of one call for one (partition, group, lease id).
///
/// `lease_id` is the one the call gives; `now` is in microseconds since the Unix epoch.
pub fn settle(cursor: &Cursor, lease_id: Option<u128>, now: i64, items: &[Item], policy: &Policy) -> Settled {
    let Some(standing) = standing(cursor, lease_id, now) else {
        let refused = Verdict { error: Some(INVALID_LEASE), ..Verdict::default() };
        return Settled::unchanged(cursor, vec![refused; items.len()]);
    };
    let span = Span::of(cursor);
    let offset = |item: &Item| match item.place {
        Place::At(offset) if span.holds(offset) => Some(offset),
        _ => None,
    };
    let placed = || items.iter().filter_map(|item| Some((offset(item)?, item.status)));

    // S. It clamps completions even when the signal itself is refused: a failure is never skipped by a
    // later success in the same call.
    let failure = placed()
        .filter(|(_, status)| *status != Status::Completed)
        .min_by_key(|(offset, status)| (*offset, u8::MAX - status.strength()));
    // P, then C'.
    let completed = placed()
        .filter(|(offset, status)| *status == Status::Completed && failure.is_none_or(|(s, _)| *offset < s))
        .map(|(offset, _)| offset)
        .max();
    let prefix = completed.map_or(cursor.committed, |p| p.max(cursor.committed));

    let heard = failure.filter(|_| standing == Standing::Holder);
    let outcome = outcome(cursor, prefix, heard, policy);

    let conflated = conflated(cursor, &outcome.cursor, policy);
    let settled_at = |flag: bool, at: Option<i64>| flag && at.is_some() && at == outcome.terminal;
    let verdicts = items.iter().map(|item| {
        let at = offset(item);
        let mut verdict = verdict(cursor, item, at, standing);
        if verdict.success {
            verdict.lease_released = outcome.released;
            // By offset, so that all items with one id share its flags.
            verdict.dlq = settled_at(outcome.filed, at);
            verdict.dropped = settled_at(!outcome.filed, at);
            verdict.conflated = conflated.filter(|(end, _)| at == Some(*end)).map(|(_, superseded)| superseded);
        }
        verdict
    });
    Settled {
        verdicts: verdicts.collect(),
        released: outcome.released,
        charged: outcome.cursor.retries > cursor.retries,
        file: outcome.terminal.filter(|_| outcome.filed),
        retries_recorded: if outcome.filed { cursor.retries } else { 0 },
        reset_attempts: outcome.reset,
        changed: outcome.cursor != *cursor,
        cursor: outcome.cursor,
    }
}

impl Settled {
    fn unchanged(cursor: &Cursor, verdicts: Vec<Verdict>) -> Self {
        Self {
            cursor: cursor.clone(),
            released: false,
            charged: false,
            file: None,
            retries_recorded: 0,
            reset_attempts: false,
            changed: false,
            verdicts,
        }
    }
}

/// The end of a conflating lease that is behind the cursor now, and how many messages below it that were not done yet.
fn conflated(before: &Cursor, after: &Cursor, policy: &Policy) -> Option<(i64, i64)> {
    let lease = before.lease.as_ref().filter(|_| policy.conflating)?;
    (after.committed >= lease.batch_end).then(|| (lease.batch_end, lease.batch_end - before.committed - 1))
}

/// The offsets that can be acknowledged: `(after, through]`.
#[derive(Clone, Copy)]
struct Span {
    after: i64,
    through: i64,
}

impl Span {
    /// The lease, live or not; any stored offset above the cursor without one.
    fn of(cursor: &Cursor) -> Self {
        let through = cursor.lease.as_ref().map_or(i64::MAX, |lease| lease.batch_end);
        Self { after: cursor.committed, through }
    }

    fn holds(self, offset: i64) -> bool {
        offset > self.after && offset <= self.through
    }
}

/// `None`: the lease id given is not the live one.
fn standing(cursor: &Cursor, lease_id: Option<u128>, now: i64) -> Option<Standing> {
    let live = |lease: &Lease| lease.expires_at > now;
    match (lease_id, &cursor.lease) {
        (Some(id), Some(lease)) if lease.id == id && live(lease) => Some(Standing::Holder),
        (Some(_), _) => None,
        (None, Some(lease)) if live(lease) => Some(Standing::Bystander),
        // Nobody has taken the batch over, so that its outcome still counts.
        (None, Some(_)) => Some(Standing::Holder),
        (None, None) => Some(Standing::Unleased),
    }
}

/// What happens to the cursor.
struct Outcome {
    cursor: Cursor,
    released: bool,
    reset: bool,
    /// The offset that was filed or dropped.
    terminal: Option<i64>,
    /// Filed, not dropped.
    filed: bool,
}

/// The one branch that a call takes. `failure` is the lowest failure signal, if it is heard; `prefix`
/// is C'.
fn outcome(cursor: &Cursor, prefix: i64, failure: Option<(i64, Status)>, policy: &Policy) -> Outcome {
    let released = |committed, retries| Outcome {
        cursor: Cursor { committed, lease: None, retries },
        released: true,
        reset: false,
        terminal: None,
        filed: false,
    };
    // A settled message counts like a completed one, so that everything below it is done with it.
    let terminal = |at, filed| Outcome { reset: true, terminal: Some(at), filed, ..released(at, 0) };
    let exhausted = cursor.retries >= policy.retry_limit;
    match failure {
        Some((s, Status::DeadLetter)) => terminal(s, true),
        Some((s, Status::Hopeless)) => terminal(s, policy.dead_letter),
        Some((s, Status::Failed)) if exhausted => terminal(s, policy.dead_letter),
        Some((_, Status::Failed)) => released(prefix, cursor.retries.saturating_add(1)),
        Some((_, Status::Retry)) => released(prefix, cursor.retries),
        Some((_, Status::Completed)) | None => match &cursor.lease {
            Some(lease) if prefix > cursor.committed && prefix >= lease.batch_end => {
                Outcome { reset: true, ..released(prefix, 0) }
            }
            _ => Outcome {
                cursor: Cursor { committed: prefix, ..cursor.clone() },
                released: false,
                reset: false,
                terminal: None,
                filed: false,
            },
        },
    }
}

/// The answer for one item, flags of the outcome aside. `at` is its offset inside the span.
fn verdict(cursor: &Cursor, item: &Item, at: Option<i64>, standing: Standing) -> Verdict {
    let error = |text| Verdict { error: Some(text), ..Verdict::default() };
    let success = Verdict { success: true, ..Verdict::default() };
    let completed = item.status == Status::Completed;
    match (at, item.place) {
        (Some(_), _) if completed => success,
        (Some(_), _) => standing.refuses_failures().map_or(success, error),
        (None, Place::At(offset)) if offset <= cursor.committed && completed => Verdict { noop: true, ..success },
        (None, Place::At(offset)) if offset <= cursor.committed => error(ALREADY_COMMITTED),
        (None, _) => error(UNRESOLVABLE),
    }
}
