//! Pops, and consumers that wait for something to pop.
//!
//! Waiting pops of one group in one queue (or partition, or namespace and task) stand in a row. Only its first asks the
//! database, and only when there is a reason: the row is new, a commit touched the queue ([`changes`]), or a time has
//! come ([`clock`]). So a thousand parked consumers cost what one costs, and none holds a connection.
//!
//! Invariants:
//! - A row is known before its first pop runs, so a commit between that pop and the parking is not missed: it marks the
//!   row, and the row asks again.
//! - Nobody who is gone claims: a waiter whose client has left is skipped, and what was claimed for a client that left
//!   meanwhile is released.
//! - Nothing is claimed that there is no memory for: see [`crate::answers`].

mod changes;
mod clock;
mod fill;
mod pop;
mod row;

use pop::Missed;
pub use pop::{Popped, Target, Wanted};
use row::{Rows, Standing, Ticket, Waiter};

use crate::answers::{Allowance, at_once};
use crate::budget::{Budget, PATIENCE};
use crate::database::{Database, Statement};
use crate::error::CallError;
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::tenant::Tenant;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio_postgres::types::Type;
use uuid::Uuid;

/// How much longer than its time a waiter is given when its pop is under way just then.
const GRACE: Duration = Duration::from_secs(2);
/// How long a row rests after the database could not be reached.
const REST: Duration = Duration::from_millis(500);

const RELEASE: Statement = Statement { sql: "SELECT queen.release($1)::text", types: &[Type::UUID] };

/// What a pop is answered.
pub type Answer = Result<Popped, CallError>;

/// All pops go through here.
#[derive(Clone)]
pub struct Polls(Arc<Inner>);

struct Inner {
    database: Database,
    metrics: Arc<Metrics>,
    answers: Budget,
    rows: Mutex<Rows>,
    /// Which queues let a batch fill.
    fills: fill::Fills,
    /// Pops under way at once: pushes and acks keep connections for themselves.
    permits: Semaphore,
    /// Somebody waits.
    parked: Notify,
    /// A row rests whose next time is not known yet.
    rested: Notify,
    /// Set when the server ends: nobody waits any more.
    closing: watch::Sender<bool>,
}

impl Polls {
    /// Starts hearing of commits.
    pub fn new(database: Database, metrics: Arc<Metrics>, answers: Budget, permits: usize) -> Polls {
        let polls = Polls(Arc::new(Inner {
            database,
            metrics,
            answers,
            rows: Mutex::default(),
            fills: fill::Fills::default(),
            permits: Semaphore::new(permits.max(1)),
            parked: Notify::new(),
            rested: Notify::new(),
            closing: watch::Sender::new(false),
        }));
        tokio::spawn(changes::listen(polls.clone()));
        tokio::spawn(clock::keep(polls.clone()));
        polls
    }

    /// Pops once.
    ///
    /// # Errors
    /// As [`Database::call`], and `NoRoom`.
    pub async fn pop(&self, wanted: Wanted, peer: Peer) -> Answer {
        let (reply, answer) = oneshot::channel();
        let polls = self.clone();
        let (wanted, client) = (Arc::new(wanted), peer.clone());
        let waiter = Waiter { wanted: wanted.clone(), reply, standing: Arc::default(), peer };
        // A task, because the client may leave while the call is under way.
        tokio::spawn(async move {
            let answer = polls.ask(&waiter).await;
            let answer = answer.unwrap_or_else(|| Ok(Popped::nothing(&waiter.wanted, None)));
            polls.deliver(waiter, answer);
        });
        match answer.await {
            Ok(answer) => answer,
            // What was claimed has been given back, and nobody reads this.
            Err(_) if client.has_left() => Ok(Popped::nothing(&wanted, None)),
            Err(_) => Err(CallError::Lost),
        }
    }

    /// Pops, and waits at most so long until there is something, or until `paused` says true. A passing trouble of the database is waited out, too.
    ///
    /// # Errors
    /// As [`Database::call`], but for `NoConnection` and `Lost`; `NoRoom` when its time is over.
    pub async fn wait(
        &self,
        wanted: Wanted,
        peer: Peer,
        timeout: Duration,
        mut paused: watch::Receiver<bool>,
    ) -> Answer {
        let (reply, mut answer) = oneshot::channel();
        let standing = Arc::<Standing>::default();
        let wanted = Arc::new(wanted);
        let waiter = Waiter { wanted: wanted.clone(), reply, standing: standing.clone(), peer };
        let ticket = Ticket::enter(self, waiter);
        let mut closing = self.0.closing.subscribe();
        let answered = tokio::select! {
            answered = &mut answer => Some(answered),
            () = tokio::time::sleep(timeout) => None,
            _ = closing.wait_for(|closing| *closing) => None,
            Ok(_) = paused.wait_for(|paused| *paused) => None,
        };
        let answered = match answered {
            Some(answered) => answered,
            None => {
                standing.give_up();
                // Before leaving: with its last waiter, a row forgets the group's policy.
                let nothing = self.nothing(&wanted);
                if ticket.leave() {
                    return standing.in_vain(nothing);
                }
                // Its pop is under way. What that settles itself is gone if nobody waits for it, and cannot be given back.
                if wanted.auto_ack {
                    answer.await
                } else {
                    match tokio::time::timeout(GRACE, answer).await {
                        Ok(answered) => answered,
                        Err(_) => return standing.in_vain(nothing),
                    }
                }
            }
        };
        answered.unwrap_or_else(|_| standing.in_vain(self.nothing(&wanted)))
    }

    /// Answers everybody who waits, and lets nobody wait any more.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Somebody says that there may be something in a queue.
    pub fn touch(&self, tenant: Tenant, queue: &str) {
        let keys = self.rows().touched(tenant, queue.to_owned());
        self.start(keys);
    }

    /// Waiting pops, by queue (the empty name: of a namespace or task).
    pub fn parked(&self) -> Vec<(Tenant, String, usize)> {
        self.rows().parked()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The answer of a pop that found nothing.
    fn nothing(&self, wanted: &Wanted) -> Popped {
        let known = self.rows().policy(wanted);
        Popped::nothing(wanted, known)
    }

    /// Asks for one pop, once there is memory for its answer. None: its client has left.
    async fn ask(&self, waiter: &Waiter) -> Option<Answer> {
        let Inner { database, metrics, answers, permits, .. } = &*self.0;
        let wanted = &waiter.wanted;
        let mut needs: Option<(Allowance, Instant)> = None;
        loop {
            // Waited for without a permit, so that those who need less go on.
            let reserved = match needs {
                None => None,
                Some((allowed, until)) => {
                    match answers.wait_for(allowed.bytes(), until, || waiter.wants_no_more()).await {
                        Some(room) => Some((Some(room), allowed)),
                        None if waiter.is_gone() => return None,
                        None => return Some(Err(CallError::NoRoom)),
                    }
                }
            };
            let Ok(_permit) = permits.acquire().await else { return Some(Err(CallError::NoConnection)) };
            if waiter.is_gone() {
                return None;
            }
            let (room, allowed) = reserved.unwrap_or_else(|| at_once(answers, wanted.batch, wanted.names()));
            let began = Instant::now();
            let mut popped = match wanted.pop(database, allowed).await {
                Ok(popped) => popped,
                Err(Missed::TooLong(bytes)) => {
                    let until = needs.map_or_else(|| Instant::now() + PATIENCE, |(_, until)| until);
                    needs = Some((allowed.for_text(bytes), until));
                    continue;
                }
                Err(Missed::Failed(error)) => {
                    metrics.failed(&error);
                    metrics.pop(wanted, 0, began.elapsed());
                    return Some(Err(error));
                }
            };
            popped.room = answers.keep(room, popped.body.as_ref().map_or(0, String::len));
            metrics.pop(wanted, popped.messages, began.elapsed());
            return Some(Ok(popped));
        }
    }

    /// Hands an answer over; when nobody takes it, its lease is given back.
    fn deliver(&self, waiter: Waiter, answer: Answer) {
        let undelivered = match answer {
            Ok(popped) if waiter.peer.has_left() => popped,
            answer => match waiter.reply.send(answer) {
                Err(Ok(popped)) => popped,
                _ => return,
            },
        };
        let Some(lease) = undelivered.lease.as_deref().and_then(|l| Uuid::try_parse(l).ok()) else { return };
        let (polls, tenant) = (self.clone(), undelivered.tenant);
        tokio::spawn(async move {
            // If this fails, the lease runs out.
            _ = polls.0.database.call(tenant, RELEASE, &[&lease]).await;
        });
    }

    /// Asks for the first of a row, then the next, as long as there is something.
    async fn serve(self, key: Arc<row::Key>) {
        loop {
            let Some((place, waiter)) = self.rows().next(&key) else { return };
            self.fill(&waiter).await;
            match self.ask(&waiter).await {
                // The next one, then.
                None => {}
                Some(Ok(popped)) if popped.messages == 0 => {
                    let again = self.rows().put_back(&key, place, waiter, popped);
                    if !again {
                        self.0.rested.notify_one();
                        return;
                    }
                }
                Some(Err(error @ (CallError::NoConnection | CallError::Lost | CallError::NoRoom))) => {
                    waiter.standing.has_room(!matches!(error, CallError::NoRoom));
                    self.rows().rest(&key, place, waiter, REST);
                    self.0.rested.notify_one();
                    return;
                }
                Some(other) => {
                    self.rows().served(&key);
                    self.deliver(waiter, other);
                }
            }
        }
    }

    fn start(&self, keys: impl IntoIterator<Item = Arc<row::Key>>) {
        for key in keys {
            tokio::spawn(self.clone().serve(key));
        }
    }
}
