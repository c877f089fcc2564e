//! Writing to the buffer: requests that come together share one sync of the disk.
//!
//! One thread writes. It takes all requests that wait, writes them in order, syncs once, and answers each; those that
//! come meanwhile are the next group.

use super::log::{Count, Log};
use super::record::Record;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use tokio::sync::{Notify, oneshot};

/// Bytes that one group has at most, unless one request has more.
const GROUP_BYTES: usize = 16 << 20;

/// The buffer; ends its thread when dropped.
pub struct Buffer {
    log: Arc<Log>,
    sender: mpsc::Sender<Waiting>,
    /// Requests let in that are not in the log yet.
    entering: Arc<AtomicU64>,
    healthy: Arc<AtomicBool>,
    /// Told when there is something to replay.
    filled: Arc<Notify>,
}

/// A request's turn in the buffer: as long as one is held, later requests are let in as well.
pub struct Turn(Arc<AtomicU64>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

struct Waiting {
    bytes: Vec<u8>,
    items: u64,
    turn: Turn,
    reply: oneshot::Sender<bool>,
}

impl Buffer {
    /// Opens the buffer in a folder.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn open(folder: &Path) -> io::Result<Buffer> {
        let log = Arc::new(Log::open(folder)?);
        let (sender, receiver) = mpsc::channel();
        let buffer = Buffer {
            log: log.clone(),
            sender,
            entering: Arc::default(),
            healthy: Arc::new(AtomicBool::new(true)),
            filled: Arc::default(),
        };
        let (healthy, filled) = (buffer.healthy.clone(), buffer.filled.clone());
        std::thread::Builder::new()
            .name("buffer".to_owned())
            .spawn(move || write(&log, &receiver, &healthy, &filled))?;
        Ok(buffer)
    }

    /// Lets a request in.
    pub fn enter(&self) -> Turn {
        self.entering.fetch_add(1, SeqCst);
        Turn(self.entering.clone())
    }

    /// Whether something is in the buffer, or about to be.
    pub fn in_use(&self) -> bool {
        // In this order: a request is in the log before it stops entering.
        self.entering.load(SeqCst) > 0 || self.log.pending().records > 0
    }

    /// Stores a request; true: it is on the disk. Carried out also when the caller is gone.
    pub async fn store(&self, turn: Turn, record: &Record) -> bool {
        let Ok(bytes) = record.encode() else { return false };
        let (reply, answer) = oneshot::channel();
        let items = u64::from(record.items);
        self.sender.send(Waiting { bytes, items, turn, reply }).is_ok() && answer.await.unwrap_or(false)
    }

    /// Whether the last write went well.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(SeqCst)
    }

    /// The files.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Told when there is something to replay.
    pub fn filled(&self) -> &Arc<Notify> {
        &self.filled
    }
}

fn write(log: &Log, receiver: &mpsc::Receiver<Waiting>, healthy: &AtomicBool, filled: &Notify) {
    while let Ok(first) = receiver.recv() {
        let mut group = vec![first];
        let mut bytes = std::mem::take(&mut group[0].bytes);
        while bytes.len() < GROUP_BYTES
            && let Ok(next) = receiver.try_recv()
        {
            bytes.extend(&next.bytes);
            group.push(next);
        }
        let count = Count { records: group.len() as u64, items: group.iter().map(|w| w.items).sum() };
        let stored = log.append(&bytes, count);
        if let Err(error) = &stored {
            tracing::error!(%error, requests = group.len(), "cannot write to the buffer");
        }
        healthy.store(stored.is_ok(), SeqCst);
        for waiting in group {
            drop(waiting.turn);
            _ = waiting.reply.send(stored.is_ok());
        }
        filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Tenant;

    fn record(text: &str) -> Record {
        Record { tenant: Tenant::default(), items: 1, array: format!("[{text}]") }
    }

    fn folder() -> std::path::PathBuf {
        std::env::temp_dir().join(format!("queen-buffer-{}", uuid::Uuid::new_v4()))
    }

    #[tokio::test]
    async fn requests_that_come_together_are_all_there_in_their_order() {
        let folder = folder();
        let buffer = Buffer::open(&folder).unwrap();
        let records: Vec<Record> = (0..200).map(|n| record(&n.to_string())).collect();
        let mut waiting = Vec::new();
        for record in &records {
            let mut store = Box::pin(buffer.store(buffer.enter(), record));
            // Polled once, it is in the line.
            if let std::task::Poll::Ready(stored) = futures_poll(store.as_mut()) {
                assert!(stored);
            } else {
                waiting.push(store);
            }
        }
        for store in waiting {
            assert!(store.await);
        }
        let chunk = buffer.log().next(usize::MAX, usize::MAX).unwrap().unwrap();
        assert_eq!(chunk.records, records);
        _ = std::fs::remove_dir_all(folder);
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn the_buffer_is_in_use_from_the_first_turn_until_all_is_replayed() {
        let folder = folder();
        let buffer = Buffer::open(&folder).unwrap();
        assert!(!buffer.in_use());
        let turn = buffer.enter();
        assert!(buffer.in_use());
        assert!(buffer.store(turn, &record("1")).await);
        assert!(buffer.in_use());
        let chunk = buffer.log().next(1, 1).unwrap().unwrap();
        buffer.log().done(&chunk).unwrap();
        assert!(!buffer.in_use());
        drop(buffer.enter());
        assert!(!buffer.in_use(), "a request that left gave up its turn");
        _ = std::fs::remove_dir_all(folder);
    }

    #[tokio::test]
    async fn a_request_whose_client_left_is_stored_all_the_same() {
        let folder = folder();
        let buffer = Buffer::open(&folder).unwrap();
        let first = record("1");
        let mut store = Box::pin(buffer.store(buffer.enter(), &first));
        _ = futures_poll(store.as_mut());
        drop(store);
        assert!(buffer.store(buffer.enter(), &record("2")).await);
        assert_eq!(buffer.log().pending().records, 2);
        _ = std::fs::remove_dir_all(folder);
    }
}
