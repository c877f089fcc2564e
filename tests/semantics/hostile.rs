//! Hostile names, payloads and texts: a clear refusal or faithful storage, never a crash or a loss.

use crate::support::{Batch, Db, INVALID_LEASE, UNRESOLVABLE, lit, messages, verdict_columns};
use serde_json::json;

/// Names that are data like any other.
const ODD: [&str; 14] = [
    "it's \"quoted\"; DROP TABLE queen.queue; --",
    "a/b/../c",
    "\\",
    "$1 %s {} \\u0000",
    "🦀 emoji 🏳️‍🌈",
    " padded ",
    "null",
    "%",
    "_",
    "'",
    "queen.queue",
    "ÜNÏCÖDE 名前 \u{202e}right to left",
    "a\u{0301}",
    "\u{feff}bom",
];

#[tokio::test]
async fn odd_names_are_names_like_any_other_in_every_place() {
    let db = Db::new().await;
    for name in ODD {
        let quoted = lit(name);
        db.run(&format!("SELECT queen.configure({quoted}, '{{\"retryLimit\": 0}}')")).await;
        db.run(&format!("SELECT queen.push({quoted}, '1', {quoted}, {quoted})")).await;
        let again = json!([{"queue": name, "partition": name, "payload": 2, "transactionId": name}]);
        assert_eq!(
            db.rows(&format!("SELECT status FROM queen.push_batch({})", lit(&again.to_string()))).await,
            "duplicate",
            "{name}"
        );
        let batch: Batch = db.pop(&format!("{quoted}, {quoted}, subscription_mode => 'all'")).await;
        assert_eq!((batch.ids.as_str(), batch.partitions.as_str(), batch.group.as_str()), (name, name, name));
        assert_eq!(db.ack_with(&batch, name, "failed", &batch.lease, &quoted).await, "ok released dlq", "{name}");
        let record = db
            .rows(&format!(
                "SELECT queue, partition, consumer_group, transaction_id, error FROM queen.dlq({quoted}, {quoted})"
            ))
            .await;
        assert_eq!(record, [name; 5].join("|"), "{name}");
        assert_eq!(db.rows(&format!("SELECT count(*) FROM queen.messages({quoted}, {quoted})")).await, "1");
        assert_eq!(db.rows(&format!("SELECT count(*) FROM queen.queues WHERE queue = {quoted}")).await, "1");
        assert_eq!(
            db.rows(&format!("SELECT queen.seek({quoted}, {quoted}, to_end => true, partition => {quoted})")).await,
            "1"
        );
        let json = messages(&db.rows(&format!("SELECT queen.pop_json({quoted}, partition => {quoted})")).await);
        assert_eq!((&json[0]["queue"], &json[0]["transactionId"]), (&json!(name), &json!(name)));
        assert_eq!(db.rows(&format!("SELECT queen.drop_consumer_group({quoted}, {quoted})")).await, "1");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, ODD.len().to_string(), "none is taken for another");
    db.verify().await;
    for name in ODD {
        assert_eq!(db.rows(&format!("SELECT queen.drop_queue({})", lit(name))).await, "t");
    }
}

#[tokio::test]
async fn names_have_up_to_255_characters_of_any_width() {
    let db = Db::new().await;
    for c in ["x", "é", "🦀"] {
        let name = lit(&c.repeat(255));
        db.run(&format!("SELECT queen.push({name}, '1', {name}, {name})")).await;
        assert_eq!(db.pop(&format!("{name}, {name}, subscription_mode => 'all'")).await.ids, c.repeat(255));
    }
    db.verify().await;
}

#[tokio::test]
async fn names_that_are_none_are_refused_by_every_function_and_shown_cut() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let long = "x".repeat(1000);
    for bad in ["", " ", "\u{3000}\t", "a\nb", "a\tb", "\u{7f}", "\u{85}", "\u{1}", &long] {
        let bad = lit(bad);
        for call in [
            format!("queen.push({bad}, '1')"),
            format!("queen.push('q', '1', {bad})"),
            format!("queen.push_many({bad}, ARRAY['1']::jsonb[])"),
            format!("queen.push_many('q', ARRAY['1']::jsonb[], {bad})"),
            format!("queen.push_batch(json_build_array(json_build_object('queue', {bad}, 'payload', 1)))"),
            format!(
                "queen.push_batch(json_build_array(json_build_object('queue', 'q', 'partition', {bad}, 'payload', 1)))"
            ),
            format!("queen.push_batch_json(json_build_array(json_build_object('queue', {bad}, 'payload', 1))::text)"),
            format!("queen.pop({bad})"),
            format!("queen.pop('q', {bad})"),
            format!("queen.pop('q', partition => {bad})"),
            format!("queen.pop_json({bad})"),
            format!("queen.pop_matching('n', consumer_group => {bad})"),
            format!("queen.configure({bad})"),
            format!("queen.drop_queue({bad})"),
            format!("queen.seek({bad}, 'g', to_end => true)"),
            format!("queen.seek('q', {bad}, to_end => true)"),
            format!("queen.drop_consumer_group({bad})"),
            format!("queen.dlq_purge({bad})"),
            format!("queen.ack('0190aaaa-0000-7000-8000-00000000000f', 'a', 'ok', {bad})"),
            format!("queen.ack_batch('[]', {bad})"),
            format!("queen.ack_batch_json('[]', {bad})"),
            format!("queen.dlq_move_v1('0190aaaa-0000-7000-8000-00000000000f', {bad})"),
            format!("queen.dlq_move_v1('0190aaaa-0000-7000-8000-00000000000f', 'q', {bad})"),
        ] {
            let (state, message) = db.error(&format!("SELECT {call}")).await;
            assert_eq!(state, "QN001", "{call:.100}");
            assert!(message.len() < 300 && !message.contains(['\n', '\t']), "{message}");
        }
        assert_eq!(db.state(&format!("CALL queen.wait({bad}, 'g', 0)")).await, "QN001");
        assert_eq!(db.state(&format!("CALL queen.wait('q', {bad}, 0)")).await, "QN001");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "1");
}

#[tokio::test]
async fn nul_and_broken_text_in_an_error_never_prevents_settling() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    for (error, kept) in [
        (r#""nul \u0000 here""#, "nul \u{fffd} here"),
        (r#""\u0001\u001b[31m \n\t\u0085""#, "\u{fffd}\u{fffd}[31m \n\t\u{fffd}"),
        ("5", "5"),
        (r#"{"code": "\u0000"}"#, r#"{"code": "\u0000"}"#),
        ("[1, 2]", "[1, 2]"),
        ("true", "true"),
    ] {
        for reason in [false, true] {
            db.run("SELECT queen.push('q', '1')").await;
            let batch = db.pop("'q'").await;
            let field = if reason { "reason" } else { "error" };
            let item = format!(
                r#"[{{"transactionId":"{}","partitionId":"{}","leaseId":"{}","status":"failed","{field}":{error}}}]"#,
                batch.ids, batch.partition_id, batch.lease
            );
            let verdict =
                db.rows(&format!("SELECT {} FROM queen.ack_batch({}) a", verdict_columns("a"), lit(&item))).await;
            assert_eq!(verdict, "ok released dlq", "{error}");
            assert_eq!(db.rows(&format!("SELECT {field} FROM queen.dlq(max_rows => 1)")).await, kept);
        }
    }
    // By the typed doors: control characters, and very long.
    for error in ["E'\\x01\\x02'".to_owned(), "repeat('é', 1000000)".to_owned(), "''".to_owned()] {
        db.run("SELECT queen.push('q', '1')").await;
        let batch = db.pop("'q'").await;
        assert_eq!(db.ack_with(&batch, &batch.ids, "failed", &batch.lease, &error).await, "ok released dlq");
        db.run("SELECT queen.push('q', '1')").await;
        let batch = db.pop("'q'").await;
        let sql = format!(
            "SELECT {} FROM queen.nack('{}', '{}', {error}, 'failed', {error}) a",
            verdict_columns("a"),
            batch.lease,
            batch.ids
        );
        assert_eq!(db.rows(&sql).await, "ok released dlq");
    }
    assert_eq!(
        db.rows("SELECT bool_and(octet_length(error) <= 4096 AND octet_length(reason) <= 4096) FROM queen.dlq()").await,
        "t"
    );
    db.verify().await;
}

/// The answer held the id as it was given, NUL included, which no text of the server may hold.
#[tokio::test]
async fn an_id_with_a_nul_is_answered_without_it() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    for id in [r"a\u0000b", r"\u0000", r"a\u0001"] {
        let item = format!(
            r#"[{{"transactionId":"{id}","partitionId":"{}","leaseId":"{}"}}]"#,
            batch.partition_id, batch.lease
        );
        let answer = db
            .rows(&format!(
                "SELECT position('\\x00'::bytea IN convert_to(transaction_id, 'UTF8')), error FROM queen.ack_batch({})",
                lit(&item)
            ))
            .await;
        assert!(answer.starts_with("0|"), "{answer:?}");
        assert!(answer.ends_with(&UNRESOLVABLE[4..]), "{answer:?}");
        // As text it can be stored and compared.
        db.run(&format!("CREATE TEMP TABLE kept AS SELECT * FROM queen.ack_batch({}); SELECT upper(transaction_id) FROM kept; DROP TABLE kept", lit(&item))).await;
        let json = db.rows(&format!("SELECT queen.ack_batch_json({}, '__QUEUE_MODE__')", lit(&item))).await;
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
        let bundle = item.replace("[{", r#"[{"type":"ack","#);
        let answer = db.rows(&format!("SELECT t ->> 'success' FROM queen.transaction({}) t", lit(&bundle))).await;
        assert_eq!(answer, "false");
    }
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
}

#[tokio::test]
async fn malformed_ids_in_the_json_doors_are_answered_or_refused_and_move_nothing() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q'").await;
    let (partition, lease) = (&batch.partition_id, &batch.lease);
    for (item, verdict) in [
        (json!({"transactionId": "a", "partitionId": ""}), "no: partitionId is not a UUID"),
        (json!({"transactionId": "a", "partitionId": "x".repeat(10_000)}), "no: partitionId is not a UUID"),
        (json!({"transactionId": "a", "partitionId": "'; DROP"}), "no: partitionId is not a UUID"),
        (json!({"transactionId": "a", "partitionId": null}), "no: partitionId is required"),
        (json!({"transactionId": "a", "partitionId": partition, "leaseId": "x"}), INVALID_LEASE),
        (json!({"partitionId": partition, "leaseId": lease}), UNRESOLVABLE),
        (json!({"transactionId": null, "partitionId": partition, "leaseId": lease}), UNRESOLVABLE),
        (json!({"transactionId": "x".repeat(100_000), "partitionId": partition, "leaseId": lease}), UNRESOLVABLE),
    ] {
        let sql =
            format!("SELECT {} FROM queen.ack_batch({}) a", verdict_columns("a"), lit(&json!([item]).to_string()));
        assert_eq!(db.rows(&sql).await, verdict);
    }
    for items in [
        r#"[{"transactionId":5,"partitionId":"x"}]"#,
        r#"[{"transactionId":"a","partitionId":5}]"#,
        r#"[{"transactionId":"a","partitionId":"x","leaseId":{}}]"#,
        "{}",
        "5",
        "null",
        "[5]",
        "[null]",
        "[[]]",
        r#""a""#,
    ] {
        assert_eq!(db.state(&format!("SELECT queen.ack_batch({})", lit(items))).await, "QN008", "{items}");
        assert_eq!(db.state(&format!("SELECT queen.push_batch({})", lit(items))).await, "QN008", "{items}");
    }
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|0|t");
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
}
