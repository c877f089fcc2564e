//! Outbox without pain: a transaction that has pushed and goes on for long is in nobody's way.

use queen_tests::session::{Session, batch};
use queen_tests::shared_cluster;
use std::time::{Duration, Instant};

/// What the others may lose to an open transaction, scheduling of a busy machine included.
const ALLOWANCE: Duration = Duration::from_millis(100);

/// What the other sessions do, over and over: (name, SQL).
fn verbs(round: usize) -> Vec<(&'static str, String)> {
    vec![
        ("push", "SELECT queen.push('orders', '{}')".to_owned()),
        (
            "push_batch",
            format!(
                "SELECT queen.push_batch({})",
                batch("orders", "Default", &[&format!("b{round}")])
            ),
        ),
        (
            "pop and ack",
            "DO $$ DECLARE m queen.message; BEGIN
                 FOR m IN SELECT * FROM queen.pop('orders', 'workers', 3, lease_seconds => 60) LOOP
                     PERFORM queen.ack(m.partition_id, m.transaction_id, consumer_group => 'workers', lease_id => m.lease_id);
                 END LOOP;
             END $$"
                .to_owned(),
        ),
        (
            "pop by name",
            "SELECT count(*) FROM queen.pop('orders', 'named', 2, 'Default', auto_ack => true, subscription_mode => 'all')"
                .to_owned(),
        ),
        ("maintain", "SELECT queen.maintain()".to_owned()),
    ]
}

/// The best time of each verb: what it costs when nothing but the open transaction is in the way.
async fn measure(session: &Session, from: usize) -> Vec<(&'static str, Duration)> {
    let mut best: Vec<(&'static str, Duration)> = Vec::new();
    for round in from..from + 7 {
        for (i, (name, sql)) in verbs(round).into_iter().enumerate() {
            let begun = Instant::now();
            session.run(&sql).await;
            let took = begun.elapsed();
            match best.get_mut(i) {
                Some((_, known)) => *known = took.min(*known),
                None => best.push((name, took)),
            }
        }
    }
    best
}

async fn nobody_waits_for(begin: &str, meanwhile: &str) {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let a = Session::open(cluster, &db).await;
    a.append("orders", "Default", &["first", "second"]).await;
    a.run("SELECT count(*) FROM queen.pop('orders', 'workers', subscription_mode => 'all', lease_seconds => 1)").await;
    a.run("SELECT queen.seek('orders', 'workers', to_timestamp => '-infinity')").await;

    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(Session::open(cluster, &db).await);
    }
    let mut alone = Vec::new();
    for (n, other) in others.iter().enumerate() {
        // A verb that waits fails here, and does not hang.
        other.run("SET statement_timeout = '10s'").await;
        alone.push(measure(other, n * 100).await);
    }

    a.run(begin).await;
    a.run(meanwhile).await;
    for (n, (other, alone)) in others.iter().zip(&alone).enumerate() {
        let beside = measure(other, 1000 + n * 100).await;
        for ((name, before), (_, now)) in alone.iter().zip(&beside) {
            assert!(
                *now <= *before + ALLOWANCE,
                "{name} took {now:?} beside \"{begin}; {meanwhile}\", {before:?} alone"
            );
        }
    }
    a.run("SELECT queen.push('orders', '\"last\"', transaction_id => 'last')").await;
    a.run("COMMIT").await;
    // It was really open, and lands last.
    let stored = a.stored("orders").await;
    assert_eq!(stored["Default"].last().map(String::as_str), Some("last"));
    let held = stored["Default"].iter().filter(|t| *t == "held").count();
    assert_eq!(held, 1, "the push of the open transaction is there once");
    assert_eq!(a.rows("SELECT * FROM queen.verify()").await, Vec::<Vec<_>>::new());
}

const PUSH: &str = "SELECT queen.push('orders', '\"held\"', transaction_id => 'held')";

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_that_pushed_delays_nobody() {
    nobody_waits_for("BEGIN", PUSH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_savepoint_that_pushed_delays_nobody() {
    nobody_waits_for("BEGIN", &format!("SAVEPOINT s; {PUSH}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_repeatable_read_transaction_that_pushed_delays_nobody() {
    nobody_waits_for("BEGIN ISOLATION LEVEL REPEATABLE READ", PUSH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_serializable_transaction_that_pushed_delays_nobody() {
    nobody_waits_for("BEGIN ISOLATION LEVEL SERIALIZABLE", PUSH).await;
}

/// Segments of a queue, and how many messages each partition has.
async fn segments(session: &Session, queue: &str) -> Vec<(String, i64, i64)> {
    session
        .rows(&format!(
            "SELECT p.name, count(*), sum(s.frames) FROM queen.queue q JOIN queen.partition p USING (qid)
               JOIN queen.segment s USING (pid) WHERE q.name = '{queue}' GROUP BY 1 ORDER BY 1"
        ))
        .await
        .into_iter()
        .map(|row| {
            let text = |i: usize| row[i].clone().expect("a column");
            (text(0), text(1).parse().expect("count"), text(2).parse().expect("sum"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_trigger_that_pushes_during_a_large_insert_makes_one_segment_a_partition() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let a = Session::open(cluster, &db).await;
    a.run(
        "CREATE TABLE line (id int, customer int);
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM queen.push('lines', jsonb_build_object('id', new.id), 'c' || new.customer);
             RETURN new;
         END $$;
         CREATE TRIGGER tell AFTER INSERT ON line FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    .await;
    a.run("INSERT INTO line SELECT i, i % 4 FROM generate_series(1, 10000) i").await;
    let expected: Vec<_> = (0..4).map(|c| (format!("c{c}"), 1, 2500)).collect();
    assert_eq!(segments(&a, "lines").await, expected);
    // In the order of the rows.
    let ids = a
        .one(
            "SELECT bool_and(id > before) FROM (
                 SELECT (payload->>'id')::int AS id, lag((payload->>'id')::int, 1, 0) OVER (ORDER BY \"offset\") AS before
                   FROM queen.messages('lines', 'c1', max_rows => 10000)) x",
        )
        .await;
    assert_eq!(ids, "t");
    // The same statement, undone: nothing.
    a.run("BEGIN; SAVEPOINT s; INSERT INTO line SELECT i, 7 FROM generate_series(1, 100) i; ROLLBACK TO s; COMMIT")
        .await;
    assert_eq!(segments(&a, "lines").await, expected);
}
