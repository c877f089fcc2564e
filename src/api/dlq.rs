//! Reading and removing dead letters.

use crate::api::arguments;
use crate::broker::seal::Opener;
use crate::error::{ErrorKind, Result, error};
use crate::guc;
use crate::pg::call::{Call, iso, jsonb, null_argument};
use crate::pg::privilege;
use crate::pg::value::Value;
use crate::rows::audit;
use crate::rows::dead_letter::{self, Page, Record, SEALED};
use crate::rows::dlq_tally::{self, Filter, STATUSES};
use crate::rows::queue;
use pgrx::pg_sys::Datum;
use queen_core::classify::Class;
use queen_core::id;
use queen_core::redact::{Allow, redact};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

/// Shows records: opens what is sealed, and hides it from who may only look.
struct Window {
    opener: Opener,
    /// Shown redacted whoever asks.
    redacted: bool,
    may_see: OnceCell<bool>,
    allow: HashMap<String, Allow>,
}

impl Window {
    fn new(redacted: bool) -> Window {
        Window { opener: Opener::new(), redacted, may_see: OnceCell::new(), allow: HashMap::new() }
    }

    /// The payload as it may be shown, and whether that is still sealed. Of evidence kept sealed, only who may replay it
    /// sees more than the allowlist names.
    fn show<'a>(&mut self, record: &'a Record) -> Result<(Cow<'a, str>, bool)> {
        let (text, sealed) = self.opener.open(&record.payload, record.is_encrypted);
        if record.redaction != SEALED {
            return Ok((text, sealed));
        }
        if !self.redacted && *self.may_see.get_or_init(|| privilege::may_execute("dlq_move_v1")) {
            return Ok((text, sealed));
        }
        if !self.allow.contains_key(&record.queue) {
            // By the list of today; of a queue that is gone, nothing.
            let tables = crate::pg::relation::Tables::default();
            let options = queue::find(&tables, record.tenant, &record.queue)?.map(|q| q.options);
            let allow = options.and_then(|o| Allow::parse(&o.redaction_allow).ok()).unwrap_or_default();
            self.allow.insert(record.queue.clone(), allow);
        }
        let plain = if sealed { "" } else { &text };
        Ok((Cow::Owned(redact(plain, &self.allow[&record.queue])), false))
    }

    fn rows(&mut self, call: &Call, records: &[Record]) -> Result<Datum> {
        let mut rows = call.rows();
        for record in records {
            let (text, sealed) = self.show(record)?;
            let headers = record.headers.as_deref().and_then(|h| std::str::from_utf8(h).ok());
            rows.put(&record.row(&text, headers, sealed, &record.page_cursor()));
        }
        rows.done()
    }
}

/// `queen.dlq(queue, consumer_group, max_rows, skip, partition_id, transaction_id) → SETOF dead_letter`
pub fn dlq(call: &Call) -> Result<Datum> {
    let page = Page {
        limit: arguments::not_negative(call.int4(2), "max_rows", 100)?,
        skip: arguments::not_negative(call.int4(3), "skip", 0)?,
        ..Page::default()
    };
    let filter = Filter { queue: call.text(0)?, group: call.text(1)?, ..Filter::default() };
    let (partition_id, transaction_id) = (call.uuid(4), call.text(5)?);
    let tenant = guc::tenant()?;
    let records = match (partition_id, transaction_id) {
        (None, None) => dead_letter::list(tenant, &filter, &page),
        _ => dead_letter::at(tenant, partition_id, transaction_id, &filter, &page),
    };
    Window::new(false).rows(call, &records)
}

/// The filter that the first six arguments say.
fn filter(call: &Call) -> Result<Filter<'_>> {
    let filter = Filter {
        queue: call.text(0)?,
        group: call.text(1)?,
        class: call.text(2)?,
        code: call.text(3)?,
        fingerprint: call.text(4)?,
        status: call.text(5)?,
    };
    let refuse = |what: String| Err(error(ErrorKind::InvalidArgument, what));
    if filter.class.is_some_and(|class| Class::parse(class).is_none()) {
        let known: Vec<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
        return refuse(format!("failure_class must be one of {}", known.join(", ")));
    }
    if filter.status.is_some_and(|status| status != "all" && !STATUSES.contains(&status)) {
        return refuse(format!("status must be one of {}, all", STATUSES.join(", ")));
    }
    Ok(filter)
}

/// The records that the arguments of a list name, and whether they are to be shown redacted.
fn listed(call: &Call) -> Result<(Vec<Record>, i32, bool)> {
    let after = match call.text(8)? {
        None | Some("") => None,
        Some(text) => Some(dead_letter::parse_page_cursor(text).ok_or_else(|| {
            error(ErrorKind::InvalidArgument, "after must be the page_cursor of a record that was listed")
        })?),
    };
    let limit = arguments::not_negative(call.int4(9), "max_rows", 100)?;
    let page = Page { from: call.int8(6), to: call.int8(7), after, limit, skip: 0 };
    let records = dead_letter::list(guc::tenant()?, &filter(call)?, &page);
    Ok((records, limit, call.bool(10).unwrap_or(false)))
}

/// `queen.dlq_list(queue, consumer_group, failure_class, error_code, fingerprint, status, from, to, after, max_rows,
/// redacted) → SETOF dead_letter`
pub fn dlq_list(call: &Call) -> Result<Datum> {
    let (records, _, redacted) = listed(call)?;
    Window::new(redacted).rows(call, &records)
}

/// `queen.dlq_list_json(…) → text`: the same as `{"records": [...], "next": cursor or null}`.
pub fn dlq_list_json(call: &Call) -> Result<Datum> {
    let (records, limit, redacted) = listed(call)?;
    let mut window = Window::new(redacted);
    let mut out = Vec::with_capacity(records.len());
    for record in &records {
        let (text, sealed) = window.show(record)?;
        out.push(object(record, &text, sealed));
    }
    let full = limit > 0 && records.len() == limit as usize;
    let next = records.last().filter(|_| full).map(Record::page_cursor);
    let next = serde_json::Value::from(next);
    Ok(call.value(Value::Text(&format!("{{\"records\":[{}],\"next\":{next}}}", out.join(",")))))
}

/// `queen.dlq_record_json(dlq_id, redacted) → text`: one record as `dlq_list_json` shows it, whatever its status.
pub fn dlq_record_json(call: &Call) -> Result<Datum> {
    let id = call.uuid(0).ok_or_else(|| null_argument("dlq_id"))?;
    let Some(record) = dead_letter::find(guc::tenant()?, id) else { return Ok(call.value(Value::Null)) };
    let (text, sealed) = Window::new(call.bool(1).unwrap_or(false)).show(&record).map(|(t, s)| (t.into_owned(), s))?;
    Ok(call.value(Value::Text(&object(&record, &text, sealed))))
}

/// A record as JSON; its payload is spliced in as it is, whatever jsonb can hold.
fn object(r: &Record, text: &str, sealed: bool) -> String {
    let raw = |text: &str| -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap_or_else(|_| {
            // Sealed: an envelope, which is no JSON.
            serde_json::value::to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
        })
    };
    let headers = r.headers.as_deref().and_then(|h| std::str::from_utf8(h).ok());
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown<'a> {
        id: String,
        queue: &'a str,
        partition: &'a str,
        partition_id: String,
        consumer_group: &'a str,
        offset: i64,
        message_id: String,
        transaction_id: &'a str,
        data: Box<RawValue>,
        headers: Option<Box<RawValue>>,
        trace_id: Option<String>,
        producer: Option<&'a str>,
        error: Option<&'a str>,
        reason: &'a str,
        retry_count: i32,
        enqueued_at: String,
        first_failed_at: String,
        failed_at: String,
        is_encrypted: bool,
        failure_class: &'a str,
        error_code: &'a str,
        fingerprint: &'a str,
        payload_hash: Option<&'a str>,
        attempts: i32,
        retry_policy: Box<RawValue>,
        traceparent: Option<&'a str>,
        redaction: &'a str,
        status: &'a str,
        hops: i32,
    }
    let shown = Shown {
        id: id::format(r.id),
        queue: &r.queue,
        partition: &r.partition,
        partition_id: id::format(r.partition_id),
        consumer_group: &r.group,
        offset: r.offset,
        message_id: id::format(r.message_id),
        transaction_id: &r.transaction_id,
        data: raw(text),
        headers: headers.map(raw),
        trace_id: r.trace_id.map(id::format),
        producer: r.producer.as_deref(),
        error: r.error.as_deref(),
        reason: &r.reason,
        retry_count: r.retry_count,
        enqueued_at: iso(r.enqueued_at),
        first_failed_at: iso(r.first_failed_at),
        failed_at: iso(r.failed_at),
        is_encrypted: sealed,
        failure_class: &r.class,
        error_code: &r.code,
        fingerprint: &r.fingerprint,
        payload_hash: r.payload_hash.as_deref(),
        attempts: r.attempts,
        retry_policy: raw(&r.retry_policy),
        traceparent: r.traceparent.as_deref(),
        redaction: &r.redaction,
        status: &r.status,
        hops: r.hops,
    };
    // Texts, numbers and raw values always serialize.
    serde_json::to_string(&shown).unwrap_or_default()
}

/// `queen.dlq_count(queue, consumer_group, failure_class, error_code, fingerprint, status) → bigint`
pub fn dlq_count(call: &Call) -> Result<Datum> {
    let kinds = dlq_tally::kinds(guc::tenant()?, &filter(call)?);
    Ok(call.value(Value::Int8(kinds.found.iter().map(|kind| kind.count).sum())))
}

/// `queen.dlq_stats(queue, consumer_group, window_minutes) → SETOF dlq_stat`
pub fn dlq_stats(call: &Call) -> Result<Datum> {
    let minutes = arguments::at_least_one(call.int4(2), "window_minutes", 10)?;
    if minutes > 60 {
        return Err(error(ErrorKind::InvalidArgument, format!("window_minutes must be at most 60, got {minutes}")));
    }
    let stats = dlq_tally::stats(guc::tenant()?, call.text(0)?, call.text(1)?, minutes);
    let float = |x: f64| Value::Raw(Datum::from(x.to_bits()));
    let mut rows = call.rows();
    for s in &stats {
        rows.put(&[
            Value::Text(&s.queue),
            Value::Text(&s.group),
            Value::Int8(s.pending),
            Value::Int8(s.approved),
            Value::Int8(s.replayed),
            Value::Int8(s.discarded),
            Value::opt_time(s.oldest),
            float(s.oldest_seconds),
            float(s.arrivals),
            float(s.net),
            s.exhaustion.map_or(Value::Null, float),
            jsonb(&s.top),
            Value::Int8((s.replayed - s.again).max(0)),
            Value::Int8(s.again),
            Value::Text(&s.owner),
            Value::Text(&s.runbook),
            Value::Text(&s.severity),
        ]);
    }
    rows.done()
}

/// `queen.dlq_delete(partition_id, transaction_id) → bigint`: every group's record of one message.
pub fn dlq_delete(call: &Call) -> Result<Datum> {
    let partition = call.uuid(0).ok_or_else(|| null_argument("partition_id"))?;
    let transaction_id = call.required_text(1, "transaction_id")?;
    let tenant = guc::tenant()?;
    let (any, one) = (Filter { status: Some("all"), ..Filter::default() }, Page { limit: 1, ..Page::default() });
    let found = dead_letter::at(tenant, Some(partition), Some(transaction_id), &any, &one);
    let deleted = dead_letter::delete_message(tenant, partition, transaction_id);
    if deleted > 0 {
        let what = serde_json::json!({
            "records": deleted, "partitionId": queen_core::id::format(partition), "transactionId": transaction_id,
        });
        audit::note("deleted", None, found.first().map(|record| record.queue.as_str()), &what);
    }
    Ok(call.value(Value::Int8(deleted)))
}

/// `queen.dlq_delete_row(dlq_id) → bigint`
pub fn dlq_delete_row(call: &Call) -> Result<Datum> {
    let id = call.uuid(0).ok_or_else(|| null_argument("dlq_id"))?;
    let tenant = guc::tenant()?;
    let record = dead_letter::find(tenant, id);
    let deleted = dead_letter::delete_row(tenant, id);
    if deleted > 0
        && let Some(record) = record
    {
        let what = serde_json::json!({
            "records": deleted, "consumerGroup": record.group, "status": record.status,
            "originalMessageId": id::format(record.message_id), "originalTransactionId": record.transaction_id,
        });
        audit::note("deleted", Some(id), Some(&record.queue), &what);
    }
    Ok(call.value(Value::Int8(deleted)))
}

/// `queen.dlq_purge(queue, consumer_group) → bigint`
pub fn dlq_purge(call: &Call) -> Result<Datum> {
    let queue = arguments::queue(call, 0)?;
    let group = call.text(1)?;
    let purged = dead_letter::purge(guc::tenant()?, queue, group);
    audit::note("purged", None, Some(queue), &serde_json::json!({"records": purged, "consumerGroup": group}));
    Ok(call.value(Value::Int8(purged)))
}
