//! What a call has answered is on disk, whichever call it is: each is the last thing before a crash.

use queen_tests::Cluster;
use queen_tests::session::Session;
use std::sync::Arc;

/// A call, what has to be there for it, and how to see afterwards that it was made.
struct Call {
    name: &'static str,
    before: &'static [&'static str],
    call: &'static str,
    answer: &'static str,
    look: &'static str,
    found: &'static str,
}

const MESSAGE: &str = r#"SELECT queen.push_batch('[{"queue": "{q}", "payload": 1}]')"#;
const DEAD_LETTER: &str = "SELECT queen.nack(lease_id, transaction_id, 'no', 'dlq')
                             FROM queen.pop('{q}', 'g', subscription_mode => 'all')";
const DEAD_LETTERS: &str = "SELECT count(*) FROM queen.dlq('{q}')";
const LEASE_TIME: &str = "SELECT options->>'leaseTime' FROM queen.queues WHERE queue = '{q}'";
const GROUP: &str = "SELECT s.mode FROM queen.subscription s JOIN queen.queue q USING (qid)
                      WHERE q.name = '{q}' AND s.name = 'g'";

const CALLS: &[Call] = &[
    Call {
        name: "configure of a new queue",
        before: &[],
        call: r#"SELECT queen.configure('{q}', '{"leaseTime": 77}')->>'leaseTime'"#,
        answer: "77",
        look: LEASE_TIME,
        found: "77",
    },
    Call {
        name: "configure of a queue that is there",
        before: &["SELECT queen.configure('{q}')"],
        call: r#"SELECT queen.configure('{q}', '{"leaseTime": 77}')->>'leaseTime'"#,
        answer: "77",
        look: LEASE_TIME,
        found: "77",
    },
    Call {
        name: "drop_queue",
        before: &[MESSAGE, DEAD_LETTER],
        call: "SELECT queen.drop_queue('{q}')",
        answer: "t",
        look: "SELECT (SELECT count(*) FROM queen.queues WHERE queue = '{q}') + (SELECT count(*) FROM queen.dlq('{q}'))",
        found: "0",
    },
    Call {
        name: "dlq_delete",
        before: &[MESSAGE, DEAD_LETTER],
        call: "SELECT queen.dlq_delete(partition_id, transaction_id) FROM queen.dlq('{q}')",
        answer: "1",
        look: DEAD_LETTERS,
        found: "0",
    },
    Call {
        name: "dlq_delete_row",
        before: &[MESSAGE, DEAD_LETTER],
        call: "SELECT queen.dlq_delete_row(id) FROM queen.dlq('{q}')",
        answer: "1",
        look: DEAD_LETTERS,
        found: "0",
    },
    Call {
        name: "dlq_purge",
        before: &[MESSAGE, DEAD_LETTER],
        call: "SELECT queen.dlq_purge('{q}')",
        answer: "1",
        look: DEAD_LETTERS,
        found: "0",
    },
    Call {
        name: "dlq_move_v1",
        before: &[MESSAGE, DEAD_LETTER],
        call: "SELECT queen.dlq_move_v1(id)->>'result' FROM queen.dlq('{q}')",
        answer: "moved",
        look: "SELECT (SELECT count(*) FROM queen.dlq('{q}')) || ' ' || (SELECT count(*) FROM queen.messages('{q}'))",
        found: "0 2",
    },
    Call {
        name: "the first contact of a group",
        before: &[MESSAGE],
        call: "SELECT count(*) FROM queen.pop('{q}', 'g', subscription_mode => 'new')",
        answer: "0",
        look: GROUP,
        found: "new",
    },
    Call {
        name: "the first contact of a group with one partition",
        before: &[MESSAGE],
        call: "SELECT count(*) FROM queen.pop('{q}', 'g', 1, 'Default', subscription_mode => 'new')",
        answer: "0",
        look: GROUP,
        found: "new",
    },
    Call {
        name: "the first contact of a group that had named its partitions with all of them",
        before: &[MESSAGE, "SELECT queen.pop('{q}', 'g', 1, 'Default', subscription_mode => 'new')"],
        call: "SELECT count(*) FROM queen.pop('{q}', 'g')",
        answer: "0",
        look: "SELECT registered FROM queen.subscription s JOIN queen.queue q USING (qid) WHERE q.name = '{q}'",
        found: "t",
    },
    Call {
        name: "the first contact of a group with an unknown queue",
        before: &[],
        call: "SELECT count(*) FROM queen.pop('{q}', 'g', subscription_mode => 'new')",
        answer: "0",
        look: GROUP,
        found: "new",
    },
    Call {
        name: "the first contact of a group by discovery",
        before: &[r#"SELECT queen.configure('{q}', '{"namespace": "{q}"}')"#],
        call: "SELECT count(*) FROM queen.pop_matching('{q}', consumer_group => 'g', subscription_mode => 'new')",
        answer: "0",
        look: GROUP,
        found: "new",
    },
    Call {
        name: "seek",
        before: &[MESSAGE, "SELECT queen.pop('{q}', 'g', auto_ack => true, subscription_mode => 'all')"],
        call: "SELECT queen.seek('{q}', 'g', to_timestamp => '-infinity')",
        answer: "1",
        look: "SELECT pending FROM queen.consumer_groups WHERE queue = '{q}'",
        found: "1",
    },
    Call {
        name: "drop_consumer_group",
        before: &[MESSAGE, "SELECT queen.pop('{q}', 'g', subscription_mode => 'all')"],
        call: "SELECT queen.drop_consumer_group('g', '{q}')",
        answer: "1",
        look: GROUP,
        found: "",
    },
];

/// Makes the call, crashes and looks. None: the server had flushed more than it was asked to, so that nothing is shown.
async fn last_before_a_crash(cluster: &Arc<Cluster>, db: &str, call: &Call, queue: &str) -> Option<String> {
    let session = Session::open(cluster, db).await;
    // Once with another queue, so that few pages are written for the first time since the last checkpoint: the server
    // flushes by itself when a page of the log is full.
    let twin = format!("twin of {queue}");
    for name in [&twin, queue] {
        for sql in call.before {
            session.run(&sql.replace("{q}", name)).await;
        }
    }
    session.run(&call.call.replace("{q}", &twin)).await;
    let look = call.look.replace("{q}", queue);
    assert_ne!(session.one(&look).await, call.found, "{}: before it", call.name);
    session.run(&format!("INSERT INTO control VALUES ('before {queue}')")).await;
    assert_eq!(session.one(&call.call.replace("{q}", queue)).await, call.answer, "{}: its answer", call.name);
    assert_eq!(session.one(&look).await, call.found, "{}: after it", call.name);
    session.run("SET synchronous_commit = off").await;
    session.run(&format!("INSERT INTO control VALUES ('not flushed {queue}')")).await;
    let crashed = cluster.clone();
    tokio::task::spawn_blocking(move || {
        crashed.stop_immediate();
        crashed.restart();
    })
    .await
    .expect("a crash");
    let session = Session::open(cluster, db).await;
    let control = |what: &str| format!("SELECT count(*) FROM control WHERE name = '{what} {queue}'");
    assert_eq!(session.number(&control("before")).await, 1, "a synchronous commit");
    if session.number(&control("not flushed")).await > 0 {
        return None;
    }
    Some(session.one(&look).await)
}

/// Only what pushes or moves cursors said that its commit must be flushed: everything else was committed as a pop is,
/// which may be lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_has_answered_survives_a_crash_right_after_it() {
    let cluster = Arc::new(Cluster::durable());
    // Nobody but commits flushes.
    cluster.configure(&[("wal_writer_delay", "10s"), ("autovacuum", "off")]);
    cluster.restart();
    let db = cluster.fresh_database().await;
    cluster.psql(&db, "CREATE TABLE control (name text)");
    let mut lost = Vec::new();
    for (n, call) in CALLS.iter().enumerate() {
        let mut found = None;
        for attempt in 0..6 {
            found = last_before_a_crash(&cluster, &db, call, &format!("q{n}.{attempt}")).await;
            if found.is_some() {
                break;
            }
        }
        let found = found.unwrap_or_else(|| panic!("{}: the server flushes all by itself", call.name));
        if found != call.found {
            lost.push((call.name, found));
        }
    }
    assert_eq!(lost, [], "answered, and lost");
    let session = Session::open(&cluster, &db).await;
    assert_eq!(session.rows("SELECT * FROM queen.verify()").await.len(), 0);
}
