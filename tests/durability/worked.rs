//! The consumers of docs/exactly-once.md, as they stand there: whatever they are killed at, each payment is booked once.

use queen_tests::session::Session;
use queen_tests::shared_cluster;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

// The document's block is this file.
include!("book_one.rs");

const DOCUMENT: &str = include_str!("../../docs/exactly-once.md");

/// The first block of this language that has `word`.
fn block(language: &str, word: &str) -> &'static str {
    DOCUMENT
        .split("```")
        .filter_map(|block| block.strip_prefix(&format!("{language}\n")))
        .find(|block| block.contains(word))
        .expect("a block")
}

/// A database with an account of 100, the document's SQL function, and ten payments of 1.
async fn bank() -> (String, Session) {
    let db = shared_cluster().fresh_database().await;
    let session = Session::open(shared_cluster(), &db).await;
    let sql = block("sql", "CREATE FUNCTION book_one");
    let end = sql.find("SELECT status FROM queen.push").expect("the example's payment");
    session.run(&sql[..end]).await;
    pay(&session, 10).await;
    (db, session)
}

async fn pay(session: &Session, n: i32) {
    let push = "queen.push('payments', '{\"owner\": \"ada\", \"amount\": 1}')";
    session.run(&format!("SELECT count({push}) FROM generate_series(1, {n})")).await;
}

async fn balance(session: &Session) -> i64 {
    session.number("SELECT balance FROM account").await
}

/// All payments once more, as replays of what was done already.
async fn replay_all(session: &Session) {
    session
        .run(
            "SELECT queen.push('payments', payload, headers => jsonb_build_object('x-causation-id', message_id))
               FROM queen.messages('payments', max_rows => 1000)",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_rust_is_the_documents_and_books_each_payment_once() {
    assert_eq!(block("rust", "book_one"), include_str!("book_one.rs"));
    let (db, session) = bank().await;
    let mut client = shared_cluster().client(&db).await;
    while book_one(&mut client).await.expect("a booking") {}
    assert_eq!(balance(&session).await, 110);
    replay_all(&session).await;
    while book_one(&mut client).await.expect("a booking") {}
    assert_eq!(balance(&session).await, 110);
    assert_eq!(session.number("SELECT pending FROM queen.queues").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_dies_at_any_step_books_each_payment_once() {
    let (db, session) = bank().await;
    let steps = [
        "BEGIN",
        "CREATE TEMP TABLE m AS SELECT * FROM queen.pop('payments', 'bookkeeping', subscription_mode => 'all')",
        "SELECT queen.process_once('bookkeeping', message_id) FROM m",
        "UPDATE account SET balance = balance + (SELECT (payload ->> 'amount')::numeric FROM m)",
        "SELECT queen.ack(partition_id, transaction_id, 'completed', 'bookkeeping', lease_id) FROM m",
        "COMMIT",
    ];
    for died_after in 1..=steps.len() {
        let doomed = Session::open(shared_cluster(), &db).await;
        for step in &steps[..died_after] {
            doomed.run(step).await;
        }
        session.terminate(doomed.pid).await;
    }
    // Only the last of them got as far as its commit.
    assert_eq!(balance(&session).await, 101);
    while session.one("SELECT book_one()").await == "t" {}
    assert_eq!(balance(&session).await, 110);
    replay_all(&session).await;
    while session.one("SELECT book_one()").await == "t" {}
    assert_eq!(balance(&session).await, 110);
}

/// A connection that breaks at the client's `break_at`th message, which the server still gets (`heard`) or does not: then
/// the answer is lost, or the question. None when the server is gone before there is a session.
async fn breaking(db: &str, break_at: usize, heard: bool) -> Option<tokio_postgres::Client> {
    let cluster = shared_cluster();
    let socket = cluster.socket_dir().join(format!(".s.PGSQL.{}", cluster.port()));
    let server = tokio::net::UnixStream::connect(socket).await.expect("the server's socket");
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let (mut from_client, mut to_client) = tokio::io::split(theirs);
        let (mut from_server, mut to_server) = server.into_split();
        let broken = Arc::new(AtomicBool::new(false));
        let deaf = broken.clone();
        let answers = tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                if !deaf.load(SeqCst) && to_client.write_all(&buffer[..length]).await.is_err() {
                    break;
                }
            }
        });
        for n in 1.. {
            // A message is a letter, a length and what that says; the first one has no letter.
            let mut message = vec![0; if n == 1 { 4 } else { 5 }];
            if from_client.read_exact(&mut message).await.is_err() {
                break;
            }
            let length = u32::from_be_bytes(*message.last_chunk().expect("four bytes")) as usize;
            let head = message.len();
            message.resize(head + length - 4, 0);
            if from_client.read_exact(&mut message[head..]).await.is_err() {
                break;
            }
            broken.store(n == break_at, SeqCst);
            if (n < break_at || heard) && to_server.write_all(&message).await.is_err() || n == break_at {
                break;
            }
        }
        // The server does all that it was told, and then finds that nobody is there.
        _ = to_server.shutdown().await;
        _ = answers.await;
    });
    let mut config = tokio_postgres::Config::new();
    let (client, connection) =
        config.user("postgres").dbname(db).connect_raw(ours, tokio_postgres::NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_rust_whose_connection_breaks_at_any_message_books_each_payment_once() {
    let (db, session) = bank().await;
    pay(&session, 40).await;
    let (mut breaks, mut committed_unheard) = (0, 0);
    for heard in [false, true] {
        for break_at in 1.. {
            let before = balance(&session).await;
            let mut client = breaking(&db, break_at, heard).await;
            let booked = match &mut client {
                Some(client) => book_one(client).await,
                None => Ok(false),
            };
            drop(client);
            let others =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
            while session.number(others).await > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            let change = balance(&session).await - before;
            if booked.is_ok_and(|booked| booked) {
                assert_eq!(change, 1);
                break;
            }
            breaks += 1;
            committed_unheard += change;
            assert!(change == 0 || heard, "booked at message {break_at}, which nobody heard");
            assert!(break_at < 200, "it does not get through");
        }
    }
    assert!(breaks >= 40, "several messages for each of six steps, lost in either direction: {breaks}");
    assert!(committed_unheard >= 1, "a commit whose answer was lost");
    let mut client = shared_cluster().client(&db).await;
    while book_one(&mut client).await.expect("a booking") {}
    assert_eq!(balance(&session).await, 150);
    replay_all(&session).await;
    while book_one(&mut client).await.expect("a booking") {}
    assert_eq!(balance(&session).await, 150);
}

/// A python3 that has psycopg: the system's, else one in a virtual environment below the target folder. None without
/// network.
fn python_with_psycopg() -> Option<PathBuf> {
    let has = |python: &Path| {
        let import = Command::new(python).args(["-c", "import psycopg"]).stderr(Stdio::null()).status();
        import.is_ok_and(|status| status.success())
    };
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("psycopg");
    let (system, own) = (PathBuf::from("python3"), venv.join("bin/python"));
    if has(&system) {
        return Some(system);
    }
    if !has(&own) {
        let made = Command::new(&system).args(["-m", "venv"]).arg(&venv).status();
        assert!(made.is_ok_and(|status| status.success()), "python3 with venv is needed");
        let install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "psycopg[binary]>=3.2,<4"];
        _ = Command::new(&own).args(install).status();
    }
    Some(own).filter(|python| has(python))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_python_books_each_payment_once() {
    let Some(python) = python_with_psycopg() else {
        // Past the test harness, which would keep it to itself.
        _ = std::io::stderr()
            .write_all(b"NOT RUN: the consumer in Python. psycopg cannot be installed without network.\n");
        return;
    };
    let (db, session) = bank().await;
    let cluster = shared_cluster();
    let url = format!("host={} port={} user=postgres dbname={db}", cluster.socket_dir().display(), cluster.port());
    for _ in 0..2 {
        let program = block("python", "def book_one");
        let output = Command::new(&python).args(["-c", program]).env("DATABASE_URL", &url).output().expect("python");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(balance(&session).await, 110);
        replay_all(&session).await;
    }
}
