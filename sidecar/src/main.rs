//! The program `queen`.

use clap::Parser;

fn main() -> std::process::ExitCode {
    queen_sidecar::cli::Cli::parse().run()
}
