//! A clock that was set back: stamps of the future are stored already, and later ones follow them.

use crate::support::Db;

/// What a clock that was set back by an hour leaves in a queue.
async fn clock_was_set_back(db: &Db, queue: &str) {
    db.age(queue, -3600).await;
}

#[tokio::test]
async fn a_stamp_of_the_future_keeps_no_message_back_where_no_delay_is_configured() {
    let db = Db::new().await;
    db.push("q", "a").await;
    assert_eq!(db.pop("'q', 'any', auto_ack => true, subscription_mode => 'all'").await.ids, "a");
    db.push("q", "b").await;
    clock_was_set_back(&db, "q").await;
    assert_eq!(db.pop("'q', 'any', auto_ack => true").await.ids, "b");
    assert_eq!(db.pop("'q', 'named', 9, 'Default', auto_ack => true, subscription_mode => 'all'").await.ids, "a b");
    // Each stamp follows the one before, and so is of the future, too.
    db.push("q", "c").await;
    assert_eq!(db.rows("SELECT bool_and(created_at > now()) FROM queen.messages('q')").await, "t");
    assert_eq!(db.pop("'q', 'named', 9, 'Default', auto_ack => true").await.ids, "c");
}

#[tokio::test]
async fn a_delay_counts_from_the_stamp_also_when_it_is_of_the_future() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 1}"#).await;
    db.push("q", "a").await;
    clock_was_set_back(&db, "q").await;
    let pop = "'q', 'g', 9, 'Default', subscription_mode => 'all'";
    assert_eq!(db.pop(pop).await.ids, "");
    db.age("q", 7200).await;
    assert_eq!(db.pop(pop).await.ids, "a");
}

/// A group that subscribes in mode `new` while the last stamp is of the future, and what it got before it was so.
async fn subscribed_meanwhile(db: &Db, pop: &str) {
    db.push("q", "before").await;
    clock_was_set_back(db, "q").await;
    assert_eq!(db.pop(&format!("{pop}, subscription_mode => 'new'")).await.ids, "", "it was there before the group");
}

async fn what_comes_after_while_stamps_are_ahead(pop: &str) {
    let db = Db::new().await;
    subscribed_meanwhile(&db, pop).await;
    db.push("q", "after").await;
    assert_eq!(db.pop(pop).await.ids, "after");
}

#[tokio::test]
async fn a_group_that_subscribes_with_new_to_a_partition_while_stamps_are_ahead_gets_what_comes_after_and_no_more() {
    what_comes_after_while_stamps_are_ahead("'q', 'g', 9, 'Default'").await;
}

#[tokio::test]
async fn a_group_that_subscribes_with_new_while_stamps_are_ahead_gets_what_comes_after_and_no_more() {
    what_comes_after_while_stamps_are_ahead("'q', 'g', 9").await;
}

// The append that reached the group's start was before the group, and told nobody; those that came after it counted on it.
#[tokio::test]
async fn a_group_that_subscribed_with_new_while_stamps_were_ahead_gets_what_comes_once_the_clock_has_passed_them() {
    for pop in ["'q', 'g', 9", "'q', 'g', 9, 'Default'"] {
        let db = Db::new().await;
        subscribed_meanwhile(&db, pop).await;
        // The clock goes on beyond the stamps; the subscription and what it has seen stay in the order they had.
        db.run(
            "UPDATE queen.segment SET created_at = created_at - interval '2 hours';
             UPDATE queen.subscription SET start_at = start_at - interval '2 hours'",
        )
        .await;
        db.push("q", "after").await;
        assert_eq!(db.pop(pop).await.ids, "after", "{pop}");
    }
}

#[tokio::test]
async fn every_partition_with_a_stamp_of_the_future_is_begun_at_its_end() {
    let db = Db::new().await;
    db.run(
        r#"SELECT count(*) FROM queen.push_batch((SELECT json_agg(json_build_object('queue', 'q', 'partition', n::text, 'payload', 0))
             FROM generate_series(1, 1005) n))"#,
    )
    .await;
    clock_was_set_back(&db, "q").await;
    assert_eq!(db.pop("'q', 'g', subscription_mode => 'new'").await.ids, "");
    assert_eq!(db.rows("SELECT count(*) FROM queen.cursor WHERE committed = 0").await, "1005");
    assert_eq!(db.rows("SELECT pending FROM queen.consumer_groups").await, "0");
}
