use super::outcome::Outcome;
use super::session::{Session, id, parsed};
use super::watch;
use crate::dead_letters::{PLAN, RUN};
use clap::Args;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq run PLAN               moves the canary, shows how it goes, and stops
  queen dlq run PLAN --detach      starts it, and leaves the running to queen serve or the worker
A plan that runs already is watched, and helped to run. Ctrl-C leaves the plan running for them, too; queen dlq pause PLAN stops it.")]
pub struct Run {
    /// Id of the plan
    #[arg(value_parser = id)]
    plan: Uuid,
    /// Do not wait until it stops
    #[arg(long)]
    detach: bool,
}

impl Run {
    pub async fn run(self, db: &Session) -> Outcome {
        let found = db.text(PLAN, &[&self.plan]).await?;
        let runs = parsed(&found)?["state"] == "running";
        let status = if runs { found } else { db.text(RUN, &[&self.plan]).await? };
        if self.detach { watch::print_status(db, &status) } else { watch::until_it_stops(db, self.plan, &status).await }
    }
}
