//! The two switches: while push maintenance is on, pushes go to a buffer on disk; while pop maintenance is on, pops find
//! nothing.
//!
//! Invariants:
//! - A push that is answered as buffered is on the disk, and is replayed in the order of arrival when the switch is off.
//! - As long as something is in the buffer, pushes go to the buffer, so that none overtakes another.
//! - Both switches are files in the folder of the buffer, and thus as they were after a restart.

mod buffer;
mod drain;
mod files;
mod log;
mod record;

pub use buffer::Turn;
pub use record::Record;

use crate::database::Database;
use buffer::Buffer;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::watch;

/// The switches' files.
const PUSH_SWITCH: &str = "push-maintenance";
const POP_SWITCH: &str = "pop-maintenance";

/// The switches and the buffer.
pub struct Maintenance {
    folder: PathBuf,
    database: Database,
    pushes: watch::Sender<bool>,
    pops: watch::Sender<bool>,
    /// Absent as long as the folder cannot be used.
    buffer: OnceLock<Arc<Buffer>>,
    /// One who turns a switch, or opens the folder, at a time.
    turning: Mutex<()>,
}

/// How the buffer is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BufferStatus {
    /// Messages to replay.
    pub pending: u64,
    /// Files kept aside: pushes that the database refused for good, and damaged files.
    pub failed_files: u64,
    /// Their bytes.
    pub failed_bytes: u64,
    /// The folder can be used, and the last write went well.
    pub healthy: bool,
}

impl Maintenance {
    /// Reads the switches and starts to replay what is left from before. A folder that cannot be used is told in the log,
    /// and again to whoever turns a switch on.
    pub fn new(folder: &Path, database: Database) -> Maintenance {
        let maintenance = Maintenance {
            folder: folder.to_owned(),
            database,
            pushes: watch::Sender::new(false),
            pops: watch::Sender::new(false),
            buffer: OnceLock::new(),
            turning: Mutex::new(()),
        };
        if let Err(error) = maintenance.open() {
            tracing::warn!(folder = %folder.display(), %error, "no buffer: maintenance cannot be switched on");
        }
        maintenance
    }

    /// Whether push maintenance is on.
    pub fn pushes_paused(&self) -> bool {
        *self.pushes.borrow()
    }

    /// Whether pops find nothing.
    pub fn pops_paused(&self) -> bool {
        *self.pops.borrow()
    }

    /// Tells when that changes.
    pub fn pops(&self) -> watch::Receiver<bool> {
        self.pops.subscribe()
    }

    /// The turn of a push that has to go to the buffer. None: it goes to the database.
    pub fn divert(&self) -> Option<Turn> {
        let buffer = self.buffer.get()?;
        (self.pushes_paused() || buffer.in_use()).then(|| buffer.enter())
    }

    /// Stores a push; true: it is on the disk.
    pub async fn store(&self, turn: Turn, record: &Record) -> bool {
        match self.buffer.get() {
            Some(buffer) => buffer.store(turn, record).await,
            None => false,
        }
    }

    /// Turns push maintenance on or off. Pushes under way end as they began. Blocks for the disk.
    ///
    /// # Errors
    /// The folder cannot be used; nothing has changed.
    pub fn turn_pushes(&self, on: bool) -> io::Result<()> {
        self.turn(PUSH_SWITCH, on, || _ = self.pushes.send_replace(on))
    }

    /// Turns pop maintenance on or off. Blocks for the disk.
    ///
    /// # Errors
    /// As [`Maintenance::turn_pushes`].
    pub fn turn_pops(&self, on: bool) -> io::Result<()> {
        self.turn(POP_SWITCH, on, || _ = self.pops.send_replace(on))
    }

    /// How the buffer is. Reads the folder of what was kept aside.
    pub fn status(&self) -> BufferStatus {
        let Some(buffer) = self.buffer.get() else { return BufferStatus::default() };
        let (failed_files, failed_bytes) = buffer.log().kept_aside();
        BufferStatus { pending: buffer.log().pending().items, failed_files, failed_bytes, healthy: buffer.is_healthy() }
    }

    fn turn(&self, name: &str, on: bool, then: impl FnOnce()) -> io::Result<()> {
        if !on && self.buffer.get().is_none() {
            // It could not have been turned on.
            return Ok(());
        }
        self.open()?;
        let _turning = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
        if on { files::put(&self.folder, name, b"on\n") } else { files::remove(&self.folder, name) }?;
        then();
        Ok(())
    }

    fn open(&self) -> io::Result<()> {
        let _turning = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
        if self.buffer.get().is_some() {
            return Ok(());
        }
        let buffer = Arc::new(Buffer::open(&self.folder)?);
        self.pushes.send_replace(self.folder.join(PUSH_SWITCH).exists());
        self.pops.send_replace(self.folder.join(POP_SWITCH).exists());
        let pending = buffer.log().pending().items;
        if pending > 0 || self.pushes_paused() || self.pops_paused() {
            tracing::info!(
                pending,
                pushes = self.pushes_paused(),
                pops = self.pops_paused(),
                "maintenance as it was left"
            );
        }
        let (log, filled) = (buffer.log().clone(), buffer.filled().clone());
        tokio::spawn(drain::run(log, self.database.clone(), filled, self.pushes.subscribe()));
        _ = self.buffer.set(buffer);
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
