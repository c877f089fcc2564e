//! Throw-away clusters with the extension preloaded, for the integration tests.
//!
//! A test that needs no crash and no setting of its own takes a fresh database of the process's
//! shared cluster:
//!
//! ```no_run
//! # async fn test() {
//! use queen_tests::shared_cluster;
//! let db = shared_cluster().fresh_database().await;
//! let client = shared_cluster().client(&db).await;
//! client.batch_execute("SELECT queen.push('orders', '{}')").await.unwrap();
//! # }
//! ```
//!
//! Others start their own: [`Cluster::start_with`] for settings, [`Cluster::durable`] for crashes.
//! Servers listen on a unix socket in a folder of their own below `/tmp`, on no TCP port. As root,
//! server programs run as user `postgres`, since PostgreSQL refuses root.
//!
//! Nothing is left behind, however the test process ends: a guard process waits for the end of a
//! pipe that only the test process holds, then stops that one server and removes its folder.
//! `QUEEN_KEEP=1` keeps the folder (stopped, with the server's log) and says where it is.

pub mod compare;
pub mod session;
pub mod sidecar;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, Once, OnceLock};

pub use tokio_postgres::Client;

/// The superuser of the clusters, and the database that is there from the start.
pub const SUPERUSER: &str = "postgres";

/// Names the socket's file only: there is no TCP port.
const PORT: &str = "6432";

/// The database that [`Cluster::fresh_database`] copies: one `CREATE EXTENSION` a cluster.
const TEMPLATE: &str = "queen_template";

/// Every server's settings; a test's own come after them, and win.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("port", PORT),
    ("shared_preload_libraries", "queen"),
    ("max_connections", "200"),
    ("max_prepared_transactions", "20"),
    ("shared_buffers", "64MB"),
    ("fsync", "off"),
    ("log_line_prefix", "%m [%p] %q%u@%d "),
    ("log_error_verbosity", "verbose"),
    ("timezone", "UTC"),
];

/// A PostgreSQL server of this process, stopped and removed with its value.
pub struct Cluster {
    bin: PathBuf,
    dir: PathBuf,
    template: Mutex<bool>,
    databases: AtomicU32,
    guard: Guard,
}

static SHARED: OnceLock<Cluster> = OnceLock::new();

/// What initdb makes, once a process: copying it is faster, and crash tests start many clusters.
static INITIAL: OnceLock<InitialData> = OnceLock::new();

/// The cluster that this process's tests share: started at the first call, stopped at exit.
pub fn shared_cluster() -> &'static Cluster {
    SHARED.get_or_init(Cluster::start)
}

impl Cluster {
    /// A server with `fsync` off: for everything but crashes of the machine.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server that writes as a production server does: for crash tests.
    pub fn durable() -> Self {
        Self::start_with(&[("fsync", "on"), ("full_page_writes", "on")])
    }

    /// A server with these settings on top of the usual ones.
    pub fn start_with(conf: &[(&str, &str)]) -> Self {
        let bin = bindir();
        let guard = Guard::new(&bin);
        let cluster =
            Self { dir: guard.folder.clone(), guard, bin, template: Mutex::new(false), databases: AtomicU32::new(0) };
        let initial = INITIAL.get_or_init(|| InitialData::new(&cluster.bin));
        done(server_program("cp").args(["-a", "--reflink=auto"]).arg(&initial.data).arg(cluster.data()));
        let socket_dir = cluster.dir.display().to_string();
        cluster.configure(&[("unix_socket_directories", &socket_dir)]);
        cluster.configure(SETTINGS);
        cluster.configure(conf);
        cluster.restart();
        cluster
    }

    /// Appends settings; those that need no restart are in force after `pg_reload_conf()`.
    pub fn configure(&self, conf: &[(&str, &str)]) {
        let text: String =
            conf.iter().map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''"))).collect();
        fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("postgresql.conf"))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .expect("cannot write the server's settings");
    }

    /// A new database with the extension, for one test.
    pub async fn fresh_database(&self) -> String {
        self.fresh_database_blocking()
    }

    /// [`Self::fresh_database`] for tests without a runtime.
    pub fn fresh_database_blocking(&self) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Relaxed));
        // One at a time: a template must have no other user while it is copied.
        let mut made = self.template.lock().unwrap_or_else(|e| e.into_inner());
        if !*made {
            self.psql(SUPERUSER, &format!("CREATE DATABASE {TEMPLATE}"));
            self.psql(TEMPLATE, "CREATE EXTENSION queen");
            // Background workers must not connect to it, or it cannot be copied.
            self.psql(SUPERUSER, &format!("ALTER DATABASE {TEMPLATE} WITH ALLOW_CONNECTIONS false IS_TEMPLATE true"));
            *made = true;
        }
        self.psql(SUPERUSER, &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        name
    }

    /// A new database without the extension.
    pub fn empty_database(&self) -> String {
        let name = format!("e{}", self.databases.fetch_add(1, Relaxed));
        self.psql(SUPERUSER, &format!("CREATE DATABASE {name}"));
        name
    }

    /// A connection as superuser.
    pub async fn client(&self, database: &str) -> Client {
        self.client_as(database, SUPERUSER).await
    }

    /// A connection as `role`, which needs no password.
    pub async fn client_as(&self, database: &str, role: &str) -> Client {
        self.try_client_as(database, role)
            .await
            .unwrap_or_else(|e| panic!("cannot connect to {database} as {role}: {e}"))
    }

    /// As [`Self::client_as`], for tests in which connecting may fail.
    pub async fn try_client_as(&self, database: &str, role: &str) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::Config::new()
            .host_path(&self.dir)
            .port(PORT.parse().expect("port"))
            .user(role)
            .dbname(database)
            .connect(tokio_postgres::NoTls)
            .await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A new login that is a member of these roles.
    pub fn create_login(&self, login: &str, roles: &[&str]) {
        self.psql(SUPERUSER, &format!("CREATE ROLE \"{login}\" LOGIN"));
        for role in roles {
            self.psql(SUPERUSER, &format!("GRANT \"{role}\" TO \"{login}\""));
        }
    }

    /// Runs SQL through psql and answers what it printed, unaligned and without headers.
    ///
    /// Stops at the first error, and panics with it.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = self.try_psql(database, sql);
        assert!(output.status.success(), "psql -d {database} -c {sql:?}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// As [`Self::psql`], for SQL that may fail.
    pub fn try_psql(&self, database: &str, sql: &str) -> Output {
        output(self.psql_command(database).args(["-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    }

    /// psql without the user's own settings, connected as superuser.
    pub fn psql_command(&self, database: &str) -> Command {
        let mut command = Command::new(self.bin.join("psql"));
        command
            .arg("-X")
            .arg("-h")
            .arg(&self.dir)
            .args(["-p", PORT, "-U", SUPERUSER, "-d", database])
            .env("LC_ALL", "C.UTF-8")
            .env("PGCLIENTENCODING", "UTF8")
            .env("PSQL_PAGER", "")
            .env_remove("PGOPTIONS");
        command
    }

    /// Dumps a database in pg_dump's custom format, and answers the file.
    pub fn pg_dump(&self, database: &str, options: &[&str]) -> PathBuf {
        let n = self.databases.fetch_add(1, Relaxed);
        let file = self.dir.join(format!("{database}-{n}.dump"));
        done(self.client_program("pg_dump").args(["-Fc", "-d", database, "-f"]).arg(&file).args(options));
        file
    }

    /// Restores a dump into an existing database; fails on the first error.
    pub fn pg_restore(&self, file: &Path, database: &str, options: &[&str]) {
        done(self.client_program("pg_restore").args(["--exit-on-error", "-d", database]).args(options).arg(file));
    }

    /// Ends the server as a crash does: no checkpoint, recovery at the next start.
    pub fn stop_immediate(&self) {
        self.stop("immediate");
    }

    /// Ends the server cleanly, breaking connections.
    pub fn stop_fast(&self) {
        self.stop("fast");
    }

    /// Starts the server, stopping it first when it runs.
    pub fn restart(&self) {
        if self.data().join("postmaster.pid").exists() {
            let running = self.pg_ctl("status").status().expect("pg_ctl").success();
            if running {
                self.stop_fast();
            }
        }
        let mut start = self.pg_ctl("start");
        start
            .args(["-w", "-t", "60", "-l"])
            .arg(self.log_file())
            // The server keeps them: with a pipe its reader would wait as long as the server runs.
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = start.status().expect("pg_ctl");
        assert!(status.success(), "the server does not start\n{}", self.log());
    }

    /// All that the server has written into its log.
    pub fn log(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The folder of the socket: `host` of a connection string.
    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    /// The port that names the socket: `port` of a connection string.
    pub fn port(&self) -> &'static str {
        PORT
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn stop(&self, mode: &str) {
        done(self.pg_ctl("stop").args(["-w", "-t", "60", "-m", mode]));
    }

    fn pg_ctl(&self, verb: &str) -> Command {
        let mut command = server_program(self.bin.join("pg_ctl"));
        command.arg(verb).arg("-D").arg(self.data());
        command
    }

    /// A client program that runs as the server's user, since it writes into the server's folder.
    fn client_program(&self, name: &str) -> Command {
        let mut command = server_program(self.bin.join(name));
        command.arg("-h").arg(&self.dir).args(["-p", PORT, "-U", SUPERUSER]);
        command
    }
}

impl Drop for Cluster {
    /// The guard does the rest.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let from = log.lines().count().saturating_sub(40);
            let tail: Vec<&str> = log.lines().skip(from).collect();
            eprintln!("--- end of the server's log\n{}", tail.join("\n"));
        }
    }
}

struct InitialData {
    data: PathBuf,
    guard: Guard,
}

impl InitialData {
    fn new(bin: &Path) -> Self {
        let guard = Guard::new(bin);
        let initial = Self { data: guard.folder.join("data"), guard };
        done(
            server_program(bin.join("initdb"))
                .args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"])
                .args(["--no-sync", "--no-instructions", "-D"])
                .arg(&initial.data),
        );
        initial
    }
}

/// A new folder and the process that makes it go away, and the server in it, when this process lets
/// go of its end of a pipe: by [`Guard::release`], by exit, or by being killed.
struct Guard {
    folder: PathBuf,
    process: Mutex<Option<Child>>,
}

impl Guard {
    fn new(bin: &Path) -> Self {
        static ONCE: Once = Once::new();
        // Statics are never dropped. Their guards would act all the same, but after our end.
        ONCE.call_once(|| {
            // SAFETY: `release_statics` touches nothing but statics.
            let failed = unsafe { libc::atexit(release_statics) };
            assert_eq!(failed, 0, "atexit");
        });

        // Short, for the socket's path has at most 107 bytes; for the server's user alone.
        let made = done(server_program("mktemp").args(["-d", "/tmp/queen-it-XXXXXX"]));
        let folder = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let keep = std::env::var_os("QUEEN_KEEP").is_some_and(|v| v == "1");
        if keep {
            eprintln!("keeping {}", folder.display());
        }
        let script = r#"
            while read -r _; do :; done
            [ ! -e "$2/data/postmaster.pid" ] || "$1/pg_ctl" stop -w -m immediate -D "$2/data"
            [ "$3" = keep ] || rm -rf "$2"
        "#;
        let process = server_program("sh")
            .args(["-c", script, "guard"])
            .args([bin, &folder])
            .arg(if keep { "keep" } else { "remove" })
            // Not in our process group: Ctrl-C at the terminal must reach the tests only.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("cannot start the cluster's guard");
        Self { folder, process: Mutex::new(Some(process)) }
    }

    /// Lets the guard act, and waits until it has.
    fn release(&self) {
        let process = self.process.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(mut process) = process {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
    }
}

extern "C" fn release_statics() {
    if let Some(cluster) = SHARED.get() {
        cluster.guard.release();
    }
    if let Some(initial) = INITIAL.get() {
        initial.guard.release();
    }
}

/// Where the server's programs are, by `PGRX_PG_CONFIG_PATH`'s word.
fn bindir() -> PathBuf {
    let config = std::env::var("PGRX_PG_CONFIG_PATH").unwrap_or("pg_config".to_owned());
    let output = output(Command::new(config).arg("--bindir"));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// A program that runs as a user whom PostgreSQL accepts.
fn server_program(program: impl AsRef<OsStr>) -> Command {
    let root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let mut command = if root {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command
        // One that every user may enter.
        .current_dir("/tmp")
        .env("LC_ALL", "C.UTF-8")
        // With it the extension would add Rust backtraces to the server's errors.
        .env_remove("RUST_BACKTRACE");
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"))
}

fn done(command: &mut Command) -> Output {
    let output = output(command);
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}
