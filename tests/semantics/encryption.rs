//! Encryption at rest: payloads sealed with the first key, opened with any.

use crate::support::{Batch, Db, messages};

/// Keys of the test, as `queen.encryption_keys` wants them.
const ONE: &str = "one:0101010101010101010101010101010101010101010101010101010101010101";
const TWO: &str = "two:0202020202020202020202020202020202020202020202020202020202020202";

/// Made by another implementation under the first key; of the 16 bytes of iv the first 12 count.
const ELSEWHERE: &str =
    r#"{"encrypted":"wIT9Q0ySaVvESJAHlhukx4y7","iv":"AAECAwQFBgcICQoLDA0ODw==","authTag":"lTPDVqJFhpkLg0f0xRjjrw=="}"#;
const NOT_JSON: &str =
    r#"{"encrypted":"OXWtq1KGB05Ij7xT8XL6","iv":"EBESExQVFhcYGRobHB0eHw==","authTag":"X03zOa4Gj9AP6pv51xD6oA=="}"#;

async fn keys(db: &Db, keys: &str) {
    db.run(&format!("SET queen.encryption_keys = '{keys}'")).await;
}

async fn sealed_queue(db: &Db) {
    keys(db, ONE).await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
}

/// Payloads as stored in a queue, in order.
async fn at_rest(db: &Db, queue: &str) -> String {
    db.rows(&format!(
        "SELECT f.payload_text FROM queen.segment s JOIN queen.partition p USING (pid) JOIN queen.queue q USING (qid)
          CROSS JOIN queen.decode_segment(s.data) f WHERE q.name = '{queue}' ORDER BY s.base, f.frame_index"
    ))
    .await
}

fn is_envelope(text: &str) -> bool {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(text) else {
        return false;
    };
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys == ["authTag", "encrypted", "iv"]
}

#[tokio::test]
async fn what_is_stored_is_sealed_and_what_is_read_is_not() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '{\"secret\": \"plain words\"}', transaction_id => 'a')").await;
    db.run(
        "SELECT queen.push_many('q', ARRAY['{\"secret\": \"plain words\"}']::jsonb[], transaction_ids => ARRAY['b'])",
    )
    .await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":{"secret" :  "plain words"},"transactionId":"c"}]')"#)
        .await;
    db.run(r#"SELECT queen.transaction('[{"type":"push","queue":"q","payload":{"secret":"plain words"},"transactionId":"d"}]')"#).await;
    let stored = at_rest(&db, "q").await;
    assert_eq!(stored.lines().count(), 4);
    let mut envelopes: Vec<&str> = stored.lines().collect();
    assert!(envelopes.iter().all(|e| is_envelope(e) && !e.contains("plain")), "{stored}");
    envelopes.sort_unstable();
    envelopes.dedup();
    assert_eq!(envelopes.len(), 4, "equal payloads do not look equal");
    // No byte of it is anywhere in the table.
    let found = db.rows("SELECT count(*) FROM queen.segment WHERE position('plain words'::bytea IN data) > 0").await;
    assert_eq!(found, "0");
    let wanted = "{\"secret\": \"plain words\"}|f\n{\"secret\": \"plain words\"}|f\n{\"secret\" :  \"plain words\"}|f\n{\"secret\":\"plain words\"}|f";
    assert_eq!(db.rows("SELECT payload_text, is_encrypted FROM queen.messages('q') ORDER BY \"offset\"").await, wanted);
    let id = db.partition_id("q", "Default").await;
    assert_eq!(db.rows(&format!("SELECT payload_text, is_encrypted FROM queen.read('{id}', 0)")).await, wanted);
    assert_eq!(
        db.rows(&format!("SELECT payload_text FROM queen.message('{id}', 'c')")).await,
        "{\"secret\" :  \"plain words\"}"
    );
    let json = db.rows("SELECT queen.pop_json('q', batch => 9)").await;
    assert_eq!(json.matches("plain words").count(), 4);
    assert!(!json.contains("isEncrypted"), "{json}");
    let popped =
        db.rows("SELECT payload ->> 'secret' FROM queen.pop('q', 'g', batch => 9, subscription_mode => 'all')").await;
    assert_eq!(popped, "plain words\nplain words\nplain words\nplain words");
    db.verify().await;
}

#[tokio::test]
async fn a_new_key_in_front_seals_and_the_old_one_still_opens() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '\"old\"')").await;
    keys(&db, &format!("{TWO}, {ONE}")).await;
    db.run("SELECT queen.push('q', '\"new\"')").await;
    let read = "SELECT payload_text FROM queen.messages('q') ORDER BY \"offset\"";
    assert_eq!(db.rows(read).await, "\"old\"\n\"new\"");
    // The second was sealed with the new key alone, the first with the old one.
    keys(&db, TWO).await;
    let rows = db.rows(read).await;
    let lines: Vec<&str> = rows.lines().collect();
    assert!(is_envelope(lines[0]), "{rows}");
    assert_eq!(lines[1], "\"new\"");
}

#[tokio::test]
async fn what_no_key_opens_is_returned_as_stored_and_flagged() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '\"secret\"', transaction_id => 'a')").await;
    let stored = at_rest(&db, "q").await;
    for setting in [TWO, ""] {
        keys(&db, setting).await;
        let row = db.rows("SELECT payload_text, is_encrypted FROM queen.messages('q')").await;
        assert_eq!(row, format!("{stored}|t"), "{setting}");
        let json = messages(&db.rows("SELECT queen.pop_json('q')").await);
        assert_eq!(json[0]["isEncrypted"], true);
        assert!(is_envelope(&json[0]["data"].to_string()));
        db.expire().await;
        let popped = db.pop("'q'").await;
        assert_eq!(popped.ids, "a", "it is delivered all the same");
        db.expire().await;
        // Damage and a missing key are told apart from all being well.
        let problem = db.rows("SELECT problem FROM queen.verify()").await;
        assert!(problem.contains("sealed with a key that is not configured"), "{problem}");
    }
}

#[tokio::test]
async fn without_a_usable_key_every_door_refuses_and_stores_nothing() {
    let db = Db::new().await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
    for (setting, state) in [("", "QN009"), ("nonsense", "QN010"), ("one:00", "QN010")] {
        keys(&db, setting).await;
        for sql in [
            "SELECT queen.push('q', '\"secret\"')",
            "SELECT queen.push_many('q', ARRAY['\"secret\"']::jsonb[])",
            r#"SELECT queen.push_batch('[{"queue":"plain","payload":1},{"queue":"q","payload":"secret"}]')"#,
        ] {
            let (got, message) = db.error(sql).await;
            assert_eq!(got, state, "{sql} {setting}");
            assert!(!message.contains("secret") && !message.contains("nonsense"), "{message}");
        }
        let answer = db.rows(r#"SELECT t ->> 'success', t ->> 'reason' FROM queen.transaction('[{"type":"push","queue":"q","payload":1}]') t"#).await;
        assert_eq!(
            answer,
            format!("false|{}", if state == "QN009" { "encryption_unavailable" } else { "invalid_key" })
        );
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.segment").await, "0");
}

#[tokio::test]
async fn a_key_that_goes_missing_before_commit_fails_the_commit_and_stores_nothing() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("BEGIN; SELECT queen.push('q', '1'); SELECT queen.push('plain', '1')").await;
    keys(&db, "").await;
    assert_eq!(db.state("COMMIT").await, "QN009");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "0");
    db.push("plain", "a").await;
    assert_eq!(db.stored("plain").await, "a", "the session goes on");
}

#[tokio::test]
async fn encryption_can_be_switched_and_old_and_new_messages_are_read_side_by_side() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '\"sealed\"')").await;
    db.configure("q", r#"{"encryptionEnabled": false}"#).await;
    db.run("SELECT queen.push('q', '\"plain\"')").await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
    db.run("SELECT queen.push('q', '\"sealed again\"')").await;
    let stored = at_rest(&db, "q").await;
    let kinds: Vec<bool> = stored.lines().map(is_envelope).collect();
    assert_eq!(kinds, [true, false, true]);
    assert_eq!(
        db.rows("SELECT payload_text FROM queen.messages('q') ORDER BY \"offset\"").await,
        "\"sealed\"\n\"plain\"\n\"sealed again\""
    );
}

#[tokio::test]
async fn an_envelope_that_another_system_sealed_is_opened_whatever_the_queue_says() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '{\"from\": \"elsewhere\"}')").await;
    let envelope = at_rest(&db, "q").await;
    db.run(&format!(r#"SELECT queen.push_batch('[{{"queue":"plain","payload":{envelope}}}]')"#)).await;
    assert_eq!(at_rest(&db, "plain").await, envelope);
    assert_eq!(
        db.rows("SELECT payload_text, is_encrypted FROM queen.messages('plain')").await,
        "{\"from\": \"elsewhere\"}|f"
    );
    // What only looks like one is an ordinary payload.
    let damaged = envelope.replace("\"iv\":\"", "\"iv\":\"AA");
    db.run(&format!(r#"SELECT queen.push_batch('[{{"queue":"other","payload":{damaged}}}]')"#)).await;
    assert_eq!(db.rows("SELECT payload_text, is_encrypted FROM queen.messages('other')").await, format!("{damaged}|f"));
}

/// What an envelope made elsewhere holds went into the wire's JSON as it was.
#[tokio::test]
async fn an_envelope_that_does_not_hold_json_is_returned_as_stored() {
    // "not json, but \0", sealed under the first key.
    let envelope = NOT_JSON;
    let db = Db::new().await;
    keys(&db, ONE).await;
    db.run(&format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":{envelope}}}]')"#)).await;
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages('q')").await, envelope);
    let json = messages(&db.rows("SELECT queen.pop_json('q')").await);
    assert_eq!(json[0]["data"], serde_json::from_str::<serde_json::Value>(envelope).unwrap());
}

#[tokio::test]
async fn the_envelope_is_aes_256_gcm_over_the_payload_text() {
    let envelope = ELSEWHERE;
    let db = Db::new().await;
    keys(&db, ONE).await;
    db.run(&format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":{envelope}}}]')"#)).await;
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages('q')").await, r#"{"hello":"wörld"}"#);
}

async fn dead_letter(db: &Db) -> String {
    let batch: Batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, &batch.ids, "dlq").await, "ok released dlq");
    db.rows("SELECT id FROM queen.dlq()").await
}

#[tokio::test]
async fn a_dead_letter_of_a_sealed_message_stays_sealed_at_rest_and_is_opened_for_the_reader() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '\"secret\"')").await;
    dead_letter(&db).await;
    let stored = db.rows("SELECT convert_from(payload, 'UTF8'), is_encrypted FROM queen.dead_letter_record").await;
    let (payload, flag) = stored.rsplit_once('|').unwrap();
    assert!(is_envelope(payload) && flag == "t", "{stored}");
    assert_eq!(db.rows("SELECT payload_text, payload, is_encrypted FROM queen.dlq()").await, "\"secret\"|\"secret\"|f");
    keys(&db, "").await;
    assert_eq!(db.rows("SELECT payload_text, is_encrypted FROM queen.dlq()").await, stored);
}

#[tokio::test]
async fn a_move_seals_as_the_destination_says() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    keys(&db, &format!("{ONE},{TWO}")).await;
    db.configure("sealed", r#"{"encryptionEnabled": true}"#).await;
    for (source, destination) in [("q", "plain"), ("q", "sealed")] {
        keys(&db, &format!("{ONE},{TWO}")).await;
        db.run(&format!("SELECT queen.push('{source}', '\"secret\"')")).await;
        let id = dead_letter(&db).await;
        // By now another key seals.
        keys(&db, &format!("{TWO},{ONE}")).await;
        assert_eq!(db.rows(&format!("SELECT queen.dlq_move_v1('{id}', '{destination}') ->> 'result'")).await, "moved");
    }
    assert_eq!(at_rest(&db, "plain").await, "\"secret\"");
    let resealed = at_rest(&db, "sealed").await;
    assert!(is_envelope(&resealed));
    keys(&db, TWO).await;
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages('sealed')").await, "\"secret\"");
}

#[tokio::test]
async fn a_record_that_no_key_opens_cannot_be_moved_and_stays() {
    let db = Db::new().await;
    sealed_queue(&db).await;
    db.run("SELECT queen.push('q', '\"secret\"')").await;
    let id = dead_letter(&db).await;
    for setting in ["", TWO] {
        keys(&db, setting).await;
        for to in ["", ", 'plain'"] {
            assert_eq!(db.state(&format!("SELECT queen.dlq_move_v1('{id}'{to})")).await, "QN009");
        }
    }
    // Nor can a plain one go into a sealed queue without a key.
    keys(&db, "").await;
    db.run("SELECT queen.push('plain', '1')").await;
    let batch = db.pop("'plain'").await;
    db.ack(&batch, &batch.ids, "dlq").await;
    let plain = db.rows("SELECT id FROM queen.dlq('plain')").await;
    assert_eq!(db.state(&format!("SELECT queen.dlq_move_v1('{plain}', 'q')")).await, "QN009");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "2");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "2");
}
