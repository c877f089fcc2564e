//! A replay plan outlives the server: killed in the middle, again and again, it ends with each message moved once.
//!
//! `QUEEN_REPLAY_RECORDS=100000 QUEEN_REPLAY_RATE=500` runs it in full size, by hand.

use queen_tests::Cluster;
use queen_tests::session::Session;
use std::sync::Arc;
use std::time::Duration;

fn size(variable: &str, default: i64) -> i64 {
    std::env::var(variable).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Calls the runner until the server goes away or the plan ends.
async fn runner(cluster: Arc<Cluster>, db: String) {
    let session = Session::open(&cluster, &db).await;
    while let Ok(rows) = session.try_rows("CALL queen.run_replays(1000)").await {
        if rows[0][0].as_deref().unwrap_or_default().contains("\"running\": false") {
            return;
        }
    }
}

async fn crash(cluster: &Arc<Cluster>) {
    let cluster = cluster.clone();
    let crash = move || {
        cluster.stop_immediate();
        cluster.restart();
    };
    tokio::task::spawn_blocking(crash).await.expect("a crash");
}

const OUTCOMES: &str = "moved + duplicate + failed + gone + refused";

async fn plan_for(session: &Session, records: i64, rate: i64) {
    session.run("SELECT queen.push('work', '0', transaction_id => 'first')").await;
    session
        .run(
            "SELECT queen.nack(p.lease_id, p.transaction_id, 'boom', 'dlq')
               FROM queen.pop('work', 'g', subscription_mode => 'all') p",
        )
        .await;
    session
        .run(&format!(
            "INSERT INTO queen.dead_letter_record
             SELECT (jsonb_populate_record(r, jsonb_build_object(
                        'id', gen_random_uuid(), 'at_offset', 1000000 + i, 'message_id', gen_random_uuid(),
                        'transaction_id', 't' || i))).*
               FROM queen.dead_letter_record r, generate_series(1, {records} - 1) i"
        ))
        .await;
    let plan = format!(
        "SELECT queen.dlq_run((queen.dlq_plan('r', 'c', filter => '{{\"queue\": \"work\"}}', rate => {rate}, canary => 0,
                              max_records => 1000000) ->> 'planId')::uuid)"
    );
    session.run(&plan).await;
}

/// Each record is one message, the plan's counts are those of its items, and the audit has them all.
async fn check(session: &Session, records: i64) {
    let plan = session.rows(&format!("SELECT state, moved, {OUTCOMES} FROM queen.replay_plan")).await;
    let expected = [Some("done".to_owned()), Some(records.to_string()), Some(records.to_string())];
    assert_eq!(plan[0], expected);
    let moved =
        "SELECT transaction_id FROM queen.messages('work', max_rows => 2000000) WHERE transaction_id LIKE 'dlq:%'";
    let counts = session.rows(&format!("SELECT count(*), count(DISTINCT transaction_id) FROM ({moved}) m")).await;
    assert_eq!(counts[0], [Some(records.to_string()), Some(records.to_string())], "each exactly once");
    for sql in [
        "SELECT count(*) FROM queen.replay_item WHERE state = 'moved'",
        "SELECT count(*) FROM queen.dead_letter_record WHERE status = 'replayed'",
        "SELECT count(*) FROM queen.dlq_event WHERE action = 'replay_moved'",
    ] {
        assert_eq!(session.number(sql).await, records, "{sql}");
    }
    assert!(session.rows("SELECT * FROM queen.verify()").await.is_empty());
}

/// In no second more than the rate and a tenth, by the clock of the messages.
async fn check_seconds(session: &Session, rate: i64) {
    let most = session
        .number(
            "SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY done_at
                 RANGE BETWEEN interval '0.999 s' PRECEDING AND CURRENT ROW) AS n FROM queen.replay_item) w",
        )
        .await;
    assert!(most * 10 <= rate * 11, "{most} in one second at {rate}/s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_survives_kills_of_the_server_and_moves_each_message_once() {
    let (records, rate) = (size("QUEEN_REPLAY_RECORDS", 1500), size("QUEEN_REPLAY_RATE", 500));
    let cluster = Arc::new(Cluster::durable());
    let db = cluster.fresh_database().await;
    plan_for(&Session::open(&cluster, &db).await, records, rate).await;
    for round in 0..4 {
        let runners =
            [tokio::spawn(runner(cluster.clone(), db.clone())), tokio::spawn(runner(cluster.clone(), db.clone()))];
        tokio::time::sleep(Duration::from_millis(300 + 70 * round)).await;
        crash(&cluster).await;
        for runner in runners {
            runner.await.expect("a runner");
        }
        let session = Session::open(&cluster, &db).await;
        let sums = session
            .rows(&format!(
                "SELECT {OUTCOMES} = next_n, next_n = (SELECT count(*) FROM queen.replay_item WHERE state <> 'planned')
                   FROM queen.replay_plan"
            ))
            .await;
        assert_eq!(sums[0], [Some("t".to_owned()), Some("t".to_owned())], "round {round}");
    }
    runner(cluster.clone(), db.clone()).await;
    let session = Session::open(&cluster, &db).await;
    check(&session, records).await;
    check_seconds(&session, rate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_is_kept_within_a_twentieth() {
    let (records, rate) = (size("QUEEN_REPLAY_RECORDS", 1500), size("QUEEN_REPLAY_RATE", 300));
    let cluster = Arc::new(Cluster::durable());
    let db = cluster.fresh_database().await;
    let session = Session::open(&cluster, &db).await;
    plan_for(&session, records, rate).await;
    runner(cluster.clone(), db.clone()).await;
    check(&session, records).await;
    check_seconds(&session, rate).await;
    // From the first message to the last, in thousandths of what the rate says; and the same without the time in which
    // the machine let the runner do nothing, as a short run on a busy one has little time to make up for that.
    let share = |without: &str| {
        format!(
            "SELECT round(1000 * sum(n) / {rate} / extract(epoch FROM sum({without})))
               FROM (SELECT count(*) AS n, done_at - lag(done_at) OVER (ORDER BY done_at) AS gap
                       FROM queen.replay_item GROUP BY done_at) batch WHERE gap IS NOT NULL"
        )
    };
    let all = session.number(&share("gap")).await;
    let awake = session.number(&share("least(gap, interval '100 ms')")).await;
    assert!(all <= 1050, "{all} thousandths of the rate");
    assert!(awake >= 950, "{awake} thousandths of the rate, {all} with the time that it did not get");
    if records / rate >= 60 {
        assert!(all >= 950, "{all} thousandths of the rate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_worker_runs_plans_and_goes_on_after_a_kill() {
    let cluster = Arc::new(Cluster::durable());
    let db = cluster.fresh_database().await;
    cluster.configure(&[("queen.worker_databases", &format!("no_such_database, {db}"))]);
    crash(&cluster).await;
    plan_for(&Session::open(&cluster, &db).await, 300, 200).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    crash(&cluster).await;
    let session = Session::open(&cluster, &db).await;
    let begun = std::time::Instant::now();
    while session.one("SELECT state FROM queen.replay_plan").await != "done" {
        assert!(begun.elapsed() < queen_tests::session::PATIENCE, "the worker does not go on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    check(&session, 300).await;
    check_seconds(&session, 200).await;
}
