//! Seek and drop_consumer_group.

use crate::support::{Batch, Db, INVALID_LEASE};

async fn dated(db: &Db) {
    for ids in ["a b", "c", "d"] {
        db.push("q", ids).await;
    }
    db.run(
        "UPDATE queen.segment SET created_at = CASE base WHEN 0 THEN '2026-01-01'::timestamptz WHEN 2 THEN '2026-01-02' ELSE '2026-01-03' END",
    )
    .await;
}

#[tokio::test]
async fn a_seek_to_a_time_goes_to_the_first_segment_stored_at_or_after_it() {
    let db = Db::new().await;
    dated(&db).await;
    db.pop("'q', 'g', batch => 9, auto_ack => true, subscription_mode => 'all'").await;
    for (time, wanted) in [
        ("-infinity", "a b c d"),
        ("2025-01-01", "a b c d"),
        ("2026-01-01 00:00:00+00", "a b c d"),
        ("2026-01-01 12:00:00+00", "c d"),
        ("2026-01-02 00:00:00+00", "c d"),
        ("2026-01-02 00:00:01+00", "d"),
        ("2026-01-04", ""),
        ("infinity", ""),
    ] {
        assert_eq!(db.rows(&format!("SELECT queen.seek('q', 'g', to_timestamp => '{time}')")).await, "1");
        let batch = db.pop("'q', 'g', batch => 9").await;
        assert_eq!(batch.ids, wanted, "{time}");
    }
}

#[tokio::test]
async fn a_seek_to_the_end_skips_and_what_comes_after_is_delivered() {
    let db = Db::new().await;
    dated(&db).await;
    db.pop("'q', 'g', subscription_mode => 'all'").await;
    assert_eq!(db.rows("SELECT queen.seek('q', 'g', to_end => true)").await, "1");
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    db.push("q", "e").await;
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "e");
}

#[tokio::test]
async fn a_seek_ends_leases_and_forgets_retries_and_deliveries() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    for _ in 0..2 {
        let batch = db.pop("'q', 'g', batch => 2, subscription_mode => 'all'").await;
        assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
    }
    let held = db.pop("'q', 'g', batch => 2").await;
    assert_eq!((held.attempt, db.cursor("q", "g").await.as_str()), (3, "-1|2|t"));
    db.run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    assert_eq!(db.cursor("q", "g").await, "-1|0|f");
    for status in ["completed", "failed", "dlq"] {
        assert_eq!(db.ack(&held, "a", status).await, INVALID_LEASE);
    }
    let again = db.pop("'q', 'g', batch => 2").await;
    assert_eq!((again.ids.as_str(), again.attempt), ("a b", 1));
}

#[tokio::test]
async fn a_seek_is_for_one_partition_or_for_all_and_counts_them() {
    let db = Db::new().await;
    for partition in ["p1", "p2", "p3"] {
        db.push_to("q", partition, partition).await;
    }
    db.pop("'q', 'g', batch => 9, max_partitions => 0, auto_ack => true, subscription_mode => 'all'").await;
    assert_eq!(db.rows("SELECT queen.seek('q', 'g', to_timestamp => '-infinity', partition => 'p2')").await, "1");
    assert_eq!(db.pop("'q', 'g', batch => 9, max_partitions => 0, auto_ack => true").await.ids, "p2");
    assert_eq!(db.rows("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await, "3");
    let all: Batch = db.pop("'q', 'g', batch => 9, max_partitions => 0").await;
    assert_eq!(all.ids.split(' ').count(), 3);
}

#[tokio::test]
async fn a_seek_wants_exactly_one_target_and_what_it_names_must_be_there() {
    let db = Db::new().await;
    db.push("q", "a").await;
    for (arguments, state) in [
        ("'q', 'g'", "QN015"),
        ("'q', 'g', to_end => false", "QN015"),
        ("'q', 'g', to_end => true, to_timestamp => now()", "QN015"),
        ("'nowhere', 'g', to_end => true", "QN013"),
        ("'q', 'g', to_end => true, partition => 'nowhere'", "QN014"),
        ("'', 'g', to_end => true", "QN001"),
        ("'q', '', to_end => true", "QN001"),
        ("NULL, 'g', to_end => true", "22023"),
    ] {
        assert_eq!(db.state(&format!("SELECT queen.seek({arguments})")).await, state, "{arguments}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.subscription").await, "0");
    assert_eq!(db.rows("SELECT queen.seek('q', 'g', to_end => false, to_timestamp => 'infinity')").await, "1");
}

#[tokio::test]
async fn a_seek_of_a_group_that_is_not_there_yet_subscribes_it() {
    let db = Db::new().await;
    dated(&db).await;
    assert_eq!(db.rows("SELECT queen.seek('q', 'g', to_timestamp => '2026-01-02 00:00:00+00')").await, "1");
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "c d");
    db.run("SELECT queen.seek('q', 'h', to_end => true)").await;
    assert_eq!(db.pop("'q', 'h', batch => 9, subscription_mode => 'all'").await.ids, "");
    // Partitions that come later are read from their start.
    db.push_to("q", "later", "x").await;
    assert_eq!(db.pop("'q', 'h', batch => 9").await.ids, "x");
}

#[tokio::test]
async fn a_seek_below_the_log_start_stays_at_the_log_start() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxWaitTimeSeconds": 500}"#).await;
    db.push("q", "a b").await;
    db.age("q", 501).await;
    db.push("q", "c").await;
    db.run("SELECT queen.maintain(); SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    assert_eq!(db.cursor("q", "g").await, "1|0|f");
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "c");
}

#[tokio::test]
async fn a_dropped_group_begins_anew_with_its_next_pop() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.push_to("q", "p2", "b").await;
    let held = db.pop("'q', 'g', batch => 9, max_partitions => 0, subscription_mode => 'all'").await;
    assert_eq!(db.rows("SELECT queen.drop_consumer_group('g')").await, "2");
    assert_eq!(db.rows("SELECT queen.drop_consumer_group('g')").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.consumer_groups").await, "0");
    assert_eq!(db.ack(&held, "a", "completed").await, "no: consumer not found");
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", held.lease)).await, "0");
    assert_eq!(db.pop("'q', 'g'").await.ids, "", "new is the default");
    db.push("q", "c").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "c");
}

#[tokio::test]
async fn a_group_dropped_without_its_subscription_begins_where_that_says() {
    let db = Db::new().await;
    db.push("q", "old").await;
    db.pop("'q', 'new'").await;
    db.pop("'q', 'all', batch => 9, auto_ack => true, subscription_mode => 'all'").await;
    db.push("q", "a b").await;
    db.pop("'q', 'new', batch => 9, auto_ack => true").await;
    for (group, wanted) in [("new", "a b"), ("all", "old a b")] {
        assert_eq!(
            db.rows(&format!("SELECT queen.drop_consumer_group('{group}', delete_metadata => false)")).await,
            "1"
        );
        assert_eq!(
            db.rows(&format!("SELECT count(*) FROM queen.consumer_groups WHERE consumer_group = '{group}'")).await,
            "1"
        );
        assert_eq!(db.pop(&format!("'q', '{group}', batch => 9")).await.ids, wanted, "{group}");
    }
}

#[tokio::test]
async fn a_group_is_dropped_in_one_queue_or_in_all() {
    let db = Db::new().await;
    for queue in ["q", "r"] {
        db.push(queue, "a").await;
        db.pop(&format!("'{queue}', 'g', subscription_mode => 'all'")).await;
        db.pop(&format!("'{queue}', 'other', subscription_mode => 'all'")).await;
    }
    assert_eq!(db.rows("SELECT queen.drop_consumer_group('g', 'r')").await, "1");
    assert_eq!(db.rows("SELECT queen.drop_consumer_group('g', 'unknown')").await, "0");
    assert_eq!(db.rows("SELECT queen.drop_consumer_group('g')").await, "1");
    let left = db.rows("SELECT consumer_group, queue FROM queen.consumer_groups ORDER BY 2").await;
    assert_eq!(left, "other|q\nother|r");
    for (bad, state) in [("NULL", "22023"), ("''", "QN001")] {
        assert_eq!(db.state(&format!("SELECT queen.drop_consumer_group({bad})")).await, state);
    }
}

#[tokio::test]
async fn a_dropped_queue_is_gone_with_everything_and_begins_at_zero_again() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = db.pop("'q', 'g', batch => 2, subscription_mode => 'all'").await;
    db.ack(&batch, "a", "dlq").await;
    assert_eq!(db.rows("SELECT queen.drop_queue('q')").await, "t");
    assert_eq!(db.rows("SELECT queen.drop_queue('q')").await, "f");
    for table in [
        "queue",
        "partition",
        "segment",
        "trimmed",
        "transaction_id",
        "subscription",
        "cursor",
        "ready",
        "dead_letter_record",
    ] {
        assert_eq!(db.rows(&format!("SELECT count(*) FROM queen.{table}")).await, "0", "{table}");
    }
    assert_eq!(db.ack(&batch, "b", "completed").await, "no: partition not found");
    db.push("q", "a").await;
    let again = db.pop("'q', 'g', subscription_mode => 'all'").await;
    assert_eq!(again.ids, "a", "its id was free again");
    assert_ne!(again.partition_id, batch.partition_id);
    assert_eq!(db.rows("SELECT last_offset FROM queen.partitions").await, "0");
}
