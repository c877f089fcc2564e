//! Filing: a message that a group gives up on becomes a dead letter, in the transaction that gives it up, and is pushed to
//! the queue that its queue names for that.
//!
//! Nothing here may be a reason not to file: what cannot be classified is unknown, what cannot be sealed is redacted.

use crate::broker::append::{Push, mint};
use crate::broker::pause;
use crate::broker::recent;
use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pending;
use crate::pg::call::nest_level;
use crate::pg::commit;
use crate::pg::relation::Tables;
use crate::rows::dead_letter::{self, KEPT, PENDING, REDACTED, Record, SEALED};
use crate::rows::partition::{self, Partition};
use crate::rows::queue::{self, Queue};
use crate::rows::segment;
use crate::rows::subscription::Subscription;
use queen_core::classify::{Class, Rules, Stated, classify};
use queen_core::headers::{self, Headers};
use queen_core::options::{Evidence, QueueOptions};
use queen_core::redact::{Allow, payload_hash, redact};
use queen_core::segment::{Frame, OwnedFrame};
use queen_core::{fingerprint::fingerprint, id, mask, names};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A message that a group gives up on, and why.
pub struct Failure<'a> {
    /// Its offset.
    pub offset: i64,
    /// The error text.
    pub text: Cow<'a, str>,
    /// `retries_exhausted`, `fatal`, `no_handler`, `decode_error`, `malformed_envelope`, `expired`, `max_deliveries`, or the
    /// consumer's own word.
    pub reason: Cow<'a, str>,
    /// What the consumer said of class and code, or the broker for it; the rest is found out.
    pub class: Option<Class>,
    pub code: Option<String>,
    /// Failures charged before this one.
    pub retries: i32,
    /// Deliveries of the message to the group.
    pub attempts: i32,
    /// Server microseconds.
    pub first_failed_at: i64,
    pub now: i64,
}

thread_local! {
    // Compiled rules and paths by the options that they are part of: equal options, equal rules.
    static COMPILED: RefCell<HashMap<String, Rc<(Rules, Allow)>>> = RefCell::default();
}

/// The rules and paths of a queue; None when it has neither.
pub fn compiled(options: &QueueOptions) -> Option<Rc<(Rules, Allow)>> {
    if options.dead_letter_rules.is_empty() && options.redaction_allow.is_empty() {
        return None;
    }
    let key = serde_json::to_string(&(&options.dead_letter_rules, &options.redaction_allow)).ok()?;
    COMPILED.with_borrow_mut(|known| {
        if let Some(found) = known.get(&key) {
            return Some(found.clone());
        }
        if known.len() >= 100 {
            known.clear();
        }
        // They were checked when the queue was configured.
        let rules = Rules::compile(&options.dead_letter_rules).ok()?;
        let made = Rc::new((rules, Allow::parse(&options.redaction_allow).ok()?));
        known.insert(key, made.clone());
        Some(made)
    })
}

/// A message that a dead letter is made of.
pub struct Found {
    pub frame: OwnedFrame,
    /// When its segment was stored, server microseconds.
    pub stored_at: i64,
}

/// The message at `offset`; an error when it is gone, or damaged.
fn find(tables: &Tables, pid: i64, offset: i64) -> Result<Found> {
    let gone = || {
        let what = format!("the message at offset {offset} cannot be dead-lettered: its segment is gone");
        error(ErrorKind::CorruptSegment, what)
    };
    let head = segment::at_or_before(tables, pid, offset).filter(|h| h.end >= offset).ok_or_else(gone)?;
    // Mostly this backend has just delivered it.
    let frame = match recent::remembered(pid, head.base, head.created_at, offset) {
        Some(frame) => frame,
        None => segment::holding(tables, pid, offset).ok_or_else(gone)?.frame(offset)?,
    };
    Ok(Found { frame, stored_at: head.created_at })
}

/// Files a dead letter of `group`, whose cursor of the partition the caller holds. One message of one group makes one
/// record: filing it again keeps the first, and forwards nothing. Where the queue's groups pause themselves, it is counted.
/// `found`: the message, where the caller has it already.
///
/// # Errors
/// `CorruptSegment`: the message is gone from the log, or damaged there.
pub fn file(
    tables: &Tables,
    queue: &Queue,
    partition: &Partition,
    group: &Subscription,
    failure: &Failure<'_>,
    found: Option<Found>,
) -> Result<()> {
    commit::settled();
    let offset = failure.offset;
    let found = match found {
        Some(found) => found,
        None => find(tables, partition.pid, offset)?,
    };
    let frame = found.frame.as_frame();
    let compiled = compiled(&queue.options);
    let nothing = Allow::default();
    let allow = compiled.as_ref().map_or(&nothing, |c| &c.1);
    let evidence = Kept::of(&frame, queue.options.dead_letter_payload, allow);
    let stated = Stated { reason: None, class: failure.class, code: failure.code.clone() };
    let (class, code) = classify(&stated, &failure.reason, &failure.text, compiled.as_ref().map(|c| &c.0));
    let text = |text: &str| if evidence.masks() { mask::error_text(text) } else { names::clean_error_text(text) };
    let (error, reason) = (text(&failure.text), text(&failure.reason));
    let code = if evidence.masks() { queen_core::classify::code(&mask::mask(&code)) } else { code };
    let read = evidence.headers();
    let header = |name| read.as_ref().and_then(|h| h.get(name)).map(|value| text(&value));
    let record = Record {
        id: mint(failure.now, 1),
        tenant: queue.tenant,
        qid: queue.qid,
        queue: queue.name.clone(),
        partition: partition.name.clone(),
        partition_id: partition.id,
        group: group.name.clone(),
        offset,
        message_id: frame.id,
        transaction_id: frame.transaction_id_text().into_owned(),
        payload: evidence.kept.as_bytes().to_vec(),
        headers: evidence.kept_headers(read.as_ref()),
        trace_id: frame.trace_id,
        producer: frame.producer.map(str::to_owned),
        retry_count: failure.retries,
        enqueued_at: found.stored_at,
        first_failed_at: failure.first_failed_at,
        failed_at: failure.now,
        is_encrypted: evidence.sealed,
        class: class.as_str().to_owned(),
        fingerprint: fingerprint(&error, &code),
        code,
        // Of a payload that is stored as it was pushed whoever reads it computes it.
        payload_hash: evidence
            .plain
            .as_deref()
            .filter(|_| evidence.sealed || evidence.masks())
            .map(|plain| payload_hash(plain.as_bytes())),
        attempts: failure.attempts,
        retry_policy: queue.options.retry_policy(),
        traceparent: header(headers::TRACEPARENT).map(|value| names::cut(&value, 256)),
        redaction: evidence.redaction.to_owned(),
        status: PENDING.to_owned(),
        hops: header(headers::REPLAY_HOPS).and_then(|hops| hops.parse().ok()).unwrap_or(0).max(0),
        error: Some(error),
        reason,
    };
    if !dead_letter::file(tables, &record) {
        return Ok(());
    }
    forward(tables, queue, &record, &evidence, read.as_ref(), allow)?;
    pause::note(queue, group, record);
    Ok(())
}

/// What a record may keep of a message.
struct Kept<'a> {
    /// As its producer pushed it; None when it is sealed with a key that is not there.
    plain: Option<Cow<'a, str>>,
    raw_headers: Option<&'a str>,
    /// What is stored.
    kept: Cow<'a, str>,
    /// What is stored is sealed.
    sealed: bool,
    redaction: &'static str,
    /// The log has it sealed.
    secret: bool,
}

impl<'a> Kept<'a> {
    fn of(frame: &Frame<'a>, mode: Evidence, allow: &Allow) -> Kept<'a> {
        let stored = || Cow::Borrowed(std::str::from_utf8(frame.payload).unwrap_or_default());
        let plain = if frame.encrypted {
            let (plain, still_sealed) = Opener::new().open(frame.payload, true);
            (!still_sealed).then_some(plain)
        } else {
            Some(stored())
        };
        let redacted = || Cow::Owned(redact(plain.as_deref().unwrap_or_default(), allow));
        let (kept, sealed, redaction) = match mode {
            Evidence::Keep => (stored(), frame.encrypted, KEPT),
            Evidence::Redact => (redacted(), false, REDACTED),
            Evidence::Encrypt if frame.encrypted => (stored(), true, SEALED),
            Evidence::Encrypt => match seal(plain.as_deref().unwrap_or_default()) {
                Some(sealed) => (Cow::Owned(sealed), true, SEALED),
                None => {
                    // The failure must not be lost for want of a key, and the payload not be stored in the clear.
                    pgrx::warning!("a dead letter keeps its payload redacted: there is no key to encrypt it with");
                    (redacted(), false, REDACTED)
                }
            },
        };
        let raw_headers = frame.headers.and_then(|h| std::str::from_utf8(h).ok());
        Kept { plain, raw_headers, kept, sealed, redaction, secret: frame.encrypted }
    }
}

fn seal(plain: &str) -> Option<String> {
    guc::key_ring().ok().filter(|ring| !ring.is_empty())?.seal(plain.as_bytes()).ok()
}

impl Kept<'_> {
    /// Whether credentials are taken out of texts and headers.
    fn masks(&self) -> bool {
        self.redaction != KEPT
    }

    fn headers(&self) -> Option<Headers<'_>> {
        self.raw_headers.and_then(Headers::parse)
    }

    fn kept_headers(&self, read: Option<&Headers<'_>>) -> Option<Vec<u8>> {
        let raw = self.raw_headers?;
        let kept = match read {
            _ if !self.masks() => raw.to_owned(),
            Some(headers) => headers.redacted(),
            // What cannot be read cannot be redacted either.
            None => "{}".to_owned(),
        };
        Some(kept.into_bytes())
    }
}

/// Pushes a filed message to the queue that its queue names for dead letters, at the commit. A message that was forwarded
/// before is not forwarded again.
fn forward(
    tables: &Tables,
    queue: &Queue,
    record: &Record,
    evidence: &Kept<'_>,
    read: Option<&Headers<'_>>,
    allow: &Allow,
) -> Result<()> {
    let Some(to) = queue.options.dead_letter_queue_of(&queue.name) else { return Ok(()) };
    if read.is_some_and(|headers| headers.get(headers::DEATH_REASON).is_some()) {
        return Ok(());
    }
    let secret = evidence.secret || record.redaction == SEALED;
    let target = match queue::find(tables, queue.tenant, &to)? {
        Some(target) => target,
        None => create_target(tables, queue, &to, secret)?,
    };
    let seals = target.options.encryption_enabled && guc::key_ring().is_ok_and(|ring| !ring.is_empty());
    if target.options.encryption_enabled && !seals {
        // It refuses what is pushed to it: the record is there, and the copy must not take the record with it.
        pgrx::warning!(
            "a dead letter was filed but not forwarded: the queue for dead letters is encrypted and has no key"
        );
        return Ok(());
    }
    // In the clear only what the record, or the log, has in the clear.
    let whole = record.redaction != REDACTED && (!secret || seals);
    let payload = match &evidence.plain {
        Some(plain) if whole => plain.as_ref().to_owned(),
        Some(plain) => redact(plain, allow),
        None => redact("", allow),
    };
    let kept = record.headers.as_deref().and_then(|h| std::str::from_utf8(h).ok());
    let kept = kept.and_then(Headers::parse).unwrap_or_default();
    let headers = kept.with(&[
        (headers::DEATH_REASON, record.reason.clone()),
        (headers::ORIGINAL_QUEUE, record.queue.clone()),
        (headers::ATTEMPTS, record.attempts.to_string()),
        (headers::ORIGINAL_MESSAGE_ID, id::format(record.message_id)),
    ]);
    pending::add(
        pending::owned(Push {
            tenant: record.tenant,
            queue: Cow::Owned(to),
            partition: Cow::Borrowed(&record.partition),
            payload: Cow::Owned(payload),
            transaction_id: Some(Cow::Owned(format!("dead:{}", id::format(record.id)))),
            trace_id: record.trace_id,
            headers: Some(Cow::Owned(headers)),
            producer: record.producer.as_deref().map(Cow::Borrowed),
            id: None,
        }),
        nest_level(),
    );
    Ok(())
}

/// A queue for dead letters; encrypted if what it gets is a secret.
fn create_target(tables: &Tables, source: &Queue, name: &str, secret: bool) -> Result<Queue> {
    queue::lock_name(source.tenant, name);
    if let Some(queue) = queue::find(tables, source.tenant, name)? {
        return Ok(queue);
    }
    let options = QueueOptions { encryption_enabled: secret, ..QueueOptions::pushed_default(name) };
    queue::create(tables, source.tenant, name, options)
}

/// What a replay of a dead letter pushes.
pub struct Payload {
    pub text: String,
    /// JSON.
    pub headers: Option<String>,
}

/// Why a dead letter cannot be replayed.
pub enum Unplayable {
    /// It is redacted, and the log does not hold the message any more.
    Redacted,
    /// It is sealed with a key that is not configured.
    Sealed,
}

/// Payload and headers as the message's producer pushed them: of the record, or of the log where the record was redacted.
///
/// # Errors
/// A damaged segment.
pub fn replayable_payload(tables: &Tables, record: &Record) -> Result<std::result::Result<Payload, Unplayable>> {
    let opener = Opener::new();
    let text_of = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap_or_default().to_owned();
    if record.redaction != KEPT
        && let Some(partition) = partition::by_id(tables, record.partition_id)
        && let Some(stored) = segment::holding(tables, partition.pid, record.offset)
    {
        let frame = stored.frame(record.offset)?;
        let frame = frame.as_frame();
        if frame.id == record.message_id {
            let (text, sealed) = opener.open(frame.payload, frame.encrypted);
            let headers = frame.headers.map(text_of);
            return Ok(if sealed { Err(Unplayable::Sealed) } else { Ok(Payload { text: text.into_owned(), headers }) });
        }
    }
    if record.redaction == REDACTED {
        return Ok(Err(Unplayable::Redacted));
    }
    let (text, sealed) = opener.open(&record.payload, record.is_encrypted);
    let headers = record.headers.as_deref().map(text_of);
    Ok(if sealed { Err(Unplayable::Sealed) } else { Ok(Payload { text: text.into_owned(), headers }) })
}
