//! What attempts to break it have found, each as it went wrong.

use crate::registration::sessions;
use queen_tests::session::{batch, describe, sqlstate};
use queen_tests::shared_cluster;

/// Rows went only into the indexes that the code knows by name. One that is rebuilt concurrently got none of what was
/// pushed meanwhile; when it took the old one's place those messages were gone, and their offsets given again.
#[tokio::test]
async fn what_is_pushed_while_an_index_is_rebuilt_concurrently_is_kept() {
    let s = sessions(3).await;
    let [holder, builder, producer] = s.as_slice() else { panic!("three sessions") };
    producer.append("q", "Default", &["a"]).await;
    for index in ["segment_pkey", "cursor_pkey", "ready_gid_due_at_pid_idx", "cursor_lease_id_idx"] {
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queen.queue").await;
        let (rebuild, waits) =
            builder.start_and_watch(holder, &format!("REINDEX INDEX CONCURRENTLY queen.{index}")).await;
        assert!(waits, "the rebuild of {index} does not wait for the old snapshot: nothing is tested");
        producer.append("q", "Default", &[&format!("during {index}")]).await;
        let popped = producer.pop("'q', 'g', 100, max_partitions => 0, subscription_mode => 'all'").await;
        assert!(!popped.is_empty(), "{index}");
        producer.run(&format!("SELECT queen.ack_lease('{}')", popped[0].lease.as_deref().unwrap())).await;
        holder.run("COMMIT").await;
        rebuild.end().await;
        producer.append("q", "Default", &[&format!("after {index}")]).await;
    }
    assert_eq!(producer.stored("q").await["Default"].len(), 9);
    assert_eq!(producer.number("SELECT count(*) FROM queen.segment").await, 9);
    assert_eq!(producer.number("SELECT count(*) FROM queen.verify()").await, 0);
    let popped = producer.pop("'q', 'g', 100, max_partitions => 0").await;
    assert_eq!(popped.len(), 1, "the group has had all but the last");
}

/// From PostgreSQL 17 on a BRIN index keeps pages from one entry to the next. Nobody gave them back: each call that wrote
/// warned of two that were not closed.
#[test]
fn an_index_of_any_kind_that_somebody_has_added_is_served_without_a_warning() {
    let cluster = shared_cluster();
    for method in ["brin", "hash", "btree"] {
        let db = cluster.fresh_database_blocking();
        for (table, column) in [("partition", "qid"), ("segment", "pid"), ("cursor", "gid"), ("ready", "gid")] {
            cluster.psql(&db, &format!("CREATE INDEX ON queen.{table} USING {method} ({column})"));
        }
        let output = cluster.try_psql(
            &db,
            r#"BEGIN; SELECT queen.push('q', '1', 'a'); SELECT queen.push('q', '2', 'b'); COMMIT;
               SELECT queen.transaction('[{"type": "push", "queue": "q", "partition": "c", "payload": 3}]');
               SELECT queen.ack_lease(lease_id) FROM queen.pop('q', 'g', subscription_mode => 'all')"#,
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{method}");
        // With no other index left, the new one finds every row.
        let found = cluster.psql(
            &db,
            "BEGIN; ALTER TABLE queen.segment DROP CONSTRAINT segment_pkey; SET enable_seqscan = off;
             SELECT count(*) FROM queen.partition p, LATERAL (SELECT FROM queen.segment WHERE pid = p.pid OFFSET 0) s;
             ROLLBACK",
        );
        assert_eq!(found, "3", "{method}");
    }
}

/// A bundle that was cancelled left its subtransaction open: the session's next statement found an aborted transaction, and
/// its ROLLBACK ended the connection.
#[tokio::test]
async fn a_cancelled_bundle_leaves_its_session_as_it_was() {
    let s = sessions(2).await;
    let [holder, caller] = s.as_slice() else { panic!("two sessions") };
    holder.run(&format!("BEGIN; SELECT queen.push_batch({})", batch("q", "Default", &["held"]))).await;
    let bundle = r#"SELECT queen.transaction('[{"type":"push","queue":"q","payload":2}]')"#;
    caller.run("SET statement_timeout = 200").await;
    let error = caller.try_rows(bundle).await.unwrap_err();
    assert_eq!(sqlstate(&error), "57014", "{}", describe(&error));
    assert_eq!(caller.one("SELECT 'alive'").await, "alive");
    // In a block that catches it, what the block did is undone, and the session goes on.
    caller.run("CREATE TABLE note (n int)").await;
    caller
        .run(&format!(
            "DO $$ BEGIN INSERT INTO note VALUES (1); PERFORM ({}); EXCEPTION WHEN query_canceled THEN NULL; END $$",
            bundle
        ))
        .await;
    assert_eq!(caller.number("SELECT count(*) FROM note").await, 0);
    assert_eq!(
        caller
            .number(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
            )
            .await,
        1,
        "the holder"
    );
    holder.run("COMMIT").await;
    assert_eq!(caller.stored("q").await["Default"].len(), 1);
}

/// A push went along with another session's append although its own transaction had a NOTIFY to do, which can still fail:
/// then the caller got an error, and the message was stored all the same.
#[tokio::test]
async fn a_push_beside_a_notify_does_not_go_along() {
    let s = sessions(2).await;
    let [holder, producer] = s.as_slice() else { panic!("two sessions") };
    producer.append("q", "Default", &["first"]).await;
    holder.run(&format!("BEGIN; SELECT queen.push_batch({})", batch("q", "Default", &["held"]))).await;
    producer.run("BEGIN; NOTIFY x; SELECT queen.push('q', '1')").await;
    let (commit, waits) = producer.start_and_watch(holder, "COMMIT").await;
    assert!(waits, "it waits for the lane like everybody");
    holder.run("COMMIT").await;
    commit.end().await;
    assert_eq!(producer.stored("q").await["Default"].len(), 3);
}

/// The index over dead letters held whole transaction ids: one too long for an index entry could not be dead-lettered,
/// and its group never got past it.
#[tokio::test]
async fn a_message_with_the_longest_transaction_id_can_be_dead_lettered() {
    let s = sessions(1).await;
    let id = "(SELECT left(string_agg(md5(g::text), ''), 65535) FROM generate_series(1, 2100) g)";
    s[0].run("SELECT queen.configure('q', '{\"retryLimit\": 0}')").await;
    s[0].run(&format!("SELECT queen.push('q', '1', transaction_id => {id}); SELECT queen.push('q', '2')")).await;
    let nack = "SELECT n.dlq FROM queen.pop('q', 'g', subscription_mode => 'all') p, \
                queen.nack(p.lease_id, p.transaction_id, 'x') n";
    assert_eq!(s[0].one(nack).await, "t");
    assert_eq!(s[0].pop("'q', 'g'").await.len(), 1);
    let partition = s[0].one("SELECT partition_id FROM queen.partitions").await;
    assert_eq!(s[0].number(&format!("SELECT queen.dlq_delete('{partition}', {id})")).await, 1);
}

/// DELETE is refused for tables without a replica identity once a publication covers all tables: housekeeping stopped.
#[tokio::test]
async fn housekeeping_goes_on_under_a_publication_of_all_tables() {
    let s = sessions(1).await;
    s[0].append("q", "Default", &["a", "b"]).await;
    s[0].run("CREATE PUBLICATION everything FOR ALL TABLES").await;
    s[0].pop("'q', 'g', 1, subscription_mode => 'all'").await;
    s[0].run("SELECT queen.configure('q', '{\"maxWaitTimeSeconds\": 1}'); UPDATE queen.segment SET created_at = created_at - interval '1 h'")
        .await;
    s[0].run("SELECT queen.maintain(); SELECT queen.drop_consumer_group('g'); SELECT queen.drop_queue('q')").await;
    assert_eq!(s[0].number("SELECT count(*) FROM queen.segment").await, 0);
}

/// A function that claims to be safe in parallel workers pushed there, where no commit appends: the pushes were lost.
#[tokio::test]
async fn a_push_in_a_parallel_worker_is_refused() {
    let s = sessions(1).await;
    s[0].run(
        "CREATE FUNCTION claims(i int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
         $$ BEGIN PERFORM queen.push('q', to_jsonb(i)); RETURN true; END $$;
         CREATE TABLE many AS SELECT g AS i FROM generate_series(1, 1000) g;
         SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
    )
    .await;
    let error = s[0].try_rows("SELECT count(*) FROM many WHERE claims(i)").await.unwrap_err();
    assert_eq!(sqlstate(&error), "25000", "{}", describe(&error));
}
