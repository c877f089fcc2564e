use super::outcome::Outcome;
use super::session::{Session, id, parsed, print};
use super::table::{Table, cell};
use crate::dead_letters::EVENTS;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq events --queue orders
  queen dlq events --plan PLAN
  queen dlq events --after 4711 --json        what came behind that number")]
pub struct Events {
    /// Only of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only of this plan
    #[arg(long, value_parser = id)]
    plan: Option<Uuid>,
    /// Only of this record
    #[arg(long = "id", value_parser = id)]
    record: Option<Uuid>,
    /// Only rows with a higher number
    #[arg(long, default_value_t = 0)]
    after: i64,
    /// Rows at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    limit: i32,
}

impl Events {
    pub async fn run(self, db: &Session) -> Outcome {
        let events = db.text(EVENTS, &[&self.queue, &self.plan, &self.record, &self.after, &self.limit]).await?;
        if db.json {
            return print(&events);
        }
        let mut table = Table::new(&["SEQ ", "AT", "WHO", "WHAT", "QUEUE", "GROUP", "RECORD", "PLAN", "DETAIL"]);
        for event in parsed(&events)?["events"].as_array().into_iter().flatten() {
            let keys = ["seq", "at", "actor", "action", "queue", "consumerGroup", "dlqId", "planId", "detail"];
            table.row(keys.map(|key| cell(&event[key])).into());
        }
        print(&table.text())
    }
}
