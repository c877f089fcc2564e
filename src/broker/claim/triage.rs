//! What a claim gives up instead of delivering it: messages whose deadline has passed, and those that were delivered too
//! often without a word. Both are off unless the queue's options say otherwise.

use super::{Claiming, Seen};
use crate::broker::dead::{self, Failure};
use crate::broker::recent;
use crate::error::Result;
use crate::pg::call::iso;
use crate::pg::{clock, commit};
use crate::rows::cursor::Cursor;
use queen_core::classify::Class;
use queen_core::deadline;
use queen_core::options::QueueOptions;

/// Messages that one claim gives up at most: each is a row, and the pop answers only then.
const AT_ONCE: usize = 100;

/// How many messages a claim has given up.
#[derive(Default)]
pub(super) struct GivenUp(usize);

impl GivenUp {
    pub fn any(&self) -> bool {
        self.0 > 0
    }
}

/// What a claim does with what it has seen.
pub(super) enum Triage {
    /// What is left of it is delivered.
    Deliver,
    /// Nothing is left: what comes next?
    LookOn,
    /// So many were given up that the rest has to wait for the next pop.
    Enough,
}

/// Why a message is not delivered.
#[derive(Clone, Copy)]
enum Cause {
    /// Its deadline, microseconds of the server's clock.
    Expired(i64),
    /// How often it was delivered.
    Deliveries(i32),
}

/// Whether any of what a claim has seen may have to be given up. Counts never rise with the offset, so without deadlines
/// the first message speaks for all.
pub(super) fn needed(options: &QueueOptions, cursor: &Cursor, seen: &Seen) -> bool {
    options.deadlines
        || (options.max_deliveries > 0 && cursor.deliveries.attempts_of(seen.first) >= options.max_deliveries)
}

impl Claiming<'_> {
    /// Gives up what must be given up at the front, and cuts the rest before the next such message: its turn comes with
    /// the next pop. The front is filed and the cursor moved, but not written.
    ///
    /// Of a conflating group, the newest message is all that is seen; with it goes what it supersedes.
    pub(super) fn triage(
        &self,
        cursor: &mut Cursor,
        seen: &mut Seen,
        given_up: &mut GivenUp,
        now: i64,
    ) -> Result<Triage> {
        let (mut front, mut deliver) = (Vec::new(), None);
        for piece in &seen.pieces {
            recent::each_frame(self.partition.pid, piece, seen.first, seen.last, |offset, frame| {
                match (self.cause(cursor, offset, frame.headers, now), deliver) {
                    (Some(cause), None) => front.push((offset, cause)),
                    (Some(_), Some((first, last))) if last == i64::MAX => deliver = Some((first, offset - 1)),
                    (None, None) => deliver = Some((offset, i64::MAX)),
                    _ => {}
                }
                Ok(())
            })?;
        }
        let room = AT_ONCE - given_up.0;
        let enough = front.len() > room;
        front.truncate(room);
        for (offset, cause) in front {
            self.give_up(cursor, offset, cause, now)?;
            given_up.0 += 1;
        }
        match deliver {
            _ if enough => Ok(Triage::Enough),
            None if given_up.0 >= AT_ONCE => Ok(Triage::Enough),
            None => Ok(Triage::LookOn),
            Some((first, last)) => {
                if first > seen.first {
                    seen.first = first;
                    seen.behind = first - 1;
                }
                seen.last = seen.last.min(last);
                let (first, last) = (seen.first, seen.last);
                seen.pieces.retain(|piece| piece.end >= first && piece.base <= last);
                Ok(Triage::Deliver)
            }
        }
    }

    fn cause(&self, cursor: &Cursor, offset: i64, headers: Option<&[u8]>, now: i64) -> Option<Cause> {
        let options = &self.queue.options;
        if options.deadlines
            // One that cannot be read was pushed while deadlines were off, and means nothing.
            && let Some(deadline) = headers.and_then(|h| deadline::of_headers(h).ok().flatten())
        {
            let deadline = deadline.saturating_sub(clock::EPOCH_SHIFT);
            if deadline <= now {
                return Some(Cause::Expired(deadline));
            }
        }
        let deliveries = cursor.deliveries.attempts_of(offset);
        (options.max_deliveries > 0 && deliveries >= options.max_deliveries).then_some(Cause::Deliveries(deliveries))
    }

    fn give_up(&self, cursor: &mut Cursor, offset: i64, cause: Cause, now: i64) -> Result<()> {
        if self.queue.options.dead_letter_enabled() {
            let (text, reason, class) = match cause {
                Cause::Expired(deadline) => {
                    (format!("not delivered: the deadline {} has passed", iso(deadline)), "expired", Class::Expired)
                }
                Cause::Deliveries(n) => {
                    (format!("delivered {n} times and never settled"), "max_deliveries", Class::Poison)
                }
            };
            let failure = Failure {
                offset,
                text: text.into(),
                reason: reason.into(),
                class: Some(class),
                code: None,
                attempts: cursor.deliveries.attempts_of(offset),
                retries: cursor.retries,
                first_failed_at: cursor.failing_since.unwrap_or(now),
                now,
            };
            dead::file(self.tables, self.queue, self.partition, self.group, &failure, None)?;
        }
        cursor.give_up(offset);
        commit::settled();
        Ok(())
    }
}
