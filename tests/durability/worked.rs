//! The consumers of docs/exactly-once.md, as they stand there: whatever they are killed at, each payment is booked once.

use queen_tests::session::Session;
use queen_tests::shared_cluster;

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

/// Where python3 has psycopg; elsewhere there is nothing to run it with.
#[tokio::test(flavor = "multi_thread")]
async fn the_consumer_in_python_books_each_payment_once() {
    let python = |code: &str, url: &str| {
        std::process::Command::new("python3").args(["-c", code]).env("DATABASE_URL", url).output()
    };
    if !python("import psycopg", "").is_ok_and(|o| o.status.success()) {
        eprintln!("python3 has no psycopg: not run");
        return;
    }
    let (db, session) = bank().await;
    let cluster = shared_cluster();
    let url = format!("host={} port={} user=postgres dbname={db}", cluster.socket_dir().display(), cluster.port());
    for _ in 0..2 {
        let output = python(block("python", "def book_one"), &url).expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(balance(&session).await, 110);
        replay_all(&session).await;
    }
}
