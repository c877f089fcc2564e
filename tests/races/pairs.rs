//! Every pair of verbs: one session has done the first in a transaction that stays open, another does the second; then
//! the first commits, or rolls back. Nobody is refused for the other's sake, and no message is lost or stuck. Which
//! pairs wait for each other is written down in `pairs.out`.

use queen_tests::compare::expect_file;
use queen_tests::session::{Session, describe, sqlstate};
use queen_tests::shared_cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// `{who}` is the session's letter: what the two push differs.
const VERBS: &[(&str, &str)] = &[
    ("push", "SELECT queen.push('{q}', '0', 'lane', '{who} push')"),
    (
        "push_batch",
        r#"SELECT queen.push_batch('[{"queue": "{q}", "partition": "other", "payload": 0, "transactionId": "{who} batch"},
                                     {"queue": "{q}", "partition": "lane", "payload": 0, "transactionId": "{who} batch"}]')"#,
    ),
    ("flush", "SELECT queen.push('{q}', '0', 'lane', '{who} flush'); SELECT queen.flush()"),
    ("pop named", "SELECT queen.pop('{q}', 'g', 5, 'other')"),
    ("pop any", "SELECT queen.pop('{q}', 'g', 5)"),
    ("ack", "SELECT queen.ack('{lane}', 'm0', 'completed', 'g', '{lease}')"),
    (
        "ack_batch",
        r#"SELECT queen.ack_batch('[{"transactionId": "m0", "partitionId": "{lane}", "leaseId": "{lease}"},
                                    {"transactionId": "m1", "partitionId": "{lane}", "leaseId": "{lease}"}]', 'g')"#,
    ),
    ("ack_lease", "SELECT queen.ack_lease('{lease}')"),
    ("nack", "SELECT queen.nack('{lease}', 'm0', 'no')"),
    ("release", "SELECT queen.release('{lease}')"),
    ("renew_lease", "SELECT queen.renew_lease('{lease}', 7200)"),
    ("seek", "SELECT queen.seek('{q}', 'g', to_timestamp => '-infinity')"),
    ("maintain", "SELECT queen.maintain()"),
    ("drop_queue", "SELECT queen.drop_queue('{q}')"),
    ("dlq_move_v1", "SELECT queen.dlq_move_v1('{dead}')"),
    ("pause_group", "SELECT queen.pause_group('{q}', 'g', '{who}')"),
    ("resume_group", "SELECT queen.pause_group('{q}', 'g', '{who}'); SELECT queen.resume_group('{q}', 'g')"),
    ("configure", r#"SELECT queen.configure('{q}', '{"retryLimit": 5}')"#),
    (
        "transaction",
        r#"SELECT queen.transaction('[{"type": "push", "queue": "{q}", "partition": "lane", "payload": 0, "transactionId": "{who} bundle"},
                                      {"type": "ack", "transactionId": "m0", "partitionId": "{lane}", "leaseId": "{lease}", "consumerGroup": "g"}]')"#,
    ),
    ("ack and push", "SELECT queen.ack_lease('{lease}'); SELECT queen.push('{q}', '0', 'lane', '{who} result')"),
    (
        "pop, ack and push",
        "DO $$ DECLARE m queen.message; BEGIN
             FOR m IN SELECT * FROM queen.pop('{q}', 'g') LOOP
                 PERFORM queen.ack_lease(m.lease_id);
                 PERFORM queen.push('{q}', '0', 'lane', '{who} answer');
             END LOOP;
         END $$",
    ),
];

/// A queue with a leased batch, a pending message, a dead letter, and a group `h` that is done with everything.
async fn set_up(s: &Session, q: &str) -> Vec<(&'static str, String)> {
    s.run(&format!(r#"SELECT queen.configure('{q}', '{{"maxWaitTimeSeconds": 3600}}')"#)).await;
    for group in ["g", "h"] {
        s.run(&format!("SELECT queen.pop('{q}', '{group}', subscription_mode => 'all')")).await;
    }
    s.append(q, "dead", &["d0"]).await;
    let got = s.pop(&format!("'{q}', 'g'")).await;
    s.run(&format!("SELECT queen.nack('{}', 'd0', 'no', 'dlq')", got[0].lease.as_deref().expect("a lease"))).await;
    // Old enough for maintain() to remove it.
    s.run(&format!(
        "UPDATE queen.segment SET created_at = created_at - interval '2 hours'
          WHERE pid = (SELECT p.pid FROM queen.partition p JOIN queen.queue q USING (qid) WHERE q.name = '{q}')"
    ))
    .await;
    s.append(q, "lane", &["m0", "m1", "m2"]).await;
    let got = s.pop(&format!("'{q}', 'g', 2, lease_seconds => 3600")).await;
    assert_eq!(got.len(), 2);
    s.append(q, "other", &["o0"]).await;
    s.run(&format!("SELECT queen.pop('{q}', 'h', 100, max_partitions => 0, auto_ack => true)")).await;
    vec![
        ("{q}", q.to_owned()),
        ("{lane}", got[0].partition_id.clone()),
        ("{lease}", got[0].lease.clone().expect("a lease")),
        ("{dead}", s.one(&format!("SELECT id FROM queen.dlq('{q}')")).await),
    ]
}

fn fill(sql: &str, values: &[(&str, String)], who: &str) -> String {
    let sql = sql.replace("{who}", who);
    values.iter().fold(sql, |sql, (name, value)| sql.replace(name, value))
}

/// What the calls of these sessions have pushed, as far as they succeeded and counted.
fn pushed(name: &str, who: &str) -> Vec<String> {
    let ids: &[(&str, &str)] = match name {
        "push" => &[("lane", "push")],
        "push_batch" => &[("lane", "batch"), ("other", "batch")],
        "flush" => &[("lane", "flush")],
        "transaction" => &[("lane", "bundle")],
        "ack and push" => &[("lane", "result")],
        "pop, ack and push" => &[("lane", "answer")],
        _ => &[],
    };
    ids.iter().map(|(lane, id)| format!("{lane}: {who} {id}")).collect()
}

/// What the group gets from pops of any partition, once nobody holds a lease.
async fn drained(s: &Session, q: &str, group: &str) -> BTreeSet<String> {
    s.run(&format!(
        "SELECT queen.release(c.lease_id) FROM queen.cursor c JOIN queen.subscription s USING (gid) JOIN queen.queue q USING (qid)
          WHERE q.name = '{q}' AND s.name = '{group}' AND c.lease_id IS NOT NULL"
    ))
    .await;
    let mut found = BTreeSet::new();
    loop {
        let got = s
            .pop(&format!("'{q}', '{group}', 100, max_partitions => 0, auto_ack => true, subscription_mode => 'all'"))
            .await;
        if got.is_empty() {
            return found;
        }
        for m in got {
            let name = format!("{}: {}", m.partition, m.transaction_id);
            assert!(found.insert(name.clone()), "{group} got {name} twice");
        }
    }
}

/// Stored messages that the group has not done, by its cursors.
async fn pending(s: &Session, q: &str, group: &str) -> BTreeSet<String> {
    let rows = s
        .rows(&format!(
            "SELECT m.partition || ': ' || m.transaction_id FROM queen.messages('{q}', max_rows => 1000) m
               JOIN queen.partition p USING (partition_id)
               LEFT JOIN queen.subscription s ON s.qid = p.qid AND s.name = '{group}'
              WHERE m.\"offset\" > coalesce((SELECT c.committed FROM queen.cursor c WHERE c.gid = s.gid AND c.pid = p.pid
                                            ORDER BY seq DESC LIMIT 1), -1)"
        ))
        .await;
    rows.into_iter().flatten().flatten().collect()
}

/// One pair; answers whether the second waited for the first.
async fn pair(s: &[Session], n: usize, first: (&str, &str), second: (&str, &str), end: &str) -> Result<bool, String> {
    let [a, b, observer] = s else { panic!("three sessions") };
    let q = format!("q{n}");
    let values = set_up(observer, &q).await;
    let story = format!("{} in an open transaction, {} beside it, then {end}", first.0, second.0);
    a.run("BEGIN").await;
    a.run(&fill(first.1, &values, "A")).await;
    let (started, waits) = b.start_and_watch(observer, &fill(second.1, &values, "B")).await;
    let ended = a.try_rows(end).await;
    let dropped = first.0 == "drop_queue" || second.0 == "drop_queue";
    for outcome in [ended, started.try_end().await] {
        if let Err(e) = &outcome {
            // The one thing that may stand in a verb's way is that its queue is gone.
            if !(dropped && sqlstate(e).starts_with("QN")) {
                return Err(format!("{story}: {}", describe(e)));
            }
        } else if format!("{outcome:?}").contains("db_error") {
            // A bundle that was the victim of a deadlock says so in its answer.
            return Err(format!("{story}: {outcome:?}"));
        }
    }

    // Nothing lost: neither from the log, nor for a group.
    let stored: BTreeSet<String> = observer
        .rows(&format!("SELECT partition || ': ' || transaction_id FROM queen.messages('{q}', max_rows => 1000)"))
        .await
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    if !dropped {
        let mut expected: BTreeSet<String> =
            ["dead: d0", "lane: m0", "lane: m1", "lane: m2", "other: o0"].map(str::to_owned).into();
        let mut optional = BTreeSet::new();
        if first.0 == "maintain" || second.0 == "maintain" {
            expected.remove("dead: d0");
            // Of two at once, one has nothing to do.
            if first.0 == second.0 && end == "ROLLBACK" {
                optional.insert("dead: d0".to_owned());
            }
        }
        if first.0 == "maintain" && second.0 != "maintain" && end == "ROLLBACK" {
            expected.insert("dead: d0".to_owned());
        }
        for (who, verb, counts) in [("A", first.0, end == "COMMIT"), ("B", second.0, true)] {
            if !counts {
                continue;
            }
            // A bundle fails as a whole when the other has settled its message; a consumer may find nothing to answer.
            let to = if matches!(verb, "transaction" | "pop, ack and push") { &mut optional } else { &mut expected };
            to.extend(pushed(verb, who));
            if verb == "dlq_move_v1" {
                expected.insert(format!("dead: dlq:{}", values[3].1));
            }
        }
        assert!(expected.is_subset(&stored), "{story}: stored {stored:?}");
        expected.extend(optional);
        assert!(stored.is_subset(&expected), "{story}: stored {stored:?}");
    }
    // The queue may be gone.
    _ = observer.try_rows(&format!("SELECT queen.resume_group('{q}', 'g')")).await;
    for group in ["g", "h"] {
        let wanted = pending(observer, &q, group).await;
        assert_eq!(drained(observer, &q, group).await, wanted, "{story}: group {group}");
    }
    observer.append(&q, "lane", &["next"]).await;
    for group in ["g", "h"] {
        assert_eq!(drained(observer, &q, group).await.len(), 1, "{story}: group {group}, next message");
    }
    // maintain() goes through all queues: leave none.
    observer.run(&format!("SELECT queen.drop_queue('{q}')")).await;
    Ok(waits)
}

async fn every_pair(end: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut s = Vec::new();
    for _ in 0..3 {
        s.push(Session::open(cluster, &db).await);
    }
    let mut waiting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut refused = Vec::new();
    for (n, first) in VERBS.iter().enumerate() {
        for (m, second) in VERBS.iter().enumerate() {
            match pair(&s, n * VERBS.len() + m, *first, *second, end).await {
                Ok(true) => waiting.entry(first.0).or_default().push(second.0),
                Ok(false) => {}
                Err(story) => refused.push(story),
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let left = s[2]
        .number("SELECT (SELECT count(*) FROM queen.segment) + (SELECT count(*) FROM queen.cursor) + (SELECT count(*) FROM queen.ready)
                      + (SELECT count(*) FROM queen.partition) + (SELECT count(*) FROM queen.transaction_id)")
        .await;
    assert_eq!(left, 0, "rows that the dropped queues left behind");
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pair_of_verbs_when_the_first_commits() {
    let waiting = every_pair("COMMIT").await;
    let mut text =
        String::from("An open transaction has done the first; whoever does one of the others waits for its end.\n\n");
    for (first, _) in VERBS {
        let seconds = waiting.get(first).map_or_else(|| "-".to_owned(), |s| s.join(", "));
        text.push_str(&format!("{first:18} {seconds}\n"));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("races/pairs.out");
    expect_file(&file, &text).unwrap_or_else(|e| panic!("{e}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pair_of_verbs_when_the_first_rolls_back() {
    every_pair("ROLLBACK").await;
}

/// Two merges read the same old options, and the later one wrote over the earlier one's.
#[tokio::test(flavor = "multi_thread")]
async fn two_configures_at_once_keep_both_changes() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let (a, b) = (Session::open(cluster, &db).await, Session::open(cluster, &db).await);
    let observer = Session::open(cluster, &db).await;
    a.run("SELECT queen.configure('q')").await;
    a.run(r#"BEGIN; SELECT queen.configure('q', '{"retryLimit": 7}')"#).await;
    let (second, waits) = b.start_and_watch(&observer, r#"SELECT queen.configure('q', '{"leaseTime": 77}')"#).await;
    assert!(waits);
    a.run("COMMIT").await;
    second.end().await;
    let options = observer
        .one("SELECT concat_ws(' ', options->>'retryLimit', options->>'leaseTime') FROM queen.queues WHERE queue = 'q'")
        .await;
    assert_eq!(options, "7 77");
}

/// It would leave what others have stored since.
#[tokio::test(flavor = "multi_thread")]
async fn a_drop_under_an_old_snapshot_is_refused_and_drops_nothing() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let (a, b) = (Session::open(cluster, &db).await, Session::open(cluster, &db).await);
    set_up(&b, "q").await;
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        a.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT 1")).await;
        b.append("q", isolation, &["later"]).await;
        let error = a.try_rows("SELECT queen.drop_queue('q')").await.expect_err("refused");
        assert_eq!(sqlstate(&error), "22023");
        a.run("ROLLBACK").await;
    }
    assert_eq!(b.stored("q").await.len(), 5);
    a.run("SELECT queen.drop_queue('q')").await;
    assert_eq!(b.number("SELECT count(*) FROM queen.segment").await, 0);
}
