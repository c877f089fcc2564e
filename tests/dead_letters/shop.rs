//! A shop whose orders go wrong: what the tests say again and again.

use queen_tests::session::{Message, Session, quote};
use queen_tests::shared_cluster;
use serde_json::Value;

/// A session in a database of its own.
pub async fn shop() -> Session {
    let db = shared_cluster().fresh_database().await;
    Session::open(shared_cluster(), &db).await
}

pub async fn configure(session: &Session, queue: &str, options: &str) {
    session.run(&format!("SELECT queen.configure({}, {})", quote(queue), quote(options))).await;
}

pub async fn push(session: &Session, queue: &str, payload: &str, id: &str) {
    session
        .run(&format!("SELECT queen.push({}, {}, transaction_id => {})", quote(queue), quote(payload), quote(id)))
        .await;
}

/// What group `g` gets next of a queue; None when there is nothing now.
pub async fn pop(session: &Session, queue: &str) -> Option<Message> {
    session.pop(&format!("{}, 'g', subscription_mode => 'all'", quote(queue))).await.pop()
}

/// The same, when there must be something.
pub async fn next(session: &Session, queue: &str) -> Message {
    pop(session, queue).await.unwrap_or_else(|| panic!("{queue} has nothing"))
}

/// Reports a failure; answers whether it was final.
pub async fn nack(session: &Session, message: &Message, error: &str, reason: Option<&str>) -> bool {
    let sql = nack_sql(message, error, reason);
    let rows = session.rows(&format!("SELECT n.success, n.dlq FROM {sql} n")).await;
    assert_eq!(rows[0][0].as_deref(), Some("t"), "{rows:?}");
    rows[0][1].as_deref() == Some("t")
}

/// The call that reports a failure.
pub fn nack_sql(message: &Message, error: &str, reason: Option<&str>) -> String {
    format!(
        "queen.nack('{}', {}, {}, reason => {})",
        message.lease.as_deref().expect("a lease"),
        quote(&message.transaction_id),
        quote(error),
        reason.map_or("NULL".to_owned(), quote)
    )
}

pub async fn complete(session: &Session, message: &Message) {
    let lease = message.lease.as_deref().expect("a lease");
    assert_eq!(session.number(&format!("SELECT queen.ack_lease('{lease}')")).await, 1);
}

/// Pushes and gives up on one message for each id.
pub async fn file(session: &Session, queue: &str, ids: &[&str]) {
    for id in ids {
        push(session, queue, &format!("{{\"order\": \"{id}\"}}"), id).await;
        let message = next(session, queue).await;
        assert!(nack(session, &message, "no such product", Some("fatal")).await);
    }
}

/// Moves the ends of leases and of pauses into the past, hints included, as time would.
pub async fn time_passes(session: &Session) {
    session
        .run(
            "DO $$
             DECLARE c record; t timestamptz;
             BEGIN
               FOR c IN SELECT gid, pid, seq, expires_at, not_before FROM queen.cursor
                         WHERE expires_at > clock_timestamp() OR not_before > clock_timestamp() LOOP
                 t := clock_timestamp();
                 UPDATE queen.ready SET due_at = t
                  WHERE gid = c.gid AND pid = c.pid AND due_at IN (c.expires_at, c.not_before);
                 UPDATE queen.cursor
                    SET expires_at = CASE WHEN c.expires_at > t THEN t ELSE c.expires_at END,
                        not_before = CASE WHEN c.not_before > t THEN t ELSE c.not_before END
                  WHERE gid = c.gid AND pid = c.pid AND seq = c.seq;
               END LOOP;
             END $$",
        )
        .await;
}

pub async fn json(session: &Session, sql: &str) -> Value {
    let text = session.one(sql).await;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?} of {sql}"))
}

/// The columns of one row, by `|`; NULL as `~`.
pub async fn line(session: &Session, sql: &str) -> String {
    let rows = session.rows(sql).await;
    let lines: Vec<String> =
        rows.iter().map(|row| row.iter().map(|c| c.as_deref().unwrap_or("~")).collect::<Vec<_>>().join("|")).collect();
    lines.join("\n")
}

pub async fn acts_as(session: &Session, name: &str) {
    session.run(&format!("SET queen.actor = {}", quote(name))).await;
}

/// A plan over a queue, `more` as written in SQL: its id.
pub async fn plan(session: &Session, queue: &str, more: &str) -> String {
    let filter = quote(&format!("{{\"queue\": \"{queue}\"}}"));
    let sql =
        format!("SELECT queen.dlq_plan('schema mismatch', 'release 4712', filter => {filter}, rate => 1000{more})");
    json(session, &sql).await["planId"].as_str().expect("a plan").to_owned()
}

/// The state after `function` of a plan.
pub async fn step(session: &Session, function: &str, plan: &str) -> String {
    session.one(&format!("SELECT queen.{function}('{plan}') ->> 'state'")).await
}

pub async fn run(session: &Session) {
    session.run("CALL queen.run_replays(30000)").await;
}

/// SQLSTATE that this must raise.
pub async fn refused(session: &Session, sql: &str) -> String {
    match session.try_rows(sql).await {
        Ok(rows) => panic!("{sql} answered {rows:?}"),
        Err(e) => queen_tests::session::sqlstate(&e).to_owned(),
    }
}

/// Another session in the same database.
pub async fn another(session: &Session) -> Session {
    let database = session.one("SELECT current_database()").await;
    Session::open(shared_cluster(), &database).await
}
