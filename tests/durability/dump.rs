//! pg_dump and pg_restore of a database with data.

use queen_tests::session::Session;
use queen_tests::shared_cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_goes_on_where_the_dumped_one_was() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let a = Session::open(cluster, &db).await;
    a.run(r#"SELECT queen.configure('q', '{"retryLimit": 1, "leaseTime": 1234}')"#).await;
    for lane in ["one", "two"] {
        a.append("q", lane, &["m0", "m1", "m2"]).await;
    }
    // A group in the middle of each lane, a charged failure, a dead letter, a live lease, a trimmed front.
    a.pop("'q', 'g', subscription_mode => 'all'").await;
    a.run("SELECT queen.release(lease_id) FROM queen.cursor WHERE lease_id IS NOT NULL").await;
    let got = a.pop("'q', 'g', 1, 'one'").await;
    let lease = got[0].lease.clone().expect("a lease");
    a.run(&format!("SELECT queen.nack('{lease}', 'm0', 'broken', 'dlq')")).await;
    let got = a.pop("'q', 'g', 1, 'one'").await;
    let lease = got[0].lease.clone().expect("a lease");
    a.run(&format!("SELECT queen.nack('{lease}', 'm1', 'once')")).await;
    let held = a.pop("'q', 'g', 2, 'two', lease_seconds => 86400").await;
    let dead = a.one("SELECT id FROM queen.dlq('q')").await;
    a.run("SELECT queen.record_trace(partition_id, 'm0', '{\"step\": 1}', trace_names => '{n}') FROM queen.partitions")
        .await;

    let file = cluster.pg_dump(&db, &[]);
    let copy = cluster.empty_database();
    cluster.pg_restore(&file, &copy, &[]);
    let b = Session::open(cluster, &copy).await;

    for table in [
        "queue",
        "partition",
        "segment",
        "trimmed",
        "transaction_id",
        "subscription",
        "cursor",
        "ready",
        "dead_letter_record",
        "trace",
        "trace_name",
        "dlq_tally",
        "dlq_tally_filed",
    ] {
        let sql = format!("SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM queen.{table} t");
        assert_eq!(a.rows(&sql).await, b.rows(&sql).await, "queen.{table}");
    }
    assert_eq!(b.rows("SELECT * FROM queen.verify()").await.len(), 0);

    // The lease of the dumped database is good in the restored one, the charged failure counts: the next is the last.
    let lease = held[0].lease.as_deref().expect("a lease");
    assert_eq!(b.number(&format!("SELECT queen.ack_lease('{lease}')")).await, 2);
    let again = b.pop("'q', 'g', 1, 'one'").await;
    assert_eq!((again[0].transaction_id.as_str(), again[0].attempt), ("m1", 2));
    let lease = again[0].lease.as_deref().expect("a lease");
    let verdict = b.rows(&format!("SELECT dlq FROM queen.nack('{lease}', 'm1', 'twice')")).await;
    assert_eq!(verdict, vec![vec![Some("t".to_owned())]]);

    // New rows do not collide with old ones.
    b.append("q", "one", &["m1", "m3"]).await;
    b.append("q", "three", &["x"]).await;
    b.append("new queue", "one", &["x"]).await;
    b.pop("'q', 'another group', 100, max_partitions => 0, subscription_mode => 'all', auto_ack => true").await;
    let stored = b.stored("q").await;
    assert_eq!(stored["one"], ["m0", "m1", "m2", "m3"], "the old id is a duplicate still");
    let verdict = b.one(&format!("SELECT queen.dlq_move_v1('{dead}')->>'result'")).await;
    assert_eq!(verdict, "moved");
    let got: Vec<String> = {
        let mut ids = Vec::new();
        loop {
            let got = b.pop("'q', 'g', 100, max_partitions => 0, auto_ack => true").await;
            if got.is_empty() {
                break ids;
            }
            ids.extend(got.into_iter().map(|m| format!("{} {}", m.partition, m.transaction_id)));
        }
    };
    let moved = format!("one dlq:{dead}");
    for expected in ["one m2", "one m3", "two m2", "three x", &moved] {
        assert_eq!(got.iter().filter(|g| *g == expected).count(), 1, "{expected} in {got:?}");
    }
    assert_eq!(got.len(), 5, "{got:?}");
    assert_eq!(b.rows("SELECT * FROM queen.verify()").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_without_data_restores_an_empty_broker_that_works() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let a = Session::open(cluster, &db).await;
    a.append("q", "one", &["m0"]).await;
    let file = cluster.pg_dump(&db, &["--schema-only"]);
    let copy = cluster.empty_database();
    cluster.pg_restore(&file, &copy, &[]);
    let b = Session::open(cluster, &copy).await;
    assert_eq!(b.stored("q").await.len(), 0);
    b.append("q", "one", &["m0"]).await;
    assert_eq!(b.pop("'q', 'g', subscription_mode => 'all'").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_beside_traffic_is_consistent() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = Vec::new();
    for n in 0..2 {
        let (session, stop) = (Session::open(cluster, &db).await, stop.clone());
        tasks.push(tokio::spawn(async move {
            for i in 0.. {
                if stop.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                session.append("q", &format!("p{}", i % 3), &[&format!("{n}-{i}")]).await;
                session.pop("'q', 'g', 2, max_partitions => 2, auto_ack => true, subscription_mode => 'all'").await;
            }
        }));
    }
    let observer = Session::open(cluster, &db).await;
    while observer.number("SELECT count(*) FROM queen.segment").await < 50 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let file = {
        let db = db.clone();
        tokio::task::spawn_blocking(move || cluster.pg_dump(&db, &[])).await.expect("pg_dump")
    };
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    for task in tasks {
        task.await.expect("traffic");
    }
    let copy = cluster.empty_database();
    cluster.pg_restore(&file, &copy, &[]);
    let b = Session::open(cluster, &copy).await;
    assert_eq!(b.rows("SELECT * FROM queen.verify()").await.len(), 0);
    let pending = b.number("SELECT sum(pending) FROM queen.consumer_groups").await;
    let mut found = 0;
    loop {
        let got = b.pop("'q', 'g', 100, max_partitions => 0, auto_ack => true").await.len() as i64;
        if got == 0 {
            break;
        }
        found += got;
    }
    assert_eq!(found, pending, "what was pending in the dump is found");
    assert!(b.stored("q").await.values().map(Vec::len).sum::<usize>() >= 50);
}
