//! Replaying the buffer: in order, one call at a time, for as long as it takes.
//!
//! A crash between a call's commit and the note that it was made repeats the call after the restart. Each item has a
//! transaction id, so the repetition stores nothing twice, within the queue's deduplication window.

use super::log::{Chunk, Log};
use crate::database::{Database, Statement};
use crate::error::CallError;
use crate::tenant::Tenant;
use serde_json::json;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_postgres::types::Type;

const PUSH: Statement = Statement { sql: "SELECT queen.push_batch_json($1)", types: &[Type::TEXT] };

/// Items and bytes of one call at most, unless one request has more.
const CALL: (usize, usize) = (2000, 8 << 20);
/// First and longest pause after a call that brought no answer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Where the buffer is replayed to.
pub trait Sink: Send + Sync + 'static {
    /// Stores items, a JSON array; all or none.
    fn push(&self, tenant: Tenant, items: String) -> impl Future<Output = Result<(), CallError>> + Send;
}

impl Sink for Database {
    async fn push(&self, tenant: Tenant, items: String) -> Result<(), CallError> {
        self.call(tenant, PUSH, &[&items]).await.map(|_| ())
    }
}

/// Replays for ever, whenever there is something and the switch is off.
pub async fn run(log: Arc<Log>, sink: impl Sink, filled: Arc<Notify>, mut paused: watch::Receiver<bool>) {
    let mut pause = PAUSE.0;
    // Requests that go alone, after a call of several was refused.
    let mut alone = 0;
    loop {
        if paused.wait_for(|paused| !paused).await.is_err() {
            return;
        }
        let (items, bytes) = if alone > 0 { (0, 0) } else { CALL };
        let replayed = match blocking(&log, move |log| log.next(items, bytes)).await {
            Ok(Some(chunk)) => replay(&log, &sink, chunk, &mut alone).await,
            Ok(None) => {
                alone = 0;
                tokio::select! {
                    () = filled.notified() => {}
                    changed = paused.changed() => if changed.is_err() { return },
                }
                continue;
            }
            Err(error) => Err(Later::Disk(error)),
        };
        match replayed {
            Ok(()) => pause = PAUSE.0,
            Err(later) => {
                tracing::warn!(reason = %later, pending = log.pending().items, "the buffer cannot be replayed now");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

/// Why something is tried again later.
#[derive(Debug, thiserror::Error)]
enum Later {
    #[error("{0}")]
    Database(CallError),
    #[error("{0}")]
    Disk(io::Error),
}

async fn replay(log: &Arc<Log>, sink: &impl Sink, chunk: Chunk, alone: &mut usize) -> Result<(), Later> {
    let Some((tenant, items)) = chunk.call() else { return Ok(()) };
    match sink.push(tenant, items.clone()).await {
        Ok(()) => {}
        Err(CallError::Refused { .. }) if chunk.records.len() > 1 => {
            *alone = chunk.records.len();
            return Ok(());
        }
        Err(CallError::Refused { state, message }) if is_for_good(&state) => {
            tracing::error!(%state, %message, items = chunk.items(), "a buffered push is refused; kept in failed/");
            let content = format!(
                "{{\"tenant\":\"{}\",\"state\":{},\"error\":{},\"items\":{items}}}\n",
                tenant.0,
                json!(state),
                json!(message)
            );
            let end = chunk.end;
            blocking(log, move |log| log.keep_failed(end, content.as_bytes())).await.map_err(Later::Disk)?;
        }
        Err(error) => return Err(Later::Database(error)),
    }
    *alone = alone.saturating_sub(chunk.records.len());
    blocking(log, move |log| log.done(&chunk)).await.map_err(Later::Disk)
}

/// Whether no later attempt can end otherwise: the request is at fault, or has data (class 22) or sizes (class 54) that
/// no database takes.
fn is_for_good(state: &str) -> bool {
    let by_class = state.starts_with("22") || state.starts_with("54");
    by_class || CallError::Refused { state: state.to_owned(), message: String::new() }.is_callers()
}

async fn blocking<T: Send + 'static>(
    log: &Arc<Log>,
    work: impl FnOnce(&Log) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let log = log.clone();
    tokio::task::spawn_blocking(move || work(&log)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::super::buffer::Buffer;
    use super::super::record::Record;
    use super::*;
    use std::sync::Mutex;

    /// Stores like a database that is down for the first so many calls, and refuses items with these words.
    #[derive(Clone, Default)]
    struct Fake {
        stored: Arc<Mutex<Vec<(u128, String)>>>,
        down: Arc<Mutex<usize>>,
        told: Arc<Notify>,
    }

    impl Sink for Fake {
        async fn push(&self, tenant: Tenant, items: String) -> Result<(), CallError> {
            let refused = |state: &str| CallError::Refused { state: state.to_owned(), message: "m".to_owned() };
            {
                let mut down = self.down.lock().unwrap();
                if *down > 0 {
                    *down -= 1;
                    return Err(if (*down).is_multiple_of(2) { CallError::NoConnection } else { refused("53100") });
                }
            }
            if items.contains("bad") {
                return Err(refused("QN001"));
            }
            self.stored.lock().unwrap().push((tenant.0.as_u128(), items));
            self.told.notify_one();
            Ok(())
        }
    }

    struct Bench {
        folder: std::path::PathBuf,
        buffer: Buffer,
        fake: Fake,
        paused: watch::Sender<bool>,
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    impl Bench {
        fn new() -> Bench {
            let folder = std::env::temp_dir().join(format!("queen-buffer-{}", uuid::Uuid::new_v4()));
            let buffer = Buffer::open(&folder).unwrap();
            Bench { folder, buffer, fake: Fake::default(), paused: watch::Sender::new(true) }
        }

        fn start(&self) {
            let (log, filled) = (self.buffer.log().clone(), self.buffer.filled().clone());
            tokio::spawn(run(log, self.fake.clone(), filled, self.paused.subscribe()));
        }

        async fn store(&self, tenant: u128, item: &str) {
            let tenant = Tenant(uuid::Uuid::from_u128(tenant));
            let record = Record { tenant, items: 1, array: format!("[\"{item}\"]") };
            assert!(self.buffer.store(self.buffer.enter(), &record).await);
        }

        async fn drained(&self) {
            while self.buffer.in_use() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }

        fn stored(&self) -> Vec<(u128, String)> {
            self.fake.stored.lock().unwrap().clone()
        }
    }

    #[test]
    fn only_what_the_request_is_at_fault_for_is_given_up() {
        for state in ["QN001", "22021", "54000"] {
            assert!(is_for_good(state), "{state}");
        }
        for state in ["53100", "53300", "40P01", "42501", "42883", "55P03", "57014", "XX000", "08006"] {
            assert!(!is_for_good(state), "{state}");
        }
    }

    #[tokio::test]
    async fn nothing_is_replayed_while_the_switch_is_on_and_all_in_order_afterwards() {
        let bench = Bench::new();
        bench.start();
        for (tenant, item) in [(1, "a"), (1, "b"), (2, "c"), (1, "d")] {
            bench.store(tenant, item).await;
        }
        tokio::task::yield_now().await;
        assert!(bench.stored().is_empty());
        bench.paused.send_replace(false);
        bench.drained().await;
        let wanted = [(1, r#"["a","b"]"#), (2, r#"["c"]"#), (1, r#"["d"]"#)];
        assert_eq!(bench.stored(), wanted.map(|(tenant, items)| (tenant, items.to_owned())));
    }

    #[tokio::test]
    async fn a_database_that_is_down_is_waited_for() {
        let bench = Bench::new();
        *bench.fake.down.lock().unwrap() = 3;
        bench.store(1, "a").await;
        bench.store(1, "b").await;
        bench.paused.send_replace(false);
        bench.start();
        bench.drained().await;
        let all: String = bench.stored().into_iter().map(|(_, items)| items).collect();
        assert_eq!(all.replace("][", ","), r#"["a","b"]"#);
        assert_eq!(bench.buffer.log().kept_aside().0, 0);
    }

    #[tokio::test]
    async fn a_push_that_is_refused_for_good_is_kept_and_stops_nobody_else() {
        let bench = Bench::new();
        for item in ["a", "bad", "b", "c"] {
            bench.store(1, item).await;
        }
        bench.paused.send_replace(false);
        bench.start();
        bench.drained().await;
        let all: String = bench.stored().into_iter().map(|(_, items)| items).collect();
        assert_eq!(all, r#"["a"]["b"]["c"]"#);
        assert_eq!(bench.buffer.log().kept_aside().0, 1);
        let kept = std::fs::read_dir(bench.folder.join("failed")).unwrap().next().unwrap().unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(kept.path()).unwrap()).unwrap();
        assert_eq!((&kept["state"], &kept["items"]), (&json!("QN001"), &json!(["bad"])));
    }

    #[tokio::test]
    async fn what_comes_while_the_buffer_drains_comes_after() {
        let bench = Bench::new();
        bench.paused.send_replace(false);
        bench.start();
        for n in 0..20 {
            bench.store(1, &n.to_string()).await;
        }
        bench.drained().await;
        let all: String = bench.stored().into_iter().map(|(_, items)| items).collect();
        let wanted: Vec<String> = (0..20).map(|n| format!("\"{n}\"")).collect();
        assert_eq!(all.replace("][", ","), format!("[{}]", wanted.join(",")));
    }
}
