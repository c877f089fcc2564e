//! Applying a JSON object of changes to options.

use super::{Evidence, MAX_LEASE_SECONDS, OptionsError, QueueOptions};
use crate::classify::{Rule, Rules};
use crate::names::{MAX_NAME_CHARS, MAX_SHOWN_CHARS, check_queue, cut};
use crate::redact::Allow;
use serde::Deserialize;
use serde_json::Value;
use std::ops::RangeInclusive;

const NOT_NEGATIVE: RangeInclusive<i32> = 0..=i32::MAX;

/// Applies all changes, or fails with the first that is not allowed.
pub(super) fn apply(options: &mut QueueOptions, json: &str, lenient: bool) -> Result<(), OptionsError> {
    let problem = |problem: String| OptionsError::NotAnObject { problem };
    // Options are few and small, so that a tree is no cost; its parser bounds the depth.
    let changes = match serde_json::from_str::<Value>(json) {
        Ok(Value::Object(changes)) => changes,
        Ok(_) => return Err(problem("it is another JSON value".to_owned())),
        Err(error) => return Err(problem(error.to_string())),
    };
    let defaults = QueueOptions::configured_default();
    for (name, value) in &changes {
        change(options, &defaults, name, value, lenient)?;
    }
    Ok(())
}

fn change(
    to: &mut QueueOptions,
    defaults: &QueueOptions,
    name: &str,
    value: &Value,
    lenient: bool,
) -> Result<(), OptionsError> {
    /// One arm a field: the default for null, else what the reader makes of the value.
    macro_rules! fields {
        ($($wire:literal => $field:ident: $read:expr;)*) => {
            match name {
                $($wire => {
                    to.$field = if value.is_null() {
                        defaults.$field.clone()
                    } else {
                        let read = $read;
                        read($wire, value)?
                    };
                })*
                _ if lenient => {}
                _ => return Err(OptionsError::Unknown { name: cut(name, MAX_SHOWN_CHARS) }),
            }
        };
    }
    fields! {
        "namespace" => namespace: label;
        "task" => task: label;
        "priority" => priority: within(i32::MIN..=i32::MAX);
        "leaseTime" => lease_time: within(1..=MAX_LEASE_SECONDS);
        "retryLimit" => retry_limit: within(NOT_NEGATIVE);
        "retryDelay" => retry_delay: within(NOT_NEGATIVE);
        "maxSize" => max_size: within(NOT_NEGATIVE);
        "ttl" => ttl: within(NOT_NEGATIVE);
        "deadLetterQueue" => dead_letter_queue: boolean;
        "dlqAfterMaxRetries" => dlq_after_max_retries: boolean;
        "delayedProcessing" => delayed_processing: within(NOT_NEGATIVE);
        "windowBuffer" => window_buffer: within(NOT_NEGATIVE);
        "retentionEnabled" => retention_enabled: boolean;
        "retentionSeconds" => retention_seconds: within(NOT_NEGATIVE);
        "completedRetentionSeconds" => completed_retention_seconds: within(NOT_NEGATIVE);
        "maxWaitTimeSeconds" => max_wait_time_seconds: within(NOT_NEGATIVE);
        "minPopWaitTime" => min_pop_wait_time: clamped(0..=60_000);
        "encryptionEnabled" => encryption_enabled: boolean;
        // Floor 0 on the wire: a negative window is one that is off.
        "dedupWindowSeconds" => dedup_window_seconds: clamped(NOT_NEGATIVE);
        "retentionSinkHold" => retention_sink_hold: sink;
        "retentionSinkHoldMaxSeconds" =>
            retention_sink_hold_max_seconds: within(60..=31_536_000);
        "deadLetterTo" => dead_letter_to: queue_or_suffix;
        "deadLetterRules" => dead_letter_rules: rules;
        "deadLetterPayload" => dead_letter_payload: evidence;
        "redactionAllow" => redaction_allow: paths;
        "requireApproval" => require_approval: boolean;
        "owner" => owner: label;
        "runbook" => runbook: label;
        "severity" => severity: label;
    }
    Ok(())
}

fn wrong(name: &'static str, value: &Value, allowed: impl Into<String>) -> OptionsError {
    let shown = cut(&value.to_string(), MAX_SHOWN_CHARS);
    OptionsError::Value { name, shown, allowed: allowed.into() }
}

fn boolean(name: &'static str, value: &Value) -> Result<bool, OptionsError> {
    value.as_bool().ok_or_else(|| wrong(name, value, "true or false is allowed"))
}

/// An integer, also spelled `5.0`, `5e0` or `"5"`; `None` when it is none.
fn integer(value: &Value) -> Option<i64> {
    /// Above this a double no longer holds every integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |x: f64| (x.fract() == 0.0 && x.abs() <= EXACT).then_some(x as i64);
    match value {
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| {
                let plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
                if plain { whole(text.parse().ok()?) } else { None }
            })
        }
        _ => None,
    }
}

/// A reader of integers that refuses what is outside the range.
fn within(range: RangeInclusive<i32>) -> impl Fn(&'static str, &Value) -> Result<i32, OptionsError> {
    move |name, value| {
        let number = integer(value).and_then(|n| i32::try_from(n).ok());
        number.filter(|n| range.contains(n)).ok_or_else(|| {
            let allowed = format!("an integer from {} to {} is allowed", range.start(), range.end());
            wrong(name, value, allowed)
        })
    }
}

/// A reader of integers that takes the nearer end of the range for what is outside.
fn clamped(range: RangeInclusive<i32>) -> impl Fn(&'static str, &Value) -> Result<i32, OptionsError> {
    move |name, value| {
        let number = integer(value).ok_or_else(|| wrong(name, value, "an integer is allowed"))?;
        let clamped = number.clamp(i64::from(*range.start()), i64::from(*range.end()));
        Ok(i32::try_from(clamped).unwrap_or(*range.end()))
    }
}

/// Namespace or task: a name that may be empty.
fn label(name: &'static str, value: &Value) -> Result<String, OptionsError> {
    let text =
        value.as_str().filter(|text| text.chars().count() <= MAX_NAME_CHARS && !text.chars().any(char::is_control));
    text.map(str::to_owned)
        .ok_or_else(|| wrong(name, value, "a string of at most 255 characters without control characters is allowed"))
}

/// The name of a retention sink.
fn sink(name: &'static str, value: &Value) -> Result<String, OptionsError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let text = value.as_str().filter(|text| text.len() <= 64 && text.bytes().all(plain));
    text.map(str::to_owned).ok_or_else(|| wrong(name, value, "a string that matches [A-Za-z0-9._-]{0,64} is allowed"))
}

/// Where dead letters go: nothing, a queue name, or a suffix that makes one.
fn queue_or_suffix(name: &'static str, value: &Value) -> Result<String, OptionsError> {
    let fits = |text: &str| text.is_empty() || (check_queue(text).is_ok() && text != ".");
    let text = value.as_str().filter(|text| fits(text));
    text.map(str::to_owned).ok_or_else(|| {
        wrong(name, value, "a queue name, a suffix that begins with a dot, or an empty string is allowed")
    })
}

/// The rules of classification. A pattern may quote what must not be shown, so that no value is.
fn rules(name: &'static str, value: &Value) -> Result<Vec<Rule>, OptionsError> {
    let refuse = |allowed: String| OptionsError::Value { name, shown: "what was given".to_owned(), allowed };
    let rules = Vec::<Rule>::deserialize(value).map_err(|_| {
        let allowed = "a list of {\"pattern\": text, \"class\": transient, permanent, poison, malformed, expired, \
                       policy or unknown, \"code\": text} is allowed";
        refuse(allowed.to_owned())
    })?;
    Rules::compile(&rules).map_err(refuse)?;
    Ok(rules)
}

fn evidence(name: &'static str, value: &Value) -> Result<Evidence, OptionsError> {
    Evidence::deserialize(value).map_err(|_| wrong(name, value, "\"keep\", \"redact\" or \"encrypt\" is allowed"))
}

/// The paths that redaction leaves.
fn paths(name: &'static str, value: &Value) -> Result<Vec<String>, OptionsError> {
    let refuse = |allowed: String| wrong(name, value, allowed);
    let paths = Vec::<String>::deserialize(value)
        .map_err(|_| refuse("a list of paths such as \"$.order.id\" is allowed".to_owned()))?;
    Allow::parse(&paths).map_err(refuse)?;
    Ok(paths)
}
