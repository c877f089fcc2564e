//! Whether the database is one that this server can work with: it has the extension, and the login may call it.

use std::sync::{Mutex, PoisonError};
use tokio_postgres::Row;

pub const NO_EXTENSION: &str = "the database has no extension queen: CREATE EXTENSION queen";
pub const NO_ROLE: &str = "the login lacks the role: GRANT queen_sidecar TO …, the user of DATABASE_URL";
pub const OLD_EXTENSION: &str =
    "the database's extension queen lacks a function of this server's: ALTER EXTENSION queen UPDATE";

/// Answers one row: the extension's version, whether the functions are there, whether they may be called.
pub const LOOK: &str = include_str!("../../sql/fitness.sql");

/// What is known of the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fitness {
    /// It answers.
    pub connected: bool,
    /// Version of its extension.
    pub extension: Option<String>,
    /// Why calls cannot work though it answers, and what to do.
    pub problem: Option<&'static str>,
}

impl Fitness {
    /// Calls can work.
    pub fn is_fit(&self) -> bool {
        self.connected && self.problem.is_none()
    }

    /// Reads the row of [`LOOK`]; None when it is another.
    pub fn read(row: &Row) -> Option<Fitness> {
        let extension: Option<String> = row.try_get(0).ok()?;
        let (there, callable): (bool, bool) = (row.try_get(1).ok()?, row.try_get(2).ok()?);
        let problem = match (&extension, there, callable) {
            (None, ..) => Some(NO_EXTENSION),
            (_, false, _) => Some(OLD_EXTENSION),
            (_, _, false) => Some(NO_ROLE),
            _ => None,
        };
        Some(Fitness { connected: true, extension, problem })
    }
}

/// What has been logged about it: each change once.
#[derive(Default, Debug)]
pub struct Noticed(Mutex<Option<&'static str>>);

impl Noticed {
    /// Logs what is new.
    pub fn notice(&self, fitness: &Fitness, place: &str) {
        if !fitness.connected {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (*known, fitness.problem) {
            (Some(_), None) => tracing::info!(database = place, "the database can be worked with now"),
            (old, Some(problem)) if old != Some(problem) => tracing::warn!(database = place, "{problem}"),
            _ => {}
        }
        *known = fitness.problem;
    }
}
