//! Consumer groups of a queue.

use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::{Lock, Row, Tables, Tid, next_value};
use crate::pg::scan::{Sight, eq};
use crate::pg::value::Value;
use crate::pg::{clock, commit};

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
    /// Its pops bring nothing until somebody resumes it.
    pub paused: bool,
}

fn from_row(row: &Row<'_>) -> Subscription {
    Subscription {
        gid: row.int8(0),
        qid: row.int8(1),
        name: row.text(2).to_owned(),
        registered: row.bool(3),
        start_at: row.int8(5),
        conflation: row.bool(7),
        paused: row.opt_int8(8).is_some(),
    }
}

pub fn find(tables: &Tables, qid: i64, name: &str) -> Option<Subscription> {
    let table = tables.subscription().borrow();
    table.find(0, &[eq(1, Value::Int8(qid)), eq(2, Value::Text(name))], from_row)
}

pub fn by_gid(tables: &Tables, gid: i64) -> Option<Subscription> {
    let table = tables.subscription().borrow();
    table.find(1, &[eq(1, Value::Int8(gid))], from_row)
}

/// Whether there is a group with this key, or one whose transaction has not committed yet.
pub fn is_known(tables: &Tables, gid: i64) -> bool {
    let table = tables.subscription().borrow();
    let keys = [eq(1, Value::Int8(gid))];
    [Sight::Everything, Sight::Moment].into_iter().any(|sight| table.scan(1, &keys, sight).forward().is_some())
}

/// Every group of a queue, also those whose transaction has not committed yet.
pub fn of_queue(tables: &Tables, qid: i64) -> Vec<Subscription> {
    seen(tables, qid, &[Sight::Everything, Sight::Moment])
}

/// The groups of a queue that an append tells of its messages, also those whose transaction has not committed yet: an
/// append that happens next to a registration must not be overlooked by both.
///
/// One whose row is replaced meanwhile may be missing. Whoever replaces a row lets the group sweep afterwards, and so
/// sees what was appended before.
pub fn to_tell(tables: &Tables, qid: i64) -> Vec<Subscription> {
    seen(tables, qid, &[Sight::Everything])
}

fn seen(tables: &Tables, qid: i64, sights: &[Sight]) -> Vec<Subscription> {
    let table = tables.subscription().borrow();
    let mut found: Vec<Subscription> = Vec::new();
    for &sight in sights {
        let mut scan = table.scan(0, &[eq(1, Value::Int8(qid))], sight);
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
    let mut subscription =
        Subscription { gid, qid, name: name.to_owned(), registered, start_at, conflation, paused: false };
    let tid = insert(tables, &subscription, &Rest::new(start.mode()));
    if start == Start::New {
        subscription.start_at = clock::now();
        tables.subscription().borrow().delete(tid);
        insert(tables, &subscription, &Rest::new(start.mode()));
    }
    subscription
}

/// What a row holds that no pop asks for.
struct Rest {
    mode: String,
    created_at: i64,
    pause: Pause,
}

/// When a group was paused and why, and when it was last resumed.
#[derive(Clone, Debug, Default)]
struct Pause {
    since: Option<i64>,
    reason: Option<String>,
    resumed_at: Option<i64>,
}

impl Rest {
    fn new(mode: &str) -> Rest {
        Rest { mode: mode.to_owned(), created_at: clock::now(), pause: Pause::default() }
    }
}

/// The row of a group, ours until the transaction ends: whoever pauses a group holds no lock on the queue's groups.
fn hold(tables: &Tables, gid: i64) -> Option<(Tid, Subscription, Rest)> {
    loop {
        let table = tables.subscription().borrow();
        let found = table.find(1, &[eq(1, Value::Int8(gid))], |row| {
            let pause = Pause {
                since: row.opt_int8(8),
                reason: row.opt_text(9).map(str::to_owned),
                resumed_at: row.opt_int8(10),
            };
            (row.tid, from_row(row), Rest { mode: row.text(4).to_owned(), created_at: row.int8(6), pause })
        })?;
        if table.lock(found.0, true, true) == Lock::Held {
            return Some(found);
        }
    }
}

/// Replaces the row of a group by what `change` makes of it; `None`: it stays as it is. False: nothing was changed.
fn replace(tables: &Tables, gid: i64, change: impl FnOnce(&mut Subscription, &mut Rest) -> Option<()>) -> bool {
    let Some((tid, mut subscription, mut rest)) = hold(tables, gid) else { return false };
    if change(&mut subscription, &mut rest).is_none() {
        return false;
    }
    tables.subscription().borrow().delete(tid);
    insert(tables, &subscription, &rest);
    true
}

/// Removes a group. The caller holds [`lock_creation`].
pub fn remove(tables: &Tables, subscription: &Subscription) {
    if let Some((tid, ..)) = hold(tables, subscription.gid) {
        tables.subscription().borrow().delete(tid);
    }
}

/// Makes a group that has only named its partitions so far take part in pops of any partition, under this delivery
/// policy. The caller holds [`lock_creation`].
pub fn register(tables: &Tables, subscription: &mut Subscription, conflation: bool) {
    replace(tables, subscription.gid, |stored, rest| {
        stored.registered = true;
        stored.conflation = conflation;
        rest.created_at = clock::now();
        *subscription = stored.clone();
        Some(())
    });
}

/// Changes where a group starts; answers whether there is such a row. The caller holds [`lock_creation`].
pub fn set_start(tables: &Tables, gid: i64, start_at: i64) -> bool {
    replace(tables, gid, |stored, rest| {
        stored.start_at = start_at;
        rest.mode = Start::At(start_at).mode().to_owned();
        Some(())
    })
}

/// Pauses a group. False: it is paused already, or gone.
pub fn pause(tables: &Tables, gid: i64, reason: Option<&str>) -> bool {
    replace(tables, gid, |_, rest| {
        if rest.pause.since.is_some() {
            return None;
        }
        rest.pause.since = Some(clock::now());
        rest.pause.reason = reason.map(str::to_owned);
        Some(())
    })
}

/// Ends a pause. False: there is none.
pub fn resume(tables: &Tables, gid: i64) -> bool {
    replace(tables, gid, |_, rest| {
        rest.pause.since.take()?;
        rest.pause = Pause { resumed_at: Some(clock::now()), ..Pause::default() };
        Some(())
    })
}

/// Since when a group may pause itself again: when it was last resumed. None: it is paused already, or gone.
pub fn counts_since(tables: &Tables, gid: i64) -> Option<Option<i64>> {
    let table = tables.subscription().borrow();
    table
        .find(1, &[eq(1, Value::Int8(gid))], |row| (row.opt_int8(8).is_none(), row.opt_int8(10)))
        .and_then(|(active, resumed_at)| active.then_some(resumed_at))
}

fn insert(tables: &Tables, s: &Subscription, rest: &Rest) -> Tid {
    commit::settled();
    tables.subscription().borrow_mut().insert(&[
        Value::Int8(s.gid),
        Value::Int8(s.qid),
        Value::Text(&s.name),
        Value::Bool(s.registered),
        Value::Text(&rest.mode),
        Value::Time(s.start_at),
        Value::Time(rest.created_at),
        Value::Bool(s.conflation),
        Value::opt_time(rest.pause.since),
        Value::opt_text(rest.pause.reason.as_deref()),
        Value::opt_time(rest.pause.resumed_at),
    ])
}
