//! `CALL queen.wait_changes`: one session that hears of every commit.

use queen_tests::session::{PATIENCE, Session, batch, sqlstate};
use queen_tests::{Cluster, SUPERUSER, shared_cluster};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A timeout that nobody wants to see pass, in milliseconds.
const LONG: u64 = 40_000;

async fn sessions(n: usize) -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        sessions.push(Session::open(cluster, &db).await);
    }
    sessions
}

/// What an answer says.
#[derive(Debug)]
struct Changes {
    position: String,
    /// None: anything may have happened.
    queues: Option<Vec<String>>,
}

fn parse(text: &str) -> Changes {
    let answer: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"));
    let queues = answer["queues"].as_array().map(|queues| {
        let name = |q: &serde_json::Value| q["queue"].as_str().expect("a name").to_owned();
        queues.iter().map(name).collect()
    });
    assert_ne!(queues.is_none(), answer["all"].is_null(), "one of both: {text}");
    Changes { position: answer["position"].as_str().expect("a position").to_owned(), queues }
}

fn call(since: &str, timeout_ms: u64) -> String {
    format!("CALL queen.wait_changes('{since}', {timeout_ms})")
}

async fn since(session: &Session, position: &str) -> Changes {
    parse(&session.one(&call(position, 0)).await)
}

async fn end(session: &Session) -> String {
    parse(&session.one("CALL queen.wait_changes(NULL, 1)").await).position
}

/// The queues of an answer that must name some or none.
async fn queues(session: &Session, position: &str) -> Vec<String> {
    since(session, position).await.queues.expect("it can tell what happened")
}

async fn asleep(observer: &Session, pid: i32) {
    let begun = Instant::now();
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Extension'");
    while observer.number(&sql).await == 0 {
        assert!(begun.elapsed() < PATIENCE, "the listener does not sleep");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

// Without being woken it reads on after a second: most of its answers must come well before that.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_another_session_wakes_the_listener() {
    const ROUNDS: usize = 9;
    let s = sessions(2).await;
    s[0].append("q", "Default", &["old"]).await;
    let mut position = end(&s[1]).await;
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let listener = s[1].start(&call(&position, LONG));
        asleep(&s[0], s[1].pid).await;
        let begun = Instant::now();
        s[0].run("SELECT queen.push('q', '{}')").await;
        let answer = parse(listener.end().await[0][0].as_deref().expect("an answer"));
        took.push(begun.elapsed());
        assert_eq!(answer.queues, Some(vec!["q".to_owned()]));
        assert_eq!(queues(&s[1], &answer.position).await, [""; 0], "it is told once");
        position = answer.position;
    }
    took.sort();
    assert!(took[ROUNDS / 2] < Duration::from_millis(400), "from commit to answer: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_holds_no_snapshot_and_no_lock_and_can_be_cancelled() {
    let s = sessions(2).await;
    let position = end(&s[1]).await;
    let listener = s[1].start(&call(&position, LONG));
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
    s[0].run(&format!("SELECT pg_cancel_backend({})", s[1].pid)).await;
    assert_eq!(sqlstate(&listener.try_end().await.expect_err("cancelled")), "57014");
    s[0].append("q", "Default", &["new"]).await;
    assert_eq!(queues(&s[1], &position).await, ["q"], "its session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_by_which_a_group_may_newly_find_something_is_heard_of() {
    let s = sessions(2).await;
    let leased = "SELECT lease_id FROM queen.pop('q', 'g', 2, lease_seconds => 3600) LIMIT 1";
    let fill = format!("SELECT queen.push_batch({})", batch("q", "Default", &["a", "b"]));
    let settle = |status: &str| {
        format!(
            "SELECT queen.ack(m.partition_id, m.transaction_id, '{status}', 'g', m.lease_id)
               FROM queen.pop('q', 'g', 2, lease_seconds => 3600) m LIMIT 1"
        )
    };
    let (failed, retry, completed) = (settle("failed"), settle("retry"), settle("completed"));
    // A verb, and what comes before it: a lease for :lease.
    let verbs: Vec<(&str, String, Option<&str>)> = vec![
        ("push", "SELECT queen.push('q', '1')".into(), None),
        ("push in a transaction", "BEGIN; SELECT queen.push('q', '1'); COMMIT".into(), None),
        ("push_many", "SELECT queen.push_many('q', ARRAY['1']::jsonb[])".into(), None),
        ("push_batch", fill.replace("\"a\"", "\"c\"").replace("\"b\"", "\"d\""), None),
        ("push_batch_json", "SELECT queen.push_batch_json('[{\"queue\": \"q\", \"payload\": 1}]')".into(), None),
        ("flush", "BEGIN; SELECT queen.push('q', '1'); SELECT queen.flush(); COMMIT".into(), None),
        ("transaction", "SELECT queen.transaction('[{\"type\":\"push\",\"queue\":\"q\",\"payload\":1}]')".into(), None),
        ("release", "SELECT queen.release(':lease')".into(), Some(leased)),
        ("nack", "SELECT queen.nack(':lease', 'a')".into(), Some(leased)),
        ("ack_lease", "SELECT queen.ack_lease(':lease')".into(), Some(leased)),
        ("ack failed", failed, None),
        ("ack retry", retry, None),
        ("ack of less than the lease", completed, None),
        ("seek", "SELECT queen.seek('q', 'g', to_timestamp => '-infinity')".into(), None),
        ("seek of a new group", "SELECT queen.seek('q', 'new', to_timestamp => '-infinity')".into(), None),
        ("drop_consumer_group", "SELECT queen.drop_consumer_group('g', 'q')".into(), None),
        ("its cursors only", "SELECT queen.drop_consumer_group('g', 'q', false)".into(), None),
        (
            "a shorter delay",
            "SELECT queen.configure('q', '{\"delayedProcessing\": 1}')".into(),
            Some("SELECT queen.configure('q', '{\"delayedProcessing\": 9}')"),
        ),
        ("another namespace", "SELECT queen.configure('q', '{\"namespace\": \"moved\"}')".into(), None),
        (
            "dlq_move_v1",
            "SELECT queen.dlq_move_v1(id) FROM queen.dlq('q')".into(),
            Some(
                "SELECT queen.ack(m.partition_id, m.transaction_id, 'dlq', 'g', m.lease_id) FROM queen.pop('q', 'g') m",
            ),
        ),
    ];
    for (what, verb, before) in verbs {
        s[0].run("SELECT queen.drop_queue('q')").await;
        s[0].pop("'q', 'g', subscription_mode => 'all'").await;
        s[0].run(&fill).await;
        let lease = match before {
            Some(sql) => s[0].one(sql).await,
            None => String::new(),
        };
        let position = end(&s[1]).await;
        // Settling a part leaves the lease; the part after it ends it.
        let verb = verb.replace(":lease", &lease);
        s[0].run(&verb).await;
        let heard = queues(&s[1], &position).await;
        if what == "ack of less than the lease" {
            assert_eq!(heard, [""; 0], "{what}: the rest is still leased");
        } else {
            assert_eq!(heard, ["q"], "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_is_not_heard_of_and_neither_is_a_lease() {
    let s = sessions(2).await;
    s[0].pop("'q', 'g', subscription_mode => 'all'").await;
    s[0].append("q", "Default", &["a"]).await;
    let position = end(&s[1]).await;
    s[0].run("BEGIN; SELECT queen.push('q', '1'); SELECT queen.flush(); ROLLBACK").await;
    let leased = s[0].pop("'q', 'g', lease_seconds => 60").await;
    let lease = leased[0].lease.clone().expect("a lease");
    s[0].run(&format!("SELECT queen.renew_lease('{lease}', 100)")).await;
    assert_eq!(queues(&s[1], &position).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_made_while_nobody_listened_are_told_by_the_next_call_each_queue_once() {
    let s = sessions(2).await;
    let position = end(&s[1]).await;
    for name in ["one", "two", "one", "q\"uote"] {
        s[0].append(name, "Default", &[]).await;
        s[0].run(&format!("SELECT queen.push('{name}', '1')")).await;
    }
    // Another session than the one that asked for the position.
    let heard: Vec<String> = queues(&s[0], &position).await;
    assert_eq!(heard, ["one", "two", "q\"uote"]);
    assert_eq!(queues(&s[1], &position).await, heard, "a position can be read from again");
}

// A poll parked at a dropped queue missed the first message of the next queue of that name: its group, gone with the
// queue, subscribed again only when that message woke it, and began after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_queue_has_no_name_to_tell_so_everything_may_have_changed() {
    let s = sessions(2).await;
    s[0].run("SELECT queen.push('gone', '1')").await;
    let position = end(&s[1]).await;
    s[0].run("SELECT queen.drop_queue('gone')").await;
    let heard = since(&s[1], &position).await;
    assert!(heard.queues.is_none(), "all, and no list");
    assert_eq!(queues(&s[1], &heard.position).await, [""; 0], "told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_names_a_thousand_queues_and_the_next_one_the_others() {
    let s = sessions(1).await;
    let position = end(&s[0]).await;
    s[0].run("SELECT queen.push('q' || n, '1') FROM generate_series(1, 1100) n").await;
    let first = since(&s[0], &position).await;
    let second = since(&s[0], &first.position).await;
    let (first, rest) = (first.queues.expect("queues"), second.queues.expect("queues"));
    assert_eq!((first.len(), rest.len()), (1000, 100));
    assert_eq!(first.into_iter().chain(rest).collect::<BTreeSet<_>>().len(), 1100);
    assert_eq!(queues(&s[0], &second.position).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_says_nothing_is_answered_at_once_with_all() {
    let s = sessions(1).await;
    s[0].run("SELECT queen.push('q', '1')").await;
    let position = end(&s[0]).await;
    let (server, number) = position.split_once('-').expect("two parts");
    let ahead = format!("{server}-{}", number.parse::<u64>().expect("a number") + 1_000_000);
    for bad in ["", "-", "none", "0000000000000000-0", "x-1", &ahead, &format!("{server}-x"), &format!("{server}--1")] {
        let answer = parse(&s[0].one(&call(bad, LONG)).await);
        assert_eq!(answer.queues, None, "{bad}");
        assert_eq!(queues(&s[0], &answer.position).await, [""; 0], "and brings a position");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_of_an_earlier_start_of_the_server_is_answered_with_all() {
    let cluster = Cluster::start();
    let db = cluster.fresh_database().await;
    let position = {
        let s = Session::open(&cluster, &db).await;
        s.run("SELECT queen.push('q', '1')").await;
        end(&s).await
    };
    cluster.restart();
    let s = Session::open(&cluster, &db).await;
    assert_eq!(since(&s, &position).await.queues, None);
}

// The ring and the numbers belong to the server, so a cluster of its own.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_longer_than_changes_are_kept_is_told_that_anything_may_have_happened() {
    let cluster = Cluster::start();
    let db = cluster.fresh_database().await;
    let s = Session::open(&cluster, &db).await;
    let changes =
        |n: u32| format!("DO $$ BEGIN FOR n IN 1..{n} LOOP PERFORM queen.push('q', '1'); COMMIT; END LOOP; END $$");
    let position = end(&s).await;
    s.run(&changes(8192)).await;
    assert_eq!(queues(&s, &position).await, ["q"], "as many as are kept");
    s.run(&changes(1)).await;
    let answer = since(&s, &position).await;
    assert_eq!(answer.queues, None);
    s.run(&changes(1)).await;
    assert_eq!(queues(&s, &answer.position).await, ["q"], "it goes on from there");
}

// Its changes fill the ring more than once while the listener sleeps.
#[tokio::test(flavor = "multi_thread")]
async fn databases_do_not_hear_each_other_and_a_busy_one_does_not_overrun_another() {
    let cluster = Cluster::start();
    let (here, there) = (cluster.fresh_database().await, cluster.fresh_database().await);
    let (listener, busy) = (Session::open(&cluster, &here).await, Session::open(&cluster, &there).await);
    let observer = Session::open(&cluster, &here).await;
    observer.append("q", "Default", &["first"]).await;
    busy.append("q", "Default", &["first"]).await;
    let position = end(&observer).await;
    let listening = listener.start(&call(&position, LONG));
    asleep(&observer, listener.pid).await;
    busy.run("DO $$ BEGIN FOR n IN 1..20000 LOOP PERFORM queen.push('q', '1'); COMMIT; END LOOP; END $$").await;
    assert!(!listening.is_finished(), "it heard of another database");
    observer.append("q", "Default", &["second"]).await;
    let answer = parse(listening.end().await[0][0].as_deref().expect("an answer"));
    assert_eq!(answer.queues, Some(vec!["q".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_committers_at_the_same_time_none_is_missed() {
    const SESSIONS: usize = 12;
    const EACH: usize = 60;
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let listener = Session::open(cluster, &db).await;
    let mut position = end(&listener).await;
    let mut committers = Vec::new();
    for n in 0..SESSIONS {
        let session = Session::open(cluster, &db).await;
        committers.push(tokio::spawn(async move {
            for i in 0..EACH {
                // One that names its queue for the only time, and one that meets others at one lane.
                session.run(&format!("SELECT queen.push('{n} {i}', '1')")).await;
                session.run("SELECT queen.push('shared', '1')").await;
            }
        }));
    }
    let wanted: BTreeSet<String> =
        (0..SESSIONS).flat_map(|n| (0..EACH).map(move |i| format!("{n} {i}"))).chain(["shared".to_owned()]).collect();
    let (mut heard, begun) = (BTreeSet::new(), Instant::now());
    while heard != wanted {
        assert!(begun.elapsed() < PATIENCE, "missed: {:?}", wanted.difference(&heard).collect::<Vec<_>>());
        let answer = parse(&listener.one(&call(&position, 2000)).await);
        heard.extend(answer.queues.expect("the listener keeps up"));
        position = answer.position;
    }
    for committer in committers {
        committer.await.expect("a committer");
    }
}

/// How often a backend has gone to sleep so far.
fn sleeps(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the backend's status");
    let line = status.lines().find(|l| l.starts_with("voluntary_ctxt_switches")).expect("its switches");
    line.split_whitespace().last().and_then(|n| n.parse().ok()).expect("a number")
}

// A place that is left behind wakes whoever comes to be there once: with several, more than what wakes them anyway.
#[tokio::test(flavor = "multi_thread")]
async fn terminated_listeners_leave_nobody_in_their_places_to_be_woken() {
    const LISTENERS: usize = 16;
    let cluster = Cluster::start();
    let db = cluster.fresh_database().await;
    let pusher = Session::open(&cluster, &db).await;
    pusher.append("q", "Default", &["old"]).await;
    let position = end(&pusher).await;
    let mut listening = Vec::new();
    for _ in 0..LISTENERS {
        let listener = Session::open(&cluster, &db).await;
        listening.push((listener.pid, listener.start(&call(&position, LONG))));
    }
    for (pid, _) in &listening {
        asleep(&pusher, *pid).await;
    }
    for (pid, call) in listening {
        pusher.terminate(pid).await;
        call.try_end().await.expect_err("terminated");
    }
    // Whoever comes next takes free places, the terminated ones' among them.
    let mut idle = Vec::new();
    for _ in 0..LISTENERS {
        idle.push(Session::open(&cluster, &db).await);
    }
    let all = || idle.iter().map(|s| sleeps(s.pid)).sum::<u64>();
    let mut before = 0;
    while before != all() {
        before = all();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..20 {
        pusher.run("SELECT queen.push('q', '{}')").await;
    }
    let woken = all() - before;
    assert!(woken < LISTENERS as u64 / 2, "{woken} of {LISTENERS} were woken");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_shared_memory_every_answer_is_all_and_none_takes_long() {
    let cluster = Cluster::start_with(&[("shared_preload_libraries", "")]);
    cluster.psql(SUPERUSER, "CREATE EXTENSION queen");
    let s = Session::open(&cluster, SUPERUSER).await;
    let position = end(&s).await;
    let begun = Instant::now();
    for timeout in [0, LONG] {
        let answer = parse(&s.one(&call(&position, timeout)).await);
        assert_eq!((answer.queues, &answer.position), (None, &position));
    }
    assert!(begun.elapsed() < Duration::from_millis(LONG / 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_inside_a_transaction_block_and_a_negative_timeout_are_refused() {
    let s = sessions(1).await;
    let error = s[0].try_rows("CALL queen.wait_changes(NULL, -1)").await.expect_err("negative");
    assert_eq!(sqlstate(&error), "22023");
    s[0].run("BEGIN").await;
    let error = s[0].try_rows("CALL queen.wait_changes(NULL, 0)").await.expect_err("in a block");
    assert_eq!(sqlstate(&error), "25001");
}
