//! What an acknowledgement does to a cursor.

pub use crate::deliveries::Deliveries;

/// What a consumer says about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Completed,
    Failed,
    Retry,
    DeadLetter,
}
impl Status {
    /// Reads the wire word, exactly.
    pub fn parse(word: Option<&str>) -> Self {
        match word {
            None | Some("completed" | "success" | "acked" | "ok") => Self::Completed,
            Some("retry") => Self::Retry,
            Some("dlq") => Self::DeadLetter,
            Some(_) => Self::Failed,
        }
    }
}

/// State of one (partition, consumer group).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    pub committed: i64,
    pub lease: Option<Lease>,
    pub retries: i32,
}

/// The span `(committed, batch_end]` in somebody's hands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub id: u128,
    pub batch_end: i64,
    pub expires_at: i64,
}

/// What the queue says about failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub retry_limit: i32,
    pub dead_letter: bool,
}

/// Where the message of an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this stored offset.
    At(i64),
    /// Not found.
    Nowhere,
}

/// One acknowledgement, resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    pub place: Place,
    pub status: Status,
}

/// The answer for one item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    pub success: bool,
    pub error: Option<&'static str>,
    pub lease_released: bool,
    pub dlq: bool,
    pub dropped: bool,
    pub noop: bool,
}

/// What a call leaves behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub cursor: Cursor,
    pub released: bool,
    pub file: Option<i64>,
    pub retries_recorded: i32,
    pub reset_attempts: bool,
    pub changed: bool,
    pub verdicts: Vec<Verdict>,
}

/// Settles all items of one call for one (partition, group, lease id).
pub fn settle(
    cursor: &Cursor,
    lease_id: Option<u128>,
    now: i64,
    items: &[Item],
    policy: &Policy,
) -> Settled {
    let _ = (cursor, lease_id, now, items, policy);
    todo!()
}
