//! What is answered when something is wrong: a status and a JSON body.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use queen_core::ErrorKind;
use serde_json::{Value, json};

/// The code of an answer that was not given for lack of memory.
pub const NO_ROOM: &str = "no_room";

/// The code of an answer that was not given because it would be too long.
pub const TOO_LARGE: &str = "too_large";

/// When a client should ask again that was refused for lack of memory, in seconds.
const RETRY_AFTER: u16 = 1;

/// An answer that is not the one asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// The body; its `error` is a sentence for a person.
    pub body: Value,
}

impl Problem {
    /// `{"error": …}` with this status.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Problem {
        Problem { status, body: json!({ "error": error.into() }) }
    }

    /// 400 `{"error": …}`.
    pub fn bad_request(error: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, error)
    }

    /// 400 for a body that cannot be read.
    pub fn bad_body(detail: impl std::fmt::Display) -> Problem {
        Problem::bad_request(format!("bad body: {detail}"))
    }

    /// 404 for a path that does not exist.
    pub fn no_such_route() -> Problem {
        Problem { status: StatusCode::NOT_FOUND, body: json!({ "error": "Not Found", "code": "no_such_route" }) }
    }

    /// The same with another body, which has to have an `error`.
    #[must_use]
    pub fn with_body(mut self, body: Value) -> Problem {
        self.body = body;
        self
    }

    /// The same with a `code`, for a program.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Problem {
        self.body["code"] = Value::from(code);
        self
    }

    /// The same with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Problem {
        self.status = status;
        self
    }

    /// The sentence.
    pub fn text(&self) -> &str {
        self.body.get("error").and_then(Value::as_str).unwrap_or_default()
    }
}

/// The sentence of a [`Problem`], beside its answer: for the log.
#[derive(Clone, Debug)]
pub struct Said(pub String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let said = Said(self.text().to_owned());
        let again = self.body.get("code").is_some_and(|code| code == NO_ROOM);
        let mut response =
            (self.status, [(header::CONTENT_TYPE, "application/json")], self.body.to_string()).into_response();
        if again {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.into());
        }
        response.extensions_mut().insert(said);
        response
    }
}

/// Why a call to the database brought no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// No connection could be had: nothing was done.
    #[error("pool")]
    NoConnection,
    /// The budgets of memory leave none for this: nothing was done.
    #[error(
        "what other clients have not read or sent yet leaves no memory for this; nothing was done, ask again in a moment"
    )]
    NoRoom,
    /// What was asked for is longer than an answer may be. Of what only looks.
    #[error(
        "the answer would have {bytes} bytes, and more than {most} are not sent: ask for less, with a smaller limit"
    )]
    TooLarge {
        /// Bytes that the database's answer would have.
        bytes: usize,
        /// Bytes that it may have.
        most: usize,
    },
    /// The connection broke while the call was under way: what it did is not known.
    #[error("the database connection was lost; whether the call was carried out is not known")]
    Lost,
    /// The database refused it; nothing was done.
    #[error("{message}")]
    Refused {
        /// SQLSTATE.
        state: String,
        /// The database's sentence.
        message: String,
    },
}

impl CallError {
    /// Whether the request is at fault, and not what is around it.
    pub fn is_callers(&self) -> bool {
        self.status().is_client_error()
    }

    /// By the one table of errors; states that are not in it are the server's trouble, but for values that PostgreSQL
    /// itself cannot take: a time beyond its calendar, and a NUL in a text or in `jsonb`.
    pub fn status(&self) -> StatusCode {
        let state = match self {
            CallError::Refused { state, .. } => state,
            CallError::NoRoom => return StatusCode::SERVICE_UNAVAILABLE,
            CallError::TooLarge { .. } => return StatusCode::BAD_REQUEST,
            CallError::NoConnection | CallError::Lost => return StatusCode::INTERNAL_SERVER_ERROR,
        };
        if matches!(state.as_str(), "22008" | "22021" | "22P05") {
            return StatusCode::BAD_REQUEST;
        }
        let kind = ErrorKind::ALL.iter().find(|kind| kind.sqlstate() == state);
        match kind {
            // The login's own grants are not the client's business.
            Some(ErrorKind::PermissionDenied) | None => StatusCode::INTERNAL_SERVER_ERROR,
            Some(kind) => StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let problem = Problem::new(error.status(), error.to_string());
        match error {
            CallError::NoRoom => problem.with_code(NO_ROOM),
            CallError::TooLarge { .. } => problem.with_code(TOO_LARGE),
            _ => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(state: &str) -> StatusCode {
        CallError::Refused { state: state.to_owned(), message: String::new() }.status()
    }

    #[test]
    fn every_kind_has_the_status_of_the_table() {
        for kind in ErrorKind::ALL.iter().filter(|kind| **kind != ErrorKind::PermissionDenied) {
            assert_eq!(refused(kind.sqlstate()).as_u16(), kind.http_status(), "{kind:?}");
        }
    }

    #[test]
    fn values_that_postgresql_cannot_take_are_the_callers() {
        for state in ["22008", "22021", "22P05"] {
            assert_eq!(refused(state), StatusCode::BAD_REQUEST, "{state}");
        }
    }

    #[test]
    fn what_the_table_does_not_know_is_the_servers_trouble() {
        for state in ["53100", "57P01", "42501", "42883"] {
            assert_eq!(refused(state), StatusCode::INTERNAL_SERVER_ERROR, "{state}");
        }
        assert_eq!(CallError::NoConnection.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
