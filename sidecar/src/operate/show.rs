use super::list::without_payload;
use super::outcome::{Failure, Outcome};
use super::session::{Session, id, parsed, print};
use super::table::{Table, cell};
use crate::dead_letters::RECORD;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq show 8f1c0d9e-6a55-4d0e-9a7a-3a1f0f1b2c3d
  queen dlq show 8f1c0d9e-6a55-4d0e-9a7a-3a1f0f1b2c3d --payload --json")]
pub struct Show {
    /// Id of the record
    #[arg(value_parser = id)]
    id: Uuid,
    /// Show payload and headers
    #[arg(long)]
    payload: bool,
}

impl Show {
    pub async fn run(self, db: &Session) -> Outcome {
        let found = db.find(RECORD, &[&self.id, &!self.payload]).await?;
        let found = found.ok_or_else(|| Failure::not_found(format!("there is no dead letter {}", self.id)))?;
        let mut found = parsed(&found)?;
        if !self.payload {
            without_payload(&mut found["record"]);
        }
        if db.json {
            return print(&found.to_string());
        }
        let mut text = String::new();
        for (key, value) in found["record"].as_object().into_iter().flatten() {
            // An error text may have lines; nothing in it may move the cursor.
            let value: String = cell(value).chars().filter(|c| *c == '\n' || !c.is_control()).collect();
            text.push_str(&format!("{key:<15} {}\n", value.replace('\n', "\n                ")));
        }
        if found["events"].as_array().is_some_and(|events| !events.is_empty()) {
            let mut events = Table::new(&["AT", "WHO", "WHAT", "PLAN", "DETAIL"]);
            for event in found["events"].as_array().into_iter().flatten() {
                events.row(["at", "actor", "action", "planId", "detail"].map(|key| cell(&event[key])).into());
            }
            text.push_str(&format!("\n{}\n", events.text()));
        }
        if found["ancestry"].as_array().is_some_and(|chain| !chain.is_empty()) {
            let mut chain = Table::new(&["HOPS ", "MESSAGE", "TRANSACTION", "QUEUE", "HOW", "WHO", "AT"]);
            for link in found["ancestry"].as_array().into_iter().flatten() {
                let keys = ["hops", "messageId", "transactionId", "queue", "action", "actor", "at"];
                chain.row(keys.map(|key| cell(&link[key])).into());
            }
            text.push_str(&format!("\n{}\n", chain.text()));
        }
        print(&text)
    }
}
