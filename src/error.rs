//! Errors on their way to the client. The table error → SQLSTATE → HTTP status → verdict is [`queen_core::error`]'s;
//! [`crate::pg::entry::raise`] turns a kind into a server error.

pub use queen_core::error::{Error, ErrorKind};

pub type Result<T> = std::result::Result<T, Error>;

/// An error of `kind`; `message` names what was wrong and what is allowed, never a payload or a key.
pub fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message)
}
