//! Cursors are locked in one order, by group name and partition key, whoever locks several: nobody is sent away with 40P01.

use queen_tests::session::{Session, describe, quote};
use queen_tests::shared_cluster;

/// Calls that take all cursors of a lease, or of a group.
const CALLS: &[(&str, &str)] = &[
    ("ack_batch", "SELECT queen.ack_batch({items}, 'g')"),
    ("transaction", "SELECT queen.transaction({operations})"),
    ("ack_many_json", "SELECT queen.ack_many_json({requests})"),
    ("ack_many_json, the other way round", "SELECT queen.ack_many_json({reversed})"),
    ("ack_lease", "SELECT queen.ack_lease({lease})"),
    ("renew_lease", "SELECT queen.renew_lease({lease}, 7200)"),
    ("release", "SELECT queen.release({lease})"),
    ("nack", "SELECT queen.nack({lease}, 'unknown')"),
    ("drop_consumer_group", "SELECT queen.drop_consumer_group('g', delete_metadata => false)"),
];

struct Setting {
    sessions: Vec<Session>,
    /// Placeholders of the calls, and their values.
    values: Vec<(&'static str, String)>,
}

/// A lease over two queues: the partition of the one is older, the group's key for the other is.
async fn setting() -> Setting {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '20s'").await;
        sessions.push(session);
    }
    sessions[0].append("ns.b", "Default", &["b1", "b2"]).await;
    sessions[0].append("ns.a", "Default", &["a1", "a2"]).await;
    let rows = sessions[0]
        .rows(
            "SELECT partition_id, transaction_id, lease_id
               FROM queen.pop_matching('ns', NULL, 'g', 9, 0, 3600, subscription_mode => 'all')",
        )
        .await;
    let column = |n: usize| rows.iter().map(|r| r[n].clone().unwrap_or_default()).collect::<Vec<_>>();
    let (mut partitions, leases) = (column(0), column(2));
    partitions.dedup();
    assert_eq!(partitions.len(), 2, "a lease over two queues");
    let acks = |extra: &str| {
        let item = |id: &String| {
            format!(r#"{{"transactionId": "unknown", "partitionId": "{id}", "leaseId": "{}"{extra}}}"#, leases[0])
        };
        format!("[{}]", partitions.iter().map(item).collect::<Vec<_>>().join(", "))
    };
    // A request for each partition, so that their order is the caller's.
    let requests = |partitions: Vec<&String>| {
        let request = |id: &&String| {
            format!(
                r#"{{"consumerGroup": "g", "acknowledgments": [{{"transactionId": "unknown", "partitionId": "{id}", "leaseId": "{}"}}]}}"#,
                leases[0]
            )
        };
        quote(&format!("[{}]", partitions.iter().map(request).collect::<Vec<_>>().join(", ")))
    };
    let values = vec![
        ("{requests}", requests(partitions.iter().collect())),
        ("{reversed}", requests(partitions.iter().rev().collect())),
        ("{items}", quote(&acks(""))),
        ("{operations}", quote(&acks(r#", "type": "ack", "consumerGroup": "g""#))),
        ("{lease}", quote(&leases[0])),
    ];
    Setting { sessions, values }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_take_the_cursors_of_a_lease_over_several_queues_do_not_deadlock() {
    let Setting { sessions, values } = setting().await;
    let [observer, holder, one, other] = sessions.as_slice() else { unreachable!() };
    // Everything is rolled back: each pair finds the same.
    let call = |sql: &str| {
        let sql = values.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value));
        format!("BEGIN; {sql}; ROLLBACK")
    };
    for first in CALLS {
        for second in CALLS {
            // The first comes to a halt at the older partition's cursor, or at the newer one's, and then the second at one
            // of them.
            for order in ["ASC", "DESC"] {
                holder.run(&format!("BEGIN; SELECT 1 FROM queen.cursor ORDER BY pid {order} LIMIT 1 FOR UPDATE")).await;
                let (first_call, waits) = one.start_and_watch(observer, &call(first.1)).await;
                assert!(waits, "{} takes no cursor", first.0);
                let (second_call, waits) = other.start_and_watch(observer, &call(second.1)).await;
                assert!(waits, "{} takes no cursor", second.0);
                holder.run("ROLLBACK").await;
                for call in [first_call, second_call] {
                    if let Err(e) = call.try_end().await {
                        panic!("{} beside {}, {order}: {}", first.0, second.0, describe(&e));
                    }
                }
            }
        }
    }
}

// A bundle sorts its groups by name, so requests do, too.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_several_groups_take_their_cursors_in_one_order() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '20s'").await;
        sessions.push(session);
    }
    let [observer, holder, one, other] = sessions.as_slice() else { unreachable!() };
    observer.append("q", "Default", &["a", "b"]).await;
    let mut partition = String::new();
    // The group that was there first is the later one by name.
    for group in ["h", "g"] {
        let got = observer.pop(&format!("'q', '{group}', subscription_mode => 'all', lease_seconds => 3600")).await;
        partition = got[0].partition_id.clone();
    }
    let item = |group: &str| {
        format!(r#""transactionId": "a", "partitionId": "{partition}", "type": "ack", "consumerGroup": "{group}""#)
    };
    let requests = |groups: [&str; 2]| {
        let request = |g: &&str| format!(r#"{{"consumerGroup": "{g}", "acknowledgments": [{{{}}}]}}"#, item(g));
        let list = groups.iter().map(request).collect::<Vec<_>>().join(", ");
        format!("SELECT queen.ack_many_json('[{list}]')")
    };
    let operations = ["h", "g"].map(|g| format!("{{{}}}", item(g))).join(", ");
    let calls = [requests(["g", "h"]), requests(["h", "g"]), format!("SELECT queen.transaction('[{operations}]')")];
    for first in &calls {
        for second in &calls {
            for order in ["ASC", "DESC"] {
                holder.run(&format!("BEGIN; SELECT 1 FROM queen.cursor ORDER BY gid {order} LIMIT 1 FOR UPDATE")).await;
                let (first_call, waits) = one.start_and_watch(observer, &format!("BEGIN; {first}; ROLLBACK")).await;
                assert!(waits, "{first}");
                let (second_call, waits) = other.start_and_watch(observer, &format!("BEGIN; {second}; ROLLBACK")).await;
                assert!(waits, "{second}");
                holder.run("ROLLBACK").await;
                for call in [first_call, second_call] {
                    if let Err(e) = call.try_end().await {
                        panic!("{first} beside {second}, {order}: {}", describe(&e));
                    }
                }
            }
        }
    }
}

/// A queue that is dropped and made anew while a push of several queues waits for the lane of another.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_to_several_queues_do_not_deadlock_when_one_of_them_is_dropped() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut s = Vec::new();
    for _ in 0..5 {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '20s'").await;
        s.push(session);
    }
    let push = |queues: &[&str]| {
        let items: Vec<String> =
            queues.iter().map(|q| format!(r#"{{"queue": "{q}", "partition": "p", "payload": 1}}"#)).collect();
        format!("SELECT count(*) FROM queen.push_batch({})", quote(&format!("[{}]", items.join(", "))))
    };
    s[0].run(&push(&["a", "b"])).await;
    s[1].run(&format!("BEGIN; {}", push(&["a"]))).await;
    let first = s[2].start_and_watch(&s[0], &push(&["a", "b"])).await.0;
    let drop = s[3].start_and_watch(&s[0], "SELECT queen.drop_queue('b')").await.0;
    let second = s[4].start_and_watch(&s[0], &push(&["a", "b"])).await.0;
    s[1].run("COMMIT").await;
    for (who, call) in [("first", first), ("second", second), ("drop", drop)] {
        if let Err(error) = call.try_end().await {
            panic!("{who}: {}", describe(&error));
        }
    }
}

/// The filer has its row half in the index when it asks; whoever decides changes rows one after the other. Were each to wait
/// for the other, one of them would be sent away.
#[tokio::test(flavor = "multi_thread")]
async fn filing_a_message_again_does_not_wait_for_a_decision_about_its_record() {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let s = [Session::open(cluster, &db).await, Session::open(cluster, &db).await, Session::open(cluster, &db).await];
    s[0].append("q", "Default", &["one"]).await;
    let fail = "SELECT (queen.nack(p.lease_id, p.transaction_id, 'broken', 'dlq')).dlq
                  FROM queen.pop('q', 'g', subscription_mode => 'all') p";
    assert_eq!(s[0].one(fail).await, "t");
    s[0].run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    s[1].run("BEGIN; SELECT queen.dlq_discard(ARRAY(SELECT id FROM queen.dlq()), 'obsolete', 'no order any more')")
        .await;
    let (again, waits) = s[2].start_and_watch(&s[0], fail).await;
    assert!(!waits, "filing waits for the decision");
    again.end().await;
    s[1].run("COMMIT").await;
    assert_eq!(s[0].one("SELECT string_agg(status, ',') FROM queen.dead_letter_record").await, "discarded");
}
