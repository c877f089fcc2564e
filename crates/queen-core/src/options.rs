//! The options of a queue.
//!
//! The 21 options of the wire, of which a few (`priority`, `maxSize`, `ttl`) are kept and echoed only, and after
//! those what dead letters and retries have besides, which is off until somebody asks for it.

mod change;
mod governance;
mod retrying;
#[cfg(test)]
mod tests;

use crate::classify::Rule;
use crate::error::{ErrorKind, into_error};
use crate::names::namespace_task;
pub use governance::GOVERNANCE_OPTIONS;
pub use retrying::{Backoff, Jitter, policy_json as retry_policy_json};
use serde::{Deserialize, Serialize};

/// Every option by its wire name, in the order of the documentation.
pub const OPTION_NAMES: [&str; 37] = [
    "namespace",
    "task",
    "priority",
    "leaseTime",
    "retryLimit",
    "retryDelay",
    "maxSize",
    "ttl",
    "deadLetterQueue",
    "dlqAfterMaxRetries",
    "delayedProcessing",
    "windowBuffer",
    "retentionEnabled",
    "retentionSeconds",
    "completedRetentionSeconds",
    "maxWaitTimeSeconds",
    "minPopWaitTime",
    "encryptionEnabled",
    "dedupWindowSeconds",
    "retentionSinkHold",
    "retentionSinkHoldMaxSeconds",
    "deadLetterTo",
    "deadLetterRules",
    "deadLetterPayload",
    "redactionAllow",
    "requireApproval",
    "owner",
    "runbook",
    "severity",
    "retryBackoff",
    "retryMaxDelay",
    "retryJitter",
    "maxElapsedSeconds",
    "maxDeliveries",
    "deadlines",
    "autoPauseCount",
    "autoPauseSeconds",
];

/// Longest lease in seconds: 7 days.
pub const MAX_LEASE_SECONDS: i32 = 604_800;
/// Lease seconds of a queue that a push creates.
pub const PUSHED_LEASE_SECONDS: i32 = 60;

/// An option that does not exist or has a value that is not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The whole is not a JSON object.
    #[error("options must be a JSON object: {problem}")]
    NotAnObject {
        /// What and where.
        problem: String,
    },
    /// No option of this name.
    #[error("unknown option \"{name}\"; known are {}", OPTION_NAMES.join(", "))]
    Unknown {
        /// The name, cut.
        name: String,
    },
    /// Wrong type or out of range.
    #[error("option {name} cannot be {shown}: {allowed}")]
    Value {
        /// The option.
        name: &'static str,
        /// The value, cut.
        shown: String,
        /// What is allowed.
        allowed: String,
    },
    /// A mode that is neither merge nor replace.
    #[error("mode must be \"merge\" or \"replace\", got \"{shown}\"")]
    Mode {
        /// The value, cut.
        shown: String,
    },
}

impl OptionsError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } => ErrorKind::UnknownOption,
            Self::NotAnObject { .. } | Self::Value { .. } => ErrorKind::InvalidOption,
            Self::Mode { .. } => ErrorKind::InvalidArgument,
        }
    }

    /// The option that is at fault, if it is one.
    pub fn option(&self) -> Option<&str> {
        match self {
            Self::Unknown { name } => Some(name),
            Self::Value { name, .. } => Some(name),
            Self::NotAnObject { .. } | Self::Mode { .. } => None,
        }
    }
}

into_error!(OptionsError);

/// What a key that is absent means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The option keeps its value.
    Merge,
    /// The option goes back to its default.
    Replace,
}

impl Mode {
    /// Reads `merge` (also absent) or `replace`.
    ///
    /// # Errors
    /// [`OptionsError::Mode`] for every other word.
    pub fn parse(word: Option<&str>) -> Result<Self, OptionsError> {
        match word {
            None | Some("merge") => Ok(Self::Merge),
            Some("replace") => Ok(Self::Replace),
            Some(other) => {
                let shown = crate::names::cut(other, crate::names::MAX_SHOWN_CHARS);
                Err(OptionsError::Mode { shown })
            }
        }
    }
}

/// The effective options of one queue; as JSON one flat camelCase object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueOptions {
    /// Group of queues that discovery pops by; at most 255 characters.
    pub namespace: String,
    /// Second key of discovery; at most 255 characters.
    pub task: String,
    /// Echoed only.
    pub priority: i32,
    /// Seconds a pop leases without saying how long; 1 to 604800.
    pub lease_time: i32,
    /// `failed` acks that are redelivered; the next one is terminal.
    pub retry_limit: i32,
    /// Milliseconds before a failed message is delivered again, if there is a [`Backoff`].
    pub retry_delay: i32,
    /// Echoed only.
    pub max_size: i32,
    /// Seconds; echoed only.
    pub ttl: i32,
    /// File exhausted messages; see [`QueueOptions::dead_letter_enabled`].
    pub dead_letter_queue: bool,
    /// File exhausted messages; see [`QueueOptions::dead_letter_enabled`].
    pub dlq_after_max_retries: bool,
    /// Seconds before a message can be popped.
    pub delayed_processing: i32,
    /// Seconds of quiet that a partition must have before it is popped.
    pub window_buffer: i32,
    /// Master switch of the next two.
    pub retention_enabled: bool,
    /// Seconds until messages go, consumed or not; 0 = never.
    pub retention_seconds: i32,
    /// Seconds until messages go that every group has consumed; 0 = never.
    pub completed_retention_seconds: i32,
    /// Seconds until messages go whatever else is set; 0 = never.
    pub max_wait_time_seconds: i32,
    /// Milliseconds a waiting pop lets a batch fill; 0 to 60000.
    pub min_pop_wait_time: i32,
    /// Seal new payloads.
    pub encryption_enabled: bool,
    /// Seconds in which a transaction id counts as a duplicate; 0 = never.
    pub dedup_window_seconds: i32,
    /// Name of a sink that retention waits for; `[A-Za-z0-9._-]{0,64}`.
    pub retention_sink_hold: String,
    /// Longest such wait in seconds; 60 to 31536000.
    pub retention_sink_hold_max_seconds: i32,
    /// Queue that dead letters are pushed to as well: a name, or a suffix that begins with a dot; empty = none.
    pub dead_letter_to: String,
    /// What error texts mean, in order.
    pub dead_letter_rules: Vec<Rule>,
    /// What of a payload a dead letter keeps.
    pub dead_letter_payload: Evidence,
    /// Paths of payloads that redaction leaves.
    pub redaction_allow: Vec<String>,
    /// Replays need a second person.
    pub require_approval: bool,
    /// Who looks after the queue; at most 255 characters.
    pub owner: String,
    /// Where to read what to do; at most 255 characters.
    pub runbook: String,
    /// How bad its dead letters are; at most 255 characters.
    pub severity: String,
    /// How the pause after a failure grows.
    pub retry_backoff: Backoff,
    /// Milliseconds that such a pause has at most; 0 = no cap.
    pub retry_max_delay: i32,
    /// Share by which it is varied; 0 to 1.
    pub retry_jitter: Jitter,
    /// Seconds since the first failure after which the next one is final; 0 = without bound.
    pub max_elapsed_seconds: i32,
    /// Deliveries of a message to a group, lost leases included, before it is given up; 0 = any number.
    pub max_deliveries: i32,
    /// Honour the header `x-deadline`.
    pub deadlines: bool,
    /// Dead letters of one cause that pause a group; 0 = never.
    pub auto_pause_count: i32,
    /// Seconds within which they have to be filed; from 1.
    pub auto_pause_seconds: i32,
}

/// What of a payload (and of credentials in error texts and headers) a dead letter keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// Everything.
    #[default]
    Keep,
    /// What the allowlist names.
    Redact,
    /// Everything, sealed with the key ring, shown redacted to who may only look.
    Encrypt,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self::configured_default()
    }
}

impl QueueOptions {
    /// The defaults, which a queue created by `configure` starts from.
    pub fn configured_default() -> Self {
        Self {
            namespace: String::new(),
            task: String::new(),
            priority: 0,
            lease_time: 300,
            retry_limit: 3,
            retry_delay: 1000,
            max_size: 0,
            ttl: 3600,
            dead_letter_queue: true,
            dlq_after_max_retries: true,
            delayed_processing: 0,
            window_buffer: 0,
            retention_enabled: false,
            retention_seconds: 0,
            completed_retention_seconds: 0,
            max_wait_time_seconds: 0,
            min_pop_wait_time: 0,
            encryption_enabled: false,
            dedup_window_seconds: 3600,
            retention_sink_hold: String::new(),
            retention_sink_hold_max_seconds: 604_800,
            dead_letter_to: String::new(),
            dead_letter_rules: Vec::new(),
            dead_letter_payload: Evidence::Keep,
            redaction_allow: Vec::new(),
            require_approval: false,
            owner: String::new(),
            runbook: String::new(),
            severity: String::new(),
            retry_backoff: Backoff::None,
            retry_max_delay: 0,
            retry_jitter: Jitter::default(),
            max_elapsed_seconds: 0,
            max_deliveries: 0,
            deadlines: false,
            auto_pause_count: 0,
            auto_pause_seconds: 300,
        }
    }

    /// What a queue created by a push starts from: a lease of 60 seconds, namespace and task from its
    /// name.
    pub fn pushed_default(queue: &str) -> Self {
        let (namespace, task) = namespace_task(queue);
        Self { namespace, task, lease_time: PUSHED_LEASE_SECONDS, ..Self::configured_default() }
    }

    /// These options with the changes of a JSON object applied: a key that is absent keeps its value
    /// ([`Mode::Merge`]) or goes back to the default ([`Mode::Replace`]), null is the default.
    ///
    /// # Errors
    /// [`OptionsError`]; then nothing is applied.
    pub fn merge(&self, json: &str, mode: Mode) -> Result<Self, OptionsError> {
        self.changed(json, mode, false)
    }

    /// As [`QueueOptions::merge`], but unknown options are skipped, as the wire has it.
    ///
    /// # Errors
    /// As [`QueueOptions::merge`], but for unknown options.
    pub fn merge_known(&self, json: &str, mode: Mode) -> Result<Self, OptionsError> {
        self.changed(json, mode, true)
    }

    fn changed(&self, json: &str, mode: Mode, lenient: bool) -> Result<Self, OptionsError> {
        let mut options = match mode {
            Mode::Merge => self.clone(),
            Mode::Replace => Self::configured_default(),
        };
        change::apply(&mut options, json, lenient)?;
        Ok(options)
    }

    /// One flat camelCase JSON object with all options.
    pub fn to_json(&self) -> String {
        // Strings, booleans and integers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The queue that dead letters of this queue are pushed to as well; None when there is none, or it is this one.
    pub fn dead_letter_queue_of(&self, queue: &str) -> Option<String> {
        let to = &self.dead_letter_to;
        let name = if to.starts_with('.') { format!("{queue}{to}") } else { to.clone() };
        (!to.is_empty() && name != queue && crate::names::check_queue(&name).is_ok()).then_some(name)
    }

    /// The retry policy in force, as a dead letter stores it: part of its evidence. [`retry_policy_json`] reads it.
    pub fn retry_policy(&self) -> String {
        retrying::policy(self)
    }

    /// Whether exhausted messages are filed as dead letters: either of the two switches does it.
    pub fn dead_letter_enabled(&self) -> bool {
        self.dead_letter_queue || self.dlq_after_max_retries
    }
}
