//! The settings, one field each. Each is a flag of `queen serve` and an environment variable; the names are those of
//! Queen MQ where it has the same.

use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Budgets of memory that can be worked with, 16 MiB to 1 TiB.
const BUDGETS: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 40;

/// Settings of `queen serve`.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Where the database is: postgresql://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub database_url: String,
    /// Connections to the database at most; one more listens for commits
    #[arg(long, env = "QUEEN_POOL_SIZE", default_value_t = 16, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub pool_size: u16,
    /// Prepare statements once a connection; false for PgBouncer that does not follow prepared statements
    #[arg(long, env = "QUEEN_PREPARED_STATEMENTS", default_value_t = true, value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::Set)]
    pub prepared_statements: bool,
    /// Address to listen on
    #[arg(long, env = "QUEEN_BIND_ADDR", default_value = "0.0.0.0")]
    pub bind: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, env = "PORT", default_value_t = 6632)]
    pub port: u16,
    /// Client connections at most; more wait to be accepted
    #[arg(long, env = "QUEEN_MAX_CONNECTIONS", default_value_t = 10_000)]
    pub max_connections: usize,
    /// Largest request body in bytes; a longer one is answered 413
    #[arg(long, env = "QUEEN_MAX_BODY_BYTES", default_value_t = 64 << 20)]
    pub max_body_bytes: usize,
    /// Bytes of memory for answers that are being made, or that their clients have not read yet; small ones are not counted
    #[arg(long, env = "QUEEN_ANSWER_BUDGET_BYTES", default_value_t = 512 << 20, value_parser = clap::value_parser!(u64).range(BUDGETS))]
    pub answer_budget_bytes: u64,
    /// Bytes of memory for bodies of requests that are arriving or being dealt with; small ones are not counted
    #[arg(long, env = "QUEEN_REQUEST_BUDGET_BYTES", default_value_t = 512 << 20, value_parser = clap::value_parser!(u64).range(BUDGETS))]
    pub request_budget_bytes: u64,
    /// Seconds that a client may stall while it sends a request, or stay silent on a kept connection
    #[arg(long, env = "QUEEN_CLIENT_TIMEOUT_SECONDS", default_value_t = 75, value_parser = clap::value_parser!(u64).range(1..))]
    pub client_timeout_seconds: u64,
    /// Seconds that work under way has to finish after SIGTERM
    #[arg(long, env = "QUEEN_DRAIN_SECONDS", default_value_t = 20)]
    pub drain_seconds: u64,
    /// Milliseconds that a waiting pop waits when it does not say how long
    #[arg(long, env = "POP_DEFAULT_TIMEOUT_MS", default_value_t = 30_000)]
    pub pop_timeout_ms: u64,
    /// Milliseconds that a pop waits at most, whatever it says: less than proxies on the way allow
    #[arg(long, env = "POP_MAX_TIMEOUT_MS", default_value_t = 86_400_000)]
    pub pop_max_timeout_ms: u64,
    /// Where a consumer group starts whose first pop does not say: `new`, or anything else for `all`
    #[arg(long, env = "DEFAULT_SUBSCRIPTION_MODE", default_value = "new")]
    pub default_subscription_mode: String,
    /// Appends under way at once; a second one starts only when enough pushes wait for it
    #[arg(long, env = "QUEEN_PUSHES_IN_FLIGHT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub pushes_in_flight: u16,
    /// Settlements under way at once
    #[arg(long, env = "QUEEN_ACKS_IN_FLIGHT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub acks_in_flight: u16,
    /// Folder for pushes that arrive during push maintenance, and for the two maintenance switches
    #[arg(long, env = "FILE_BUFFER_DIR", default_value = "/var/lib/queen/buffer")]
    pub buffer_dir: PathBuf,
    /// Read the tenant from header x-queen-tenant: only behind a proxy that sets it
    #[arg(long, env = "QUEEN_TENANCY_HEADER", default_value_t = false, value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::Set)]
    pub tenancy_header: bool,
    /// Says that only a proxy reaches the server, one that sets or removes x-queen-tenant on each request
    #[arg(long, env = "QUEEN_KV_TRUSTED_PROXY", default_value_t = false, value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::Set)]
    pub trusted_proxy: bool,
    /// Run the replay plans that are started; false where something else does (setting queen.worker_databases)
    #[arg(long, env = "QUEEN_RUN_REPLAYS", default_value_t = true, value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::Set)]
    pub run_replays: bool,
    /// Log lines: JSON or text
    #[arg(long, env = "QUEEN_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// What is logged, such as `info`, `debug` (each request) or `queen_sidecar=debug,warn`
    #[arg(long, env = "QUEEN_LOG", default_value = "info")]
    pub log: String,
    /// Who may do what
    #[command(flatten)]
    pub auth: crate::auth::AuthConfig,
}

impl Config {
    /// What no single setting shows to be wrong.
    ///
    /// # Errors
    /// A sentence about the settings that do not go together.
    pub fn check(&self) -> Result<(), String> {
        if self.tenancy_header && !self.trusted_proxy {
            let problem = "QUEEN_TENANCY_HEADER lets every client choose its tenant unless a proxy in front sets the \
                           header; if one does, set QUEEN_KV_TRUSTED_PROXY=1 too";
            return Err(problem.to_owned());
        }
        Ok(())
    }
}
