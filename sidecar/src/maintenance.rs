//! The two switches: while push maintenance is on, pushes go to a buffer on disk; while pop maintenance is on, pops find
//! nothing.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The switches.
#[derive(Default, Debug)]
pub struct Maintenance {
    pops: AtomicBool,
}

impl Maintenance {
    /// Whether pops find nothing.
    pub fn pops_paused(&self) -> bool {
        self.pops.load(SeqCst)
    }
}
