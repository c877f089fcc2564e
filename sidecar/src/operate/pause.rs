use super::outcome::Outcome;
use super::session::{Session, id};
use super::watch;
use crate::dead_letters::PAUSE;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq pause PLAN")]
pub struct Pause {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
}

impl Pause {
    pub async fn run(self, db: &Session) -> Outcome {
        watch::print_status(db, &db.text(PAUSE, &[&self.plan]).await?)
    }
}
