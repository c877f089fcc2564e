//! Locks on something that has no row yet, held until the transaction ends if they are not given back.
#![allow(unsafe_code)]

use pgrx::pg_sys;

/// The fourth field of our lock tags. SQL's advisory locks use 1 and 2.
const OURS: u16 = 0x5145;

/// What is about to be created.
pub enum Creation {
    /// A queue (tenant, name), by hash; also taken by whoever drops one.
    Queue(u64),
    /// Partitions of a queue: shared by who creates some, alone for who drops the queue.
    Partitions(i64),
    /// The key of the next partition of a queue, until its row is there.
    PartitionKey(i64),
    /// The first cursor of (group, partition).
    Cursor(i64, i64),
    /// A subscription of a queue.
    Subscription(i64),
    /// Dead letters of a group that are counted, one transaction after the other.
    Count(i64),
    /// Housekeeping: one at a time.
    Maintenance,
    /// Folding the tally of dead letters: one at a time.
    Tally,
}

fn tag(what: &Creation) -> pg_sys::LOCKTAG {
    let mix = |kind: u64, a: u64| (a ^ (kind << 61)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    let key = match *what {
        Creation::Queue(hash) => mix(0, hash),
        Creation::Partitions(qid) => mix(1, qid as u64),
        Creation::Cursor(gid, pid) => mix(2, (gid as u64).rotate_left(36) ^ pid as u64),
        Creation::Subscription(qid) => mix(3, qid as u64),
        Creation::Maintenance => mix(4, 0),
        Creation::Tally => mix(5, 0),
        Creation::Count(gid) => mix(6, gid as u64),
        Creation::PartitionKey(qid) => mix(7, qid as u64),
    };
    pg_sys::LOCKTAG {
        // SAFETY: set once, when the backend connects.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: (key >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: OURS,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

/// Takes the exclusive lock. False: somebody has it and `wait` is off.
pub fn lock(what: Creation, wait: bool) -> bool {
    acquire(what, pg_sys::ExclusiveLock, wait)
}

/// Takes the lock together with others who share it; waits for who has it alone.
pub fn share(what: Creation) {
    acquire(what, pg_sys::ShareLock, true);
}

fn acquire(what: Creation, mode: u32, wait: bool) -> bool {
    // SAFETY: a lock tag on the stack; transaction-level lock.
    let result = unsafe { pg_sys::LockAcquire(&tag(&what), mode as i32, false, !wait) };
    result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Gives a lock back that this call has taken.
pub fn unlock(what: Creation) {
    // SAFETY: as in lock.
    unsafe { pg_sys::LockRelease(&tag(&what), pg_sys::ExclusiveLock as i32, false) };
}
