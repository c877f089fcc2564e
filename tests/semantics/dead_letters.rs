//! Dead letters: what a record holds, and what becomes of it.

use crate::support::{Batch, Db, file_dead_letter as file, filed, lit, moved};
use serde_json::json;

#[tokio::test]
async fn a_record_holds_the_message_and_its_failure() {
    let db = Db::new().await;
    let trace = "0190aaaa-0000-7000-8000-00000000000f";
    db.run(&format!(
        r#"SELECT queen.push_batch('[{{"queue":"q","partition":"p","payload":{{"b" : 1.50}},"transactionId":"a","traceId":"{trace}","headers":{{"h":1}}}}]')"#
    ))
    .await;
    let id = db.rows("SELECT message_id FROM queen.messages()").await;
    let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
    assert_eq!(db.ack_with(&batch, "a", "failed", &batch.lease, "'first'").await, "ok released");
    let batch = db.pop("'q', 'g'").await;
    let told = db
        .rows(&format!(
            "SELECT success, dlq FROM queen.ack('{}', 'a', 'dlq', 'g', '{}', 'it broke', 'no_handler')",
            batch.partition_id, batch.lease
        ))
        .await;
    assert_eq!(told, "t|t");
    let record = db
        .rows(
            "SELECT queue, partition, partition_id, consumer_group, \"offset\", message_id, transaction_id, payload, payload_text,
                    headers, trace_id, producer, error, reason, retry_count, is_encrypted FROM queen.dlq()",
        )
        .await;
    assert_eq!(
        record,
        format!(
            "q|p|{}|g|0|{id}|a|{{\"b\": 1.50}}|{{\"b\" : 1.50}}|{{\"h\": 1}}|{trace}|~|it broke|no_handler|1|f",
            batch.partition_id
        )
    );
    let times = db
        .rows(
            "SELECT d.enqueued_at = m.created_at, d.enqueued_at < d.first_failed_at, d.first_failed_at < d.failed_at
               FROM queen.dlq() d, queen.messages() m",
        )
        .await;
    assert_eq!(times, "t|t|t");
}

#[tokio::test]
async fn the_error_is_the_signals_own_else_the_first_given_else_a_word_of_the_broker() {
    for (errors, wanted) in [
        ([None, Some("own")], "own"),
        ([Some("first"), Some("own")], "own"),
        ([Some("first"), None], "first"),
        ([None, None], "Retries exhausted"),
    ] {
        let db = Db::new().await;
        db.configure("q", r#"{"retryLimit": 0}"#).await;
        db.push("q", "a b").await;
        let batch = db.pop("'q', batch => 2").await;
        let item = |id: &str, status: &str, error: Option<&str>| json!({"transactionId": id, "partitionId": batch.partition_id, "leaseId": batch.lease, "status": status, "error": error});
        let items = json!([item("a", "completed", errors[0]), item("b", "failed", errors[1])]);
        db.run(&format!("SELECT queen.ack_batch({})", lit(&items.to_string()))).await;
        assert_eq!(db.rows("SELECT transaction_id, error FROM queen.dlq()").await, format!("b|{wanted}"));
    }
}

#[tokio::test]
async fn the_reason_is_the_consumers_else_fatal_or_retries_exhausted() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    for (status, reason, wanted) in [
        ("dlq", "NULL", "fatal"),
        ("failed", "NULL", "retries_exhausted"),
        ("failed", "'decode_error'", "decode_error"),
    ] {
        db.run("SELECT queen.push('q', '1')").await;
        let batch = db.pop("'q'").await;
        db.run(&format!("SELECT queen.nack('{}', '{}', 'e', '{status}', {reason})", batch.lease, batch.ids)).await;
        assert_eq!(db.rows("SELECT reason FROM queen.dlq(max_rows => 1)").await, wanted);
    }
}

#[tokio::test]
async fn an_error_text_is_cut_at_four_kibibytes_between_characters() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    let text = format!("x{}", "é".repeat(3000));
    db.ack_with(&batch, "a", "dlq", &batch.lease, &lit(&text)).await;
    let kept = db.rows("SELECT octet_length(error), left(error, 3), right(error, 1) FROM queen.dlq()").await;
    assert_eq!(kept, "4095|xéé|é");
}

#[tokio::test]
async fn several_groups_have_a_record_each_of_one_message() {
    let db = Db::new().await;
    let one = filed(&db, "g1").await;
    let two = file(&db, "g2").await;
    assert_ne!(one, two);
    assert_eq!(db.rows("SELECT consumer_group, dead_letters FROM queen.dlq_depth ORDER BY 1").await, "g1|1\ng2|1");
    assert_eq!(db.rows("SELECT dead_letters FROM queen.queues").await, "2");
    // Moving or deleting a record touches exactly one.
    assert_eq!(db.rows(&format!("SELECT queen.dlq_delete_row('{one}')")).await, "1");
    assert_eq!(db.rows(&format!("SELECT queen.dlq_delete_row('{one}')")).await, "0");
    assert_eq!(db.rows("SELECT consumer_group FROM queen.dlq()").await, "g2");
    file(&db, "g3").await;
    assert_eq!(moved(&db, &format!("'{two}', 'elsewhere'")).await["result"], "moved");
    assert_eq!(db.rows("SELECT consumer_group FROM queen.dlq()").await, "g3");
}

#[tokio::test]
async fn deleting_by_address_removes_all_groups_records_of_that_message_only() {
    let db = Db::new().await;
    filed(&db, "g1").await;
    file(&db, "g2").await;
    db.push("q", "b").await;
    let batch = db.pop("'q', 'g1'").await;
    db.ack(&batch, "b", "dlq").await;
    let delete = format!("SELECT queen.dlq_delete('{}', 'a')", batch.partition_id);
    assert_eq!(db.rows(&delete).await, "2");
    assert_eq!(db.rows(&delete).await, "0");
    assert_eq!(db.rows("SELECT transaction_id FROM queen.dlq()").await, "b");
    assert_eq!(db.stored("q").await, "a b", "the messages themselves stay");
}

#[tokio::test]
async fn purge_takes_an_exact_queue_name_and_perhaps_a_group() {
    let db = Db::new().await;
    filed(&db, "g1").await;
    file(&db, "g2").await;
    for none in ["'Q'", "'%'", "'q', 'g'", "'unknown'"] {
        assert_eq!(db.rows(&format!("SELECT queen.dlq_purge({none})")).await, "0", "{none}");
    }
    assert_eq!(db.state("SELECT queen.dlq_purge(NULL)").await, "22023");
    assert_eq!(db.state("SELECT queen.dlq_purge('')").await, "QN001");
    assert_eq!(db.rows("SELECT queen.dlq_purge('q', 'g1')").await, "1");
    assert_eq!(db.rows("SELECT queen.dlq_purge('q')").await, "1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
}

#[tokio::test]
async fn the_list_is_newest_failure_first_filtered_and_paged() {
    let db = Db::new().await;
    db.push("q", "a b c d e").await;
    for id in ["a", "b", "c", "d", "e"] {
        let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
        db.ack(&batch, id, "dlq").await;
    }
    // Same time: still a stable order.
    db.run("UPDATE queen.dead_letter_record SET failed_at = (SELECT max(failed_at) FROM queen.dead_letter_record) WHERE transaction_id IN ('d', 'e')").await;
    let list = |arguments: &str| format!("SELECT string_agg(transaction_id, ' ') FROM queen.dlq({arguments})");
    assert_eq!(db.rows(&list("")).await, "e d c b a");
    assert_eq!(db.rows(&list("max_rows => 2, skip => 1")).await, "d c");
    assert_eq!(db.rows(&list("max_rows => 0")).await, "~");
    assert_eq!(db.rows(&list("'q', 'g', skip => 4")).await, "a");
    assert_eq!(db.rows(&list("'q', 'h'")).await, "~");
    assert_eq!(db.rows(&list("'r'")).await, "~");
    for bad in ["max_rows => -1", "skip => -1"] {
        assert_eq!(db.state(&list(bad)).await, "22023", "{bad}");
    }
}

#[tokio::test]
async fn the_record_is_made_in_the_transaction_of_the_failure() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    db.run("BEGIN").await;
    assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
    let other = db.session().await;
    assert_eq!(other.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    db.run("COMMIT").await;
    assert_eq!(other.rows("SELECT count(*) FROM queen.dlq()").await, "1");
}

#[tokio::test]
async fn retention_does_not_touch_a_record_and_it_can_still_be_moved() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxWaitTimeSeconds": 10}"#).await;
    let id = filed(&db, "g").await;
    db.age("q", 11).await;
    db.run("SELECT queen.maintain()").await;
    assert_eq!(db.stored("q").await, "");
    assert_eq!(db.rows("SELECT transaction_id, payload FROM queen.dlq()").await, "a|0");
    assert_eq!(moved(&db, &lit(&id)).await["offset"], 1, "offsets go on");
}

#[tokio::test]
async fn nothing_else_removes_a_record_except_dropping_the_queue() {
    let db = Db::new().await;
    filed(&db, "g").await;
    db.run("SELECT queen.drop_consumer_group('g'); SELECT queen.seek('q', 'g', to_timestamp => '-infinity'); SELECT queen.maintain()").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    db.push("r", "x").await;
    assert_eq!(db.rows("SELECT queen.drop_queue('r')").await, "t");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    assert_eq!(db.rows("SELECT queen.drop_queue('q')").await, "t");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
}

#[tokio::test]
async fn a_message_that_fails_for_good_twice_makes_one_record() {
    let db = Db::new().await;
    let first = filed(&db, "g").await;
    db.run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    let batch: Batch = db.pop("'q', 'g'").await;
    assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
    assert_eq!(db.rows("SELECT id FROM queen.dlq()").await, first);
}
