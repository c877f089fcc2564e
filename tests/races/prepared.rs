//! Prepared transactions that push.

use queen_tests::session::Session;
use queen_tests::shared_cluster;

async fn sessions() -> (Session, Session) {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    (Session::open(cluster, &db).await, Session::open(cluster, &db).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_a_prepared_transaction_appear_when_it_is_committed() {
    let (a, b) = sessions().await;
    b.pop("'q', 'g', 10, subscription_mode => 'all'").await;
    a.run(
        "BEGIN; SELECT queen.push('q', '1', transaction_id => 'one'); SELECT queen.push('q', '2', 'p', 'two');
           PREPARE TRANSACTION 'commit_later'",
    )
    .await;
    assert_eq!(b.stored("q").await.len(), 0, "nothing before the decision");
    assert_eq!(b.pop("'q', 'g', 10, max_partitions => 0").await, vec![]);
    // Decided by another session than the one that prepared it.
    b.run("COMMIT PREPARED 'commit_later'").await;
    let mut ids: Vec<String> = b
        .pop("'q', 'g', 10, max_partitions => 0, auto_ack => true")
        .await
        .into_iter()
        .map(|m| m.transaction_id)
        .collect();
    ids.sort();
    assert_eq!(ids, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_a_prepared_transaction_leave_nothing_when_it_is_rolled_back() {
    let (a, b) = sessions().await;
    b.append("q", "Default", &["before"]).await;
    a.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'one'); PREPARE TRANSACTION 'undo_later'").await;
    b.run("ROLLBACK PREPARED 'undo_later'").await;
    b.append("q", "Default", &["after"]).await;
    assert_eq!(b.stored("q").await["Default"], ["before", "after"]);
    // The session that prepared it has kept nothing of it.
    a.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'next'); COMMIT").await;
    assert_eq!(b.stored("q").await["Default"], ["before", "after", "next"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_prepared_transaction_gives_its_transaction_id_back() {
    let (a, b) = sessions().await;
    b.append("q", "Default", &["before"]).await;
    a.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'same'); PREPARE TRANSACTION 'undone_id'").await;
    // The lane is held until the decision: whether 'same' is a duplicate is not known before.
    let (second, waits) =
        b.start_and_watch(&a, "SELECT status FROM queen.push('q', '2', transaction_id => 'same')").await;
    assert!(waits, "a push to the lane of a prepared transaction waits for the decision");
    a.run("ROLLBACK PREPARED 'undone_id'").await;
    second.end().await;
    assert_eq!(a.stored("q").await["Default"], ["before", "same"]);
    assert_eq!(a.one("SELECT payload_text FROM queen.messages('q') WHERE transaction_id = 'same'").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn pops_and_acks_pass_a_prepared_transaction() {
    let (a, b) = sessions().await;
    b.append("q", "Default", &["before"]).await;
    b.pop("'q', 'g', subscription_mode => 'all', lease_seconds => 60").await;
    a.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'later'); PREPARE TRANSACTION 'passed'").await;
    b.run("SET statement_timeout = '10s'").await;
    b.run("SELECT queen.ack(partition_id, 'before', consumer_group => 'g') FROM queen.partitions").await;
    assert_eq!(b.pop("'q', 'g'").await, vec![]);
    b.run("SELECT queen.maintain()").await;
    b.run("COMMIT PREPARED 'passed'").await;
    let found = b.pop("'q', 'g'").await;
    assert_eq!(found.len(), 1, "what was prepared while the lane was drained is found");
    assert_eq!((found[0].offset, found[0].transaction_id.as_str()), (1, "later"));
}
