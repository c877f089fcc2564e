//! Appending: pushes become segments, one for each partition, under the lanes' locks taken in one global order
//! (tenant, queue name, partition name).

use crate::broker::{lookup, seal};
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pending;
use crate::pg::relation::{Lock, Tables, queue_generation};
use crate::pg::scan::Sight;
use crate::pg::shared_append::{self, Offer};
use crate::pg::{clock, commit};
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::subscription::{self, Subscription};
use crate::rows::{cursor, lane, ready, segment, transaction_id};
use queen_core::id::{self, IdGenerator};
use queen_core::segment::{FrameIn, encode, transaction_hash};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

thread_local! {
    static IDS: RefCell<IdGenerator> = RefCell::new(IdGenerator::new());
}

/// The first of `n` consecutive message ids whose time is `at` (server microseconds) or later.
pub fn mint(at: i64, n: u64) -> u128 {
    IDS.with_borrow_mut(|ids| ids.reserve(clock::to_unix(at), n))
}

/// One message to append.
pub struct Push<'a> {
    pub tenant: u128,
    pub queue: Cow<'a, str>,
    pub partition: Cow<'a, str>,
    pub payload: Cow<'a, str>,
    /// None: the message id.
    pub transaction_id: Option<Cow<'a, str>>,
    pub trace_id: Option<u128>,
    pub headers: Option<Cow<'a, str>>,
    pub producer: Option<Cow<'a, str>>,
    /// None: minted when appended, so that ids sort like offsets.
    pub id: Option<u128>,
}

impl Push<'_> {
    fn lane(&self) -> (u128, &str, &str) {
        (self.tenant, &self.queue, &self.partition)
    }
}

/// When an append happens, as far as others may wait for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In the middle of a transaction, which may go on for long.
    Now,
    /// The transaction is committing: its pushes may be left to another session, or others' taken along.
    Commit,
    /// The transaction is being prepared, and may stay so for long.
    Prepare,
}

/// What became of a push.
#[derive(Clone, Copy, Debug)]
pub struct Pushed {
    /// The stored message: this one, or the original of a duplicate.
    pub message_id: u128,
    pub partition_id: u128,
    pub offset: i64,
    pub duplicate: bool,
}

/// Raw bytes of frames that one segment holds at most; more make another segment of the same append.
const SEGMENT_BYTES: usize = 32 << 20;

/// A transaction id that may not repeat in a dropped queue's successor: how often a drop may get in between.
const ATTEMPTS: usize = 5;

/// Appends `pushes`; results are in the same order. Holds the lanes until the transaction ends.
///
/// # Errors
/// Encrypted queue without key (`EncryptionUnavailable`); damaged segment met while looking for a duplicate.
pub fn append(tables: &Tables, pushes: &[Push<'_>], when: When) -> Result<Vec<Pushed>> {
    let mut order: Vec<usize> = (0..pushes.len()).collect();
    order.sort_by(|&a, &b| pushes[a].lane().cmp(&pushes[b].lane()));
    // Whose message was taken along cannot give up until the taker has committed, so a taker must not wait for another lane.
    let one_lane = order.first().zip(order.last()).is_some_and(|(&a, &b)| pushes[a].lane() == pushes[b].lane());
    let when = if one_lane { when } else { When::Now };
    let mut results = vec![None; pushes.len()];
    let mut work = Vec::new();
    // Whatever has to be created is created before the first lane is locked: one order for everybody.
    for of_queue in
        order.chunk_by(|&a, &b| (pushes[a].tenant, &pushes[a].queue) == (pushes[b].tenant, &pushes[b].queue))
    {
        work.push((of_queue, Target::find(tables, pushes, of_queue, of_queue.len() < order.len())?));
    }
    for (of_queue, mut target) in work {
        let mut attempts = 0;
        while !append_to_queue(tables, pushes, &target, when, &mut results)? {
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(error(ErrorKind::Internal, "the queue was dropped again and again during the push"));
            }
            target = Target::find(tables, pushes, of_queue, false)?;
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// A queue that is pushed to, with its lanes in order.
struct Target<'o> {
    queue: Rc<Queue>,
    lanes: Vec<(&'o [usize], Rc<Partition>)>,
}

impl<'o> Target<'o> {
    /// Finds or creates the queue and the partitions that the pushes at `order` name. `among`: there are others, whose lanes may
    /// be taken first; then nobody drops this one meanwhile, since it would have to be made again under their locks.
    fn find(tables: &Tables, pushes: &[Push<'_>], order: &'o [usize], among: bool) -> Result<Target<'o>> {
        for _ in 0..ATTEMPTS {
            let (tenant, name, _) = pushes[order[0]].lane();
            let queue = lane::queue(tables, tenant, name)?;
            let lanes: Vec<&[usize]> = order.chunk_by(|&a, &b| pushes[a].partition == pushes[b].partition).collect();
            let mut found: Vec<Option<Rc<Partition>>> =
                lanes.iter().map(|lane| lane::partition(tables, queue.qid, &pushes[lane[0]].partition)).collect();
            if among || found.iter().any(Option::is_none) {
                partition::announce_creation(queue.qid);
                if queue::by_qid(tables, queue.qid)?.is_none() {
                    lane::forget();
                    continue;
                }
                for (lane, slot) in lanes.iter().zip(&mut found) {
                    if slot.is_none() {
                        let name = &pushes[lane[0]].partition;
                        *slot = Some(Rc::new(partition::find_or_create(tables, queue.qid, name)));
                    }
                }
            }
            let lanes = lanes.into_iter().zip(found.into_iter().flatten()).collect();
            return Ok(Target { queue, lanes });
        }
        Err(error(ErrorKind::Internal, "the queue was dropped again and again during the push"))
    }
}

/// False: the queue was dropped meanwhile; nothing was appended to it.
fn append_to_queue(
    tables: &Tables,
    pushes: &[Push<'_>],
    target: &Target<'_>,
    when: When,
    results: &mut [Option<Pushed>],
) -> Result<bool> {
    let mut generation = queue_generation();
    let mut queue = target.queue.clone();
    let mut sealer = seal::sealer(&queue.name, &queue.options)?;
    let mut appended = Vec::with_capacity(target.lanes.len());
    for (lane, partition) in &target.lanes {
        let mut held = partition::try_lock_for_append(tables, partition);
        if held == Lock::Busy {
            held = match pushes {
                // Somebody is appending here. A lone message can go along with the next append.
                [only] if when == When::Commit && sealer.is_none() => match go_along(tables, partition, only) {
                    Along::Stored(pushed) => {
                        results[lane[0]] = Some(pushed);
                        return Ok(true);
                    }
                    Along::Lock(held) => held,
                },
                _ => wait_for_lane(tables, partition),
            };
        }
        if held != Lock::Held {
            lane::forget();
            return Ok(false);
        }
        // Options that were committed before we had the lane count.
        if queue_generation() != generation {
            generation = queue_generation();
            match queue::by_qid(tables, queue.qid)? {
                Some(now) => queue = Rc::new(now),
                None => return Ok(false),
            }
            sealer = seal::sealer(&queue.name, &queue.options)?;
        }
        commit::appended(queue.qid, partition.pid);
        let writer = Writer { tables, pushes, queue: &queue, partition, sealer: sealer.as_ref(), when };
        if let Some(written) = writer.append(lane, results)? {
            appended.push((partition, written));
        }
    }
    // Groups are read after the last segment is there: one that registers meanwhile is seen here, or sees it.
    if !appended.is_empty() {
        for group in subscription::to_tell(tables, queue.qid).iter().filter(|g| g.registered) {
            for (partition, written) in &appended {
                hint(tables, &queue, partition, group, written);
            }
        }
    }
    Ok(true)
}

fn wait_for_lane(tables: &Tables, partition: &Partition) -> Lock {
    commit::contended();
    if partition::lock_for_append(tables, partition) { Lock::Held } else { Lock::Gone }
}

/// What became of a message that another append may take along.
enum Along {
    Stored(Pushed),
    Lock(Lock),
}

/// Lets the next append to a busy lane take this message along; see [`shared_append`].
fn go_along(tables: &Tables, partition: &Partition, push: &Push<'_>) -> Along {
    let plain =
        push.transaction_id.is_none() && push.trace_id.is_none() && push.headers.is_none() && push.producer.is_none();
    let Some(id) = push.id.filter(|_| plain && commit::nothing_written() && !commit::may_still_fail()) else {
        return Along::Lock(wait_for_lane(tables, partition));
    };
    let try_lock = || partition::try_lock_for_append(tables, partition);
    match shared_append::offer(partition.pid, id, push.payload.as_bytes(), try_lock) {
        Offer::Stored { offset, lsn } => {
            shared_append::wait_durable(lsn);
            Along::Stored(Pushed { message_id: id, partition_id: partition.id, offset, duplicate: false })
        }
        Offer::Ours => Along::Lock(Lock::Held),
        Offer::Gone => Along::Lock(Lock::Gone),
        Offer::Wait => Along::Lock(wait_for_lane(tables, partition)),
    }
}

/// What an append has put into a lane.
struct Written {
    before: segment::Tail,
    end: i64,
    created_at: i64,
}

/// Pushes that are to be stored, and those that repeat one of them (with it).
type Sorted = (Vec<usize>, Vec<(usize, usize)>);

/// Writes to one lane that is locked.
struct Writer<'a> {
    tables: &'a Tables,
    pushes: &'a [Push<'a>],
    queue: &'a Queue,
    partition: &'a Partition,
    sealer: Option<&'a queen_core::envelope::KeyRing>,
    when: When,
}

impl Writer<'_> {
    /// Appends the pushes at `lane` that are no duplicates, and what other sessions offer; None when there is nothing.
    fn append(&self, lane: &[usize], results: &mut [Option<Pushed>]) -> Result<Option<Written>> {
        let before = segment::tail(self.tables, self.partition.pid, Sight::Committed);
        let created_at = clock::now().max(before.written_at.map_or(i64::MIN, |at| at + 1));
        let (fresh, followers) = self.sort_out(lane, before, created_at, results)?;
        let end = if fresh.is_empty() { before.offset } else { self.write(&fresh, before, created_at, results)? };
        for (follower, leader) in followers {
            results[follower] = results[leader].map(|r| Pushed { duplicate: true, ..r });
        }
        Ok((end > before.offset).then_some(Written { before, end, created_at }))
    }

    /// Tells apart what is to be stored and what repeats an earlier item of this append (with that item); answers those
    /// that are duplicates of something stored.
    fn sort_out(
        &self,
        lane: &[usize],
        before: segment::Tail,
        created_at: i64,
        results: &mut [Option<Pushed>],
    ) -> Result<Sorted> {
        let Writer { tables, pushes, queue, partition, .. } = *self;
        let window = i64::from(queue.options.dedup_window_seconds) * 1_000_000;

        let own = if window > 0 { None } else { pending::appends_to(partition.pid, before.offset + 1) };
        let mut fresh: Vec<usize> = Vec::with_capacity(lane.len());
        let mut first_with: HashMap<&str, usize> = HashMap::new();
        let mut followers: Vec<(usize, usize)> = Vec::new();
        for &i in lane {
            if let Some(wanted) = pushes[i].transaction_id.as_deref() {
                if let Some(&leader) = first_with.get(wanted) {
                    followers.push((i, leader));
                    continue;
                }
                first_with.insert(wanted, i);
                // With the window off, only what this transaction itself has appended counts.
                let original = match own {
                    _ if window > 0 => lookup::duplicate(tables, partition.pid, wanted, created_at - window)?,
                    Some(first) => lookup::find(tables, partition.pid, wanted)?.into_iter().find(|f| f.offset >= first),
                    None => None,
                };
                if let Some(original) = original {
                    results[i] = Some(Pushed {
                        message_id: original.message_id,
                        partition_id: partition.id,
                        offset: original.offset,
                        duplicate: true,
                    });
                    continue;
                }
            }
            fresh.push(i);
        }

        Ok((fresh, followers))
    }

    /// Writes the segments; answers the last offset.
    fn write(
        &self,
        fresh: &[usize],
        before: segment::Tail,
        created_at: i64,
        results: &mut [Option<Pushed>],
    ) -> Result<i64> {
        let Writer { tables, pushes, partition, sealer, when, .. } = *self;
        let minted = fresh.iter().filter(|&&i| pushes[i].id.is_none()).count();
        let mut next_id = if minted > 0 { mint(created_at, minted as u64) } else { 0 };
        let mut sealed = Vec::new();
        if let Some(ring) = sealer {
            for &i in fresh {
                sealed.push(ring.seal(pushes[i].payload.as_bytes())?);
            }
        }
        let mut frames: Vec<FrameIn<'_>> = Vec::with_capacity(fresh.len());
        for (n, &i) in fresh.iter().enumerate() {
            let push = &pushes[i];
            let message_id = push.id.unwrap_or_else(|| {
                next_id += 1;
                next_id - 1
            });
            let explicit = push.transaction_id.as_deref().filter(|t| id::parse_canonical(t) != Some(message_id));
            frames.push(FrameIn {
                id: message_id,
                transaction_id: explicit,
                payload: sealed.get(n).map_or(push.payload.as_bytes(), |s| s.as_bytes()),
                headers: push.headers.as_deref().map(str::as_bytes),
                trace_id: push.trace_id,
                producer: push.producer.as_deref(),
                enqueued_at: None,
                encrypted: sealer.is_some(),
            });
        }
        let along = if when == When::Commit && sealer.is_none() && shared_append::any() {
            // Whose message is taken cannot give up before we have committed: nothing is waited for after this.
            tables.open_all();
            shared_append::take(partition.pid)
        } else {
            Vec::new()
        };
        frames.extend(along.iter().map(|taken| FrameIn {
            id: taken.id,
            transaction_id: None,
            payload: &taken.payload,
            headers: None,
            trace_id: None,
            producer: None,
            enqueued_at: None,
            encrypted: false,
        }));
        let own = fresh.len() as i64;
        commit::appended_for(along.iter().zip(before.offset + 1 + own..).map(|(taken, offset)| taken.written(offset)));
        let mut offset = before.offset + 1;
        for (part, written_at) in split(&frames).into_iter().zip(created_at..) {
            let data = encode(part, &guc::encode_options())?;
            segment::insert(tables, partition.pid, offset, part.len(), written_at, &data);
            for frame in part {
                match frame.transaction_id {
                    Some(explicit) => {
                        transaction_id::insert(tables, partition.pid, transaction_hash(explicit), offset);
                    }
                    None if !lookup::self_locating(frame.id, written_at) => {
                        transaction_id::insert(tables, partition.pid, transaction_hash(&id::format(frame.id)), offset);
                    }
                    None => {}
                }
                if let Some(&at) = fresh.get((offset - before.offset - 1) as usize) {
                    results[at] =
                        Some(Pushed { message_id: frame.id, partition_id: partition.id, offset, duplicate: false });
                }
                offset += 1;
            }
        }
        Ok(offset - 1)
    }
}

/// Tells a group about new messages, when nothing else will: when it had nothing to do here.
///
/// Nobody waits for anybody: this append and an ack that settles the lane's last message may run next to each other. Each
/// writes its own row first and then looks at the other's, in-progress rows included, so at least one of them hints.
fn hint(tables: &Tables, queue: &Queue, partition: &Partition, group: &Subscription, written: &Written) {
    let Written { before, end, created_at } = *written;
    let idle = cursor::drained_at(tables, group.gid, partition.pid, before.offset)
        // No cursor yet: the append that reaches the group's start hints; so does every one while stamps are ahead of a
        // clock that was set back, since they do not tell who came first.
        .unwrap_or_else(|| before.written_at.is_none_or(|at| at < group.start_at) || created_at > clock::now());
    // Retention may have taken everything that was there when the lane was read, and a sweep have found nothing.
    let retains = queue.options.retention_enabled || queue.options.max_wait_time_seconds > 0;
    let idle = idle || (retains && segment::trimmed(tables, partition.pid) >= before.offset);
    let window = i64::from(queue.options.window_buffer) * 1_000_000;
    if idle {
        ready::insert(tables, group.gid, due_at(queue, created_at), partition.pid);
    }
    if window > 0 {
        let committed = cursor::newest(tables, group.gid, partition.pid).map_or(-1, |c| c.committed);
        let full = i64::from(crate::broker::claim::WINDOW_FULL);
        if before.offset - committed < full && end - committed >= full {
            ready::insert(tables, group.gid, clock::now(), partition.pid);
        }
    }
}

/// When a segment written at `created_at` can be delivered at the earliest. A stamp that is ahead of the clock delays
/// nothing by itself.
pub fn due_at(queue: &Queue, created_at: i64) -> i64 {
    let delay = i64::from(queue.options.delayed_processing.max(queue.options.window_buffer));
    if delay > 0 { created_at + delay * 1_000_000 } else { created_at.min(clock::now()) }
}

/// Cuts an append into segments of bounded size; almost always one.
fn split<'f, 'a>(frames: &'f [FrameIn<'a>]) -> Vec<&'f [FrameIn<'a>]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (i, frame) in frames.iter().enumerate() {
        let texts = frame.transaction_id.map_or(0, str::len) + frame.producer.map_or(0, str::len);
        let size = frame.payload.len() + frame.headers.map_or(0, <[u8]>::len) + texts;
        if i > start && bytes + size > SEGMENT_BYTES {
            parts.push(&frames[start..i]);
            (start, bytes) = (i, 0);
        }
        bytes += size;
    }
    parts.push(&frames[start..]);
    parts
}
