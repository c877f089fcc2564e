//! The command line.

use crate::config::Config;
use crate::operate::Dlq;
use crate::server;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A message broker inside PostgreSQL: its HTTP server, and dead letters from the command line.
#[derive(Parser, Debug)]
#[command(name = "queen", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve HTTP in front of a database that has the extension
    Serve(Box<Config>),
    /// Look at dead letters, plan and run replays
    #[command(arg_required_else_help = true)]
    Dlq(Box<Dlq>),
}

impl Cli {
    /// Does what was asked for; the exit status says whether it worked.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(config) => match server::run(*config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(problem) => {
                    eprintln!("queen: {problem}");
                    ExitCode::FAILURE
                }
            },
            Command::Dlq(dlq) => dlq.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_database_url_is_as_good_as_none() {
        let refused = Cli::try_parse_from(["queen", "serve", "--database-url", ""]).unwrap_err();
        assert!(refused.to_string().contains("--database-url"), "{refused}");
    }
}
