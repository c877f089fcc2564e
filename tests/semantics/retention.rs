//! Retention: what goes, what stays, and what readers notice.

use crate::support::Db;

/// Runs maintenance and answers how many messages went.
async fn maintain(db: &Db) -> String {
    db.rows("SELECT queen.maintain() ->> 'messagesRemoved'").await
}

/// Three segments: a b (old), c (old), d (young).
async fn three_segments(db: &Db, options: &str) {
    db.configure("q", options).await;
    db.push("q", "a b").await;
    db.push("q", "c").await;
    db.age("q", 1000).await;
    db.push("q", "d").await;
}

#[tokio::test]
async fn the_defaults_delete_nothing() {
    let db = Db::new().await;
    three_segments(&db, "{}").await;
    db.push("pushed", "x").await;
    db.age("q", 1_000_000_000).await;
    db.age("pushed", 1_000_000_000).await;
    assert_eq!(maintain(&db).await, "0");
    assert_eq!(db.stored("q").await, "a b c d");
}

#[tokio::test]
async fn retention_seconds_remove_by_age_consumed_or_not() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "retentionSeconds": 500}"#).await;
    assert_eq!(maintain(&db).await, "3");
    assert_eq!(db.stored("q").await, "d");
    assert_eq!(maintain(&db).await, "0", "idempotent");
    assert_eq!(db.rows("SELECT log_start, last_offset FROM queen.partitions").await, "3|3");
    db.verify().await;
}

#[tokio::test]
async fn what_is_younger_than_the_limit_stays() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "retentionSeconds": 1005}"#).await;
    assert_eq!(maintain(&db).await, "0");
    db.age("q", 6).await;
    assert_eq!(maintain(&db).await, "3");
}

#[tokio::test]
async fn retention_enabled_gates_both_limits() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": false, "retentionSeconds": 500, "completedRetentionSeconds": 500}"#)
        .await;
    db.pop("'q', batch => 9, auto_ack => true").await;
    assert_eq!(maintain(&db).await, "0");
    db.configure("q", r#"{"retentionEnabled": true}"#).await;
    assert_eq!(maintain(&db).await, "3");
}

#[tokio::test]
async fn max_wait_time_evicts_whatever_else_is_set_leases_included() {
    let db = Db::new().await;
    three_segments(&db, r#"{"maxWaitTimeSeconds": 500}"#).await;
    let batch = db.pop("'q', batch => 2").await;
    assert_eq!(batch.ids, "a b");
    assert_eq!(maintain(&db).await, "3");
    assert_eq!(db.stored("q").await, "d");
    db.expire().await;
    assert_eq!(db.pop("'q', batch => 9").await.ids, "d");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0", "nothing is filed");
}

#[tokio::test]
async fn completed_retention_removes_only_what_every_group_has_passed() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "completedRetentionSeconds": 500}"#).await;
    assert_eq!(maintain(&db).await, "0", "nobody has popped");
    let fast = db.pop("'q', 'fast', batch => 9, subscription_mode => 'all'").await;
    assert_eq!(db.ack(&fast, "d", "completed").await, "ok released");
    let slow = db.pop("'q', 'slow', batch => 9, subscription_mode => 'all'").await;
    assert_eq!(maintain(&db).await, "0", "leased is not passed");
    assert_eq!(db.ack(&slow, "b", "completed").await, "ok");
    assert_eq!(maintain(&db).await, "2", "the segment that the slowest has passed");
    assert_eq!(db.ack(&slow, "d", "completed").await, "ok released");
    assert_eq!(maintain(&db).await, "1", "and d is too young");
    assert_eq!(db.stored("q").await, "d");
}

#[tokio::test]
async fn completed_retention_waits_for_a_subscribed_group_that_has_not_come_to_the_partition_yet() {
    let db = Db::new().await;
    db.push_to("q", "first", "x").await;
    three_segments(&db, r#"{"retentionEnabled": true, "completedRetentionSeconds": 500}"#).await;
    db.pop("'q', 'fast', batch => 9, max_partitions => 0, subscription_mode => 'all', auto_ack => true").await;
    assert_eq!(db.pop("'q', 'late', subscription_mode => 'all', auto_ack => true").await.ids, "x");
    assert_eq!(maintain(&db).await, "1", "x; late has still to read the rest");
    db.pop("'q', 'late', batch => 9, auto_ack => true").await;
    assert_eq!(maintain(&db).await, "3");
}

/// A group that had named one partition, once, kept all others of the queue for ever.
#[tokio::test]
async fn completed_retention_does_not_wait_for_a_group_that_reads_other_partitions_only() {
    let db = Db::new().await;
    db.push_to("q", "other", "x").await;
    three_segments(&db, r#"{"retentionEnabled": true, "completedRetentionSeconds": 500}"#).await;
    db.pop("'q', 'all', batch => 9, max_partitions => 0, subscription_mode => 'all', auto_ack => true").await;
    db.pop("'q', 'pinned', partition => 'other', subscription_mode => 'all'").await;
    assert_eq!(maintain(&db).await, "3", "all but x, which pinned has not done, and d, which is young");
}

/// A group that began after a backlog kept that backlog until it had read something of the partition.
#[tokio::test]
async fn completed_retention_does_not_wait_for_a_group_that_began_later() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "completedRetentionSeconds": 500}"#).await;
    db.pop("'q', 'all', batch => 9, subscription_mode => 'all', auto_ack => true").await;
    db.pop("'q', 'new'").await;
    assert_eq!(maintain(&db).await, "3");
    db.push("q", "e").await;
    assert_eq!(db.pop("'q', 'new', batch => 9").await.ids, "e");
}

#[tokio::test]
async fn only_whole_segments_go_and_a_reader_inside_one_keeps_it() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "completedRetentionSeconds": 500}"#).await;
    let batch = db.pop("'q', batch => 9").await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok");
    assert_eq!(maintain(&db).await, "0", "b of the same segment is not done");
}

#[tokio::test]
async fn only_a_prefix_goes() {
    let db = Db::new().await;
    db.configure("q", r#"{"retentionEnabled": true, "retentionSeconds": 500}"#).await;
    db.push("q", "a").await;
    db.push("q", "b").await;
    // A clock that went back: the second segment looks old, the first does not.
    db.run("UPDATE queen.segment SET created_at = created_at - interval '1000 s' WHERE base = 1").await;
    assert_eq!(maintain(&db).await, "0");
    assert_eq!(db.stored("q").await, "a b");
}

#[tokio::test]
async fn a_reader_behind_the_log_start_goes_on_at_the_log_start() {
    let db = Db::new().await;
    db.push("q", "a").await;
    for group in ["behind", "leased"] {
        db.pop(&format!("'q', '{group}', subscription_mode => 'all'")).await;
    }
    db.expire().await;
    db.pop("'q', 'leased'").await;
    three_segments(&db, r#"{"maxWaitTimeSeconds": 500, "dedupWindowSeconds": 0}"#).await;
    assert_eq!(maintain(&db).await, "4");
    for group in ["behind", "fresh"] {
        let batch = db.pop(&format!("'q', '{group}', batch => 9, subscription_mode => 'all'")).await;
        assert_eq!(batch.ids, "d", "{group}");
        assert_eq!(db.ack(&batch, "d", "completed").await, "ok released", "{group}");
    }
    // The holder of a lease over what is gone: told so, and not stuck.
    db.expire().await;
    assert_eq!(db.pop("'q', 'leased', batch => 9").await.ids, "d");
    let id = db.partition_id("q", "Default").await;
    assert_eq!(db.rows(&format!("SELECT \"offset\", transaction_id FROM queen.read('{id}', 0)")).await, "4|d");
    db.verify().await;
}

#[tokio::test]
async fn offsets_never_begin_again_even_after_everything_was_removed() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxWaitTimeSeconds": 500}"#).await;
    for round in 0..3 {
        db.push("q", "a b").await;
        let batch = db.pop("'q', 'g', batch => 9, subscription_mode => 'all'").await;
        assert_eq!(batch.ids, "a b");
        assert_eq!(db.ack(&batch, "b", "completed").await, "ok released");
        db.age("q", 501).await;
        assert_eq!(maintain(&db).await, "2");
        let next = (round + 1) * 2;
        assert_eq!(
            db.rows("SELECT log_start, last_offset, last_write_at FROM queen.partitions").await,
            format!("{next}|{}|~", next - 1)
        );
        assert_eq!(db.rows("SELECT messages, pending FROM queen.queues").await, "0|0");
    }
    db.verify().await;
}

#[tokio::test]
async fn a_partition_that_was_emptied_delivers_what_comes_next_to_old_and_new_groups() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxWaitTimeSeconds": 500}"#).await;
    db.push("q", "a b c").await;
    db.pop("'q', 'old'").await;
    let half = db.pop("'q', 'half', batch => 3, subscription_mode => 'all'").await;
    assert_eq!(db.ack(&half, "a", "completed").await, "ok");
    db.age("q", 501).await;
    assert_eq!(maintain(&db).await, "3");
    // A lease over what is gone can still be ended.
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", half.lease)).await, "2");
    db.push("q", "d").await;
    for group in ["old", "half", "fresh"] {
        assert_eq!(
            db.pop(&format!("'q', '{group}', batch => 9, subscription_mode => 'all'")).await.ids,
            "d",
            "{group}"
        );
    }
    db.verify().await;
}

#[tokio::test]
async fn each_queue_and_each_partition_is_looked_at_for_itself() {
    let db = Db::new().await;
    db.configure("q", r#"{"retentionEnabled": true, "retentionSeconds": 500}"#).await;
    db.push_to("q", "p1", "a").await;
    db.push("kept", "x").await;
    db.age("q", 501).await;
    db.age("kept", 501).await;
    db.push_to("q", "p2", "b").await;
    assert_eq!(maintain(&db).await, "1");
    assert_eq!(db.stored("q").await, "b");
    assert_eq!(db.stored("kept").await, "x");
}

#[tokio::test]
async fn maintain_says_what_it_did_and_rolls_back_like_anything_else() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "retentionSeconds": 500}"#).await;
    let did = db
        .rows("BEGIN; SELECT m ->> 'segmentsRemoved', m ->> 'messagesRemoved', m ->> 'skipped' FROM queen.maintain() m; ROLLBACK")
        .await;
    assert_eq!(did, "2|3|false");
    assert_eq!(db.stored("q").await, "a b c d");
}

#[tokio::test]
async fn a_second_maintain_at_the_same_time_leaves_it_to_the_first() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "retentionSeconds": 500}"#).await;
    db.run("BEGIN; SELECT queen.maintain()").await;
    let other = db.session().await;
    assert_eq!(other.rows("SELECT m ->> 'skipped', m ->> 'messagesRemoved' FROM queen.maintain() m").await, "true|0");
    db.run("COMMIT").await;
    assert_eq!(db.stored("q").await, "d");
}

#[tokio::test]
async fn a_lease_behind_the_log_start_holds_and_counts_what_was_delivered_only() {
    let db = Db::new().await;
    three_segments(&db, r#"{"retentionEnabled": true, "retentionSeconds": 500}"#).await;
    db.pop("'q', 'g', subscription_mode => 'all'").await;
    db.expire().await;
    assert_eq!(maintain(&db).await, "3");
    let batch = db.pop("'q', 'g', batch => 9").await;
    assert_eq!(batch.ids, "d");
    assert_eq!(db.cursor("q", "g").await, "2|0|t", "what is gone is done");
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", batch.lease)).await, "1");
}
