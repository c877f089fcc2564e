//! Popping: what is handed out, in which order, under which lease.

use crate::support::{Db, messages};
use queen_tests::shared_cluster;

#[tokio::test]
async fn messages_come_in_order_from_the_first_that_is_not_settled() {
    let db = Db::new().await;
    db.push("q", "a b c").await;
    db.push("q", "d e").await;
    let first = db.pop("'q', batch => 2").await;
    assert_eq!(first.ids, "a b");
    assert_eq!(db.ack(&first, "b", "completed").await, "ok released");
    let second = db.pop("'q', batch => 2").await;
    assert_eq!(second.ids, "c d", "across segments");
    assert_eq!(db.ack(&second, "d", "completed").await, "ok released");
    assert_eq!(db.pop("'q', batch => 2").await.ids, "e");
}

#[tokio::test]
async fn a_batch_is_one_message_unless_said_otherwise() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    assert_eq!(db.pop("'q'").await.ids, "a");
}

#[tokio::test]
async fn a_live_lease_is_skipped_on_every_form_and_an_expired_one_is_taken() {
    let db = Db::new().await;
    db.push("s.t", "a b").await;
    let forms = [
        "queen.pop('s.t', 'g', batch => 9, subscription_mode => 'all')",
        "queen.pop('s.t', 'g', batch => 9, partition => 'Default')",
        "queen.pop_matching('s', 't', 'g', batch => 9)",
        "queen.pop_matching(task => 't', consumer_group => 'g', batch => 9)",
    ];
    let mut leases = vec![];
    for form in forms {
        let batch = db.popped(form).await;
        assert_eq!(batch.ids, "a b", "{form}");
        for other in forms {
            assert_eq!(db.popped(other).await.ids, "", "{other}");
        }
        leases.push(batch.lease);
        db.expire().await;
    }
    leases.sort();
    leases.dedup();
    assert_eq!(leases.len(), 4, "a lease id is never used again");
}

#[tokio::test]
async fn expiry_needs_no_worker_and_no_help() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', lease_seconds => 1").await;
    assert_eq!(db.pop("'q'").await.ids, "");
    db.run("SELECT pg_sleep(1.1)").await;
    let again = db.pop("'q'").await;
    assert_eq!(again.ids, "a");
    assert_ne!(again.lease, batch.lease);
    assert_eq!(db.ack(&batch, "a", "completed").await, crate::support::INVALID_LEASE);
}

#[tokio::test]
async fn lease_seconds_are_the_arguments_else_the_queues_else_those_of_a_pushed_queue() {
    let db = Db::new().await;
    db.push("pushed", "a").await;
    db.configure("configured", "{}").await;
    db.configure("set", r#"{"leaseTime": 1000}"#).await;
    for (queue, arguments, seconds) in [
        ("pushed", "", 60),
        ("configured", "", 300),
        ("set", "", 1000),
        ("pushed", ", lease_seconds => 7", 7),
        ("set", ", lease_seconds => 604800", 604_800),
    ] {
        db.run(&format!("SELECT queen.drop_consumer_group('__QUEUE_MODE__', '{queue}')")).await;
        db.push(queue, "a").await;
        db.run("CREATE TEMP TABLE IF NOT EXISTS clock (at timestamptz); TRUNCATE clock; INSERT INTO clock SELECT clock_timestamp()").await;
        assert_eq!(db.pop(&format!("'{queue}'{arguments}")).await.ids, "a");
        let within = db
            .rows(&format!(
                "SELECT c.expires_at BETWEEN clock.at + interval '{seconds} s' AND clock_timestamp() + interval '{seconds} s'
                   FROM queen.cursor c JOIN queen.subscription s USING (gid) JOIN queen.queue q ON q.qid = s.qid, clock
                  WHERE q.name = '{queue}' AND c.lease_id IS NOT NULL"
            ))
            .await;
        assert_eq!(within, "t", "{queue}{arguments}");
    }
}

#[tokio::test]
async fn auto_ack_moves_the_cursor_with_the_delivery_and_leaves_no_lease() {
    let db = Db::new().await;
    db.push("q", "a b c").await;
    let batch = db.pop("'q', batch => 2, auto_ack => true").await;
    assert_eq!((batch.ids.as_str(), batch.lease.as_str()), ("a b", ""));
    assert_eq!(batch.attempt, 1);
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "1|0|f");
    assert_eq!(db.pop("'q', batch => 2, auto_ack => true").await.ids, "c");
    assert_eq!(db.pop("'q', batch => 2, auto_ack => true").await.ids, "");
}

#[tokio::test]
async fn auto_ack_takes_over_an_expired_lease_and_its_retries_end() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = db.pop("'q', batch => 2").await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
    db.pop("'q', batch => 2").await;
    db.expire().await;
    assert_eq!(db.pop("'q', batch => 2, auto_ack => true").await.ids, "a b");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "1|0|f");
}

#[tokio::test]
async fn a_rolled_back_pop_leaves_no_lease_and_counts_no_delivery() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.run("BEGIN").await;
    let lost = db.pop("'q'").await;
    db.run("ROLLBACK").await;
    let batch = db.pop("'q'").await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("a", 1));
    assert_ne!(batch.lease, lost.lease);
    assert_eq!(db.ack_with(&batch, "a", "completed", &lost.lease, "NULL").await, crate::support::INVALID_LEASE);
    // Also for auto_ack, and by savepoint.
    db.run("BEGIN; SAVEPOINT s").await;
    assert_eq!(db.pop("'q', 'h', auto_ack => true, subscription_mode => 'all'").await.ids, "a");
    db.run("ROLLBACK TO s; COMMIT").await;
    assert_eq!(db.pop("'q', 'h', subscription_mode => 'all'").await.ids, "a");
}

#[tokio::test]
async fn delivery_attempt_counts_every_delivery_of_the_first_message() {
    let db = Db::new().await;
    db.push("q", "a b c").await;
    for attempt in 1..=3 {
        let batch = db.pop("'q', batch => 3").await;
        assert_eq!((batch.ids.as_str(), batch.attempt), ("a b c", attempt));
        db.expire().await;
    }
    // A partial acknowledgment: the first message left has been delivered as often.
    let batch = db.pop("'q', batch => 3").await;
    assert_eq!(batch.attempt, 4);
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok");
    db.expire().await;
    let batch = db.pop("'q', batch => 3").await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("b c", 5));
    assert_eq!(db.ack(&batch, "c", "completed").await, "ok released");
    db.push("q", "d").await;
    assert_eq!(db.pop("'q'").await.attempt, 1, "a new message");
}

#[tokio::test]
async fn delivery_attempt_of_a_shorter_redelivery_keeps_the_counts_of_what_it_leaves_out() {
    let db = Db::new().await;
    db.push("q", "a b c").await;
    db.pop("'q', batch => 3").await;
    db.expire().await;
    let short = db.pop("'q', batch => 1").await;
    assert_eq!((short.ids.as_str(), short.attempt), ("a", 2));
    assert_eq!(db.ack(&short, "a", "completed").await, "ok released");
    let rest = db.pop("'q', batch => 3").await;
    assert_eq!((rest.ids.as_str(), rest.attempt), ("b c", 2), "b came once before");
}

#[tokio::test]
async fn a_pinned_pop_takes_exactly_that_partition_and_ignores_max_partitions() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a").await;
    db.push_to("q", "p2", "b").await;
    let batch = db.pop("'q', partition => 'p2', batch => 10, max_partitions => 5").await;
    assert_eq!((batch.ids.as_str(), batch.partitions.as_str()), ("b", "p2"));
    assert_eq!(db.pop("'q', partition => 'p2'").await.ids, "");
    assert_eq!(db.pop("'q', partition => 'no such'").await.ids, "");
}

#[tokio::test]
async fn a_pinned_pop_creates_nothing_and_a_pop_of_any_partition_creates_queue_and_subscription() {
    let db = Db::new().await;
    assert_eq!(db.pop("'a.b', 'g', partition => 'p'").await.ids, "");
    db.push("known", "x").await;
    assert_eq!(db.pop("'known', 'g', partition => 'p'").await.ids, "");
    assert_eq!(
        db.rows("SELECT (SELECT count(*) FROM queen.queues), (SELECT count(*) FROM queen.partitions), (SELECT count(*) FROM queen.subscription)").await,
        "1|1|0"
    );
    assert_eq!(db.pop("'a.b', 'g'").await.ids, "");
    assert_eq!(
        db.rows(
            "SELECT queue, namespace, task, partitions, options ->> 'leaseTime' FROM queen.queues WHERE queue = 'a.b'"
        )
        .await,
        "a.b|a|b|0|60"
    );
    assert_eq!(
        db.rows("SELECT consumer_group, queue, subscription_mode FROM queen.consumer_groups").await,
        "g|a.b|new"
    );
}

#[tokio::test]
async fn a_group_that_skips_a_backlog_is_told_how_much_and_how_to_begin_with_it() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a b").await;
    db.push_to("q", "p2", "c").await;
    let notice = |sql: &str| {
        let output = shared_cluster().try_psql(&db.name, sql);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = notice("SELECT * FROM queen.pop('q', 'g1')");
    assert!(text.starts_with("NOTICE:") && text.contains(" 3 messages"), "{text}");
    assert!(text.contains("subscription_mode => 'all'") && text.contains("queen.seek"), "{text}");
    let text = notice("SELECT * FROM queen.pop('q', 'pinned', partition => 'p1')");
    assert!(text.contains(" 2 messages"), "{text}");
    for quiet in [
        "SELECT * FROM queen.pop('q', 'g1')",
        "SELECT * FROM queen.pop('q')",
        "SELECT * FROM queen.pop('q', 'g2', subscription_mode => 'all')",
        "SELECT * FROM queen.pop('empty', 'g3')",
    ] {
        assert_eq!(notice(quiet), "", "{quiet}");
    }
}

#[tokio::test]
async fn pop_json_answers_the_wires_message_with_the_payload_byte_for_byte() {
    let db = Db::new().await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":{"b" : 1.50,"b":2},"transactionId":"a\"b"}]')"#).await;
    let text = db.rows("SELECT queen.pop_json('q')").await;
    assert!(text.contains(r#""data":{"b" : 1.50,"b":2}}"#), "{text}");
    let message = &messages(&text)[0];
    assert_eq!(message["transactionId"], "a\"b");
    assert_eq!(message["traceId"], serde_json::Value::Null);
    assert_eq!(message["consumerGroup"], "__QUEUE_MODE__");
    assert_eq!(message["deliveryAttempt"], 1);
    assert_eq!(message["partition"], "Default");
    let created = message["createdAt"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.contains('T'), "{created}");
    for key in ["id", "partitionId", "leaseId"] {
        assert_eq!(message[key].as_str().unwrap().len(), 36, "{key}");
    }
    assert!(messages(&db.rows("SELECT queen.pop_json('q')").await).is_empty());
    let auto = db
        .rows("SELECT queen.pop_matching_json('', auto_ack => true, consumer_group => 'g', subscription_mode => 'all')")
        .await;
    assert_eq!(messages(&auto)[0]["leaseId"], serde_json::Value::Null);
}
