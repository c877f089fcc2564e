//! A consumer in a long transaction keeps nobody from other partitions, also while its group is still going through the
//! partitions that were there before it.

use queen_tests::session::Session;
use queen_tests::shared_cluster;
use std::collections::HashSet;

const PARTITIONS: usize = 40;

/// Three consumers; the queue has one message in each of many partitions.
async fn sessions() -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '10s'").await;
        sessions.push(session);
    }
    let items: Vec<_> = (0..PARTITIONS)
        .map(|n| serde_json::json!({"queue": "q", "partition": format!("p{n}"), "payload": n, "transactionId": format!("t{n}")}))
        .collect();
    sessions[0]
        .run(&format!("SELECT queen.push_batch('{}'); CREATE TABLE work (id text)", serde_json::Value::Array(items)))
        .await;
    sessions
}

/// One message, its effect, and its ack; the transaction stays open.
async fn take_and_stay(session: &Session, group: &str) -> String {
    session.run("BEGIN").await;
    let got = session.pop(&format!("'q', '{group}', subscription_mode => 'all', lease_seconds => 3600")).await;
    assert_eq!(got.len(), 1, "a message for the long transaction");
    session
        .run(&format!(
            "INSERT INTO work VALUES ('{}'); SELECT queen.ack_lease('{}')",
            got[0].transaction_id,
            got[0].lease.as_deref().expect("a lease")
        ))
        .await;
    got[0].transaction_id.clone()
}

async fn take_all(session: &Session, group: &str) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let got = session.pop(&format!("'q', '{group}', 3, max_partitions => 2, auto_ack => true")).await;
        if got.is_empty() {
            return found;
        }
        found.extend(got.into_iter().map(|m| m.transaction_id));
    }
}

/// Two consumers in long transactions, a third takes the rest. `swept`: each old partition has a hint of its own; else the
/// group still has to go through them.
async fn others_get_the_rest(swept: bool, end: &str) {
    let s = sessions().await;
    s[0].run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    if !swept {
        s[0].run("SELECT queen.drop_consumer_group('g', 'q', delete_metadata => false)").await;
        assert_eq!(s[0].number("SELECT count(*) FROM queen.ready").await, 1, "one sweep");
    }
    let mine = take_and_stay(&s[1], "g").await;
    let second = take_and_stay(&s[2], "g").await;
    assert_ne!(mine, second);
    let found = take_all(&s[3], "g").await;
    let mut all: HashSet<String> = found.iter().cloned().collect();
    assert_eq!(all.len(), found.len(), "twice");
    assert!(!all.contains(&mine) && !all.contains(&second), "what others have in hand");
    assert_eq!(all.len(), PARTITIONS - 2, "the other partitions, beside two open transactions");
    s[1].run(end).await;
    s[2].run("COMMIT").await;
    let rest = take_all(&s[3], "g").await;
    if end == "ROLLBACK" {
        assert_eq!(rest, [mine], "what was given back");
        all.extend(rest);
        all.insert(second);
    } else {
        assert_eq!(rest.len(), 0);
        all.extend([mine, second]);
    }
    assert_eq!(all.len(), PARTITIONS);
    s[0].append("q", "p7", &["next"]).await;
    assert_eq!(take_all(&s[3], "g").await, ["next"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_consumer_keeps_nobody_from_other_partitions() {
    others_get_the_rest(true, "COMMIT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_consumer_that_rolls_back_gives_its_message_to_others() {
    others_get_the_rest(true, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_consumer_that_sweeps_keeps_nobody_from_other_partitions() {
    others_get_the_rest(false, "COMMIT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_consumer_that_sweeps_and_rolls_back_gives_its_message_to_others() {
    others_get_the_rest(false, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_whose_backend_dies_gives_its_message_to_others() {
    let s = sessions().await;
    s[0].run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    let mine = take_and_stay(&s[1], "g").await;
    assert_eq!(take_all(&s[3], "g").await.len(), PARTITIONS - 1);
    s[0].terminate(s[1].pid).await;
    assert_eq!(take_all(&s[3], "g").await, [mine]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pop_of_a_partition_that_somebody_has_in_hand_answers_nothing_at_once() {
    let s = sessions().await;
    s[1].run("BEGIN").await;
    let got = s[1].pop("'q', 'g', 1, 'p3', subscription_mode => 'all'").await;
    assert_eq!(got.len(), 1);
    s[1].run("COMMIT; BEGIN").await;
    s[1].run(&format!("SELECT queen.ack_lease('{}')", got[0].lease.as_deref().expect("a lease"))).await;
    assert_eq!(s[2].pop("'q', 'g', 1, 'p3'").await, vec![]);
    s[1].run("ROLLBACK").await;
    assert_eq!(s[2].pop("'q', 'g', 1, 'p3'").await, vec![], "the lease lives on");
}

/// A backend remembers below which time there are no hints for a group. It looked while its own transaction had used a
/// hint up, and after the rollback passed over it for a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_pop_is_found_again_at_once_by_the_same_session() {
    let s = sessions().await;
    s[0].run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    let undo = [("BEGIN", "ROLLBACK"), ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT")];
    // Hints that are just being written are looked for further back: these are older.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    for (begin, end) in undo {
        assert_eq!(s[1].pop("'q', 'g'").await.len(), 1);
        s[1].run(begin).await;
        let first = take_all(&s[1], "g").await;
        s[1].run(end).await;
        let again = s[1].pop("'q', 'g', 100, max_partitions => 0").await;
        assert_eq!(again.len(), first.len(), "{end}");
        let lease = again[0].lease.as_deref().expect("a lease");
        s[1].run(&format!("SELECT queen.release('{lease}')")).await;
    }
}
