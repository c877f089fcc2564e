//! Finding something to pop: a named partition, any partition of a queue, any queue of a namespace or task.

use crate::broker::claim::{Batch, Claim, Wish, claim, hint_rest};
use crate::error::{Error, ErrorKind, Result, error};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::rows::cursor::{self, Cursor, Taken};
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::ready::{self, Hint};
use crate::rows::segment;
use crate::rows::subscription::{self, QUEUE_MODE, Start, Subscription};
use std::cell::Cell;
use std::collections::HashMap;

/// Partitions that a sweep looks at in one go.
const SWEEP_PAGE: usize = 256;
/// Partitions whose messages are counted at most when a group skips a backlog.
const SKIPPED: usize = 1000;
/// Queues that one call subscribes in at most: each takes a lock in the shared lock table.
const FIRST_CONTACTS: usize = 1000;

thread_local! {
    /// Which queue the next pop of several begins with; sessions begin anywhere.
    static TURN: Cell<usize> = Cell::new(std::process::id() as usize);
}

/// How long a partition is left alone after a damaged segment was met in it, in microseconds.
const PASSED_OVER: i64 = 60_000_000;

/// What a pop has made of a partition's first hint, and the next one is about.
enum Seen {
    /// It wrote the hint that follows, for its lease or for a later time: that one is enough.
    Covered,
    /// It delivered without a lease. What came after that may have this hint alone.
    Delivered,
}

/// Says that a damaged segment keeps this partition from being delivered; every other error is answered again.
fn pass_over(queue: &Queue, partition: &Partition, e: Error) -> Result<()> {
    if !matches!(e.kind, ErrorKind::CorruptSegment | ErrorKind::UnsupportedSegment) {
        return Err(e);
    }
    let cut = |name| queen_core::names::cut(name, 64);
    let (queue, partition) = (cut(&queue.name), cut(&partition.name));
    pgrx::warning!("partition \"{partition}\" of queue \"{queue}\" is passed over for a minute: {}", e.message);
    Ok(())
}

/// A pop of anything.
pub struct Search<'a> {
    pub tables: &'a Tables,
    pub wish: Wish,
    pub group: &'a str,
    /// Where the group starts if this is its first contact.
    pub start: Start,
    /// Partitions that may still be claimed.
    pub partitions: usize,
    /// The delivery policy that the caller asks for; counts when the group is registered.
    pub conflation: Option<bool>,
    pub found: Vec<Batch>,
    /// Whether a group that was met conflates; None: none was met.
    pub conflating: Option<bool>,
    /// A group's policy is not what the caller asks for.
    pub conflict: bool,
}

impl Search<'_> {
    fn enough(&self) -> bool {
        self.wish.budget <= 0 || self.wish.bytes == 0 || self.wish.full.get() || self.partitions == 0
    }

    /// Whether the pop is one of a group that conflates, or would be.
    pub fn conflates(&self) -> bool {
        self.conflating.unwrap_or(self.asks_to_conflate())
    }

    fn asks_to_conflate(&self) -> bool {
        self.conflation == Some(true)
    }

    /// Takes note of the policy of a group that takes part.
    fn heed(&mut self, group: &Subscription) -> Result<()> {
        if group.conflation && self.wish.auto_ack {
            return Err(conflation_and_auto_ack());
        }
        self.conflating = Some(group.conflation || self.conflating == Some(true));
        self.conflict |= self.conflation.is_some_and(|asked| asked != group.conflation);
        Ok(())
    }

    fn keep(&mut self, batch: Batch) {
        self.wish.budget -= batch.last - batch.first + 1;
        self.wish.bytes = self.wish.bytes.saturating_sub(batch.bytes);
        self.wish.begun = true;
        self.partitions -= 1;
        self.found.push(batch);
    }

    /// Pops exactly this partition; creates neither queue nor partition. Registers the group only if it is to conflate:
    /// that policy is of the group, not of a partition.
    pub fn named(&mut self, tenant: u128, queue_name: &str, partition_name: &str) -> Result<()> {
        let Some(queue) = queue::find(self.tables, tenant, queue_name)? else { return Ok(()) };
        let known = subscription::find(self.tables, queue.qid, self.group);
        let Some(partition) = partition::find(self.tables, queue.qid, partition_name) else {
            return known.map_or(Ok(()), |group| self.heed(&group));
        };
        let group = match known {
            None | Some(Subscription { registered: false, .. }) if self.asks_to_conflate() => {
                self.registered(&queue)?
            }
            Some(group) => group,
            None => {
                subscription::lock_creation(queue.qid);
                match subscription::find(self.tables, queue.qid, self.group) {
                    Some(group) => group,
                    None => {
                        let ahead = self.skipped(&queue, std::slice::from_ref(&partition));
                        let group = subscription::create(self.tables, queue.qid, self.group, false, self.start, false);
                        self.begin_after(&group, &ahead);
                        group
                    }
                }
            }
        };
        self.heed(&group)?;
        if group.paused {
            return Ok(());
        }
        if let Claim::Batch(batch) = claim(self.tables, &queue, &partition, &group, &self.wish, false)? {
            self.keep(*batch);
        }
        Ok(())
    }

    /// Pops any partitions of the queue; creates the queue and the group's subscription when there are none.
    pub fn any(&mut self, tenant: u128, queue_name: &str) -> Result<()> {
        let queue = queue::find_or_create(self.tables, tenant, queue_name)?;
        self.of_queue(&queue)
    }

    /// Pops any queue whose namespace and task are those given (None: whatever).
    ///
    /// All of them learn of the group, in one order (each may take a lock); then they are asked from a different one on
    /// each time, so that a busy queue does not keep the others waiting.
    pub fn matching(&mut self, tenant: u128, namespace: Option<&str>, task: Option<&str>) -> Result<()> {
        let fits = |wanted: Option<&str>, is: &str| wanted.is_none_or(|w| w == is);
        let mut queues = queue::of_tenant(self.tables, tenant)?;
        queues.retain(|q| fits(namespace, &q.options.namespace) && fits(task, &q.options.task));
        if queues.is_empty() {
            return Ok(());
        }
        let mut groups = Vec::with_capacity(queues.len());
        let mut contacts = 0;
        for queue in queues {
            let known = subscription::find(self.tables, queue.qid, self.group).filter(|g| g.registered);
            contacts += usize::from(known.is_none());
            match known {
                Some(group) => groups.push((queue, group)),
                None if contacts <= FIRST_CONTACTS => {
                    let group = self.registered(&queue)?;
                    groups.push((queue, group));
                }
                None => {}
            }
        }
        for (_, group) in &groups {
            self.heed(group)?;
        }
        let turn = TURN.get();
        TURN.set(turn.wrapping_add(1));
        let at = turn % groups.len();
        groups.rotate_left(at);
        for (queue, group) in groups {
            if self.enough() {
                break;
            }
            self.of_group(&queue, &group)?;
        }
        Ok(())
    }

    fn of_queue(&mut self, queue: &Queue) -> Result<()> {
        let group = self.registered(queue)?;
        self.heed(&group)?;
        self.of_group(queue, &group)
    }

    fn of_group(&mut self, queue: &Queue, group: &Subscription) -> Result<()> {
        if group.paused {
            return Ok(());
        }
        let tables = self.tables;
        let mut seen: HashMap<i64, Seen> = HashMap::new();
        ready::each_due(tables, group.gid, clock::now(), |hint, in_progress| {
            match hint.sweep_after() {
                Some(after) if in_progress => self.follow(queue, group, after)?,
                Some(after) => self.sweep(queue, group, hint, after)?,
                None => match seen.get(&hint.pid) {
                    // One partition, two hints: the first has done it.
                    Some(Seen::Covered) => _ = ready::delete(tables, hint),
                    Some(Seen::Delivered) => {}
                    None => {
                        if let Some(now) = self.visit(queue, group, hint)? {
                            seen.insert(hint.pid, now);
                        }
                    }
                },
            }
            Ok(!self.enough())
        })
    }

    /// Looks at the partition a hint names. None: another hint for it may be about something that came later.
    fn visit(&mut self, queue: &Queue, group: &Subscription, hint: &Hint) -> Result<Option<Seen>> {
        let Some(partition) = partition::by_pid(self.tables, hint.pid) else {
            // One that is just being created will have its first messages when it is there.
            if !partition::is_known(self.tables, hint.pid) {
                ready::delete(self.tables, hint);
            }
            return Ok(None);
        };
        match claim(self.tables, queue, &partition, group, &self.wish, true) {
            Ok(Claim::Busy) => Ok(None),
            Ok(Claim::Empty(committed)) => {
                // An append that has not committed saw this hint's cause and counts on it: the hint stays for it.
                if !self.unfinished(&partition, committed) {
                    ready::delete(self.tables, hint);
                }
                Ok(None)
            }
            Ok(Claim::NotBefore(time)) => {
                // Too early. A lease has its own hint; a delay needs one at its end.
                let ours = ready::delete(self.tables, hint);
                if ours {
                    ready::delete_exact(self.tables, group.gid, time, hint.pid);
                    ready::insert(self.tables, group.gid, time, hint.pid);
                }
                Ok(ours.then_some(Seen::Covered))
            }
            Ok(Claim::Batch(batch)) => {
                ready::delete(self.tables, hint);
                let seen = if batch.lease.is_some() { Seen::Covered } else { Seen::Delivered };
                self.keep(*batch);
                Ok(Some(seen))
            }
            Err(e) => {
                pass_over(queue, &partition, e)?;
                let ours = ready::delete(self.tables, hint);
                if ours {
                    ready::insert(self.tables, group.gid, clock::now() + PASSED_OVER, hint.pid);
                }
                Ok(ours.then_some(Seen::Covered))
            }
        }
    }

    /// Goes on looking through partitions that existed when the group subscribed. A hint is left for more.
    fn sweep(&mut self, queue: &Queue, group: &Subscription, hint: &Hint, mut after: i64) -> Result<()> {
        if !ready::delete(self.tables, hint) {
            return Ok(());
        }
        loop {
            let page = partition::after_unfinished(self.tables, queue.qid, after, SWEEP_PAGE);
            for (partition, unfinished) in &page {
                if self.enough() {
                    ready::insert_sweep(self.tables, group.gid, after);
                    return Ok(());
                }
                after = partition.pid;
                if *unfinished {
                    // Whoever creates it may not have seen the group, and then hints nobody.
                    ready::insert(self.tables, group.gid, clock::now(), partition.pid);
                    continue;
                }
                match claim(self.tables, queue, partition, group, &self.wish, false) {
                    Ok(Claim::Batch(batch)) => self.keep(*batch),
                    Ok(Claim::Busy) => ready::insert(self.tables, group.gid, clock::now(), partition.pid),
                    Ok(Claim::NotBefore(time)) => ready::insert(self.tables, group.gid, time, partition.pid),
                    Ok(Claim::Empty(committed)) => {
                        if self.unfinished(partition, committed) {
                            ready::insert(self.tables, group.gid, clock::now(), partition.pid);
                        }
                    }
                    Err(e) => {
                        pass_over(queue, partition, e)?;
                        ready::insert(self.tables, group.gid, clock::now() + PASSED_OVER, partition.pid);
                    }
                }
            }
            if page.len() < SWEEP_PAGE {
                return Ok(());
            }
        }
    }

    /// Whether a partition without committed messages for a group that is at `committed` has some on the way.
    fn unfinished(&self, partition: &Partition, committed: i64) -> bool {
        segment::tail(self.tables, partition.pid, Sight::Everything).offset > committed
    }

    /// Somebody else is sweeping in a transaction that has not ended: looks where it looks, and leaves the hints to it.
    fn follow(&mut self, queue: &Queue, group: &Subscription, mut after: i64) -> Result<()> {
        loop {
            let page = partition::after(self.tables, queue.qid, after, SWEEP_PAGE);
            for partition in &page {
                if self.enough() {
                    return Ok(());
                }
                after = partition.pid;
                match claim(self.tables, queue, partition, group, &self.wish, false) {
                    Ok(Claim::Batch(batch)) => self.keep(*batch),
                    Ok(_) => {}
                    Err(e) => pass_over(queue, partition, e)?,
                }
            }
            if page.len() < SWEEP_PAGE {
                return Ok(());
            }
        }
    }

    /// The group's subscription to pops of any partition; written by the first such pop.
    fn registered(&self, queue: &Queue) -> Result<Subscription> {
        let tables = self.tables;
        if let Some(group) = subscription::find(tables, queue.qid, self.group)
            && group.registered
        {
            return Ok(group);
        }
        subscription::lock_creation(queue.qid);
        match subscription::find(tables, queue.qid, self.group) {
            Some(group) if group.registered => Ok(group),
            Some(mut group) => {
                subscription::register(tables, &mut group, self.asks_to_conflate());
                ready::insert_sweep(tables, group.gid, 0);
                Ok(group)
            }
            None => {
                let ahead = self.skipped(queue, &partition::after(tables, queue.qid, 0, SKIPPED));
                let conflation = self.asks_to_conflate();
                let group = subscription::create(tables, queue.qid, self.group, true, self.start, conflation);
                if self.start == Start::New {
                    self.begin_after(&group, &ahead);
                } else {
                    ready::insert_sweep(tables, group.gid, 0);
                }
                Ok(group)
            }
        }
    }

    /// Says what a group that starts after the backlog does not get. Answers the partitions whose end has a stamp of the
    /// future, and that end: after the clock was set back, times do not tell what was there first.
    fn skipped(&self, queue: &Queue, partitions: &[Partition]) -> Vec<(i64, i64)> {
        let (mut skipped, mut ahead) = (0, Vec::new());
        if self.start != Start::New {
            return ahead;
        }
        let look = |partition: &Partition, ahead: &mut Vec<(i64, i64)>| {
            let tail = segment::tail(self.tables, partition.pid, Sight::Committed);
            if tail.written_at.is_some_and(|at| at > clock::now()) {
                ahead.push((partition.pid, tail.offset));
            }
            tail.offset - segment::trimmed(self.tables, partition.pid)
        };
        for partition in partitions {
            skipped += look(partition, &mut ahead);
        }
        let mut page = partitions.to_vec();
        // Rare enough to look at all of them.
        while let Some(last) = page.last().filter(|_| page.len() == SKIPPED && !ahead.is_empty()) {
            page = partition::after(self.tables, queue.qid, last.pid, SKIPPED);
            for partition in &page {
                skipped += look(partition, &mut ahead);
            }
        }
        if skipped > 0 {
            pgrx::notice!(
                "consumer group \"{}\" starts after {}{skipped} messages that queue \"{}\" already holds; to begin with them, \
                 subscribe with subscription_mode => 'all', or now: SELECT queen.seek('{}', '{}', to_timestamp => '-infinity')",
                queen_core::names::cut(self.group, 64),
                if page.len() == SKIPPED { "at least " } else { "" },
                queen_core::names::cut(&queue.name, 64),
                queue.name.replace('\'', "''"),
                self.group.replace('\'', "''"),
            );
        }
        ahead
    }

    /// Lets a group that was just created begin after these ends.
    fn begin_after(&self, group: &Subscription, ends: &[(i64, i64)]) {
        for &(pid, end) in ends {
            if matches!(cursor::take(self.tables, group.gid, pid, false), Taken::Missing) {
                let cursor = Cursor::initial(group.gid, pid, end);
                cursor::replace(self.tables, &cursor);
                if group.registered {
                    hint_rest(self.tables, &cursor);
                }
            }
        }
    }
}

/// What is superseded could not be given back if the newest were lost.
pub fn conflation_and_auto_ack() -> Error {
    error(ErrorKind::InvalidArgument, "conflation cannot be combined with auto_ack")
}

/// Where a new group starts, from what the pop says (and the configured default). What cannot be read is refused for
/// queue mode too, which then starts at the beginning.
pub fn start(group: &str, mode: Option<&str>, from: Option<&str>) -> Result<Start> {
    let asked = match from {
        Some(from) if from.trim().eq_ignore_ascii_case("now") => Start::New,
        Some(from) => Start::At(crate::api::arguments::timestamp(from, "subscription_from")?),
        None => {
            let (source, mode) = match mode {
                Some(mode) => ("subscription_mode", mode),
                None => ("the setting queen.default_subscription_mode", crate::guc::default_subscription_mode()),
            };
            match mode.trim().to_ascii_lowercase().as_str() {
                "all" => Start::All,
                "new" | "new-only" | "new_only" | "newonly" => Start::New,
                _ => {
                    return Err(error(
                        ErrorKind::InvalidArgument,
                        format!(
                            "{source} must be all or new, got \"{}\"; for a point in time use subscription_from",
                            queen_core::names::cut(mode, 64)
                        ),
                    ));
                }
            }
        }
    };
    Ok(if group == QUEUE_MODE { Start::All } else { asked })
}
