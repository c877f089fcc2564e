//! The broker's rules without a server: what a name, a payload, an option, a message id and a stored
//! segment are, how payloads are sealed, and what an acknowledgement does to a cursor.
//!
//! Nothing here does I/O, knows PostgreSQL or holds global state, so every rule can be tested in
//! isolation. Nothing here panics on input: what comes from a caller or from disk is answered with an
//! error of its area, and each of those converts into [`Error`], which carries the SQLSTATE, the HTTP
//! status and the verdict.

#![deny(missing_docs)]
// A failed unwrap is how a test fails.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod ack;
pub mod classify;
pub mod deadline;
pub mod deliveries;
pub mod envelope;
pub mod error;
pub mod fingerprint;
pub mod headers;
pub mod id;
pub mod mask;
pub mod names;
pub mod options;
pub mod payload;
pub mod person;
pub mod redact;
pub mod replay;
pub mod retry;
pub mod segment;

pub use error::{Error, ErrorKind};
