//! The one table of errors: kind → SQLSTATE → HTTP status → verdict.
//!
//! The SQL functions and the HTTP door both answer from this table, so they cannot drift apart. Kinds
//! that users already catch by a standard state keep it (`22023`, `25001`, …); all others are of the
//! broker's own class `QN`. A state, once released, never changes its meaning.

use std::fmt;

/// What went wrong, as far as a caller can act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A queue, partition or consumer group name breaks the rules for names.
    InvalidName,
    /// A payload (or headers) is not JSON.
    InvalidPayload,
    /// A payload is longer than the configured maximum.
    PayloadTooLarge,
    /// A transaction id is empty or has control characters.
    InvalidTransactionId,
    /// A transaction id is longer than 65,535 bytes.
    TransactionIdTooLong,
    /// An id that must be a UUID is not one.
    InvalidId,
    /// A queue option has a value of the wrong type or outside its range.
    InvalidOption,
    /// A queue option of this name does not exist.
    UnknownOption,
    /// Another argument is outside what is allowed.
    InvalidArgument,
    /// A timestamp cannot be read.
    InvalidTimestamp,
    /// A list of items, acknowledgments or operations has the wrong shape.
    InvalidItems,
    /// An encrypted queue, and no usable key.
    EncryptionUnavailable,
    /// The encryption key setting cannot be read.
    InvalidKey,
    /// A stored segment is damaged.
    CorruptSegment,
    /// A stored segment is of a version or codec that this build does not know.
    UnsupportedSegment,
    /// There is no queue of this name.
    QueueNotFound,
    /// There is no such partition.
    PartitionNotFound,
    /// A seek that names no target, or more than one.
    SeekTarget,
    /// The lease is not the live one.
    InvalidLease,
    /// A negative acknowledgement that fits messages in several partitions.
    AmbiguousNack,
    /// Refused inside a transaction block.
    TransactionBlock,
    /// The extension's library was not loaded at server start.
    NotPreloaded,
    /// The caller may not do this.
    PermissionDenied,
    /// A call asks for more than one call may have.
    LimitExceeded,
    /// There is no such replay plan.
    PlanNotFound,
    /// A replay plan is in a state that does not allow this step.
    PlanState,
    /// A replay needs an approval first.
    ApprovalRequired,
    /// A replay plan is past its expiry.
    PlanExpired,
    /// A replay plan is not what was planned or approved.
    PlanAltered,
    /// A replay plan selects more records than it may.
    PlanTooLarge,
    /// Whoever planned a replay cannot approve it.
    OwnPlan,
    /// There is no such dead letter to act on.
    DeadLetterNotFound,
    /// A defect of the broker.
    Internal,
}

/// One row of the table.
struct Row {
    sqlstate: &'static str,
    http_status: u16,
    verdict: &'static str,
    meaning: &'static str,
}

const fn row(sqlstate: &'static str, http_status: u16, verdict: &'static str, meaning: &'static str) -> Row {
    Row { sqlstate, http_status, verdict, meaning }
}

impl ErrorKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: &[ErrorKind] = &[
        Self::InvalidName,
        Self::InvalidPayload,
        Self::PayloadTooLarge,
        Self::InvalidTransactionId,
        Self::TransactionIdTooLong,
        Self::InvalidId,
        Self::InvalidOption,
        Self::UnknownOption,
        Self::InvalidArgument,
        Self::InvalidTimestamp,
        Self::InvalidItems,
        Self::EncryptionUnavailable,
        Self::InvalidKey,
        Self::CorruptSegment,
        Self::UnsupportedSegment,
        Self::QueueNotFound,
        Self::PartitionNotFound,
        Self::SeekTarget,
        Self::InvalidLease,
        Self::AmbiguousNack,
        Self::TransactionBlock,
        Self::NotPreloaded,
        Self::PermissionDenied,
        Self::LimitExceeded,
        Self::PlanNotFound,
        Self::PlanState,
        Self::ApprovalRequired,
        Self::PlanExpired,
        Self::PlanAltered,
        Self::PlanTooLarge,
        Self::OwnPlan,
        Self::DeadLetterNotFound,
        Self::Internal,
    ];

    /// The table itself. 4xx: the caller can mend it; 5xx: the operator has to.
    const fn row(self) -> Row {
        match self {
            Self::InvalidName => row(
                "QN001",
                400,
                "invalid_name",
                "a queue, partition or consumer group name is blank, longer than 255 characters or has control characters",
            ),
            Self::InvalidPayload => row(
                "QN002",
                400,
                "invalid_payload",
                "a payload is not valid JSON (RFC 8259), is missing, or headers are not a JSON object",
            ),
            Self::PayloadTooLarge => {
                row("QN003", 413, "payload_too_large", "a payload is longer than queen.max_payload_bytes")
            }
            Self::InvalidTransactionId => {
                row("QN004", 400, "invalid_transaction_id", "a transaction id is empty or has control characters")
            }
            Self::TransactionIdTooLong => {
                row("QN005", 400, "transaction_id_too_long", "a transaction id is longer than 65535 bytes")
            }
            Self::InvalidId => row("22P02", 400, "invalid_id", "an id is not a UUID"),
            Self::InvalidOption => {
                row("QN006", 400, "invalid_option", "a queue option has the wrong type or is outside its range")
            }
            Self::UnknownOption => row("QN007", 400, "unknown_option", "there is no queue option of this name"),
            Self::InvalidArgument => row(
                "22023",
                400,
                "invalid_argument",
                "an argument is outside its range or not one of the allowed words",
            ),
            Self::InvalidTimestamp => row("22007", 400, "invalid_timestamp", "a timestamp cannot be read"),
            Self::InvalidItems => row(
                "QN008",
                400,
                "invalid_items",
                "a list of items, acknowledgments or operations is not an array of objects with the required keys",
            ),
            Self::EncryptionUnavailable => row(
                "QN009",
                503,
                "encryption_unavailable",
                "the queue is encrypted and no usable key is configured; nothing was stored",
            ),
            Self::InvalidKey => row(
                "QN010",
                503,
                "invalid_key",
                "the encryption keys are not of the form id:64 hex digits[,id:64 hex digits]",
            ),
            Self::CorruptSegment => {
                row("QN011", 500, "corrupt_segment", "a stored segment is damaged; the message says where")
            }
            Self::UnsupportedSegment => row(
                "QN012",
                500,
                "unsupported_segment",
                "a stored segment has a format version or codec that this version of the extension does not read",
            ),
            Self::QueueNotFound => {
                row("QN013", 404, "queue_not_found", "there is no queue of this name for this tenant")
            }
            Self::PartitionNotFound => {
                row("QN014", 404, "partition_not_found", "there is no such partition for this tenant")
            }
            Self::SeekTarget => row("QN015", 400, "seek_target", "a seek wants exactly one of to_end and to_timestamp"),
            Self::InvalidLease => {
                row("QN016", 409, "invalid_lease", "the lease is unknown, expired or held by somebody else")
            }
            Self::AmbiguousNack => row(
                "QN017",
                409,
                "ambiguous_nack",
                "the lease holds this transaction id in several partitions; acknowledge by partition id",
            ),
            Self::TransactionBlock => {
                row("25001", 400, "transaction_block", "the call cannot run inside a transaction block")
            }
            Self::NotPreloaded => row(
                "QN018",
                503,
                "not_preloaded",
                "the server was started without the library in shared_preload_libraries",
            ),
            Self::PermissionDenied => row("42501", 403, "permission_denied", "the caller's role may not do this"),
            Self::LimitExceeded => {
                row("QN019", 413, "limit_exceeded", "one call asks for more than one call may have; split it")
            }
            Self::PlanNotFound => row("QN020", 404, "plan_not_found", "there is no such replay plan for this tenant"),
            Self::PlanState => {
                row("QN021", 409, "plan_state", "the replay plan is in a state that does not allow this")
            }
            Self::ApprovalRequired => row(
                "QN022",
                403,
                "approval_required",
                "the queue wants a second person's approval before its dead letters are replayed",
            ),
            Self::PlanExpired => row("QN023", 409, "plan_expired", "the replay plan has expired; make a new one"),
            Self::PlanAltered => {
                row("QN024", 409, "plan_altered", "the replay plan is not what was planned or approved")
            }
            Self::PlanTooLarge => {
                row("QN025", 413, "plan_too_large", "the replay plan selects more records than its max_records")
            }
            Self::OwnPlan => row("QN026", 403, "own_plan", "whoever made a replay plan cannot approve it"),
            Self::DeadLetterNotFound => row(
                "QN027",
                404,
                "dead_letter_not_found",
                "there is no such dead letter for this tenant, or it is replayed or discarded already",
            ),
            Self::Internal => row("XX000", 500, "internal", "a defect of the broker; please report it"),
        }
    }

    /// The five-character SQLSTATE.
    pub fn sqlstate(self) -> &'static str {
        self.row().sqlstate
    }

    /// The HTTP status: 4xx when the caller can mend it, 5xx when only the operator can.
    pub fn http_status(self) -> u16 {
        self.row().http_status
    }

    /// The machine-readable word for the wire; distinct for every kind and never changed.
    pub fn verdict(self) -> &'static str {
        self.row().verdict
    }

    /// What was wrong and what is allowed, for the documentation.
    pub fn meaning(self) -> &'static str {
        self.row().meaning
    }
}

/// What the error of every area converts into.
///
/// The message names the offending value, cut, and the limit; payloads and keys are never part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Decides SQLSTATE, HTTP status and verdict.
    pub kind: ErrorKind,
    /// One sentence for a person.
    pub message: String,
    /// What to do about it, where that is not obvious.
    pub hint: Option<String>,
}

impl Error {
    /// An error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// The same error with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Implements the conversion of an area's error, whose `kind()` says which row of the table it is.
macro_rules! into_error {
    ($area:ty) => {
        impl From<$area> for $crate::error::Error {
            fn from(error: $area) -> Self {
                $crate::error::Error::new(error.kind(), error.to_string())
            }
        }
    };
}
pub(crate) use into_error;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_kind_has_a_well_formed_row() {
        for kind in ErrorKind::ALL {
            let state = kind.sqlstate();
            assert_eq!(state.len(), 5, "{kind:?}");
            assert!(state.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()), "{kind:?}");
            assert!((400..600).contains(&kind.http_status()), "{kind:?}");
            assert!(!kind.meaning().is_empty(), "{kind:?}");
        }
    }

    #[test]
    fn verdicts_and_states_are_distinct_and_the_list_is_complete() {
        let verdicts: HashSet<_> = ErrorKind::ALL.iter().map(|k| k.verdict()).collect();
        let states: HashSet<_> = ErrorKind::ALL.iter().map(|k| k.sqlstate()).collect();
        assert_eq!(verdicts.len(), ErrorKind::ALL.len());
        assert_eq!(states.len(), ErrorKind::ALL.len());
        // `Internal` is declared last, so its discriminant counts the kinds.
        assert_eq!(ErrorKind::ALL.len(), ErrorKind::Internal as usize + 1);
    }

    #[test]
    fn states_users_know_are_the_standard_ones() {
        assert_eq!(ErrorKind::InvalidArgument.sqlstate(), "22023");
        assert_eq!(ErrorKind::TransactionBlock.sqlstate(), "25001");
        assert_eq!(ErrorKind::InvalidTimestamp.sqlstate(), "22007");
        assert_eq!(ErrorKind::InvalidId.sqlstate(), "22P02");
    }
}
