//! The HTTP server as a process of its own, as users run it.
//!
//! It logs in as a role that has `queen_sidecar` and nothing else, and takes a free port. The program is the one that
//! was built last (`QUEEN_PROGRAM`, else `target/debug/queen`): the tests do not build it.

use crate::Cluster;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

pub use reqwest::Method;
pub use serde_json::{Value, json};

/// A running server, killed with its value.
pub struct Sidecar {
    url: String,
    process: Child,
    log: Arc<Mutex<String>>,
    folder: PathBuf,
    client: reqwest::Client,
    cluster: &'static Cluster,
    database: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header fields.
    pub headers: reqwest::header::HeaderMap,
    /// The body as sent.
    pub text: String,
}

impl Answer {
    /// The body as JSON; panics when it is not.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{} is not JSON: {e}: {:?}", self.status, self.text))
    }

    /// The body as JSON, of an answer with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }
}

static LOGINS: AtomicU32 = AtomicU32::new(0);

impl Sidecar {
    /// Starts a server for this database.
    pub fn start(cluster: &'static Cluster, database: &str) -> Sidecar {
        Self::start_with(cluster, database, &[])
    }

    /// The same with these environment variables.
    pub fn start_with(cluster: &'static Cluster, database: &str, environment: &[(&str, &str)]) -> Sidecar {
        let login = format!("sidecar_{}", LOGINS.fetch_add(1, Relaxed));
        cluster.create_login(&login, &["queen_sidecar"]);
        let url =
            format!("host={} port={} user={login} dbname={database}", cluster.socket_dir().display(), cluster.port());
        let folder = std::env::temp_dir().join(format!("queen-http-{}-{login}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the buffer");
        remove_at_exit(&folder);
        let mut command = Command::new(program());
        command
            .arg("serve")
            .env_clear()
            .env("DATABASE_URL", url)
            .env("QUEEN_BIND_ADDR", "127.0.0.1")
            .env("PORT", "0")
            .env("QUEEN_POOL_SIZE", "8")
            .env("FILE_BUFFER_DIR", &folder)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // SAFETY: prctl is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut process = spawn(command);
        let log = Arc::new(Mutex::new(String::new()));
        let url = listening(&mut process, &log);
        // No connection is kept: it would belong to the runtime of the test that made it.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("an HTTP client");
        Sidecar { url, process, log, folder, client, cluster, database: database.to_owned() }
    }

    /// `http://127.0.0.1:port`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder of the push buffer.
    pub fn buffer_dir(&self) -> &std::path::Path {
        &self.folder
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// A connection to its database as superuser.
    pub async fn sql(&self) -> crate::Client {
        self.cluster.client(&self.database).await
    }

    /// The HTTP client, for requests of another kind.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// A request.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// Sends a request.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap_or_else(|e| panic!("{e:?}\n{}", self.log()))
    }

    /// Sends a request that may find nobody.
    pub async fn try_send(&self, request: reqwest::RequestBuilder) -> Result<Answer, reqwest::Error> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Answer { status, headers, text: response.text().await? })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string()).await
    }

    /// POST with this body.
    pub async fn post_text(&self, path: &str, body: &str) -> Answer {
        self.send(self.request(Method::POST, path).body(body.to_owned())).await
    }

    /// Pushes one item per payload, and answers the results.
    pub async fn push(&self, queue: &str, payloads: &[Value]) -> Value {
        let items: Vec<Value> = payloads.iter().map(|p| json!({ "queue": queue, "payload": p })).collect();
        self.post("/api/v1/push", &json!({ "items": items })).await.expect(201)
    }

    /// Pops with these parameters; no message when there is none.
    pub async fn pop(&self, queue: &str, params: &str) -> Vec<Value> {
        let answer = self.get(&format!("/api/v1/pop/queue/{queue}?{params}")).await;
        match answer.status {
            204 => Vec::new(),
            _ => answer.expect(200)["messages"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// Acknowledges a popped message.
    pub async fn ack(&self, message: &Value, status: &str) -> Value {
        let body = json!({
            "transactionId": message["transactionId"], "partitionId": message["partitionId"], "status": status,
            "leaseId": message["leaseId"], "consumerGroup": message["consumerGroup"],
            "error": if status == "completed" { Value::Null } else { json!(format!("said {status}")) },
        });
        self.post("/api/v1/ack", &body).await.expect(200)[0].clone()
    }

    /// Acknowledges several messages of one group in one request.
    pub async fn ack_all(&self, items: &[(&Value, &str)]) -> Vec<Value> {
        let list: Vec<Value> = items
            .iter()
            .map(|(message, status)| {
                json!({
                    "transactionId": message["transactionId"], "partitionId": message["partitionId"],
                    "leaseId": message["leaseId"], "status": status, "error": format!("said {status}"),
                })
            })
            .collect();
        let group = items.first().map_or(Value::Null, |(message, _)| message["consumerGroup"].clone());
        let body = json!({ "consumerGroup": group, "acknowledgments": list });
        let answers = self.post("/api/v1/ack/batch", &body).await.expect(200);
        answers.as_array().cloned().unwrap_or_default()
    }

    /// Sets options, and answers those in force.
    pub async fn configure(&self, queue: &str, options: &Value) -> Value {
        let body = json!({ "queue": queue, "options": options });
        self.post("/api/v1/configure", &body).await.expect(200)["options"].clone()
    }

    /// Makes a lease run out.
    pub async fn expire(&self, lease: &Value) {
        let past = "WITH l AS (UPDATE queen.cursor SET expires_at = now() - interval '1 ms' \
                    WHERE lease_id = $1::text::uuid RETURNING gid, pid) \
                    UPDATE queen.ready r SET due_at = least(due_at, now() - interval '1 ms') \
                    FROM l WHERE (r.gid, r.pid) = (l.gid, l.pid)";
        let rows = self.sql().await.execute(past, &[&lease.as_str()]).await.expect("an update");
        assert!(rows > 0, "no lease {lease}");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is ours and has not been waited for.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// Waits for its end.
    pub fn wait(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + at_most;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                _ if Instant::now() > end => return None,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_dir_all(&self.folder);
        if std::thread::panicking() {
            let log = self.log();
            let from = log.lines().count().saturating_sub(30);
            let tail: Vec<&str> = log.lines().skip(from).collect();
            eprintln!("--- end of the HTTP server's log\n{}", tail.join("\n"));
        }
    }
}

/// Servers that tests share are never dropped.
fn remove_at_exit(folder: &std::path::Path) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    FOLDERS.lock().unwrap_or_else(|e| e.into_inner()).push(folder.to_owned());
    ONCE.call_once(|| {
        // SAFETY: `remove_folders` touches nothing but a static.
        let failed = unsafe { libc::atexit(remove_folders) };
        assert_eq!(failed, 0, "atexit");
    });
}

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

extern "C" fn remove_folders() {
    for folder in FOLDERS.lock().unwrap_or_else(|e| e.into_inner()).iter() {
        _ = std::fs::remove_dir_all(folder);
    }
}

/// The program under test.
pub fn program() -> PathBuf {
    match std::env::var_os("QUEEN_PROGRAM") {
        Some(program) => program.into(),
        None => {
            let target = std::env::var_os("CARGO_TARGET_DIR")
                .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
            target.join("debug/queen")
        }
    }
}

/// A child ends with the thread that started it; that of a test may end before the process does.
fn spawn(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static STARTER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in orders {
                _ = reply.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (reply, child) = mpsc::channel();
    starter.lock().unwrap_or_else(|e| e.into_inner()).send((command, reply)).expect("the starter lives");
    child.recv().expect("the starter lives").unwrap_or_else(|e| panic!("cannot start {}: {e}", program().display()))
}

/// Reads the log in the background, and answers the address once it is told.
fn listening(process: &mut Child, log: &Arc<Mutex<String>>) -> String {
    let lines = BufReader::new(process.stderr.take().expect("piped")).lines();
    let (sender, address) = mpsc::channel();
    let log_of_thread = log.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
            if parsed["message"] == "listening" {
                _ = sender.send(parsed["address"].as_str().unwrap_or_default().to_owned());
            }
            let mut log = log_of_thread.lock().unwrap_or_else(|e| e.into_inner());
            log.push_str(&line);
            log.push('\n');
        }
    });
    match address.recv_timeout(Duration::from_secs(30)) {
        Ok(address) => format!("http://{address}"),
        Err(_) => panic!("the HTTP server does not listen:\n{}", log.lock().unwrap_or_else(|e| e.into_inner())),
    }
}
