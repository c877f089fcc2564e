//! Consumer groups of a queue.

use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::{Row, Tables, Tid, next_value};
use crate::pg::scan::{Sight, eq};
use crate::pg::value::Value;
use crate::pg::{clock, commit, spi};

/// Group-less consumption.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// Where a group starts on a partition it has no cursor for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the log start.
    All,
    /// After what was there when the group subscribed.
    New,
    /// At the first segment at or after this time.
    At(i64),
}

impl Start {
    pub fn mode(self) -> &'static str {
        match self {
            Start::All => "all",
            Start::New => "new",
            Start::At(_) => "timestamp",
        }
    }
}

/// `-infinity` of timestamptz.
pub const BEGINNING: i64 = i64::MIN;

#[derive(Clone, Debug)]
pub struct Subscription {
    pub gid: i64,
    pub qid: i64,
    pub name: String,
    /// Takes part in pops of any partition: appends and acks keep `ready` up to date for it.
    pub registered: bool,
    pub start_at: i64,
    /// Gets only the newest message of a partition. Decided when it is registered, for good.
    pub conflation: bool,
}

fn from_row(row: &Row<'_>) -> Subscription {
    Subscription {
        gid: row.int8(0),
        qid: row.int8(1),
        name: row.text(2).to_owned(),
        registered: row.bool(3),
        start_at: row.int8(5),
        conflation: row.bool(7),
    }
}

pub fn find(tables: &Tables, qid: i64, name: &str) -> Option<Subscription> {
    let table = tables.subscription().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(qid)), eq(2, Value::Text(name))], Sight::Committed);
    scan.forward().map(|row| from_row(&row))
}

pub fn by_gid(tables: &Tables, gid: i64) -> Option<Subscription> {
    let table = tables.subscription().borrow();
    let mut scan = table.scan(1, &[eq(1, Value::Int8(gid))], Sight::Committed);
    scan.forward().map(|row| from_row(&row))
}

/// Whether there is a group with this key, or one whose transaction has not committed yet.
pub fn is_known(tables: &Tables, gid: i64) -> bool {
    let table = tables.subscription().borrow();
    let mut scan = table.scan(1, &[eq(1, Value::Int8(gid))], Sight::Everything);
    scan.forward().is_some()
}

/// Every group of a queue, also those whose transaction has not committed yet: an append that happens next to a
/// registration must not be overlooked by both.
pub fn of_queue(tables: &Tables, qid: i64) -> Vec<Subscription> {
    let table = tables.subscription().borrow();
    let mut scan = table.scan(0, &[eq(1, Value::Int8(qid))], Sight::Everything);
    let mut found: Vec<Subscription> = Vec::new();
    while let Some(row) = scan.forward() {
        let subscription = from_row(&row);
        match found.iter_mut().find(|s| s.gid == subscription.gid) {
            // One that is just changed has two rows. Whoever takes both into account hints too often at worst.
            Some(known) => {
                known.registered |= subscription.registered;
                known.start_at = known.start_at.min(subscription.start_at);
                known.conflation |= subscription.conflation;
            }
            None => found.push(subscription),
        }
    }
    found
}

/// Keeps everybody else from adding or dropping groups of this queue until the transaction ends.
pub fn lock_creation(qid: i64) {
    lock(Creation::Subscription(qid), true);
}

/// Creates a group. The caller holds [`lock_creation`] and has looked.
///
/// The row is inserted first and the time of a `new` subscription read afterwards: an append stamped later than that
/// time finds the row, and one that did not find it is older and not part of what the group is promised.
pub fn create(tables: &Tables, qid: i64, name: &str, registered: bool, start: Start, conflation: bool) -> Subscription {
    let gid = next_value(c"subscription_gid_seq");
    let start_at = match start {
        Start::All => BEGINNING,
        Start::At(time) => time,
        Start::New => clock::now(),
    };
    let mut subscription = Subscription { gid, qid, name: name.to_owned(), registered, start_at, conflation };
    let tid = insert(tables, &subscription, start.mode());
    if start == Start::New {
        subscription.start_at = clock::now();
        tables.subscription().borrow().delete(tid);
        insert(tables, &subscription, start.mode());
    }
    subscription
}

/// Where the row of a group is, and its mode.
fn row_of(tables: &Tables, gid: i64) -> Option<(Tid, String)> {
    let table = tables.subscription().borrow();
    let mut scan = table.scan(1, &[eq(1, Value::Int8(gid))], Sight::Committed);
    scan.forward().map(|row| (row.tid, row.text(4).to_owned()))
}

/// Removes a group. The caller holds [`lock_creation`].
pub fn remove(tables: &Tables, subscription: &Subscription) {
    if let Some((tid, _)) = row_of(tables, subscription.gid) {
        tables.subscription().borrow().delete(tid);
    }
}

/// Makes a group that has only named its partitions so far take part in pops of any partition, under this delivery
/// policy. The caller holds [`lock_creation`].
pub fn register(tables: &Tables, subscription: &mut Subscription, conflation: bool) {
    let Some((tid, mode)) = row_of(tables, subscription.gid) else { return };
    tables.subscription().borrow().delete(tid);
    subscription.registered = true;
    subscription.conflation = conflation;
    insert(tables, subscription, &mode);
}

/// Changes where a group starts; answers whether there is such a row. The caller holds [`lock_creation`]. By SQL: it is
/// rare.
pub fn set_start(gid: i64, start_at: i64) -> bool {
    let statement = "UPDATE queen.subscription SET mode = 'timestamp', start_at = $2 WHERE gid = $1";
    spi::as_owner(|client| {
        client.update(statement, None, &[gid.into(), spi::time(start_at)]).map(|done| !done.is_empty())
    })
    .unwrap_or_else(|e| pgrx::error!("changing a subscription: {e}"))
}

fn insert(tables: &Tables, s: &Subscription, mode: &str) -> Tid {
    commit::settled();
    tables.subscription().borrow_mut().insert(&[
        Value::Int8(s.gid),
        Value::Int8(s.qid),
        Value::Text(&s.name),
        Value::Bool(s.registered),
        Value::Text(mode),
        Value::Time(s.start_at),
        Value::Time(clock::now()),
        Value::Bool(s.conflation),
    ])
}
