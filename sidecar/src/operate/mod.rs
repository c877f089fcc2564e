//! `queen dlq …`: dead letters from the command line, over SQL. The login is who acts: the audit names it.

mod approve;
mod cancel;
mod discard;
mod events;
mod group;
mod list;
mod outcome;
mod pause;
mod plan;
mod repair;
mod resume;
mod run;
mod session;
mod show;
mod stats;
mod table;
mod watch;
mod widen;

use clap::{Args, Subcommand};
use outcome::{Failure, Outcome};
use session::Session;
use std::process::ExitCode;

/// Settings of `queen dlq`.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Dlq {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Debug)]
struct Global {
    /// Where the database is; the login needs queen_viewer to look, queen_operator to act
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        global = true,
        default_value = "",
        hide_default_value = true
    )]
    database_url: String,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    json: bool,
}

const EXIT_CODES: &str = "\
Exit status:
  0  done
  1  refused, or failed
  2  the arguments are wrong
  3  there is no such record, plan or consumer group; or the plan would select nothing
  4  somebody else has to approve the plan

How a replay goes:
  queen dlq stats                                             what is there, and whose it is
  queen dlq pause-group orders inventory --reason 'no sku'    stop the group, if it goes on
  queen dlq list --queue orders --class transient             which records
  queen dlq plan --queue orders --class transient \\
      --reason 'warehouse was down' --remediation 'change 4711' --dry-run
                                                              without --dry-run: makes the plan
  queen dlq approve PLAN                                      somebody else, where the queue wants that
  queen dlq run PLAN                                          moves the canary, and stops
  queen dlq widen PLAN                                        moves the rest";

#[derive(Subcommand, Debug)]
enum Command {
    /// List dead letters, the last to fail first
    List(list::List),
    /// Show one dead letter with its evidence and all that happened to it
    Show(show::Show),
    /// Plan a replay, or show the plans
    Plan(Box<plan::Plan>),
    /// Approve somebody else's plan
    Approve(approve::Approve),
    /// Start a plan: its canary, and then the rest when told
    Run(run::Run),
    /// Let a plan go on behind its canary
    Widen(widen::Widen),
    /// Stop a plan for a while
    Pause(pause::Pause),
    /// Let a paused plan go on
    Resume(resume::Resume),
    /// End a plan; what it moved stays moved
    Cancel(cancel::Cancel),
    /// Stop a consumer group in a queue: its pops bring nothing
    PauseGroup(group::PauseGroup),
    /// Let a paused consumer group go on
    ResumeGroup(group::ResumeGroup),
    /// Decide that records will not be replayed; they stay as evidence
    Discard(discard::Discard),
    /// Replay a record with an edited payload
    Repair(repair::Repair),
    /// Figures by queue and consumer group
    Stats(stats::Stats),
    /// The audit: who did what, when, why
    Events(events::Events),
}

impl Dlq {
    /// Does it; the exit status is as `--help` says.
    pub fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return Failure::failed(format!("cannot start the runtime: {error}")).report(),
        };
        match runtime.block_on(self.ask()) {
            Ok(code) => code,
            Err(failure) => failure.report(),
        }
    }

    async fn ask(self) -> Outcome {
        let db = Session::open(&self.global.database_url, self.global.json).await?;
        match self.command {
            Command::List(command) => command.run(&db).await,
            Command::Show(command) => command.run(&db).await,
            Command::Plan(command) => command.run(&db).await,
            Command::Approve(command) => command.run(&db).await,
            Command::Run(command) => command.run(&db).await,
            Command::Widen(command) => command.run(&db).await,
            Command::Pause(command) => command.run(&db).await,
            Command::Resume(command) => command.run(&db).await,
            Command::Cancel(command) => command.run(&db).await,
            Command::PauseGroup(command) => command.run(&db).await,
            Command::ResumeGroup(command) => command.run(&db).await,
            Command::Discard(command) => command.run(&db).await,
            Command::Repair(command) => command.run(&db).await,
            Command::Stats(command) => command.run(&db).await,
            Command::Events(command) => command.run(&db).await,
        }
    }
}
