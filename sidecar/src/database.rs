//! The connections, and how a function is called.
//!
//! A call is one statement and thus one transaction. It runs through named prepared statements, which PgBouncer in
//! transaction mode follows from version 1.21 on when its `max_prepared_statements` is not 0; or, when so configured,
//! without them. Nothing is set for a session: what a call needs besides (a tenant, a time limit) is set for its
//! transaction.

mod fitness;
mod place;
mod tls;
mod trouble;

use crate::budget::{self, Budget};
use crate::config::Config;
use crate::error::CallError;
use crate::tenant::Tenant;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use fitness::{Fitness, Noticed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::error::DbError;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use trouble::Troubles;

/// How long a call waits for a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between looks at a database that cannot be worked with yet.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long a query of the administration may take.
const LOOK_TIMEOUT: &str = "30s";

/// Longest answer of a query that only looks.
const LONGEST_LOOK: usize = 32 << 20;
/// Longest answer that is asked for without room for it: most are far shorter, and a call's connection bounds how many there are.
const SHORT_LOOK: usize = 1 << 20;
/// What the database says of an answer that is longer than allowed, see [`too_long`].
pub const TOO_LONG: &str = " bytes are too many";

/// An answer whose bytes a connection need not keep room for. Connecting costs little beside a longer one.
const LONG_ANSWER: usize = 8 << 20;

const SET_TENANT: Statement = Statement { sql: "SELECT set_config('queen.tenant', $1, true)", types: &[Type::TEXT] };
const SET_ACTOR: Statement = Statement {
    sql: "SELECT CASE WHEN $1 <> '' THEN set_config('queen.tenant', $1, true) END, \
          CASE WHEN $2 <> '' THEN set_config('queen.actor', $2, true) END",
    types: &[Type::TEXT, Type::TEXT],
};
const SET_LIMITS: Statement = Statement {
    sql: "SELECT set_config('jit', 'off', true), set_config('statement_timeout', $1, true), \
          CASE WHEN $2 <> '' THEN set_config('queen.tenant', $2, true) END",
    types: &[Type::TEXT, Type::TEXT],
};

/// A parameter of a call.
pub type Param<'a> = &'a (dyn ToSql + Sync);

/// A statement and the types of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// SQL that answers one row of one text column.
    pub sql: &'static str,
    /// Types of `$1`, `$2`, …; given, so that preparing needs no second look-up.
    pub types: &'static [Type],
}

/// The pool.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    config: Arc<tokio_postgres::Config>,
    tls: Option<MakeRustlsConnect>,
    prepare: bool,
    answers: Budget,
    told: Arc<Told>,
}

/// What the log tells about the database.
#[derive(Debug)]
struct Told {
    /// `host:port/database`.
    place: String,
    noticed: Noticed,
    troubles: Troubles,
}

/// A statement as it will be sent.
enum Ready<'a> {
    Prepared(tokio_postgres::Statement),
    Text(&'a str, &'a [Type]),
}

impl Ready<'_> {
    async fn run(&self, client: &Object, params: &[Param<'_>]) -> Result<Option<Row>, tokio_postgres::Error> {
        match self {
            Ready::Prepared(statement) => client.query_opt(statement, params).await,
            Ready::Text(sql, types) => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                client.query_typed_opt(sql, &typed).await
            }
        }
    }
}

impl Database {
    /// A pool that connects when it is first needed.
    ///
    /// # Errors
    /// A sentence, when the URL cannot be read.
    pub fn new(config: &Config) -> Result<Database, String> {
        let (pg, tls) = settings(&config.database_url, "queen-sidecar")?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &tls {
            Some(tls) => Manager::from_config(pg.clone(), tls.clone(), recycling),
            None => Manager::from_config(pg.clone(), NoTls, recycling),
        };
        let pool = Pool::builder(manager)
            .max_size(usize::from(config.pool_size))
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: Some(PATIENCE) })
            .build()
            .map_err(|_| "cannot build the connection pool".to_owned())?;
        let answers = Budget::new(usize::try_from(config.answer_budget_bytes).unwrap_or(usize::MAX));
        let told = Told { place: place::shown(&pg), noticed: Noticed::default(), troubles: Troubles::default() };
        Ok(Database {
            pool,
            config: Arc::new(pg),
            tls,
            prepare: config.prepared_statements,
            answers,
            told: Arc::new(told),
        })
    }

    /// Calls a function for a tenant and answers its text.
    ///
    /// # Errors
    /// [`CallError`]; unless it is `Lost`, the call had no effect.
    pub async fn call(&self, tenant: Tenant, statement: Statement, params: &[Param<'_>]) -> Result<String, CallError> {
        let row = if tenant == Tenant::default() {
            let client = self.client().await?;
            let ready = self.ready(&client, statement.sql, statement.types).await?;
            let call = UnderWay::new(client, Then::Pool);
            let row = ready.run(call.client()?, params).await;
            call.ended(&row);
            row.map_err(failed)?
        } else {
            self.in_transaction(SET_TENANT, &[&tenant.0.to_string()], (statement.sql, statement.types), params).await?
        };
        row.as_ref().map_or_else(|| Ok(String::new()), text)
    }

    /// As [`Database::call`], in the name of somebody that the server has authenticated: the audit names them. Without a
    /// name it is the login that acts.
    ///
    /// # Errors
    /// As [`Database::call`].
    pub async fn act(
        &self,
        tenant: Tenant,
        actor: Option<&str>,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<String, CallError> {
        let Some(actor) = actor.filter(|actor| !actor.is_empty()) else {
            return self.call(tenant, statement, params).await;
        };
        let row = self
            .in_transaction(SET_ACTOR, &[&setting(tenant), &actor], (statement.sql, statement.types), params)
            .await?;
        row.as_ref().map_or_else(|| Ok(String::new()), text)
    }

    /// Memory for answers.
    pub fn answers(&self) -> &Budget {
        &self.answers
    }

    /// Runs a query that only looks, within limits of time and length and without the compiler, which costs more than it
    /// saves here.
    ///
    /// # Errors
    /// As [`Database::call`]; [`CallError::TooLarge`], and [`CallError::NoRoom`] when there is no memory for the answer.
    pub async fn look(&self, tenant: Tenant, statement: Statement, params: &[Param<'_>]) -> Result<String, CallError> {
        Ok(self.find(tenant, statement, params).await?.unwrap_or_default())
    }

    /// As [`Database::look`], for a query that may find nothing.
    ///
    /// # Errors
    /// As [`Database::look`].
    pub async fn find(
        &self,
        tenant: Tenant,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Option<String>, CallError> {
        self.find_up_to(LONGEST_LOOK, tenant, statement, params).await
    }

    /// As [`Database::find`], of one thing: as long as it is, since there is no less to ask for.
    ///
    /// # Errors
    /// As [`Database::look`].
    pub async fn find_one(
        &self,
        tenant: Tenant,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Option<String>, CallError> {
        self.find_up_to(usize::MAX, tenant, statement, params).await
    }

    /// Asks for a short answer first. What is longer fails in the database, which tells how long it is, and is asked for
    /// again with room for that: it is there twice, as it comes in and as text.
    async fn find_up_to(
        &self,
        most: usize,
        tenant: Tenant,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Option<String>, CallError> {
        let (mut allowed, mut until, mut _room) = (SHORT_LOOK, None, None);
        loop {
            let error = match self.find_within(allowed, tenant, statement, params).await {
                Err(error) => error,
                found => return found,
            };
            let Some(bytes) = too_long(&error) else { return Err(error) };
            if bytes > most {
                return Err(CallError::TooLarge { bytes, most });
            }
            // It may have some more the next time.
            allowed = (bytes + bytes / 8).min(most);
            let until = *until.get_or_insert_with(|| Instant::now() + budget::PATIENCE);
            // Who waits holds nothing.
            _room = None;
            _room = Some(self.answers.wait_for(2 * allowed, until, || false).await.ok_or(CallError::NoRoom)?);
        }
    }

    async fn find_within(
        &self,
        bytes: usize,
        tenant: Tenant,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<Option<String>, CallError> {
        let (sql, types) = unless_too_long(statement);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let params = [params, &[&bytes]].concat();
        let settings: [Param<'_>; 2] = [&LOOK_TIMEOUT, &setting(tenant)];
        let row = self.in_transaction(SET_LIMITS, &settings, (&sql, &types), &params).await?;
        row.as_ref().map(text).transpose()
    }

    /// A statement after some settings, in one transaction; all of it goes out at once.
    async fn in_transaction(
        &self,
        settings: Statement,
        values: &[Param<'_>],
        (sql, types): (&str, &[Type]),
        params: &[Param<'_>],
    ) -> Result<Option<Row>, CallError> {
        let client = self.client().await?;
        let (set, ready) =
            (self.ready(&client, settings.sql, settings.types).await?, self.ready(&client, sql, types).await?);
        let open = UnderWay::new(client, Then::Close);
        let client = open.client()?;
        let (begun, set, row, ended) = tokio::join!(
            client.batch_execute("BEGIN"),
            set.run(client, values),
            ready.run(client, params),
            client.batch_execute("COMMIT"),
        );
        open.ended(&row);
        begun.map_err(failed)?;
        set.map_err(failed)?;
        let row = row.map_err(failed)?;
        // A COMMIT of a transaction that had failed would have been told by the row.
        ended.map_err(failed)?;
        Ok(row)
    }

    async fn ready<'a>(&self, client: &Object, sql: &'a str, types: &'a [Type]) -> Result<Ready<'a>, CallError> {
        if !self.prepare {
            return Ok(Ready::Text(sql, types));
        }
        client.prepare_typed_cached(sql, types).await.map(Ready::Prepared).map_err(failed)
    }

    /// Whether the database answers.
    pub async fn is_up(&self) -> bool {
        let look = async {
            let client = self.client().await.ok()?;
            client.simple_query("SELECT 1").await.ok()
        };
        matches!(tokio::time::timeout(PATIENCE, look).await, Ok(Some(_)))
    }

    /// Whether calls can work, and if not, why. What is new about that is logged.
    pub async fn fitness(&self) -> Fitness {
        let look = async {
            let client = self.client().await.ok()?;
            let row = client.query_typed_one(fitness::LOOK, &[]).await.ok()?;
            Fitness::read(&row)
        };
        let fitness = tokio::time::timeout(PATIENCE, look).await.ok().flatten().unwrap_or_default();
        self.told.noticed.notice(&fitness, &self.told.place);
        fitness
    }

    /// Connects, and looks until calls can work: so that the log tells why they cannot, before anybody asks.
    pub async fn greet(self) {
        while !self.fitness().await.is_fit() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Logs what failed and why, without filling the log.
    pub fn report(&self, what: &'static str, error: &tokio_postgres::Error) {
        self.told.troubles.report(what, &self.told.place, &trouble::of_driver(error));
    }

    /// A connection of its own, outside the pool, for a call that waits. Ends when the client is dropped.
    ///
    /// # Errors
    /// The driver's.
    pub async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        connect(&self.config, self.tls.as_ref()).await
    }

    /// Connections: how many there are, are idle, and how many calls wait for one.
    pub fn pool_status(&self) -> (usize, usize, usize) {
        let status = self.pool.status();
        (status.size, status.available, status.waiting)
    }

    async fn client(&self) -> Result<Object, CallError> {
        self.pool.get().await.map_err(|error| {
            let cause = trouble::of_pool(&error);
            self.told.troubles.report("no database connection", &self.told.place, &cause);
            CallError::NoConnection
        })
    }
}

/// How to connect: what the URL says, and what it leaves out.
///
/// # Errors
/// A sentence, when the URL cannot be read.
pub fn settings(url: &str, name: &str) -> Result<(tokio_postgres::Config, Option<MakeRustlsConnect>), String> {
    let mut pg = place::read(url)?;
    if pg.get_application_name().is_none() {
        pg.application_name(name);
    }
    if pg.get_connect_timeout().is_none() {
        pg.connect_timeout(PATIENCE);
    }
    pg.keepalives_idle(Duration::from_secs(30));
    pg.tcp_user_timeout(Duration::from_secs(30));
    // Servers do not encrypt on a socket of their own machine.
    let local = pg.get_hosts().iter().all(|host| matches!(host, tokio_postgres::config::Host::Unix(_)));
    let tls = if local { None } else { Some(tls::connector(pg.get_ssl_mode())?) };
    Ok((pg, tls))
}

/// A connection outside any pool. Ends when the client is dropped.
///
/// # Errors
/// The driver's.
pub async fn connect(
    config: &tokio_postgres::Config,
    tls: Option<&MakeRustlsConnect>,
) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let client = match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            tokio::spawn(connection);
            client
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            client
        }
    };
    Ok(client)
}

/// A pooled connection with a call under way. When the call is dropped halfway, because its client left, the connection
/// stays taken until the database has answered: in the pool, it would make whoever gets it next wait for that, too; and
/// outside, clients that come and leave could open any number of them.
struct UnderWay {
    connection: Option<Object>,
    then: Then,
}

/// What becomes of a connection whose call was dropped, once the database has answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Back into the pool.
    Pool,
    /// It may be inside a transaction.
    Close,
}

impl UnderWay {
    fn new(connection: Object, then: Then) -> UnderWay {
        UnderWay { connection: Some(connection), then }
    }

    fn client(&self) -> Result<&Object, CallError> {
        self.connection.as_ref().ok_or(CallError::NoConnection)
    }

    /// The call has been answered: back into the pool. After a long answer the connection is closed, since it keeps the
    /// memory in which it has read that.
    fn ended(mut self, answer: &Result<Option<Row>, tokio_postgres::Error>) {
        let Some(connection) = self.connection.take() else { return };
        let long = matches!(answer, Ok(Some(row)) if row.raw_size_bytes() > LONG_ANSWER);
        if long {
            drop(Object::take(connection));
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let then = self.then;
        let rest = async move {
            // Answered after all that was sent before.
            _ = connection.simple_query("").await;
            if then == Then::Close {
                drop(Object::take(connection));
            }
        };
        // Without a runtime the server has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(rest);
        }
    }
}

/// What `queen.tenant` is set to; nothing for the default tenant, so that a login without the right to set it will do.
fn setting(tenant: Tenant) -> String {
    if tenant == Tenant::default() { String::new() } else { tenant.0.to_string() }
}

fn text(row: &Row) -> Result<String, CallError> {
    row.try_get::<_, Option<String>>(0).map(Option::unwrap_or_default).map_err(failed)
}

/// The same statement with one more parameter, the bytes that its answer may have; a longer one fails before it is sent. The
/// cast is what fails; its error tells how long the answer would be. `OFFSET 0` keeps it from being made more than once.
fn unless_too_long(statement: Statement) -> (String, Vec<Type>) {
    let types = [statement.types, &[Type::INT8]].concat();
    let sql = format!(
        "SELECT CASE WHEN octet_length(answer) <= ${} THEN answer ELSE (octet_length(answer) || '{TOO_LONG}')::int::text END \
         FROM (SELECT answer FROM (\n{}\n) AS looked(answer) OFFSET 0) AS once",
        types.len(),
        statement.sql,
    );
    (sql, types)
}

/// How many bytes are too many, if that is what the database says, in whatever language.
pub fn too_long(error: &CallError) -> Option<usize> {
    let CallError::Refused { state, message } = error else { return None };
    let (before, _) = message.split_once(TOO_LONG).filter(|_| state == "22P02")?;
    let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
    before[digits..].parse().ok()
}

/// Classifies a driver's error.
pub fn failed(error: tokio_postgres::Error) -> CallError {
    match error.as_db_error() {
        // The server goes away: 57P01 to 57P03 end the session.
        Some(db) if matches!(db.code().code(), "57P01" | "57P02" | "57P03") => CallError::Lost,
        Some(db) => CallError::Refused { state: db.code().code().to_owned(), message: sentence(db) },
        None => CallError::Lost,
    }
}

/// Whether PostgreSQL's own check of grants refused, in whatever language it says so.
pub fn lacks_grant(error: &DbError) -> bool {
    error.code().code() == "42501" && error.routine() == Some("aclcheck_error")
}

/// Where no connection could be had, and why.
pub fn trouble(config: &tokio_postgres::Config, error: &tokio_postgres::Error) -> String {
    format!("{}: {}", place::shown(config), trouble::of_driver(error))
}

/// The database's sentence; where the extension or the role is missing, what to do about it before that.
fn sentence(error: &DbError) -> String {
    let message = error.message();
    match (error.code().code(), error.routine()) {
        // Calls name one schema.
        ("3F000", _) => format!("{} ({message})", fitness::NO_EXTENSION),
        ("42883", _) => format!("{} ({message})", fitness::OLD_EXTENSION),
        _ if lacks_grant(error) => format!("{} ({message})", fitness::NO_ROLE),
        _ => message.to_owned(),
    }
}
