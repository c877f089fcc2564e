//! Calls that are cancelled in the middle: they end with 57014, and nothing else does.

use crate::registration::sessions;
use queen_tests::session::{Session, sqlstate};
use queen_tests::shared_cluster;

const PARTITIONS: usize = 2000;
const TRIES: u64 = 120;

/// Hints that were used up lie in front of those that were not: a new session passes them all, which takes time.
#[tokio::test(flavor = "multi_thread")]
async fn a_pop_that_is_cancelled_while_it_looks_for_a_hint_ends_no_other_session() {
    let s = sessions(1).await;
    let db = s[0].one("SELECT current_database()").await;
    s[0].run(&format!(
        "SELECT count(*) FROM queen.push_batch((SELECT json_agg(json_build_object('queue', 'q', 'partition', n::text, 'payload', n))
                                                  FROM generate_series(1, {PARTITIONS}) n))"
    ))
    .await;
    s[0].run(
        "DO $$ DECLARE l uuid; BEGIN
           FOR n IN 1..60 LOOP
             SELECT lease_id INTO l FROM queen.pop('q', 'g', batch => 200, max_partitions => 200, subscription_mode => 'all') LIMIT 1;
             PERFORM queen.release(l);
           END LOOP;
         END $$",
    )
    .await;
    let mut cancelled = 0;
    for n in 0..TRIES {
        let session = Session::open(shared_cluster(), &db).await;
        session.run(&format!("SET statement_timeout = {}", 1 + n % 4)).await;
        match session.try_rows("SELECT count(*) FROM queen.pop('q', 'g')").await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(sqlstate(&error), "57014", "try {n}: {error:?}");
                cancelled += 1;
            }
        }
        assert_eq!(session.one("SET statement_timeout = 0; SELECT 'here'").await, "here", "try {n}");
    }
    assert!(cancelled > 0, "no call was cancelled");
    assert_eq!(s[0].one("SELECT 'here'").await, "here");
}
