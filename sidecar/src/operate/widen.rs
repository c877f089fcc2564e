use super::outcome::{Failure, Outcome};
use super::session::{Session, id, parsed};
use super::watch;
use crate::dead_letters::{PLAN, WIDEN, unproven};
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq plan --status PLAN     first look: has the canary settled, has none of it failed again?
  queen dlq widen PLAN
While messages of the canary have failed again or are pending it refuses, unless told to with --force.")]
pub struct Widen {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
    /// Also while messages of the canary have failed again or are pending
    #[arg(long)]
    force: bool,
    /// Do not wait until it stops
    #[arg(long)]
    detach: bool,
}

impl Widen {
    pub async fn run(self, db: &Session) -> Outcome {
        if !self.force {
            let status = parsed(&db.text(PLAN, &[&self.plan]).await?)?;
            if let Some(why) = unproven(&status).filter(|_| status["state"] == "canary_done") {
                return Err(Failure::failed(format!("of the canary {why}: look first, or say --force")));
            }
        }
        let status = db.text(WIDEN, &[&self.plan]).await?;
        if self.detach { watch::print_status(db, &status) } else { watch::until_it_stops(db, self.plan, &status).await }
    }
}
