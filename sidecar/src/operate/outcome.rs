//! How a command ends.

use crate::database::{self, lacks_grant};
use crate::dead_letters::is_unreadable;
use crate::error::CallError;
use queen_core::ErrorKind;
use std::process::ExitCode;

/// For people. Never queen_sidecar: who has that names the actor of the audit.
const NO_ROLE: &str = "the login lacks the role: GRANT queen_viewer (to look) or queen_operator (to act) TO it";

/// How a command ended: the exit status, or what went wrong.
pub type Outcome = Result<ExitCode, Failure>;

/// What went wrong, and the exit status for it.
#[derive(PartialEq, Eq, Debug)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Refused, or failed.
    pub fn failed(text: impl Into<String>) -> Failure {
        Failure { code: 1, text: text.into() }
    }

    /// The arguments are wrong.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { code: 2, text: text.into() }
    }

    /// There is no such thing.
    pub fn not_found(text: impl Into<String>) -> Failure {
        Failure { code: 3, text: text.into() }
    }

    /// Somebody else has to approve first.
    pub fn needs_approval(text: impl Into<String>) -> Failure {
        Failure { code: 4, text: text.into() }
    }

    /// Says so, and answers the exit status.
    pub fn report(self) -> ExitCode {
        eprintln!("queen: {}", self.text);
        ExitCode::from(self.code)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        let CallError::Refused { state, message } = error else { return Failure::failed(error.to_string()) };
        let kind = ErrorKind::ALL.iter().find(|kind| kind.sqlstate() == state);
        match kind {
            Some(ErrorKind::PlanNotFound | ErrorKind::DeadLetterNotFound) => Failure::not_found(message),
            Some(ErrorKind::ApprovalRequired | ErrorKind::OwnPlan) => Failure::needs_approval(message),
            _ if is_unreadable(&state) => Failure::usage(message),
            Some(kind) if kind.http_status() == 400 => Failure::usage(message),
            _ => Failure::failed(message),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        let Some(db) = error.as_db_error() else { return database::failed(error).into() };
        if lacks_grant(db) {
            return Failure::failed(format!("{NO_ROLE} ({})", db.message()));
        }
        let hint = db.hint().map(|hint| format!("\nhint: {hint}"));
        let mut failure = Failure::from(database::failed(error));
        failure.text.extend(hint);
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(state: &str) -> u8 {
        Failure::from(CallError::Refused { state: state.to_owned(), message: String::new() }).code
    }

    #[test]
    fn the_exit_status_is_what_the_help_says() {
        for (state, exit) in [
            ("QN020", 3),
            ("QN027", 3),
            ("QN022", 4),
            ("QN021", 1),
            ("QN023", 1),
            ("QN024", 1),
            ("QN025", 1),
            ("QN026", 4),
            ("42501", 1),
            ("QN001", 2),
            ("22023", 2),
            ("22007", 2),
            ("53300", 1),
        ] {
            assert_eq!(code(state), exit, "{state}");
        }
        assert_eq!(Failure::from(CallError::Lost).code, 1);
    }
}
