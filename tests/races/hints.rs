//! Hints that a pop drops while somebody counts on them.

use queen_tests::session::{Session, Started, batch};
use queen_tests::shared_cluster;

async fn sessions(n: usize) -> (String, Vec<Session>) {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '20s'").await;
        sessions.push(session);
    }
    (db, sessions)
}

/// Keeps appends between the look at the end of the lane and the segment: they look there for the transaction id.
const HOLD: &str = "BEGIN; LOCK TABLE queen.transaction_id IN ACCESS EXCLUSIVE MODE";

async fn start_append(pusher: &Session, observer: &Session, id: &str) -> Started {
    let sql = format!("SELECT queen.push_batch({})", batch("q", "Default", &[id]));
    let (append, waits) = pusher.start_and_watch(observer, &sql).await;
    assert!(waits, "the append goes on");
    append
}

// The pop had found the partition empty by its first hint, and took the second one for a repetition. It was that of a
// message that had come in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_hint_is_not_dropped_because_the_first_led_to_an_empty_partition() {
    let (db, s) = sessions(3).await;
    let [observer, holder, pusher] = s.as_slice() else { unreachable!() };
    observer.append("q", "Default", &["first"]).await;
    observer.pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
    for round in 0..25 {
        // An old hint of the partition, then many of partitions that are gone, to be busy with.
        observer
            .run(
                "INSERT INTO queen.ready SELECT gid, clock_timestamp() - interval '2 seconds', pid FROM queen.cursor;
                 INSERT INTO queen.ready SELECT gid, clock_timestamp() - interval '1 second', 1000000 + n
                   FROM queen.subscription, generate_series(1, 2000) n",
            )
            .await;
        let popper = Session::open(shared_cluster(), &db).await;
        holder.run(HOLD).await;
        // Its stamp, and so its hint's, is older than the pop.
        let append = start_append(pusher, observer, &format!("m{round}")).await;
        let pop = popper.start("SELECT transaction_id FROM queen.pop('q', 'g', auto_ack => true)");
        // Late enough that the pop has passed the old hint, soon enough that it is busy with the others.
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        holder.run("COMMIT").await;
        append.end().await;
        let mut found = pop.end().await.len();
        let next = Session::open(shared_cluster(), &db).await;
        found += next.pop("'q', 'g', auto_ack => true").await.len();
        assert_eq!(found, 1, "round {round}: the message has no hint");
    }
}

/// Retention empties a partition in front of a group, a pop comes by and drops the hint, and all that while an append has
/// read the end of the partition before: it does not hint, since a group that is behind there has one.
async fn emptied_while_an_append_is_on_its_way(first_contact: bool) {
    let (_, s) = sessions(5).await;
    let [observer, holder, second, pusher, popper] = s.as_slice() else { unreachable!() };
    observer.run(r#"SELECT queen.configure('q', '{"maxWaitTimeSeconds": 100}')"#).await;
    observer.pop("'q', 'g', subscription_mode => 'all'").await;
    observer.append("q", "Default", &["one"]).await;
    observer.append("q", "Default", &["two"]).await;
    if !first_contact {
        assert_eq!(popper.pop("'q', 'g', auto_ack => true").await.len(), 1);
    }
    observer.run("UPDATE queen.segment SET created_at = created_at - interval '1 hour'").await;

    holder.run(HOLD).await;
    let (hold, waits) = second.start_and_watch(observer, HOLD).await;
    assert!(waits);
    let append = start_append(pusher, observer, "three").await;
    holder.run("SELECT queen.maintain()").await;
    holder.run("COMMIT").await;
    hold.end().await;
    // Nothing is there now, and nothing that is not committed either.
    assert_eq!(popper.pop("'q', 'g'").await, []);
    second.run("COMMIT").await;
    append.end().await;
    let got = popper.pop("'q', 'g', auto_ack => true").await;
    assert_eq!(got.len(), 1, "the message has no hint");
    assert_eq!(got[0].transaction_id, "three");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pop_that_finds_a_partition_emptied_by_retention_leaves_no_append_without_a_hint() {
    emptied_while_an_append_is_on_its_way(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_pop_that_finds_a_partition_emptied_by_retention_leaves_no_append_without_a_hint() {
    emptied_while_an_append_is_on_its_way(true).await;
}
