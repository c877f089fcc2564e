//! Dropping groups and queues beside calls that are under way in them.

use queen_tests::session::{Session, sqlstate};
use queen_tests::shared_cluster;

async fn sessions(n: usize) -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '20s'").await;
        sessions.push(session);
    }
    sessions
}

/// Calls of a consumer that holds a lease over the first of three messages, each of which leaves another row of its cursor.
const CALLS: &[&str] = &[
    "SELECT queen.ack_lease('{lease}')",
    "SELECT queen.renew_lease('{lease}', 7200)",
    "SELECT queen.release('{lease}')",
    "SELECT queen.ack_lease('{lease}'); SELECT queen.pop('q', 'g', {arguments})",
    "SELECT queen.seek('q', 'g', to_end => true)",
];

// Its DELETE waited for the row, saw that it was gone, and did not see the one that had taken its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_dropped_begins_again_whatever_was_under_way() {
    for call in CALLS {
        // Once as a group that pops any partition, once as one that names its own.
        for arguments in ["1, auto_ack => true", "1, 'Default', auto_ack => true"] {
            let s = sessions(3).await;
            let [observer, consumer, dropper] = s.as_slice() else { unreachable!() };
            observer.append("q", "Default", &["one", "two", "three"]).await;
            let pop = arguments.replace("auto_ack => true", "lease_seconds => 3600, subscription_mode => 'all'");
            let lease = observer.pop(&format!("'q', 'g', {pop}")).await.remove(0).lease.expect("a lease");
            let call = call.replace("{lease}", &lease).replace("{arguments}", arguments);
            consumer.run(&format!("BEGIN; {call}")).await;
            let drop = "SELECT queen.drop_consumer_group('g', 'q', delete_metadata => false)";
            let (drop, waits) = dropper.start_and_watch(observer, drop).await;
            assert!(waits, "{call}: the drop does not wait");
            consumer.run("COMMIT").await;
            assert_eq!(drop.end().await, vec![vec![Some("1".to_owned())]], "{call}: cursors removed");
            assert_eq!(observer.number("SELECT count(*) FROM queen.cursor").await, 0, "{call}");
            let got = observer.pop(&format!("'q', 'g', {arguments}")).await;
            assert_eq!(got.len(), 1, "{call}, {arguments}");
            assert_eq!(got[0].transaction_id, "one", "{call}, {arguments}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_is_just_being_made_goes_with_its_group() {
    let s = sessions(3).await;
    let [observer, consumer, dropper] = s.as_slice() else { unreachable!() };
    for partition in ["a", "b"] {
        observer.append("q", partition, &["one", "two"]).await;
    }
    observer.pop("'q', 'g', 1, 'a', auto_ack => true, subscription_mode => 'all'").await;
    consumer.run("BEGIN; SELECT queen.pop('q', 'g', 1, 'b', auto_ack => true)").await;
    let (drop, _) = dropper.start_and_watch(observer, "SELECT queen.drop_consumer_group('g')").await;
    consumer.run("COMMIT").await;
    assert_eq!(drop.end().await, vec![vec![Some("2".to_owned())]]);
    for table in ["cursor", "subscription", "ready"] {
        assert_eq!(observer.number(&format!("SELECT count(*) FROM queen.{table}")).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_dropped_as_it_is_now_at_every_isolation_level() {
    let s = sessions(2).await;
    let [dropper, other] = s.as_slice() else { unreachable!() };
    other.append("q", "a", &["one"]).await;
    dropper.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queen.queue").await;
    other.pop("'q', 'g', 1, auto_ack => true, subscription_mode => 'all'").await;
    assert_eq!(dropper.number("SELECT queen.drop_consumer_group('g')").await, 1);
    dropper.run("COMMIT").await;
    for table in ["cursor", "subscription"] {
        assert_eq!(other.number(&format!("SELECT count(*) FROM queen.{table}")).await, 0, "{table}");
    }
}

/// A dead letter of queue q, and its id.
async fn dead_letter(observer: &Session) -> String {
    observer.append("q", "Default", &["one", "two"]).await;
    observer
        .run("SELECT queen.nack(lease_id, transaction_id, 'no', 'dlq') FROM queen.pop('q', 'g', subscription_mode => 'all')")
        .await;
    observer.one("SELECT id FROM queen.dlq('q')").await
}

// The drop had locked the lanes and wanted the dead letters, the move had locked its dead letter and wanted a lane.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_dropped_and_a_move_of_its_dead_letter_do_not_block_each_other() {
    // Where it was, and to a partition and a queue that are not there yet.
    for target in ["", ", NULL, 'new'", ", 'new'"] {
        let s = sessions(4).await;
        let [observer, holder, dropper, mover] = s.as_slice() else { unreachable!() };
        let id = dead_letter(observer).await;
        // The drop comes to a halt at the segments: it has everything but them then.
        holder.run("BEGIN; SELECT 1 FROM queen.segment FOR UPDATE").await;
        let (drop, waits) = dropper.start_and_watch(observer, "SELECT queen.drop_queue('q')").await;
        assert!(waits);
        let verdict = format!("SELECT queen.dlq_move_v1('{id}'{target}) ->> 'result'");
        let (moved, waits) = mover.start_and_watch(observer, &verdict).await;
        assert!(waits, "the move goes on under a drop");
        holder.run("COMMIT").await;
        assert_eq!(drop.end().await, vec![vec![Some("t".to_owned())]]);
        match moved.try_end().await {
            Ok(rows) => assert_eq!(rows, vec![vec![Some("gone".to_owned())]], "moved to {target:?}"),
            Err(e) => panic!("moved to {target:?}: {}", sqlstate(&e)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_under_way_is_waited_for_by_the_drop_of_its_queue_and_both_succeed() {
    for target in ["", ", NULL, 'new'", ", 'new'"] {
        let s = sessions(4).await;
        let [observer, holder, dropper, mover] = s.as_slice() else { unreachable!() };
        let id = dead_letter(observer).await;
        // The move has its dead letter, and comes to a halt on its way to the lane.
        holder.run("BEGIN; LOCK TABLE queen.transaction_id IN ACCESS EXCLUSIVE MODE").await;
        let verdict = format!("SELECT queen.dlq_move_v1('{id}'{target}) ->> 'result'");
        let (moved, waits) = mover.start_and_watch(observer, &verdict).await;
        assert!(waits);
        let (drop, waits) = dropper.start_and_watch(observer, "SELECT queen.drop_queue('q')").await;
        assert!(waits);
        holder.run("COMMIT").await;
        assert_eq!(moved.end().await, vec![vec![Some("moved".to_owned())]], "moved to {target:?}");
        assert_eq!(drop.end().await, vec![vec![Some("t".to_owned())]], "moved to {target:?}");
        assert_eq!(observer.number("SELECT count(*) FROM queen.dlq()").await, 0);
        let left = if target == ", 'new'" { 1 } else { 0 };
        assert_eq!(observer.number("SELECT count(*) FROM queen.partition").await, left, "moved to {target:?}");
    }
}
