//! The connection of a command, and where its answer goes.

use super::outcome::{Failure, Outcome};
use crate::database::{self, Param, Statement};
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;
use tokio_postgres::Client;
use uuid::Uuid;

/// One connection, as the person's own login.
pub struct Session {
    client: Client,
    /// Whether answers are JSON.
    pub json: bool,
}

impl Session {
    /// Connects.
    pub async fn open(url: &str, json: bool) -> Result<Session, Failure> {
        if url.is_empty() {
            return Err(Failure::usage("say where the database is: DATABASE_URL, or --database-url"));
        }
        let (config, tls) = database::settings(url, "queen dlq").map_err(Failure::usage)?;
        let client = database::connect(&config, tls.as_ref()).await.map_err(|error| {
            let hint =
                error.as_db_error().and_then(|db| db.hint()).map_or_else(String::new, |h| format!("\nhint: {h}"));
            Failure::failed(format!("cannot connect to the database {}{hint}", database::trouble(&config, &error)))
        })?;
        Ok(Session { client, json })
    }

    /// The text a statement answers, if it answers a row.
    pub async fn find(&self, statement: Statement, params: &[Param<'_>]) -> Result<Option<String>, Failure> {
        let typed: Vec<_> = params.iter().copied().zip(statement.types.iter().cloned()).collect();
        let row = self.client.query_typed_opt(statement.sql, &typed).await?;
        Ok(row.map(|row| row.try_get::<_, Option<String>>(0)).transpose()?.flatten())
    }

    /// The text a statement answers.
    pub async fn text(&self, statement: Statement, params: &[Param<'_>]) -> Result<String, Failure> {
        Ok(self.find(statement, params).await?.unwrap_or_default())
    }

    /// Statements outside a transaction.
    pub async fn run(&self, sql: &str) -> Result<(), Failure> {
        self.client.simple_query(sql).await?;
        Ok(())
    }
}

/// The JSON of an answer of the database.
pub fn parsed(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|_| Failure::failed("the database's answer cannot be read"))
}

/// Prints a text. A reader that has gone away has seen enough.
pub fn print(text: &str) -> Outcome {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot print: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// An argument that is the id of a plan or a record.
pub fn id(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|_| "an id is a UUID".to_owned())
}
