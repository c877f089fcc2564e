//! Pushes: many requests, one append.

use super::{Job, Line, array, each_once, lane};
use crate::database::{Database, Statement};
use crate::error::CallError;
use crate::metrics::Operation;
use crate::tenant::Tenant;
use crate::uploads::Upload;
use serde::Deserialize;
use std::fmt::Write;
use tokio_postgres::types::Type;

/// The line of pushes; a lane is a partition.
pub type Pushes = Line<PushJob>;

const PUSH: Statement = Statement { sql: "SELECT queen.push_batch_json($1)", types: &[Type::TEXT] };

/// The items of one request.
pub struct PushJob {
    tenant: Tenant,
    lanes: Vec<u64>,
    items: usize,
    /// The items as JSON objects, with commas between them.
    text: String,
    /// The memory that its request takes, until it is stored.
    _upload: Option<Upload>,
}

/// An item to push; names and payload have been checked.
pub struct PushItem<'a> {
    /// Queue name.
    pub queue: &'a str,
    /// Partition name.
    pub partition: &'a str,
    /// JSON, byte for byte.
    pub payload: &'a str,
    /// Deduplication id.
    pub transaction_id: Option<&'a str>,
    /// A JSON object, byte for byte.
    pub headers: Option<&'a str>,
}

/// What became of one item.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// Id of the message; a duplicate's is that of the message which is there already.
    pub message_id: String,
    /// Where it is in its partition.
    pub offset: i64,
    /// It was there already.
    #[serde(default)]
    pub duplicate: bool,
}

impl PushJob {
    /// A request's items, all or nothing; `producer` is the authenticated subject.
    pub fn new<'a>(tenant: Tenant, producer: Option<&str>, items: impl Iterator<Item = PushItem<'a>>) -> PushJob {
        let mut job = PushJob { tenant, lanes: Vec::new(), items: 0, text: String::new(), _upload: None };
        for item in items {
            job.lanes.push(lane((tenant, item.queue, item.partition)));
            job.items += 1;
            append(&mut job.text, &item, producer);
        }
        each_once(&mut job.lanes);
        job
    }

    /// The same for a request whose body takes room.
    #[must_use]
    pub fn holding(mut self, upload: Option<Upload>) -> PushJob {
        self._upload = upload;
        self
    }

    /// The items as a JSON array.
    pub fn array(&self) -> String {
        format!("[{}]", self.text)
    }
}

fn append(text: &mut String, item: &PushItem<'_>, producer: Option<&str>) {
    text.push_str(if text.is_empty() { "{\"queue\":" } else { ",{\"queue\":" });
    push_string(text, item.queue);
    text.push_str(",\"partition\":");
    push_string(text, item.partition);
    if let Some(id) = item.transaction_id {
        text.push_str(",\"transactionId\":");
        push_string(text, id);
    }
    if let Some(producer) = producer {
        text.push_str(",\"producer\":");
        push_string(text, producer);
    }
    if let Some(headers) = item.headers {
        _ = write!(text, ",\"headers\":{headers}");
    }
    _ = write!(text, ",\"payload\":{}}}", item.payload);
}

/// Appends a JSON string.
pub fn push_string(text: &mut String, value: &str) {
    text.push_str(&serde_json::Value::from(value).to_string());
}

impl Job for PushJob {
    type Answer = Vec<Pushed>;
    const OPERATION: Operation = Operation::Push;

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

    async fn call(database: &Database, tenant: Tenant, jobs: &[&Self]) -> Result<Vec<Vec<Pushed>>, CallError> {
        let items = array(jobs.iter().map(|job| job.text.as_str()).filter(|text| !text.is_empty()));
        let text = database.call(tenant, PUSH, &[&items]).await?;
        let all: Vec<Pushed> = serde_json::from_str(&text).map_err(|_| CallError::Lost)?;
        let mut all = all.into_iter();
        Ok(jobs.iter().map(|job| all.by_ref().take(job.items).collect()).collect())
    }
}
