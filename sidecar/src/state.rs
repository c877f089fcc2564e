//! What every handler has at hand.

use crate::auth::Auth;
use crate::budget::Budget;
use crate::coalesce::{Acks, Pushes};
use crate::config::Config;
use crate::database::Database;
use crate::depths::Depths;
use crate::maintenance::Maintenance;
use crate::metrics::Metrics;
use crate::polls::Polls;
use std::sync::Arc;
use std::time::Instant;

/// Shared by all requests.
pub type Shared = Arc<App>;

/// The parts of the server.
pub struct App {
    /// The settings.
    pub config: Config,
    /// Connections.
    pub database: Database,
    /// Pushes that share commits.
    pub pushes: Pushes,
    /// Settlements that share commits.
    pub acks: Acks,
    /// Pops, waiting and not.
    pub polls: Polls,
    /// Memory for answers.
    pub answers: Budget,
    /// Memory for bodies of requests.
    pub uploads: Budget,
    /// Who may enter.
    pub auth: Auth,
    /// The two switches and the buffer.
    pub maintenance: Maintenance,
    /// Counters of the database that monitoring asks for.
    pub depths: Depths,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// When the server began.
    pub started: Instant,
}
