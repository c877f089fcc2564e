use super::outcome::Outcome;
use super::session::{Session, id};
use super::watch;
use crate::dead_letters::RESUME;
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq resume PLAN")]
pub struct Resume {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
    /// Do not wait until it stops
    #[arg(long)]
    detach: bool,
}

impl Resume {
    pub async fn run(self, db: &Session) -> Outcome {
        let status = db.text(RESUME, &[&self.plan]).await?;
        if self.detach { watch::print_status(db, &status) } else { watch::until_it_stops(db, self.plan, &status).await }
    }
}
