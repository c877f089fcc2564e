use super::outcome::Outcome;
use super::session::{Session, id};
use super::watch;
use crate::dead_letters::WIDEN;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq plan --status PLAN     first look: has the canary settled, has none of it failed again?
  queen dlq widen PLAN")]
pub struct Widen {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
    /// Do not wait until it stops
    #[arg(long)]
    detach: bool,
}

impl Widen {
    pub async fn run(self, db: &Session) -> Outcome {
        let status = db.text(WIDEN, &[&self.plan]).await?;
        if self.detach { watch::print_status(db, &status) } else { watch::until_it_stops(db, self.plan, &status).await }
    }
}
