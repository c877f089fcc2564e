//! The first contact of a group beside appends, and crowds of consumers: nothing is left behind, nothing comes twice.

use crate::crowd::Random;
use queen_tests::session::{Session, batch};
use queen_tests::shared_cluster;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

pub async fn sessions(n: usize) -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        let session = Session::open(cluster, &db).await;
        session.run("SET statement_timeout = '20s'").await;
        sessions.push(session);
    }
    sessions
}

pub async fn drain(session: &Session, queue: &str, group: &str) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let got = session.pop(&format!("'{queue}', '{group}', 10, max_partitions => 0, auto_ack => true")).await;
        if got.is_empty() {
            return found;
        }
        found.extend(got.into_iter().map(|m| m.transaction_id));
    }
}

/// A group's first pop of any partition, in a transaction, beside the first push of a partition, in another.
async fn first_contact_beside_first_push(mode: &str) {
    let s = sessions(3).await;
    let mut n = 0;
    for pop_begins in [true, false] {
        for pop_ends_first in [true, false] {
            for (pop_end, push_end) in
                [("COMMIT", "COMMIT"), ("COMMIT", "ROLLBACK"), ("ROLLBACK", "COMMIT"), ("ROLLBACK", "ROLLBACK")]
            {
                n += 1;
                let queue = format!("q{n}");
                s[0].append(&queue, "old", &["before"]).await;
                // `all`: the old partition is in the other's hands, so that it is the new one that is looked for.
                let pop = format!(
                    "BEGIN; SELECT transaction_id FROM queen.pop('{queue}', 'g', 10, max_partitions => 0, auto_ack => true,
                                                              subscription_mode => '{mode}')"
                );
                let push = format!("BEGIN; SELECT queen.push_batch({})", batch(&queue, "new", &["first"]));
                let mut popped = Vec::new();
                if !pop_begins {
                    s[2].run(&push).await;
                }
                popped.extend(s[1].rows(&pop).await);
                if pop_begins {
                    s[2].run(&push).await;
                }
                if pop_ends_first {
                    s[1].run(pop_end).await;
                    s[2].run(push_end).await;
                } else {
                    s[2].run(push_end).await;
                    s[1].run(pop_end).await;
                }
                let story = format!(
                    "{mode}: pop ({pop_end}) beside push ({push_end}); {} begins, {} ends first",
                    if pop_begins { "pop" } else { "push" },
                    if pop_ends_first { "pop" } else { "push" },
                );
                let mut expected: Vec<&str> = Vec::new();
                // Before the subscription, or delivered to a pop that counts: not again.
                let popped = popped.len();
                assert_eq!(popped, usize::from(mode == "all"), "{story}");
                if mode == "all" && pop_end == "ROLLBACK" {
                    expected.push("before");
                }
                if push_end == "COMMIT" {
                    expected.push("first");
                }
                if pop_end == "ROLLBACK" {
                    // The subscription went with it. The next pop is the first contact.
                    let got = s[0]
                        .pop(&format!(
                            "'{queue}', 'g', 10, max_partitions => 0, auto_ack => true, subscription_mode => '{mode}'"
                        ))
                        .await;
                    let mut ids: Vec<String> = got.into_iter().map(|m| m.transaction_id).collect();
                    ids.sort();
                    let expected = if mode == "all" { expected } else { vec![] };
                    assert_eq!(ids, expected, "{story}");
                } else if mode == "new" && !pop_begins {
                    // Pushed before the subscription, committed after: either is right, twice is not.
                    let found = drain(&s[0], &queue, "g").await;
                    assert!(found.len() <= expected.len(), "{story}: {found:?}");
                } else {
                    assert_eq!(drain(&s[0], &queue, "g").await, expected, "{story}");
                }
                s[0].append(&queue, "new", &["next"]).await;
                assert_eq!(drain(&s[0], &queue, "g").await, ["next"], "{story}: the next message");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_contact_with_mode_all_beside_a_first_push_misses_nothing() {
    first_contact_beside_first_push("all").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_contact_with_mode_new_beside_a_first_push_misses_nothing_pushed_later() {
    first_contact_beside_first_push("new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_contact_beside_an_append_to_an_old_partition_misses_nothing() {
    let s = sessions(3).await;
    for (n, mode) in ["all", "new"].into_iter().enumerate() {
        let queue = format!("q{n}");
        s[0].append(&queue, "p", &["before"]).await;
        s[1].run(&format!(
            "BEGIN; SELECT queen.pop('{queue}', 'g', 10, auto_ack => true, subscription_mode => '{mode}')"
        ))
        .await;
        s[2].run(&format!("BEGIN; SELECT queen.push_batch({})", batch(&queue, "p", &["beside"]))).await;
        s[1].run("COMMIT").await;
        assert_eq!(drain(&s[0], &queue, "g").await.len(), 0, "{mode}: nothing yet");
        s[2].run("COMMIT").await;
        assert_eq!(drain(&s[0], &queue, "g").await, ["beside"], "{mode}");
    }
}

/// A sweep saw committed partitions only: a partition that was just being created stayed invisible to the group for good,
/// with everything that was pushed to it later.
#[tokio::test(flavor = "multi_thread")]
async fn a_seek_that_creates_the_group_beside_a_first_push_misses_nothing() {
    let s = sessions(3).await;
    s[0].append("q", "old", &["before"]).await;
    s[2].run(&format!("BEGIN; SELECT queen.push_batch({})", batch("q", "new", &["first"]))).await;
    assert_eq!(s[1].number("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await, 1);
    assert_eq!(drain(&s[0], "q", "g").await, ["before"]);
    s[2].run("COMMIT").await;
    assert_eq!(drain(&s[0], "q", "g").await, ["first"]);
    s[0].append("q", "new", &["next"]).await;
    assert_eq!(drain(&s[0], "q", "g").await, ["next"]);
}

/// A push tells a group of new messages that is not committed yet; housekeeping took these hints for leftovers of a
/// registration that was rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_keeps_the_hints_of_a_registration_that_is_still_open() {
    let s = sessions(3).await;
    s[0].append("q", "p", &["before"]).await;
    s[1].run("BEGIN").await;
    let got = s[1].pop("'q', 'g', 10, auto_ack => true, subscription_mode => 'all'").await;
    assert_eq!(got.len(), 1);
    s[0].append("q", "p", &["first"]).await;
    s[0].append("q", "new", &["second"]).await;
    assert_eq!(s[2].number("SELECT (queen.maintain()->>'orphansRemoved')::int").await, 0);
    s[1].run("COMMIT").await;
    assert_eq!(drain(&s[0], "q", "g").await, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn housekeeping_removes_the_hints_of_a_registration_that_was_rolled_back() {
    let s = sessions(2).await;
    s[0].append("q", "p", &["before"]).await;
    s[1].run("BEGIN; SELECT queen.pop('q', 'g', 10, auto_ack => true, subscription_mode => 'all')").await;
    s[0].append("q", "p", &["first"]).await;
    s[1].run("ROLLBACK").await;
    assert_eq!(s[0].number("SELECT (queen.maintain()->>'orphansRemoved')::int").await, 1);
    assert_eq!(s[0].number("SELECT count(*) FROM queen.ready").await, 0);
}

/// Consumers of three groups and producers at random over many partitions; then everybody stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_producers_and_consumers_delivers_everything_once_to_each_group() {
    const PARTITIONS: u64 = 12;
    const PRODUCERS: u64 = 3;
    const EACH: usize = 400;
    const GROUPS: [&str; 3] = ["a", "b", "late"];
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let first = Session::open(cluster, &db).await;
    for group in &GROUPS[..2] {
        first.pop(&format!("'q', '{group}', subscription_mode => 'all'")).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let pushed = Arc::new(AtomicUsize::new(0));

    let mut consumers = Vec::new();
    for (n, group) in GROUPS.into_iter().cycle().take(6).enumerate() {
        let session = Session::open(cluster, &db).await;
        let (done, pushed) = (done.clone(), pushed.clone());
        consumers.push((
            group,
            tokio::spawn(async move {
                let mut random = Random(n as u64 + 100);
                let mut completed: Vec<(String, i64, String)> = Vec::new();
                while group == "late" && pushed.load(SeqCst) < EACH {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                loop {
                    let last = done.load(SeqCst);
                    let undo = random.below(8) == 0;
                    if undo {
                        session.run("BEGIN").await;
                    }
                    let style = random.below(5);
                    let got = session
                        .pop(&format!(
                            "'q', '{group}', {}, max_partitions => {}, auto_ack => {}, subscription_mode => 'all', lease_seconds => 3600",
                            1 + random.below(20),
                            random.below(4),
                            style == 0,
                        ))
                        .await;
                    let lease = got.first().and_then(|m| m.lease.clone());
                    let mut finished = got.len();
                    match (&lease, style) {
                        (None, _) => {}
                        (Some(lease), 1) => {
                            session.run(&format!("SELECT queen.release('{lease}')")).await;
                            finished = 0;
                        }
                        (Some(lease), 2) => {
                            // The first message of each partition, then the lease back.
                            let mut firsts: HashMap<&str, &str> = HashMap::new();
                            for m in &got {
                                firsts.entry(&m.partition_id).or_insert(&m.transaction_id);
                            }
                            for (partition, id) in firsts {
                                session
                                    .run(&format!("SELECT queen.ack('{partition}', '{id}', 'completed', '{group}', '{lease}')"))
                                    .await;
                            }
                            session.run(&format!("SELECT queen.release('{lease}')")).await;
                            finished = usize::MAX;
                        }
                        (Some(lease), _) => session.run(&format!("SELECT queen.ack_lease('{lease}')")).await,
                    }
                    if undo {
                        session.run("ROLLBACK").await;
                    } else if finished == usize::MAX {
                        let mut seen: Vec<String> = Vec::new();
                        for m in got {
                            if !seen.contains(&m.partition) {
                                seen.push(m.partition.clone());
                                completed.push((m.partition, m.offset, m.transaction_id));
                            }
                        }
                    } else if finished > 0 {
                        completed.extend(got.into_iter().map(|m| (m.partition, m.offset, m.transaction_id)));
                    } else if got.is_empty() && last {
                        return completed;
                    }
                }
            }),
        ));
    }

    let mut producers = Vec::new();
    for n in 0..PRODUCERS {
        let session = Session::open(cluster, &db).await;
        let pushed = pushed.clone();
        producers.push(tokio::spawn(async move {
            let mut random = Random(n);
            for i in 0..EACH {
                let (one, two) = (random.below(PARTITIONS), random.below(PARTITIONS));
                let id = format!("{n}-{i}");
                let deferred = format!(
                    "SELECT queen.push('q', '0', 'p{one}', '{id}a'); SELECT queen.push('q', '0', 'p{two}', '{id}b')"
                );
                match random.below(4) {
                    0 => session.run(&format!("BEGIN; {deferred}; ROLLBACK; BEGIN; {deferred}; COMMIT")).await,
                    1 => {
                        session.append("q", &format!("p{one}"), &[&format!("{id}a")]).await;
                        session.append("q", &format!("p{two}"), &[&format!("{id}b")]).await;
                    }
                    _ => session.run(&format!("BEGIN; {deferred}; COMMIT")).await,
                }
                pushed.fetch_add(1, SeqCst);
            }
        }));
    }
    for producer in producers {
        producer.await.expect("a producer");
    }
    done.store(true, SeqCst);

    let mut completed: HashMap<&str, Vec<(String, i64, String)>> = HashMap::new();
    for (group, consumer) in consumers {
        completed.entry(group).or_default().extend(consumer.await.expect("a consumer"));
    }
    let mut expected: Vec<(String, i64, String)> = Vec::new();
    for (partition, ids) in first.stored("q").await {
        for (offset, id) in ids.into_iter().enumerate() {
            expected.push((partition.clone(), offset as i64, id));
        }
    }
    expected.sort();
    assert_eq!(expected.len(), PRODUCERS as usize * EACH * 2);
    for group in GROUPS {
        // What a consumer gave back in the last moment is found by a pop of any partition.
        let mut all = completed.remove(group).unwrap_or_default();
        loop {
            let got = first.pop(&format!("'q', '{group}', 100, max_partitions => 0, auto_ack => true")).await;
            if got.is_empty() {
                break;
            }
            all.extend(got.into_iter().map(|m| (m.partition, m.offset, m.transaction_id)));
        }
        all.sort();
        assert_eq!(all.len(), expected.len(), "group {group}");
        assert!(all == expected, "group {group}: something came twice, and something not at all");
    }
    assert_eq!(first.rows("SELECT * FROM queen.verify()").await.len(), 0);
}
