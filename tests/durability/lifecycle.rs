//! Restarts, a server that did not preload the library, dropping the extension under a live session.

use queen_tests::session::{Session, sqlstate};
use queen_tests::{Cluster, shared_cluster};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything() {
    let cluster = Cluster::start();
    let db = cluster.fresh_database().await;
    let tables =
        "queue partition segment trimmed transaction_id subscription cursor ready dead_letter_record dlq_tally";
    let state = |s: Session| async move {
        let mut state = Vec::new();
        for table in tables.split(' ') {
            let sql = format!("SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM queen.{table} t");
            state.push((table, s.rows(&sql).await));
        }
        state
    };
    let s = Session::open(&cluster, &db).await;
    s.append("q", "one", &["m0", "m1", "m2"]).await;
    s.run("SELECT queen.push('q', '{\"a\": 1}', 'two', 'deferred', headers => '{\"h\": 1}')").await;
    let got = s.pop("'q', 'g', 1, 'one', subscription_mode => 'all'").await;
    let lease = got[0].lease.clone().expect("a lease");
    s.run(&format!("SELECT queen.nack('{lease}', 'm0', 'no', 'dlq')")).await;
    let held = s.pop("'q', 'g', 2, 'one', lease_seconds => 86400").await;
    let before = state(s).await;
    cluster.stop_fast();
    cluster.restart();
    let s = Session::open(&cluster, &db).await;
    assert_eq!(state(s.clone()).await, before);
    let lease = held[0].lease.as_deref().expect("a lease");
    assert_eq!(s.number(&format!("SELECT queen.ack_lease('{lease}')")).await, 2);
    let got = s.pop("'q', 'g', 10").await;
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].transaction_id, "deferred");
    assert_eq!(s.rows("SELECT * FROM queen.verify()").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_a_transaction_that_a_crash_interrupts_leave_nothing() {
    let cluster = Cluster::durable();
    let db = cluster.fresh_database().await;
    let s = Session::open(&cluster, &db).await;
    s.append("q", "Default", &["before"]).await;
    s.run(
        "BEGIN; SELECT queen.push('q', '0', transaction_id => 'deferred'); SELECT queen.flush();
           SELECT queen.push('q', '0', transaction_id => 'pending')",
    )
    .await;
    let t = Session::open(&cluster, &db).await;
    t.run("BEGIN; SELECT queen.push('q', '0', 'p', 'prepared'); PREPARE TRANSACTION 'survives'").await;
    cluster.stop_immediate();
    cluster.restart();
    let s = Session::open(&cluster, &db).await;
    s.append("q", "Default", &["after"]).await;
    s.run("COMMIT PREPARED 'survives'").await;
    let stored = s.stored("q").await;
    assert_eq!(stored["Default"], ["before", "after"], "offsets stay dense");
    assert_eq!(stored["p"], ["prepared"], "a prepared transaction survives a crash with its pushes");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_preloading_everything_works_and_wait_polls() {
    let cluster = Cluster::start_with(&[("shared_preload_libraries", "")]);
    let db = cluster.empty_database();
    let s = Session::open(&cluster, &db).await;
    s.run("CREATE EXTENSION queen").await;
    // A session that has not loaded the library by any other call first: a deferred push as its first.
    let first = Session::open(&cluster, &db).await;
    first.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'one'); COMMIT").await;
    first.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'undone'); ROLLBACK").await;
    s.append("q", "Default", &["two"]).await;
    assert_eq!(s.stored("q").await["Default"], ["one", "two"]);

    let got = s.pop("'q', 'g', 10, subscription_mode => 'all'").await;
    let lease = got[0].lease.clone().expect("a lease");
    let answer = s
        .rows(&format!(
            r#"SELECT success, dlq FROM queen.ack_batch('[{{"transactionId": "one", "partitionId": "{0}", "leaseId": "{lease}"}},
                {{"transactionId": "two", "partitionId": "{0}", "leaseId": "{lease}", "status": "dlq"}}]', 'g')"#,
            got[0].partition_id
        ))
        .await;
    let text = |t: &str| Some(t.to_owned());
    assert_eq!(answer, vec![vec![text("t"), text("f")], vec![text("t"), text("t")]]);
    let id = s.one("SELECT id FROM queen.dlq('q')").await;
    assert_eq!(s.one(&format!("SELECT queen.dlq_move_v1('{id}')->>'result'")).await, "moved");
    assert_eq!(s.pop("'q', 'g', auto_ack => true").await.len(), 1);
    s.run("SELECT queen.maintain()").await;
    assert_eq!(s.rows("SELECT * FROM queen.verify()").await.len(), 0);

    let begun = Instant::now();
    assert_eq!(s.one("CALL queen.wait('q', 'g', 200)").await, "f");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    let long = Duration::from_secs(40);
    let waiter = s.start(&format!("CALL queen.wait('q', 'g', {})", long.as_millis()));
    let begun = Instant::now();
    let asleep =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Extension'", s.pid);
    while first.number(&asleep).await == 0 {
        assert!(begun.elapsed() < long / 2, "the waiter does not sleep");
    }
    let begun = Instant::now();
    first.append("q", "Default", &["three"]).await;
    assert_eq!(waiter.end().await, vec![vec![text("t")]]);
    assert!(begun.elapsed() < long / 4);
}

/// The backend remembered where the tables of the dropped extension were.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_sees_the_extension_dropped_and_created_again_goes_on() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let (a, b) = (Session::open(cluster, &db).await, Session::open(cluster, &db).await);
    for round in 0..3 {
        for s in [&a, &b] {
            s.append("q", "Default", &[&format!("{}-{round}", s.pid)]).await;
            s.run(&format!("BEGIN; SELECT queen.push('q', '0', transaction_id => 'd{}-{round}'); COMMIT", s.pid)).await;
        }
        assert_eq!(a.stored("q").await["Default"].len(), 4, "round {round}: nothing of an earlier life");
        let got = b.pop("'q', 'g', 10, subscription_mode => 'all'").await;
        assert_eq!(got.len(), 4);
        let lease = got[0].lease.as_deref().expect("a lease");
        assert_eq!(a.number(&format!("SELECT queen.ack_lease('{lease}')")).await, 4);
        a.run("DROP EXTENSION queen").await;
        let error = b.try_pop("'q', 'g'").await.expect_err("dropped");
        assert!(["3F000", "42883"].contains(&sqlstate(&error)), "{error:?}");
        a.run("CREATE EXTENSION queen").await;
        assert_eq!(b.pop("'q', 'g'").await, vec![]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_pending_when_the_extension_is_dropped_fails_its_commit_and_not_the_session() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let a = Session::open(cluster, &db).await;
    a.append("q", "Default", &["old"]).await;
    a.run("BEGIN; SELECT queen.push('q', '0'); DROP EXTENSION queen").await;
    a.try_rows("COMMIT").await.expect_err("its tables are gone");
    // The drop was undone with the rest.
    assert_eq!(a.stored("q").await["Default"], ["old"]);
    a.append("q", "Default", &["new"]).await;
    assert_eq!(a.stored("q").await["Default"], ["old", "new"]);
}
