//! Why no connection could be had: the driver's reasons in one line, and logged without filling the log.

use deadpool_postgres::{PoolError, TimeoutType};
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same is not logged more often.
const RARELY: Duration = Duration::from_secs(60);
/// Causes remembered; there are a few, unless each carries something of its own.
const MOST: usize = 64;

/// What has been logged, and when.
#[derive(Default, Debug)]
pub struct Troubles(Mutex<HashMap<(&'static str, String), Instant>>);

impl Troubles {
    /// Logs what is wrong and why, unless it just did.
    pub fn report(&self, what: &'static str, place: &str, cause: &str) {
        if self.is_due(what, cause, Instant::now()) {
            tracing::warn!(database = place, error = cause, "{what}");
        }
    }

    fn is_due(&self, what: &'static str, cause: &str, now: Instant) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MOST {
            logged.clear();
        }
        let key = (what, cause.to_owned());
        let due = logged.get(&key).is_none_or(|last| now.duration_since(*last) >= RARELY);
        if due {
            logged.insert(key, now);
        }
        due
    }
}

/// Why the pool gave no connection.
pub fn of_pool(error: &PoolError) -> String {
    match error {
        PoolError::Backend(error) => of_driver(error),
        PoolError::Timeout(TimeoutType::Wait) => "all connections are busy".to_owned(),
        PoolError::Timeout(_) => "no answer in time".to_owned(),
        other => chain(other),
    }
}

/// Why the driver failed; of the database's errors the sentence alone.
pub fn of_driver(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| chain(error), |db| db.message().to_owned())
}

/// An error and the errors behind it; one that only repeats is left out.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_logged_once_and_then_rarely() {
        let (troubles, now) = (Troubles::default(), Instant::now());
        assert!(troubles.is_due("no connection", "refused", now));
        assert!(!troubles.is_due("no connection", "refused", now + RARELY / 2));
        assert!(troubles.is_due("no connection", "no such host", now));
        assert!(troubles.is_due("cannot listen", "refused", now));
        assert!(troubles.is_due("no connection", "refused", now + RARELY));
    }

    #[tokio::test]
    async fn what_is_behind_an_error_is_told() {
        // Nobody listens on port 1.
        let refused = "host=127.0.0.1 port=1 user=u".parse::<tokio_postgres::Config>().unwrap();
        let error = refused.connect(tokio_postgres::NoTls).await.err().unwrap();
        let told = of_driver(&error);
        assert!(told.starts_with("error connecting to server: ") && told.contains("refused"), "{told}");
    }
}
