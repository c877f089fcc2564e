use super::outcome::Outcome;
use super::session::{Session, id};
use super::watch;
use crate::dead_letters::CANCEL;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq cancel PLAN --note 'wrong filter'")]
pub struct Cancel {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
    /// For the audit
    #[arg(long)]
    note: Option<String>,
}

impl Cancel {
    pub async fn run(self, db: &Session) -> Outcome {
        watch::print_status(db, &db.text(CANCEL, &[&self.plan, &self.note]).await?)
    }
}
