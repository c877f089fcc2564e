//! Pauses, of a group and after a failure, and somebody else who is at the same queue.

use queen_tests::session::{Session, batch, quote};
use queen_tests::shared_cluster;
use std::time::Duration;

async fn sessions(n: usize, options: &str) -> Vec<Session> {
    let cluster = shared_cluster();
    let db = cluster.fresh_database().await;
    let mut sessions = Vec::new();
    for _ in 0..n {
        sessions.push(Session::open(cluster, &db).await);
    }
    sessions[0].run(&format!("SELECT queen.configure('q', {})", quote(options))).await;
    sessions
}

/// Leases the next message of a partition, and answers how to give it up for good.
async fn last_straw(s: &Session, partition: &str, status: &str) -> String {
    let got = s.pop(&format!("'q', 'g', partition => {}, subscription_mode => 'all'", quote(partition))).await;
    let lease = got[0].lease.clone().expect("a lease");
    format!("SELECT queen.nack('{lease}', '{}', 'boom', '{status}')", got[0].transaction_id)
}

async fn paused(s: &Session) -> String {
    s.one("SELECT count(paused_at) FROM queen.consumer_groups WHERE consumer_group = 'g'").await
}

/// Ends every pause after a failure, hints included, as time would.
const PASS: &str = "DO $$
    DECLARE c record; t timestamptz := clock_timestamp();
    BEGIN
      FOR c IN SELECT gid, pid, seq, not_before FROM queen.cursor WHERE not_before > t LOOP
        UPDATE queen.ready SET due_at = t WHERE gid = c.gid AND pid = c.pid AND due_at = c.not_before;
        UPDATE queen.cursor SET not_before = t WHERE gid = c.gid AND pid = c.pid AND seq = c.seq;
      END LOOP;
    END $$";

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_paused_group_sleeps_through_pushes_and_is_woken_by_resume() {
    let s = sessions(3, "{}").await;
    s[0].pop("'q', 'g', subscription_mode => 'all'").await;
    s[0].run("SELECT queen.pause_group('q', 'g')").await;
    let waiter = s[1].start("CALL queen.wait('q', 'g', 40000)");
    let asleep =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Extension'", s[1].pid);
    while s[0].number(&asleep).await == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    s[0].append("q", "Default", &["a"]).await;
    // One that does find something hears of that push, and the paused one is still asleep.
    s[2].pop("'q', 'h', subscription_mode => 'all'").await;
    s[2].run("SELECT queen.release(lease_id) FROM queen.cursor WHERE lease_id IS NOT NULL").await;
    assert_eq!(s[2].one("CALL queen.wait('q', 'h', 40000)").await, "t");
    assert!(!waiter.is_finished());
    s[0].run("SELECT queen.resume_group('q', 'g')").await;
    assert_eq!(waiter.end().await, vec![vec![Some("t".to_owned())]]);
    assert_eq!(s[1].pop("'q', 'g'").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_sessions_that_file_at_the_same_time_the_last_to_commit_counts_both_dead_letters() {
    for (prepared, end, expected) in [
        (false, "COMMIT", "1"),
        (false, "ROLLBACK", "0"),
        (true, "COMMIT PREPARED 'straw'", "1"),
        (true, "ROLLBACK PREPARED 'straw'", "0"),
    ] {
        let s = sessions(3, r#"{"autoPauseCount": 2}"#).await;
        for partition in ["one", "two"] {
            s[0].append("q", partition, &[partition]).await;
        }
        let (first, second) = (last_straw(&s[0], "one", "dlq").await, last_straw(&s[1], "two", "dlq").await);
        s[0].run("BEGIN").await;
        s[0].run(&first).await;
        if prepared {
            s[0].run("PREPARE TRANSACTION 'straw'").await;
        }
        // Filing waits for nobody; whoever commits while another one is about to, does.
        let (started, waits) = s[1].start_and_watch(&s[2], &second).await;
        assert_eq!(waits, prepared, "{end}");
        s[0].run(end).await;
        started.end().await;
        assert_eq!(paused(&s[2]).await, expected, "{end}");
        assert_eq!(s[2].one("SELECT count(*) FROM queen.dlq_event WHERE actor = 'queen'").await, expected);
    }
}

/// Had the first kept its turn from the filing on, each would wait for the other.
#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_that_file_and_then_go_to_the_others_partition_do_not_block_each_other_for_good() {
    let s = sessions(3, r#"{"autoPauseCount": 2}"#).await;
    for partition in ["one", "two"] {
        s[0].append("q", partition, &[partition]).await;
    }
    let (first, second) = (last_straw(&s[0], "one", "dlq").await, last_straw(&s[1], "two", "dlq").await);
    s[0].run("BEGIN").await;
    s[0].run(&first).await;
    s[1].run("BEGIN").await;
    s[1].run(&second).await;
    let other = "SELECT success FROM queen.partitions p, queen.ack(p.partition_id, 'two', 'completed', 'g') WHERE p.partition = 'two'";
    let (started, waits) = s[0].start_and_watch(&s[2], other).await;
    assert!(waits, "for the cursor of the other partition");
    s[1].run("COMMIT").await;
    started.end().await;
    s[0].run("COMMIT").await;
    assert_eq!(paused(&s[2]).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn filing_does_not_take_turns_where_nothing_is_counted() {
    let s = sessions(3, "{}").await;
    for partition in ["one", "two"] {
        s[0].append("q", partition, &[partition]).await;
    }
    let (first, second) = (last_straw(&s[0], "one", "dlq").await, last_straw(&s[1], "two", "dlq").await);
    s[0].run("BEGIN").await;
    s[0].run(&first).await;
    let (started, waits) = s[1].start_and_watch(&s[2], &second).await;
    assert!(!waits);
    started.end().await;
    s[0].run("COMMIT").await;
}

/// The row of the group is replaced by somebody who holds no lock on the groups of the queue.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_changes_a_group_that_is_just_pausing_itself_waits_and_keeps_both_changes() {
    for (change, end, left) in [
        ("SELECT queen.pause_group('q', 'g', 'by hand')", "COMMIT", "1 dead letters"),
        ("SELECT queen.pause_group('q', 'g', 'by hand')", "ROLLBACK", "by hand"),
        ("SELECT queen.set_subscription('g', '2020-01-01')", "COMMIT", "1 dead letters"),
        ("SELECT queen.resume_group('q', 'g')", "COMMIT", "~"),
        ("SELECT queen.pop('q', 'g')", "COMMIT", "1 dead letters"),
        ("SELECT queen.drop_consumer_group('g')", "COMMIT", "gone"),
    ] {
        let s = sessions(3, r#"{"autoPauseCount": 1}"#).await;
        s[0].append("q", "one", &["a"]).await;
        let straw = last_straw(&s[0], "one", "dlq").await;
        s[0].run("BEGIN").await;
        s[0].run(&straw).await;
        s[0].run("PREPARE TRANSACTION 'pausing'").await;
        let (started, waits) = s[1].start_and_watch(&s[2], change).await;
        assert!(waits, "{change}");
        s[0].run(&format!("{end} PREPARED 'pausing'")).await;
        started.end().await;
        let now = s[2].rows("SELECT pause_reason, mode, registered FROM queen.subscription").await;
        match now.first() {
            None => assert_eq!(left, "gone", "{change}"),
            Some(row) => {
                let reason = row[0].as_deref().unwrap_or("~");
                assert!(reason.starts_with(left), "{change}: {reason}");
                let sought = change.contains("set_subscription");
                assert_eq!(row[1].as_deref(), Some(if sought { "timestamp" } else { "all" }), "{change}");
                assert_eq!(row[2].as_deref() == Some("t"), change.contains("pop("), "{change}");
            }
        }
        assert!(now.len() <= 1, "{change}");
    }
}

/// Nobody that pops or acks takes notice of a pause that has not committed.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_pause_is_not_committed_the_group_goes_on_and_nobody_waits() {
    let s = sessions(3, "{}").await;
    s[0].append("q", "one", &["a", "b"]).await;
    let nack = last_straw(&s[0], "one", "failed").await;
    s[0].pop("'q', 'g'").await;
    s[0].run("BEGIN; SELECT queen.pause_group('q', 'g')").await;
    for call in [nack.as_str(), "SELECT queen.push('q', '1', 'two')", "SELECT queen.pop('q', 'g', auto_ack => true)"] {
        let (started, waits) = s[1].start_and_watch(&s[2], call).await;
        assert!(!waits, "{call}");
        started.end().await;
    }
    s[0].run("COMMIT").await;
    assert_eq!(s[1].pop("'q', 'g'").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_pushed_beside_a_failure_is_found_when_the_pause_is_over() {
    let options = r#"{"retryBackoff": "fixed", "retryDelay": 600000}"#;
    for (failure_first, end) in [(true, "COMMIT"), (true, "ROLLBACK"), (false, "COMMIT"), (false, "ROLLBACK")] {
        let s = sessions(2, options).await;
        s[0].append("q", "one", &["a"]).await;
        s[0].pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
        s[0].append("q", "one", &["b"]).await;
        let nack = last_straw(&s[0], "one", "failed").await;
        let push = format!("SELECT queen.push_batch({})", batch("q", "one", &["c"]));
        let (first, second) = if failure_first { (&nack, &push) } else { (&push, &nack) };
        s[0].run("BEGIN").await;
        s[0].run(first).await;
        s[1].run(second).await;
        s[0].run(end).await;
        s[0].run(PASS).await;
        if failure_first && end == "ROLLBACK" {
            s[0].run("SELECT queen.release(lease_id) FROM queen.cursor WHERE lease_id IS NOT NULL").await;
        }
        let got: Vec<String> = s[1].pop("'q', 'g', 9").await.into_iter().map(|m| m.transaction_id).collect();
        let both = failure_first || end == "COMMIT";
        assert_eq!(got.join(" "), if both { "b c" } else { "b" }, "{failure_first} {end}");
    }
}

/// The completion ends the pause, and the append reads a cursor that still rests.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_pushed_beside_the_end_of_a_pause_is_found_at_once() {
    let options = r#"{"retryBackoff": "fixed", "retryDelay": 600000}"#;
    for completion_first in [true, false] {
        let s = sessions(2, options).await;
        s[0].append("q", "one", &["b"]).await;
        s[0].pop("'q', 'g', auto_ack => true, partition => 'none', subscription_mode => 'all'").await;
        let nack = last_straw(&s[0], "one", "failed").await;
        s[0].run("SELECT queen.pop('q', 'g')").await;
        s[0].run(&nack).await;
        let complete = "SELECT queen.ack(p.partition_id, 'b', 'completed', 'g') FROM queen.partitions p".to_owned();
        let push = format!("SELECT queen.push_batch({})", batch("q", "one", &["c"]));
        let (first, second) = if completion_first { (&complete, &push) } else { (&push, &complete) };
        s[0].run("BEGIN").await;
        s[0].run(first).await;
        s[1].run(second).await;
        s[0].run("COMMIT").await;
        let got: Vec<String> = s[1].pop("'q', 'g', 9").await.into_iter().map(|m| m.transaction_id).collect();
        assert_eq!(got, ["c"], "{completion_first}");
    }
}
