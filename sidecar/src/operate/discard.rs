use super::outcome::{Failure, Outcome};
use super::session::{Session, id, print};
use crate::dead_letters::DISCARD;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq discard 8f1c… --cause test --note 'sent by the load test'
  queen dlq list --queue orders --class malformed --json | jq -r '.records[].id' \\
      | xargs -r queen dlq discard --cause malformed --note 'ticket 12: the sender was fixed and has sent them again'")]
pub struct Discard {
    /// Ids of the records
    #[arg(value_parser = id, required = true)]
    ids: Vec<Uuid>,
    /// obsolete, superseded, test, malformed, satisfied or unlawful
    #[arg(long)]
    cause: String,
    /// Evidence, in words
    #[arg(long)]
    note: String,
}

impl Discard {
    pub async fn run(self, db: &Session) -> Outcome {
        let text = db.text(DISCARD, &[&self.ids, &self.cause, &self.note]).await?;
        let count: i64 = text.parse().unwrap_or(0);
        let total = self.ids.len();
        let printed = if db.json {
            print(&serde_json::json!({ "discarded": count, "given": total }).to_string())
        } else {
            print(&format!("{count} of {total} discarded"))
        };
        if count == 0 {
            return Err(Failure::not_found("none of these records is there and undecided"));
        }
        printed
    }
}
