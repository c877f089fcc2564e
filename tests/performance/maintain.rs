//! Housekeeping is never in the way.

use crate::support::cluster;
use queen_tests::session::Session;

#[tokio::test]
async fn nobody_waits_for_a_maintain_whose_transaction_stays_open() {
    let db = cluster().fresh_database().await;
    let (keeper, worker, observer) =
        (Session::open(cluster(), &db).await, Session::open(cluster(), &db).await, Session::open(cluster(), &db).await);
    worker.run(r#"SELECT queen.configure('orders', '{"retentionEnabled": true, "retentionSeconds": 1}')"#).await;
    worker.pop("'orders', 'billing', subscription_mode => 'all'").await;
    worker.append("orders", "Default", &["old 1", "old 2", "old 3"]).await;
    let delivered = worker.pop("'orders', 'billing'").await;
    assert_eq!(delivered.len(), 1);
    worker.run("UPDATE queen.segment SET created_at = created_at - interval '1 hour'").await;
    worker.append("orders", "Default", &["new"]).await;

    keeper.run("BEGIN").await;
    let done = keeper.one("SELECT queen.maintain()->>'messagesRemoved'").await;
    assert_eq!(done, "3", "retention holds rows that it has removed");

    for sql in [
        "SELECT queen.push('orders', '1')",
        "SELECT queen.push_batch('[{\"queue\": \"orders\", \"payload\": 2}]')",
        "SELECT queen.push('orders', '1', 'another partition')",
        "SELECT queen.push('orders', '1', transaction_id => 'old 2')",
        "SELECT queen.pop('orders', 'billing', 10, max_partitions => 10)",
        "SELECT queen.ack_lease(lease_id) FROM queen.pop('orders', 'shipping', 10, subscription_mode => 'all')",
        "SELECT queen.maintain()",
    ] {
        let (call, waits) = worker.start_and_watch(&observer, sql).await;
        assert!(!waits, "waits for maintain: {sql}");
        call.end().await;
    }
    keeper.run("COMMIT").await;
}
