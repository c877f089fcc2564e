//! The queue options.
use crate::error::{ErrorKind, into_error};

/// An option that does not exist or has a value that is not allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionsError {
    /// Unknown.
    #[error("unknown option \"{0}\"")]
    Unknown(String),
}
impl OptionsError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::UnknownOption
    }
}
into_error!(OptionsError);

/// What an absent key means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Keeps its value.
    Merge,
    /// Goes back to its default.
    Replace,
}

/// The effective options of one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    pub namespace: String,
    pub task: String,
    pub priority: i32,
    pub lease_time: i32,
    pub retry_limit: i32,
    pub retry_delay: i32,
    pub max_size: i32,
    pub ttl: i32,
    pub dead_letter_queue: bool,
    pub dlq_after_max_retries: bool,
    pub delayed_processing: i32,
    pub window_buffer: i32,
    pub retention_enabled: bool,
    pub retention_seconds: i32,
    pub completed_retention_seconds: i32,
    pub max_wait_time_seconds: i32,
    pub min_pop_wait_time: i32,
    pub encryption_enabled: bool,
    pub dedup_window_seconds: i32,
    pub retention_sink_hold: String,
    pub retention_sink_hold_max_seconds: i32,
}
impl QueueOptions {
    /// Defaults of a queue that `configure` creates.
    pub fn configured_default() -> Self {
        todo!()
    }
    /// Defaults of a queue that a push creates.
    pub fn pushed_default(queue: &str) -> Self {
        let _ = queue;
        todo!()
    }
    /// These options with a JSON object of changes applied.
    pub fn merge(&self, json: &str, mode: Mode) -> Result<Self, OptionsError> {
        let _ = (json, mode);
        todo!()
    }
    /// Flat camelCase JSON.
    pub fn to_json(&self) -> String {
        todo!()
    }
    /// Whether exhausted messages are filed.
    pub fn dead_letter_enabled(&self) -> bool {
        self.dead_letter_queue || self.dlq_after_max_retries
    }
}
