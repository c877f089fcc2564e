//! Hostile payloads: faithful storage or a clear refusal, never a crash or a loss.

use crate::support::{Db, lit};

/// Pushes through `push_batch` and demands the text back from every reader, byte for byte.
async fn faithful(db: &Db, payload: &str) {
    let items = format!(r#"[{{"queue":"q","payload":{payload},"headers":{{"h":{payload}}}}}]"#);
    let offset = db.rows(&format!("SELECT \"offset\" FROM queen.push_batch({})", lit(&items))).await;
    let id = db.partition_id("q", "Default").await;
    let shown: String = payload.chars().take(80).collect();
    // Compared in the server: the text may be large.
    let same = db
        .rows(&format!(
            "SELECT r.payload_text = {0}, f.payload_text = {0} FROM queen.read('{id}', {offset}, 1) r,
                    queen.segment s, LATERAL queen.decode_segment(s.data) f WHERE s.base = {offset}",
            lit(payload)
        ))
        .await;
    assert_eq!(same, "t|t", "{shown}");
    assert_eq!(
        db.rows(&format!("SELECT payload_text = {} FROM queen.pop('q', auto_ack => true)", lit(payload))).await,
        "t",
        "{shown}"
    );
    let json = db.rows(&format!("SELECT queen.seek('q', 'json', to_timestamp => '-infinity'); SELECT position({} IN string_agg(j, '')) > 0 FROM (SELECT queen.pop_json('q', 'json', batch => 1000, auto_ack => true) j) j", lit(&format!("\"data\":{payload}}}")))).await;
    assert!(json.ends_with('t'), "{shown}");
}

#[tokio::test]
async fn payload_text_comes_back_byte_for_byte() {
    let db = Db::new().await;
    let deep = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    for payload in [
        "123456789012345678901234567890".to_owned(),
        "-0".to_owned(),
        "-0.0".to_owned(),
        "1e-400".to_owned(),
        "1E+2".to_owned(),
        "0.10000000000000000000000000000000000000001".to_owned(),
        r#"{"a":1,"a":2,"b":3,"a":{"c":1,"c":2}}"#.to_owned(),
        r#""\u0000""#.to_owned(),
        r#"{"\u0000":1}"#.to_owned(),
        r#""\ud83e\udd80 \u00e9 \/ \b""#.to_owned(),
        "\"🦀 é \u{202e} \u{feff} \u{7f}\"".to_owned(),
        "{ \"z\" :\t1 ,\n\"a\" : [ ] }".to_owned(),
        r#""""#.to_owned(),
        "{}".to_owned(),
        "true".to_owned(),
        r#"{"encrypted":"","iv":"","authTag":""}"#.to_owned(),
        r#"{"encrypted":"AA==","iv":"AAECAwQFBgcICQoLDA0ODw==","authTag":"lTPDVqJFhpkLg0f0xRjjrw=="}"#.to_owned(),
        format!("[{}0]", "0,".repeat(100_000)),
        deep("[", "]", 1_000),
        deep("{\"a\":", "}", 1_000),
    ] {
        faithful(&db, &payload).await;
    }
    db.verify().await;
}

#[tokio::test]
async fn ten_megabytes_come_back_byte_for_byte_compressible_or_not() {
    let db = Db::new().await;
    faithful(&db, &format!("\"{}\"", "x".repeat(10 << 20))).await;
    // No two pieces alike: does not compress well.
    let mut n = 1u64;
    let mut noise = String::with_capacity(10 << 20);
    while noise.len() < 10 << 20 {
        n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        noise.push_str(&format!("{n:016x}"));
    }
    let items = format!(r#"[{{"queue":"r","payload":"{noise}"}}]"#);
    db.run(&format!("SELECT queen.push_batch({})", lit(&items))).await;
    assert_eq!(
        db.rows(&format!("SELECT payload_text = {} FROM queen.pop('r')", lit(&format!("\"{noise}\"")))).await,
        "t"
    );
    db.run(&format!("SELECT queen.push('s', {})", lit(&format!("\"{noise}\"")))).await;
    assert_eq!(
        db.rows(&format!("SELECT payload = {}::jsonb FROM queen.pop('s')", lit(&format!("\"{noise}\"")))).await,
        "t"
    );
    db.verify().await;
}

#[tokio::test]
async fn ten_thousand_levels_are_stored_or_refused_and_the_session_lives() {
    let db = Db::new().await;
    db.push("q", "before").await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for levels in [10_000, 200_000] {
            let payload = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            for sql in [
                format!("SELECT queen.push('q', {})", lit(&payload)),
                format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":{payload}}}]')"#),
                format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":1,"headers":{{"a":{payload}}}}}]')"#),
                format!(r#"SELECT queen.transaction('[{{"type":"push","queue":"q","payload":{payload}}}]')"#),
                format!(r#"SELECT queen.ack_batch('[{{"transactionId":"a","partitionId":"x","error":{payload}}}]')"#),
            ] {
                if db.client.simple_query(&sql).await.is_err() {
                    // The server's own check of the nesting.
                    assert_eq!(db.state(&sql).await, "54001", "{levels} {sql:.60}");
                }
            }
        }
    }
    assert_eq!(db.pop("'q'").await.ids, "before");
    // Everything that was stored can be read, by all readers.
    let stored = db.rows("SELECT count(*) FROM queen.messages('q')").await;
    assert_eq!(
        db.rows("SELECT count(*) FROM queen.pop('q', 'g', batch => 100, subscription_mode => 'all')").await,
        stored
    );
    assert_eq!(
        db.rows("SELECT length(queen.pop_json('q', 'h', batch => 100, subscription_mode => 'all')) > 0").await,
        "t"
    );
    db.verify().await;
}

#[tokio::test]
async fn what_jsonb_cannot_hold_has_no_payload_but_its_text() {
    let db = Db::new().await;
    for payload in [r#""\u0000""#, r#"{"a":"\u0000"}"#, "1e999999"] {
        let items = format!(r#"[{{"queue":"q","payload":{payload},"headers":{{"h":{payload}}}}}]"#);
        db.run(&format!("SELECT queen.push_batch({})", lit(&items))).await;
        assert_eq!(
            db.rows("SELECT payload, headers, payload_text FROM queen.pop('q', auto_ack => true)").await,
            format!("~|~|{payload}")
        );
    }
    // The batch around it is not troubled, nor is a transaction, nor its dead letter.
    db.run(r#"SELECT queen.push_batch('[{"queue":"r","payload":1},{"queue":"r","payload":"\u0000","transactionId":"nul"},{"queue":"r","payload":3}]')"#).await;
    db.run("BEGIN").await;
    assert_eq!(
        db.rows("SELECT payload, payload_text FROM queen.pop('r', batch => 9)").await,
        "1|1\n~|\"\\u0000\"\n3|3"
    );
    let batch_lease = db.rows("SELECT lease_id FROM queen.cursor WHERE lease_id IS NOT NULL").await;
    db.run(&format!("SELECT queen.nack('{batch_lease}', 'nul', status => 'dlq'); COMMIT")).await;
    assert_eq!(db.rows("SELECT payload, payload_text FROM queen.dlq()").await, "~|\"\\u0000\"");
    assert_eq!(db.rows("SELECT v ->> 'result' FROM queen.dlq() d, queen.dlq_move_v1(d.id) v").await, "moved");
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages('r', max_rows => 1)").await, "\"\\u0000\"");
    db.verify().await;
}

#[tokio::test]
async fn a_lone_surrogate_in_a_payload_is_kept_and_in_a_name_or_id_refused() {
    let db = Db::new().await;
    // The server's own json type takes it; only readers that make text of it must refuse.
    let sql = r#"SELECT queen.push_batch('[{"queue":"q","payload":{"a":"\ud800"}}]')"#;
    if db.client.simple_query(sql).await.is_ok() {
        assert_eq!(db.rows("SELECT payload_text FROM queen.pop('q')").await, r#"{"a":"\ud800"}"#);
    } else {
        assert_eq!(db.state(sql).await, "22P02");
    }
    for item in [
        r#"{"queue":"\ud800","payload":1}"#,
        r#"{"queue":"q","partition":"\udc00x","payload":1}"#,
        r#"{"queue":"q","transactionId":"\ud800","payload":1}"#,
    ] {
        let state = db.state(&format!("SELECT queen.push_batch('[{item}]')")).await;
        assert!(["QN008", "22P02"].contains(&state.as_str()), "{state} {item}");
    }
    db.verify().await;
}

#[tokio::test]
async fn the_text_doors_take_any_depth_and_every_reader_survives_it() {
    let db = Db::new().await;
    let levels = 500_000;
    let payload = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let items = format!(
        r#"[{{"queue":"q","payload":{payload},"transactionId":"deep"}},{{"queue":"q","payload":"\ud800","transactionId":"b"}}]"#
    );
    db.run(&format!("SELECT queen.push_batch_json({})", lit(&items))).await;
    let batch = db.pop("'q', batch => 9").await;
    assert_eq!(batch.ids, "deep b");
    let shown = format!("{payload}\n\"\\ud800\"");
    let same = async |sql: &str| {
        let text = db.rows(sql).await;
        assert!(text == shown, "{sql}: {} bytes", text.len());
    };
    same("SELECT payload_text FROM queen.messages('q') ORDER BY \"offset\"").await;
    same("SELECT payload_text FROM queen.pop('q', 'g', batch => 9, subscription_mode => 'all')").await;
    same("SELECT f.payload_text FROM queen.segment s, queen.decode_segment(s.data) f").await;
    let json = db.rows("SELECT queen.pop_json('q', 'h', batch => 9, subscription_mode => 'all')").await;
    assert!(json.contains(&payload) && json.contains(r#""\ud800""#));
    assert_eq!(db.ack(&batch, "deep", "dlq").await, "ok released dlq");
    assert_eq!(db.rows("SELECT payload, length(payload_text) FROM queen.dlq()").await, format!("~|{}", payload.len()));
    let result = "SELECT v ->> 'result' FROM queen.dlq() d, queen.dlq_move_v1(d.id, 'r') v";
    assert_eq!(db.rows(result).await, "moved");
    db.verify().await;
}

#[tokio::test]
async fn the_text_doors_refuse_what_is_no_json_and_quote_none_of_it() {
    let db = Db::new().await;
    for body in [
        "",
        "secret",
        "[secret]",
        "[{\"queue\":\"q\",\"payload\":secret}]",
        "[{\"queue\":\"q\",\"payload\":\"secret}]",
        "[{\"queue\":\"q\",\"payload\":\"secret\u{1}\"}]",
        "[{\"queue\":\"q\",\"payload\":{\"secret\"}}]",
        "[{\"queue\":\"q\",\"payload\":1},]",
        "[{\"queue\":\"q\",\"payload\":1}] secret",
        "[{\"queue\":\"q\",\"payload\":01}]",
        "[{\"queue\":\"q\",\"payload\":NaN}]",
    ] {
        for call in [
            format!("queen.push_batch_json({})", lit(body)),
            format!("queen.ack_batch_json({}, 'g')", lit(body)),
            format!("queen.ack_many_json({})", lit(body)),
            format!("queen.transaction_json({})", lit(body)),
        ] {
            let (state, message) = db.error(&format!("SELECT {call}")).await;
            assert_eq!(state, "QN008", "{body}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}
