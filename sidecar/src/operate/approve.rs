use super::outcome::Outcome;
use super::session::{Session, id};
use super::watch;
use crate::dead_letters::APPROVE;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq plan --status PLAN                 first look: what, why, how fast
  queen dlq approve PLAN --note 'checked the sample'")]
pub struct Approve {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
    /// For the audit
    #[arg(long)]
    note: Option<String>,
}

impl Approve {
    pub async fn run(self, db: &Session) -> Outcome {
        watch::print_status(db, &db.text(APPROVE, &[&self.plan, &self.note]).await?)
    }
}
