use super::outcome::{Failure, Outcome};
use super::session::{Session, parsed, print};
use super::table::shown;
use crate::dead_letters::{GROUP, PAUSE_GROUP, RESUME_GROUP};
use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq pause-group orders inventory --reason 'orders without sku, incident 311'
Its pops bring nothing and charge nothing; queen dlq stats shows which groups are paused.")]
pub struct PauseGroup {
    /// Name of the queue
    queue: String,
    /// Name of the consumer group
    group: String,
    /// Why, for the others and the audit
    #[arg(long)]
    reason: String,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq resume-group orders inventory")]
pub struct ResumeGroup {
    /// Name of the queue
    queue: String,
    /// Name of the consumer group
    group: String,
}

impl PauseGroup {
    pub async fn run(self, db: &Session) -> Outcome {
        is_paused(db, &self.queue, &self.group).await?;
        let changed = db.text(PAUSE_GROUP, &[&self.queue, &self.group, &self.reason]).await? == "true";
        if !is_paused(db, &self.queue, &self.group).await? {
            return Err(Failure::failed("the group has never subscribed to the queue: there is nothing to pause"));
        }
        told(db, &self.queue, &self.group, if changed { "paused" } else { "was paused already" }, changed)
    }
}

impl ResumeGroup {
    pub async fn run(self, db: &Session) -> Outcome {
        is_paused(db, &self.queue, &self.group).await?;
        let changed = db.text(RESUME_GROUP, &[&self.queue, &self.group]).await? == "true";
        told(db, &self.queue, &self.group, if changed { "goes on" } else { "was not paused" }, changed)
    }
}

/// Whether the group is; fails if the queue has no such group.
async fn is_paused(db: &Session, queue: &str, group: &str) -> Result<bool, Failure> {
    let found = db.find(GROUP, &[&queue, &group]).await?;
    let none = || Failure::not_found(format!("queue {} has no consumer group {}", shown(queue), shown(group)));
    Ok(parsed(&found.ok_or_else(none)?)?["paused"] == true)
}

fn told(db: &Session, queue: &str, group: &str, what: &str, changed: bool) -> Outcome {
    if db.json {
        return print(&serde_json::json!({ "queue": queue, "consumerGroup": group, "changed": changed }).to_string());
    }
    print(&format!("group {} on queue {} {what}", shown(group), shown(queue)))
}
