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

// The hint stayed for ever: what it was about is behind the cursor's end and before the log's start.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_ready_once_a_pop_has_seen_that_retention_emptied_a_partition_before_the_group_had_read_it() {
    for read in [0, 1] {
        let s = sessions(1).await;
        s[0].run(r#"SELECT queen.configure('q', '{"maxWaitTimeSeconds": 100}')"#).await;
        // A group that has read nothing has no cursor, another one has.
        let group = "'h', 1, max_partitions => 0, auto_ack => true, subscription_mode => 'all'";
        s[0].pop(&format!("'empty', {group}")).await;
        s[0].run(r#"SELECT queen.configure('empty', '{"maxWaitTimeSeconds": 100}')"#).await;
        s[0].append("empty", "Default", &["one"]).await;
        s[0].append("empty", "Default", &["two"]).await;
        for _ in 0..read {
            assert_eq!(s[0].pop(&format!("'empty', {group}")).await.len(), 1);
        }
        s[0].run("UPDATE queen.segment SET created_at = created_at - interval '1 hour'; SELECT queen.maintain()").await;
        assert_eq!(s[0].pop(&format!("'empty', {group}")).await, []);
        let ready = "CALL queen.wait('empty', 'h', 0)";
        assert_eq!(s[0].one(ready).await, "f", "{read} of 2 read");
        s[0].append("empty", "Default", &["three"]).await;
        assert_eq!(s[0].one(ready).await, "t");
        assert_eq!(s[0].pop(&format!("'empty', {group}")).await[0].transaction_id, "three");
    }
}

/// How often a backend has gone to sleep so far.
fn sleeps(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the backend's status");
    let line = status.lines().find(|l| l.starts_with("voluntary_ctxt_switches")).expect("its switches");
    line.split_whitespace().last().and_then(|n| n.parse().ok()).expect("a number")
}

// A backend that is terminated unwinds nothing: its place in shared memory still said that it waits, and every commit woke
// whoever came to be there after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_waiter_leaves_nobody_in_its_place_to_be_woken() {
    let cluster = queen_tests::Cluster::start();
    let db = cluster.fresh_database().await;
    let (pusher, waiter) = (Session::open(&cluster, &db).await, Session::open(&cluster, &db).await);
    pusher.append("q", "Default", &["old"]).await;
    pusher.pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
    let pid = waiter.pid;
    let waiting = waiter.start(&call(LONG));
    asleep(&pusher, pid).await;
    pusher.terminate(pid).await;
    waiting.try_end().await.expect_err("terminated");
    // Whoever comes next takes free places, the terminated one's among them.
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(Session::open(&cluster, &db).await);
    }
    let all = || idle.iter().map(|s| sleeps(s.pid)).sum::<u64>();
    let before = all();
    let pushes = 200;
    for _ in 0..pushes {
        pusher.run("SELECT queen.push('q', '{}')").await;
    }
    let woken = all() - before;
    assert!(woken < pushes / 10, "{woken} times for {pushes} pushes");
}
