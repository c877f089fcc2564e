//! Acknowledgements: many requests, one commit; each settles as if it were alone.

use super::push::push_string;
use super::{Job, Line, array, each_once, lane};
use crate::database::{Database, Statement};
use crate::error::CallError;
use crate::metrics::Operation;
use crate::tenant::Tenant;
use queen_core::payload::AckItem;
use serde_json::value::RawValue;
use std::fmt::Write;
use tokio_postgres::types::Type;

/// The line of acknowledgements; a lane is a partition of a group.
pub type Acks = Line<AckJob>;

const ACK: Statement = Statement { sql: "SELECT queen.ack_many_json($1)", types: &[Type::TEXT] };

/// The acknowledgements of one request.
pub struct AckJob {
    tenant: Tenant,
    lanes: Vec<u64>,
    items: usize,
    text: String,
}

impl AckJob {
    /// `raw` is the request's JSON array, and `items` the same, read.
    pub fn new(tenant: Tenant, group: &str, raw: &str, items: &[AckItem]) -> AckJob {
        let of = |item: &AckItem| lane((tenant, group, item.partition_id.as_deref().map(str::to_ascii_lowercase)));
        let mut lanes: Vec<u64> = items.iter().map(of).collect();
        each_once(&mut lanes);
        let mut text = String::from("{\"consumerGroup\":");
        push_string(&mut text, group);
        _ = write!(text, ",\"acknowledgments\":{raw}}}");
        AckJob { tenant, lanes, items: items.len(), text }
    }
}

impl Job for AckJob {
    /// The wire's array.
    type Answer = Box<RawValue>;
    const OPERATION: Operation = Operation::Ack;

    fn tenant(&self) -> Tenant {
        self.tenant
    }

    fn lanes(&self) -> &[u64] {
        &self.lanes
    }

    fn items(&self) -> usize {
        self.items
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }

    async fn call(database: &Database, tenant: Tenant, jobs: &[&Self]) -> Result<Vec<Box<RawValue>>, CallError> {
        let requests = array(jobs.iter().map(|job| job.text.as_str()));
        let text = database.call(tenant, ACK, &[&requests]).await?;
        serde_json::from_str(&text).map_err(|_| CallError::Lost)
    }
}
