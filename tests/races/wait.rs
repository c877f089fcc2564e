//! `CALL queen.wait`: woken by commits, asleep without a snapshot.

use queen_tests::session::{Session, sqlstate};
use queen_tests::shared_cluster;
use std::time::{Duration, Instant};

/// A timeout that nobody wants to see pass.
const LONG: Duration = Duration::from_secs(40);

async fn sessions(n: usize) -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        sessions.push(Session::open(cluster, &db).await);
    }
    sessions[0].append("q", "Default", &["old"]).await;
    sessions[0].pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
    sessions
}

fn call(timeout: Duration) -> String {
    format!("CALL queen.wait('q', 'g', {})", timeout.as_millis())
}

/// Comes back when the backend sleeps in `queen.wait`.
async fn asleep(observer: &Session, pid: i32) {
    let begun = Instant::now();
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Extension'");
    while observer.number(&sql).await == 0 {
        assert!(begun.elapsed() < LONG / 2, "the waiter does not sleep");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_wakes_every_waiter_long_before_its_timeout() {
    let s = sessions(4).await;
    let (first, second) = (s[1].start(&call(LONG)), s[2].start(&call(LONG)));
    asleep(&s[0], s[1].pid).await;
    asleep(&s[0], s[2].pid).await;
    let begun = Instant::now();
    s[3].run("SELECT queen.push('q', '{}')").await;
    for waiter in [first, second] {
        assert_eq!(waiter.end().await, vec![vec![Some("t".to_owned())]]);
    }
    assert!(begun.elapsed() < LONG / 4, "{:?} from the commit to the answers", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_has_not_committed_or_is_rolled_back_wakes_nobody() {
    let s = sessions(3).await;
    s[1].run("BEGIN; SELECT queen.push('q', '{}')").await;
    let waiter = s[2].start(&call(Duration::from_millis(700)));
    asleep(&s[0], s[2].pid).await;
    s[1].run("ROLLBACK").await;
    assert_eq!(waiter.end().await, vec![vec![Some("f".to_owned())]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_with_nothing_to_find_answers_false_after_its_timeout() {
    let s = sessions(1).await;
    let timeout = Duration::from_millis(300);
    let begun = Instant::now();
    assert_eq!(s[0].one(&call(timeout)).await, "f");
    assert!(begun.elapsed() >= timeout);
    // Zero looks once.
    assert_eq!(s[0].one(&call(Duration::ZERO)).await, "f");
    s[0].append("q", "Default", &["new"]).await;
    assert_eq!(s[0].one(&call(Duration::ZERO)).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_claims_nothing_and_holds_no_snapshot_and_no_lock() {
    let s = sessions(3).await;
    let waiter = s[1].start(&call(LONG));
    asleep(&s[0], s[1].pid).await;
    let row = s[0]
        .rows(&format!(
            "SELECT backend_xmin, backend_xid,
                    (SELECT count(*) FROM pg_locks WHERE pid = {0} AND locktype <> 'virtualxid')
               FROM pg_stat_activity WHERE pid = {0}",
            s[1].pid
        ))
        .await;
    assert_eq!(row, vec![vec![None, None, Some("0".to_owned())]]);
    s[2].append("q", "Default", &["new"]).await;
    assert_eq!(waiter.end().await, vec![vec![Some("t".to_owned())]]);
    // Somebody else gets it.
    assert_eq!(s[2].pop("'q', 'g'").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lease_wakes_a_waiter() {
    let s = sessions(3).await;
    s[0].append("q", "Default", &["new"]).await;
    let leased = s[0].pop("'q', 'g', lease_seconds => 3600").await;
    let waiter = s[1].start(&call(LONG));
    asleep(&s[0], s[1].pid).await;
    let begun = Instant::now();
    let lease = leased[0].lease.clone().expect("a lease");
    s[0].run(&format!("SELECT queen.release('{lease}')")).await;
    assert_eq!(waiter.end().await, vec![vec![Some("t".to_owned())]]);
    assert!(begun.elapsed() < LONG / 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_can_be_cancelled_and_its_session_goes_on() {
    let s = sessions(2).await;
    let waiter = s[1].start(&call(LONG));
    asleep(&s[0], s[1].pid).await;
    s[0].run(&format!("SELECT pg_cancel_backend({})", s[1].pid)).await;
    let error = waiter.try_end().await.expect_err("cancelled");
    assert_eq!(sqlstate(&error), "57014");
    s[0].append("q", "Default", &["new"]).await;
    assert_eq!(s[1].one(&call(LONG)).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_reads_options_that_the_server_keeps_out_of_line() {
    let s = sessions(1).await;
    // What compression cannot shorten, and longer than a row may be.
    s[0].run(
        "SELECT queen.configure('q', jsonb_build_object(
             'namespace', (SELECT string_agg(chr(131072 + (n * 7919) % 40000), '') FROM generate_series(1, 255) n),
             'task', (SELECT string_agg(chr(131072 + (n * n * 31) % 40000), '') FROM generate_series(1, 255) n)))",
    )
    .await;
    let toast = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'queen.queue'::regclass";
    assert!(s[0].number(toast).await > 0, "the options are kept with the row");
    // Long enough to look again after a commit in between.
    assert_eq!(s[0].one(&call(Duration::from_millis(1200))).await, "f");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_inside_a_transaction_block_is_refused() {
    let s = sessions(1).await;
    s[0].run("BEGIN").await;
    let error = s[0].try_rows(&call(LONG)).await.expect_err("in a block");
    assert_eq!(sqlstate(&error), "25001");
    s[0].run("ROLLBACK").await;
    let error = s[0]
        .try_rows("DO $$ DECLARE ready boolean; BEGIN CALL queen.wait('q', 'g', 10, ready); END $$; SELECT 1")
        .await
        .expect_err("in an implicit block");
    assert_eq!(sqlstate(&error), "25001");
}
