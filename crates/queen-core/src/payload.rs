//! Payloads and the wire forms of push and ack.
use crate::ack::Status;
use crate::error::{ErrorKind, into_error};
use std::borrow::Cow;

/// A payload or a list of items that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PayloadError {
    /// Not JSON.
    #[error("{0}")]
    Invalid(String),
}

impl PayloadError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidPayload
    }
}
into_error!(PayloadError);

/// One message to push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushItem<'a> {
    pub queue: Cow<'a, str>,
    pub partition: Cow<'a, str>,
    pub payload: &'a str,
    pub transaction_id: Option<Cow<'a, str>>,
    pub trace_id: Option<u128>,
    pub headers: Option<&'a str>,
}

/// One acknowledgement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AckItem {
    pub transaction_id: Option<String>,
    pub partition_id: Option<String>,
    pub status: Status,
    pub lease_id: Option<String>,
    pub error: Option<String>,
    pub reason: Option<String>,
}

/// Checks that a text is JSON of at most `max_bytes`.
pub fn check_json(text: &str, max_bytes: usize) -> Result<(), PayloadError> {
    let _ = (text, max_bytes);
    todo!()
}

/// Reads the wire items of a push.
pub fn parse_push_items(json: &str) -> Result<Vec<PushItem<'_>>, PayloadError> {
    let _ = json;
    todo!()
}

/// Reads the wire items of an ack batch.
pub fn parse_acks(json: &str) -> Result<Vec<AckItem>, PayloadError> {
    let _ = json;
    todo!()
}
