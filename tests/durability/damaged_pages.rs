//! A page that cannot be read is an error of who meets it, in the middle of a scan, and nobody else's end.

use queen_tests::Cluster;
use queen_tests::session::{Session, sqlstate};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const PAGE: usize = 8192;

/// Relations that a pop reads, each with what it reads first.
const RELATIONS: [&str; 7] =
    ["ready", "ready_gid_due_at_pid_idx", "partition", "partition_qid_pid_idx", "cursor", "cursor_pkey", "segment"];

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_fails_the_call_that_meets_it_and_ends_no_session() {
    let cluster = Cluster::start();
    let db = cluster.fresh_database().await;
    let session = Session::open(&cluster, &db).await;
    session
        .run(
            "SELECT count(*) FROM queen.push_batch((SELECT json_agg(json_build_object('queue', 'q', 'partition', n, 'payload', n))
                                                      FROM (SELECT n::text FROM generate_series(1, 600) n) n))",
        )
        .await;
    // So that there are cursors and hints, used up and not.
    session.pop("'q', 'g', 300, max_partitions => 300, lease_seconds => 3600, subscription_mode => 'all'").await;
    for relation in RELATIONS {
        let session = Session::open(&cluster, &db).await;
        let path = session.one(&format!("SELECT pg_relation_filepath('queen.{relation}')")).await;
        let blocks = session.number(&format!("SELECT pg_relation_size('queen.{relation}') / {PAGE}")).await as usize;
        drop(session);
        cluster.stop_fast();
        let file = OpenOptions::new().read(true).write(true).open(cluster.data().join(path)).expect("the file");
        let mut before = vec![0; blocks * PAGE];
        file.read_exact_at(&mut before, 0).expect("the pages");
        // A scan that comes from a page that is whole holds more than one that begins.
        for page in usize::from(blocks > 1)..blocks {
            file.write_all_at(&[0xee; 24], (page * PAGE) as u64).expect("damage");
        }
        cluster.restart();
        let (other, session) = (Session::open(&cluster, &db).await, Session::open(&cluster, &db).await);
        let mut met = 0;
        for pop in
            ["'q', 'g', 600, max_partitions => 0", "'q', 'h', 600, max_partitions => 0, subscription_mode => 'all'"]
        {
            for call in
                [format!("SELECT * FROM queen.pop({pop})"), "SELECT queen.renew_lease(gen_random_uuid())".into()]
            {
                if let Err(error) = session.try_rows(&call).await {
                    assert_eq!(sqlstate(&error), "XX001", "{relation}, {call}: {error:?}");
                    met += 1;
                }
            }
        }
        assert!(met > 0, "{relation}: nobody has met the damage");
        assert_eq!(other.one("SELECT 'here'").await, "here", "{relation}");
        drop((other, session));
        cluster.stop_fast();
        file.write_all_at(&before, 0).expect("repair");
        cluster.restart();
    }
    assert!(!cluster.log().contains("terminated by signal"), "a process has crashed");
    assert!(Session::open(&cluster, &db).await.rows("SELECT * FROM queen.verify()").await.is_empty());
}
