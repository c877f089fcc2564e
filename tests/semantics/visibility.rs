//! Options that keep messages back for a while.

use crate::support::Db;

#[tokio::test]
async fn delayed_messages_come_when_their_time_has_come_on_every_form() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 1}"#).await;
    db.pop("'q', 'any'").await;
    db.push("q", "a").await;
    for arguments in [
        "'q', 'any'",
        "'q', 'pinned', partition => 'Default', subscription_mode => 'all'",
        "'q', 'fresh', subscription_mode => 'all'",
    ] {
        assert_eq!(db.pop(arguments).await.ids, "", "{arguments}");
    }
    db.run("SELECT pg_sleep(1.05)").await;
    for arguments in ["'q', 'any'", "'q', 'pinned', partition => 'Default'", "'q', 'fresh'"] {
        assert_eq!(db.pop(arguments).await.ids, "a", "{arguments}");
    }
}

#[tokio::test]
async fn of_old_and_young_messages_only_the_old_come() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 1000}"#).await;
    db.push("q", "a b").await;
    db.age("q", 1001).await;
    db.push("q", "c").await;
    let batch = db.pop("'q', batch => 9").await;
    assert_eq!(batch.ids, "a b");
    assert_eq!(db.ack(&batch, "b", "completed").await, "ok released");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "");
}

#[tokio::test]
async fn a_delay_that_is_set_later_holds_back_what_is_stored_already() {
    let db = Db::new().await;
    db.pop("'q', 'g'").await;
    db.push("q", "a").await;
    db.configure("q", r#"{"delayedProcessing": 1000}"#).await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    assert_eq!(db.pop("'q', 'h', partition => 'Default', subscription_mode => 'all'").await.ids, "");
}

/// Groups were told of a message for the time that the delay had when it was pushed.
#[tokio::test]
async fn a_delay_that_is_taken_away_lets_what_is_stored_come_at_once() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 1000}"#).await;
    db.pop("'q', 'any'").await;
    db.push("q", "a").await;
    assert_eq!(db.pop("'q', 'any'").await.ids, "");
    db.configure("q", r#"{"delayedProcessing": 0}"#).await;
    assert_eq!(db.pop("'q', 'pinned', partition => 'Default', subscription_mode => 'all'").await.ids, "a");
    assert_eq!(db.pop("'q', 'any'").await.ids, "a");
}

#[tokio::test]
async fn a_window_buffer_lets_messages_gather_and_then_gives_them_together() {
    let db = Db::new().await;
    db.configure("q", r#"{"windowBuffer": 1}"#).await;
    db.pop("'q', 'any'").await;
    db.push("q", "a").await;
    db.push("q", "b").await;
    for arguments in ["'q', 'any', batch => 9", "'q', batch => 9, partition => 'Default'"] {
        assert_eq!(db.pop(arguments).await.ids, "", "{arguments}");
    }
    db.run("SELECT pg_sleep(1.05)").await;
    for arguments in ["'q', 'any', batch => 9", "'q', batch => 9, partition => 'Default'"] {
        assert_eq!(db.pop(arguments).await.ids, "a b", "{arguments}");
    }
}

#[tokio::test]
async fn a_window_opens_early_when_a_hundred_messages_wait() {
    let db = Db::new().await;
    db.configure("q", r#"{"windowBuffer": 1000}"#).await;
    db.pop("'q', 'any'").await;
    let push = |n: i32| format!("SELECT count(*) FROM queen.push_many('q', array_fill('1'::jsonb, ARRAY[{n}]))");
    db.run(&push(60)).await;
    db.run(&push(39)).await;
    for group in ["any", "fresh"] {
        let pop = format!("'q', '{group}', batch => 200, subscription_mode => 'all'");
        assert_eq!(db.pop(&pop).await.ids, "", "{group}");
    }
    db.run(&push(1)).await;
    for group in ["any", "fresh"] {
        let batch = db.pop(&format!("'q', '{group}', batch => 200")).await;
        assert_eq!(batch.ids.split(' ').count(), 100, "{group}");
    }
}

#[tokio::test]
async fn a_message_held_back_makes_nobody_miss_another_partition() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 1000}"#).await;
    db.push_to("q", "old", "a").await;
    db.age("q", 1001).await;
    db.push_to("q", "young", "b").await;
    let batch = db.pop("'q', batch => 9, max_partitions => 0").await;
    assert_eq!(batch.ids, "a");
}
