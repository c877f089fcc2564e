//! Finding something to pop: a named partition, any partition of a queue, any queue of a namespace or task.

use crate::broker::claim::{Batch, Claim, Wish, claim, start_of};
use crate::error::{ErrorKind, Result, error};
use crate::pg::clock;
use crate::pg::relation::Tables;
use crate::pg::scan::Sight;
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::ready::{self, Hint};
use crate::rows::segment;
use crate::rows::subscription::{self, QUEUE_MODE, Start, Subscription};
use std::cell::Cell;

/// Partitions that a sweep looks at in one go.
const SWEEP_PAGE: usize = 256;
/// Queues that one call subscribes in at most: each takes a lock in the shared lock table.
const FIRST_CONTACTS: usize = 1000;

thread_local! {
    /// Which queue the next pop of several begins with; sessions begin anywhere.
    static TURN: Cell<usize> = Cell::new(std::process::id() as usize);
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
    pub found: Vec<Batch>,
}

impl Search<'_> {
    fn enough(&self) -> bool {
        self.wish.budget <= 0 || self.partitions == 0
    }

    fn keep(&mut self, batch: Batch) {
        self.wish.budget -= batch.last - batch.first + 1;
        self.partitions -= 1;
        self.found.push(batch);
    }

    /// Pops exactly this partition; creates neither queue nor partition.
    pub fn named(&mut self, tenant: u128, queue_name: &str, partition_name: &str) -> Result<()> {
        let Some(queue) = queue::find(self.tables, tenant, queue_name)? else { return Ok(()) };
        let Some(partition) = partition::find(self.tables, queue.qid, partition_name) else { return Ok(()) };
        let group = match subscription::find(self.tables, queue.qid, self.group) {
            Some(group) => group,
            None => {
                subscription::lock_creation(queue.qid);
                match subscription::find(self.tables, queue.qid, self.group) {
                    Some(group) => group,
                    None => {
                        self.notice_skipped(&queue, &[partition.clone()]);
                        subscription::create(self.tables, queue.qid, self.group, false, self.start)
                    }
                }
            }
        };
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
        self.of_group(queue, &group)
    }

    fn of_group(&mut self, queue: &Queue, group: &Subscription) -> Result<()> {
        let tables = self.tables;
        let mut seen: Vec<i64> = Vec::new();
        ready::each_due(tables, group.gid, clock::now(), |hint, in_progress| {
            match hint.sweep_after() {
                Some(after) if in_progress => self.follow(queue, group, after)?,
                Some(after) => self.sweep(queue, group, hint, after)?,
                None if seen.contains(&hint.pid) => {
                    // One partition, two hints: the first has done it.
                    ready::delete(tables, hint);
                }
                None => {
                    seen.push(hint.pid);
                    self.visit(queue, group, hint)?;
                }
            }
            Ok(!self.enough())
        })
    }

    /// Looks at the partition a hint names.
    fn visit(&mut self, queue: &Queue, group: &Subscription, hint: &Hint) -> Result<()> {
        let Some(partition) = partition::by_pid(self.tables, hint.pid) else {
            // One that is just being created will have its first messages when it is there.
            if !partition::is_known(self.tables, hint.pid) {
                ready::delete(self.tables, hint);
            }
            return Ok(());
        };
        match claim(self.tables, queue, &partition, group, &self.wish, true)? {
            Claim::Busy => {}
            Claim::Empty => {
                // An append that has not committed saw this hint's cause and counts on it: the hint stays for it.
                if !self.unfinished(group, &partition)? {
                    ready::delete(self.tables, hint);
                }
            }
            Claim::NotBefore(time) => {
                // Too early. A lease has its own hint; a delay needs one at its end.
                if ready::delete(self.tables, hint) {
                    ready::delete_exact(self.tables, group.gid, time, hint.pid);
                    ready::insert(self.tables, group.gid, time, hint.pid);
                }
            }
            Claim::Batch(batch) => {
                ready::delete(self.tables, hint);
                self.keep(*batch);
            }
        }
        Ok(())
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
                match claim(self.tables, queue, partition, group, &self.wish, false)? {
                    Claim::Batch(batch) => self.keep(*batch),
                    Claim::Busy => ready::insert(self.tables, group.gid, clock::now(), partition.pid),
                    Claim::NotBefore(time) => ready::insert(self.tables, group.gid, time, partition.pid),
                    Claim::Empty => {
                        if self.unfinished(group, partition)? {
                            ready::insert(self.tables, group.gid, clock::now(), partition.pid);
                        }
                    }
                }
            }
            if page.len() < SWEEP_PAGE {
                return Ok(());
            }
        }
    }

    /// Whether a partition without committed messages for the group has some on the way.
    fn unfinished(&self, group: &Subscription, partition: &Partition) -> Result<bool> {
        let committed = match crate::rows::cursor::newest(self.tables, group.gid, partition.pid) {
            Some(cursor) => cursor.committed,
            None => start_of(self.tables, group, partition)?,
        };
        Ok(segment::tail(self.tables, partition.pid, Sight::Everything).offset > committed)
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
                if let Claim::Batch(batch) = claim(self.tables, queue, partition, group, &self.wish, false)? {
                    self.keep(*batch);
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
                subscription::register(tables, &mut group);
                ready::insert_sweep(tables, group.gid, 0);
                Ok(group)
            }
            None => {
                let group = subscription::create(tables, queue.qid, self.group, true, self.start);
                if self.start == Start::New {
                    self.notice_skipped(queue, &partition::after(tables, queue.qid, 0, 1000));
                } else {
                    ready::insert_sweep(tables, group.gid, 0);
                }
                Ok(group)
            }
        }
    }

    /// Says what a group that starts after the backlog does not get.
    fn notice_skipped(&self, queue: &Queue, partitions: &[Partition]) {
        if self.start != Start::New {
            return;
        }
        let skipped: i64 = partitions
            .iter()
            .map(|p| {
                segment::tail(self.tables, p.pid, Sight::Committed).offset - segment::trimmed(self.tables, p.pid)
            })
            .sum();
        if skipped > 0 {
            pgrx::notice!(
                "consumer group \"{}\" starts after {}{skipped} messages that queue \"{}\" already holds; to begin with them, \
                 subscribe with subscription_mode => 'all', or now: SELECT queen.seek('<queue>', '<group>', to_timestamp => '-infinity')",
                queen_core::names::cut(self.group, 64),
                if partitions.len() >= 1000 { "at least " } else { "" },
                queen_core::names::cut(&queue.name, 64),
            );
        }
    }
}

/// Where a new group starts, from what the pop says (and the configured default). What cannot be read is refused for
/// queue mode too, which then starts at the beginning.
pub fn start(group: &str, mode: Option<&str>, from: Option<&str>) -> Result<Start> {
    let asked = match from {
        Some(from) if from.trim().eq_ignore_ascii_case("now") => Start::New,
        Some(from) => Start::At(crate::api::arguments::timestamp(from, "subscription_from")?),
        None => {
            let mode = match mode {
                Some(mode) => mode,
                None => crate::guc::default_subscription_mode(),
            };
            match mode.trim().to_ascii_lowercase().as_str() {
                "all" => Start::All,
                "new" | "new-only" | "new_only" | "newonly" => Start::New,
                _ => {
                    return Err(error(
                        ErrorKind::InvalidArgument,
                        format!(
                            "subscription_mode must be all or new, got \"{}\"; for a point in time use subscription_from",
                            queen_core::names::cut(mode, 64)
                        ),
                    ));
                }
            }
        }
    };
    Ok(if group == QUEUE_MODE { Start::All } else { asked })
}
