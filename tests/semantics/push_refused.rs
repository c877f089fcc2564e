//! What a push refuses, and that nothing is stored then; and limits that just hold.

use crate::support::{Db, lit};

#[tokio::test]
async fn json_null_is_a_payload_and_sql_null_is_not() {
    let db = Db::new().await;
    db.run(
        "SELECT queen.push('q', 'null'); SELECT queen.push_many('q', ARRAY['null']::jsonb[]);
            SELECT queen.push_batch('[{\"queue\":\"q\",\"payload\":null}]')",
    )
    .await;
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages('q')").await, "null\nnull\nnull");
    for sql in [
        "SELECT queen.push('q', NULL)",
        "SELECT queen.push_many('q', ARRAY['1', NULL]::jsonb[])",
        r#"SELECT queen.push_batch('[{"queue":"q"}]')"#,
    ] {
        assert_eq!(db.state(sql).await, "QN002", "{sql}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "3");
}

#[tokio::test]
async fn a_refused_item_leaves_nothing_of_its_call() {
    let db = Db::new().await;
    let long = "x".repeat(65_536);
    for (item, state) in [
        (r#"{"queue":"q"}"#.to_owned(), "QN002"),
        (r#"{"queue":"","payload":1}"#.to_owned(), "QN001"),
        (r#"{"queue":"a\u0001","payload":1}"#.to_owned(), "QN001"),
        (r#"{"queue":"q","partition":" ","payload":1}"#.to_owned(), "QN001"),
        (r#"{"queue":"q","payload":1,"transactionId":""}"#.to_owned(), "QN004"),
        (r#"{"queue":"q","payload":1,"transactionId":"\n"}"#.to_owned(), "QN004"),
        (format!(r#"{{"queue":"q","payload":1,"transactionId":"{long}"}}"#), "QN005"),
        (r#"{"queue":"q","payload":1,"traceId":"x"}"#.to_owned(), "22P02"),
        (r#"{"queue":"q","payload":1,"headers":[]}"#.to_owned(), "QN002"),
        (r#"{"queue":5,"payload":1}"#.to_owned(), "QN008"),
    ] {
        let sql = format!("SELECT queen.push_batch({})", lit(&format!(r#"[{{"queue":"fine","payload":1}},{item}]"#)));
        assert_eq!(db.state(&sql).await, state, "{item:.80}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

#[tokio::test]
async fn a_transaction_id_of_65535_bytes_is_taken_and_found_again() {
    let db = Db::new().await;
    let id = "é".repeat(32_767) + "x";
    assert_eq!(id.len(), 65_535);
    db.run(&format!("SELECT queen.push('q', '1', transaction_id => {})", lit(&id))).await;
    let again = db.rows(&format!("SELECT status FROM queen.push('q', '1', transaction_id => {})", lit(&id))).await;
    assert_eq!(again, "duplicate");
    let batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, &id, "completed").await, "ok released");
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let db = Db::new().await;
    db.run("SET queen.max_payload_bytes = 100").await;
    let at_limit = format!("\"{}\"", "x".repeat(98));
    let over = format!("\"{}\"", "x".repeat(99));
    for (payload, fine) in [(at_limit, true), (over, false)] {
        for sql in [
            format!("SELECT queen.push('q', {})", lit(&payload)),
            format!("SELECT queen.push_many('q', ARRAY[{}]::jsonb[])", lit(&payload)),
            format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":{payload}}}]')"#),
        ] {
            if fine {
                db.run(&sql).await;
            } else {
                let (state, message) = db.error(&sql).await;
                assert_eq!(state, "QN003");
                assert!(message.contains("101") && message.contains("100"), "{message}");
                assert!(!message.contains("xxx"), "{message}");
            }
        }
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "3");
}

#[tokio::test]
async fn no_items_and_no_payloads_are_fine_and_do_nothing() {
    let db = Db::new().await;
    assert_eq!(db.rows("SELECT queen.push_batch('[]')").await, "");
    assert_eq!(db.rows("SELECT queen.push_batch_json('[]')").await, "[]");
    assert_eq!(db.rows("SELECT queen.push_many('q', '{}'::jsonb[])").await, "");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

#[tokio::test]
async fn ids_and_payloads_of_push_many_must_be_as_many() {
    let db = Db::new().await;
    let state = db.state("SELECT queen.push_many('q', ARRAY['1','2']::jsonb[], transaction_ids => ARRAY['a'])").await;
    assert_eq!(state, "22023");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

/// Writes of the broker go around the executor, and so went around its check.
#[tokio::test]
async fn a_read_only_transaction_can_neither_push_nor_pop_nor_settle() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    db.push("q", "b").await;
    for sql in [
        "SELECT queen.push('q', '1')".to_owned(),
        "SELECT queen.push_many('q', ARRAY['1']::jsonb[])".to_owned(),
        r#"SELECT queen.push_batch('[{"queue":"q","payload":1}]')"#.to_owned(),
        "SELECT * FROM queen.pop('q', 'g')".to_owned(),
        format!("SELECT queen.ack('{}', 'a')", batch.partition_id),
        format!("SELECT queen.ack_lease('{}')", batch.lease),
    ] {
        db.run("BEGIN READ ONLY").await;
        assert_eq!(db.state(&sql).await, "25006", "{sql}");
        db.run("ROLLBACK").await;
    }
    db.run("BEGIN READ ONLY").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "2");
    db.run("COMMIT").await;
    assert_eq!(db.stored("q").await, "a b");
}
