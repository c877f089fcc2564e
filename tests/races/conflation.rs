//! A conflating group beside producers: whatever comes between, the newest message of each partition is found.

use queen_tests::session::{Session, describe};
use queen_tests::shared_cluster;

const PARTITIONS: [&str; 3] = ["a", "b", "c"];
const PUSHES: usize = 120;

// Its hints are those of any group: one that is lost leaves the newest message unseen for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_message_is_always_found_in_the_end() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut s = Vec::new();
    for _ in 0..5 {
        s.push(Session::open(cluster, &db).await);
    }
    let [producer, other, consumer, second, observer] = s.as_slice() else { unreachable!() };
    observer.run("SELECT queen.pop('q', 'g', conflation => true, subscription_mode => 'all')").await;
    let push = |who: &str| {
        let lanes = PARTITIONS.map(|p| format!("'{p}'")).join(", ");
        format!(
            "DO $$ BEGIN FOR n IN 1..{PUSHES} LOOP
                 PERFORM queen.push('q', '1', (ARRAY[{lanes}])[1 + n % 3], '{who}' || n); COMMIT;
             END LOOP; END $$"
        )
    };
    // Settles what it gets, gives some of it back, and stops when there was nothing for a while.
    let consume = |give_up: usize| {
        format!(
            "DO $$ DECLARE m queen.message; idle int := 0; turn int := 0; BEGIN
               WHILE idle < {give_up} LOOP
                 idle := idle + 1;
                 FOR m IN SELECT * FROM queen.pop('q', 'g', 9, max_partitions => 0, lease_seconds => 3600) LOOP
                   idle := 0;
                   turn := turn + 1;
                   PERFORM queen.ack(m.partition_id, m.transaction_id, CASE WHEN turn % 5 = 0 THEN 'retry' END, 'g', m.lease_id);
                 END LOOP;
                 COMMIT;
               END LOOP;
             END $$"
        )
    };
    let running = [
        producer.start(&push("p")),
        other.start(&push("o")),
        consumer.start(&consume(300)),
        second.start(&consume(300)),
    ];
    for call in running {
        if let Err(e) = call.try_end().await {
            panic!("{}", describe(&e));
        }
    }
    observer.run(&consume(2)).await;
    let left = observer
        .rows(
            "SELECT p.name, (SELECT committed FROM queen.cursor c WHERE c.pid = p.pid ORDER BY seq DESC LIMIT 1), x.last_offset
               FROM queen.partition p JOIN queen.partitions x USING (partition_id)",
        )
        .await;
    assert_eq!(left.len(), PARTITIONS.len());
    for row in left {
        assert_eq!(row[1], row[2], "partition {:?} has something that nobody is told of", row[0]);
    }
}
