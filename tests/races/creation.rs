//! Partitions that several transactions create in one queue at once.

use crate::registration::{drain, sessions};
use queen_tests::session::{Session, batch};

fn push(partition: &str, id: &str) -> String {
    format!("SELECT queen.push_batch({})", batch("q", partition, &[id]))
}

async fn partitions(session: &Session) -> i64 {
    session.number("SELECT count(*) FROM queen.partition").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_not_committed_yet_keeps_nobody_from_creating_another() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let s = sessions(3).await;
        s[0].append("q", "old", &["before"]).await;
        s[1].run(&format!("BEGIN; {}", push(first, "first"))).await;
        let (other, waits) = s[2].start_and_watch(&s[0], &push(second, "second")).await;
        assert!(!waits, "{second} waits for {first}");
        other.end().await;
        s[1].run("COMMIT").await;
        assert_eq!(drain(&s[0], "q", "g").await.len(), 0, "the group begins now");
        assert_eq!(partitions(&s[0]).await, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_the_same_partition_waits_and_then_has_it() {
    for (end, stored) in [("COMMIT", &["first", "second"][..]), ("ROLLBACK", &["second"])] {
        let s = sessions(3).await;
        s[0].append("q", "old", &["before"]).await;
        s[1].run(&format!("BEGIN; {}", push("a", "first"))).await;
        let (same, waits) = s[2].start_and_watch(&s[0], &push("a", "second")).await;
        assert!(waits, "the second does not wait for the first");
        // Nor does it stand in the way of others while it waits.
        s[0].append("q", "c", &["other"]).await;
        s[1].run(end).await;
        same.end().await;
        assert_eq!(s[0].stored("q").await["a"], stored, "{end}");
        assert_eq!(partitions(&s[0]).await, 3, "{end}");
    }
}

/// Keys rise with creation, commits come in any order: neither a group that is there nor one that comes may pass over a
/// partition with a lower key that is committed later.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_found_in_whatever_order_they_are_committed() {
    for group_first in [true, false] {
        for [earlier, later] in [[1, 2], [2, 1]] {
            let s = sessions(3).await;
            s[0].append("q", "old", &["before"]).await;
            let pop = "'q', 'g', 10, max_partitions => 0, auto_ack => true, subscription_mode => 'all'";
            let mut found = Vec::new();
            let mut pop_all = async || loop {
                let got = s[0].pop(pop).await;
                if got.is_empty() {
                    return found.clone();
                }
                found.extend(got.into_iter().map(|m| m.transaction_id));
            };
            if group_first {
                assert_eq!(pop_all().await, ["before"]);
            }
            s[1].run(&format!("BEGIN; {}", push("a", "one"))).await;
            s[2].run(&format!("BEGIN; {}", push("b", "two"))).await;
            assert_eq!(pop_all().await, ["before"], "neither is committed");
            s[earlier].run("COMMIT").await;
            assert_eq!(pop_all().await.len(), 2, "one is");
            s[later].run("COMMIT").await;
            let mut all = pop_all().await;
            all.sort();
            assert_eq!(all, ["before", "one", "two"], "the group comes first: {group_first}, {earlier} commits first");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_waits_for_partitions_that_are_not_committed_yet_and_takes_them_along() {
    let s = sessions(4).await;
    s[0].append("q", "old", &["before"]).await;
    s[1].run(&format!("BEGIN; {}", push("a", "one"))).await;
    s[2].run(&format!("BEGIN; {}", push("b", "two"))).await;
    let (drop, waits) = s[3].start_and_watch(&s[0], "SELECT queen.drop_queue('q')").await;
    assert!(waits, "the drop does not wait");
    s[1].run("COMMIT").await;
    s[2].run("COMMIT").await;
    assert_eq!(drop.end().await, vec![vec![Some("t".to_owned())]]);
    for table in ["partition", "segment", "cursor", "ready"] {
        assert_eq!(s[0].number(&format!("SELECT count(*) FROM queen.{table}")).await, 0, "{table}");
    }
}
