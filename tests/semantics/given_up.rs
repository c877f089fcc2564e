//! What a pop gives up instead of delivering it: messages past their deadline, and those delivered too often.

use crate::support::{Db, lit};
use serde_json::json;

/// Pushes messages `(id, deadline from now in seconds)` in one append; None: without.
async fn push(db: &Db, queue: &str, messages: &[(&str, Option<i64>)]) {
    let mut items = Vec::new();
    for (id, deadline) in messages {
        let headers = match deadline {
            Some(seconds) => {
                let at = db
                    .rows(&format!(
                        "SELECT to_char((clock_timestamp() + make_interval(secs => {seconds})) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
                    ))
                    .await;
                json!({"x-deadline": at})
            }
            None => json!({"other": 1}),
        };
        items.push(json!({"queue": queue, "payload": 1, "transactionId": id, "headers": headers}));
    }
    db.run(&format!("SELECT queen.push_batch({})", lit(&json!(items).to_string()))).await;
}

async fn dead(db: &Db) -> String {
    db.rows("SELECT string_agg(transaction_id || ' ' || reason, ', ' ORDER BY \"offset\") FROM queen.dlq()").await
}

/// Leases until they have expired, without a word.
async fn die(db: &Db, times: usize, arguments: &str) {
    for _ in 0..times {
        db.pop(arguments).await;
        db.expire().await;
    }
}

const ALL: &str = "'q', 'g', batch => 9, subscription_mode => 'all'";

#[tokio::test]
async fn a_message_past_its_deadline_is_filed_as_expired_and_the_pop_goes_on_behind_it() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    push(&db, "q", &[("a", Some(-60)), ("b", Some(-1)), ("c", Some(3600)), ("d", None)]).await;
    let batch = db.pop(ALL).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("c d", 1));
    assert_eq!(dead(&db).await, "a expired, b expired");
    assert_eq!(
        db.rows("SELECT DISTINCT error LIKE 'not delivered: the deadline 20%Z has passed', retry_count, consumer_group, failure_class, error_code FROM queen.dlq()").await,
        "t|0|g|expired|expired"
    );
    assert_eq!(db.ack(&batch, "d", "completed").await, "ok released");
    assert_eq!(db.cursor("q", "g").await, "3|0|f");
    db.verify().await;
}

#[tokio::test]
async fn a_batch_ends_before_an_expired_message_whose_turn_comes_with_the_next_pop() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    push(&db, "q", &[("a", None), ("b", Some(-1)), ("c", None)]).await;
    let batch = db.pop(ALL).await;
    assert_eq!(batch.ids, "a");
    assert_eq!(dead(&db).await, "~", "nothing above a delivery is settled before it");
    db.ack(&batch, "a", "completed").await;
    assert_eq!(db.pop(ALL).await.ids, "c");
    assert_eq!(dead(&db).await, "b expired");
}

#[tokio::test]
async fn deadlines_mean_nothing_until_the_queue_honours_them() {
    let db = Db::new().await;
    push(&db, "q", &[("a", Some(-60))]).await;
    db.run(r#"SELECT queen.push('q', '1', transaction_id => 'b', headers => '{"x-deadline": "soon"}')"#).await;
    assert_eq!(db.pop(ALL).await.ids, "a b");
    db.expire().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    // One that nobody can read was pushed before, and still means nothing.
    let batch = db.pop(ALL).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("b", 2));
    assert_eq!(dead(&db).await, "a expired");
}

#[tokio::test]
async fn a_deadline_that_cannot_be_read_is_refused_at_every_push_when_the_queue_honours_them() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    let headers = r#"{"x-deadline": "soon"}"#;
    let item = format!(r#"{{"type":"push","queue":"q","payload":1,"headers":{headers}}}"#);
    for sql in [
        format!("SELECT queen.push('q', '1', headers => '{headers}')"),
        format!("SELECT queen.push_batch('[{item}]')"),
        format!("SELECT queen.push_batch_json('[{item}]')"),
    ] {
        let (state, message) = db.error(&sql).await;
        assert_eq!(state, "22007", "{message}");
        assert!(message.contains("x-deadline") && !message.contains("soon"), "{message}");
    }
    let answer = db.rows(&format!("SELECT t ->> 'success', t ->> 'error' FROM queen.transaction('[{item}]') t")).await;
    assert!(answer.starts_with("false|") && answer.contains("x-deadline"), "{answer}");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "0");
    db.run(r#"SELECT queen.push('q', '1', headers => '{"x-deadline": null}')"#).await;
    assert_eq!(db.pop(ALL).await.ids.len(), 36);
}

#[tokio::test]
async fn one_pop_gives_up_a_hundred_messages_at_most_and_the_next_goes_on() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    let ids: Vec<String> = (0..230).map(|n| format!("m{n}")).collect();
    let mut messages: Vec<(&str, Option<i64>)> = ids.iter().map(|id| (id.as_str(), Some(-1))).collect();
    messages.push(("last", None));
    for chunk in messages.chunks(50) {
        push(&db, "q", chunk).await;
    }
    for (filed, popped) in [("100", ""), ("200", ""), ("230", "last")] {
        assert_eq!(db.rows("CALL queen.wait('q', 'g', 0)").await, "t");
        // Message by message or in one go: the bound is the same.
        let batch = db.pop("'q', 'g', batch => 1, subscription_mode => 'all'").await;
        assert_eq!(
            (db.rows("SELECT count(*) FROM queen.dead_letter_record").await, batch.ids.as_str()),
            (filed.to_owned(), popped)
        );
    }
}

#[tokio::test]
async fn a_partition_of_nothing_but_expired_messages_is_done_with() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    push(&db, "q", &[("a", Some(-1)), ("b", Some(-1))]).await;
    assert_eq!(db.pop(ALL).await.ids, "");
    assert_eq!(dead(&db).await, "a expired, b expired");
    assert_eq!(db.cursor("q", "g").await, "1|0|f");
    assert_eq!(db.rows("SELECT count(*) FROM queen.ready").await, "0");
    // And what comes after them is found.
    db.push("q", "c").await;
    assert_eq!(db.pop(ALL).await.ids, "c");
}

#[tokio::test]
async fn expired_messages_are_given_up_in_pops_of_every_kind() {
    for (arguments, leased) in [
        ("'q', 'g', partition => 'Default', subscription_mode => 'all'", true),
        ("'q', 'g', auto_ack => true, subscription_mode => 'all'", false),
        ("'q'", true),
    ] {
        let db = Db::new().await;
        db.configure("q", r#"{"deadlines": true}"#).await;
        push(&db, "q", &[("a", Some(-1)), ("b", None)]).await;
        let batch = db.pop(arguments).await;
        assert_eq!((batch.ids.as_str(), !batch.lease.is_empty()), ("b", leased), "{arguments}");
        assert_eq!(dead(&db).await, "a expired", "{arguments}");
    }
}

#[tokio::test]
async fn a_conflating_group_gives_up_its_newest_message_with_what_that_supersedes() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true}"#).await;
    push(&db, "q", &[("a", None), ("b", Some(-1))]).await;
    let pop = "'q', 'g', subscription_mode => 'all', conflation => true";
    assert_eq!(db.pop(pop).await.ids, "");
    assert_eq!(dead(&db).await, "b expired");
    assert_eq!(db.cursor("q", "g").await, "1|0|f");
}

#[tokio::test]
async fn without_dead_lettering_expired_messages_are_dropped() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadlines": true, "deadLetterQueue": false, "dlqAfterMaxRetries": false}"#).await;
    push(&db, "q", &[("a", Some(-1)), ("b", None)]).await;
    assert_eq!(db.pop(ALL).await.ids, "b");
    assert_eq!(dead(&db).await, "~");
}

#[tokio::test]
async fn a_message_delivered_too_often_without_a_word_is_filed_and_the_next_one_delivered() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxDeliveries": 2}"#).await;
    db.push("q", "a b").await;
    let one = "'q', 'g', subscription_mode => 'all'";
    die(&db, 2, one).await;
    let batch = db.pop(one).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("b", 1));
    assert_eq!(
        db.rows("SELECT transaction_id, reason, error, retry_count, failure_class, attempts FROM queen.dlq()").await,
        "a|max_deliveries|delivered 2 times and never settled|0|poison|2"
    );
    assert_eq!(db.cursor("q", "g").await, "0|0|t");
    db.verify().await;
}

#[tokio::test]
async fn deliveries_are_counted_message_by_message_also_in_a_batch() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxDeliveries": 3}"#).await;
    db.push("q", "a b c").await;
    die(&db, 1, "'q', 'g', batch => 2, subscription_mode => 'all'").await;
    die(&db, 2, "'q', 'g', batch => 3").await;
    let batch = db.pop(ALL).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("c", 3));
    assert_eq!(dead(&db).await, "a max_deliveries, b max_deliveries");
}

#[tokio::test]
async fn failures_count_as_deliveries_and_success_forgets_them() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxDeliveries": 2, "retryLimit": 100}"#).await;
    db.push("q", "a b").await;
    let one = "'q', 'g', subscription_mode => 'all'";
    let batch = db.pop(one).await;
    db.ack(&batch, "a", "failed").await;
    let batch = db.pop(one).await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
    let batch = db.pop(one).await;
    db.ack(&batch, "b", "failed").await;
    die(&db, 1, one).await;
    assert_eq!(db.pop(one).await.ids, "");
    assert_eq!(db.rows("SELECT transaction_id, reason, retry_count FROM queen.dlq()").await, "b|max_deliveries|1");
    assert_eq!(db.cursor("q", "g").await, "1|0|f");
}

#[tokio::test]
async fn the_newest_message_of_a_conflating_group_is_counted_for_itself() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxDeliveries": 2}"#).await;
    let pop = "'q', 'g', subscription_mode => 'all', conflation => true";
    db.push("q", "a").await;
    die(&db, 2, pop).await;
    db.push("q", "b").await;
    assert_eq!(db.pop(pop).await.ids, "b", "it supersedes a, which is no longer to be delivered");
    assert_eq!(dead(&db).await, "~");
}

#[tokio::test]
async fn a_pop_that_is_rolled_back_has_given_nothing_up() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxDeliveries": 1}"#).await;
    db.push("q", "a b").await;
    die(&db, 1, "'q', 'g', subscription_mode => 'all'").await;
    db.run("BEGIN").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "b");
    db.run("ROLLBACK").await;
    assert_eq!(dead(&db).await, "~");
    assert_eq!(db.pop("'q', 'g'").await.ids, "b");
    assert_eq!(dead(&db).await, "a max_deliveries");
}
