//! Evidence without secrets: what a queue that redacts or encrypts keeps, shows and replays.

use crate::support::{Db, lit, moved};
use queen_tests::shared_cluster;
use serde_json::json;

const KEY: &str = "k1:00000000000000000000000000000000000000000000000000000000000000aa";

/// In texts, headers and payloads of the tests; none of them may be found anywhere afterwards.
const SECRETS: [&str; 8] = [
    "sk-live-4eC39HqLyjWDarjtT1zd",
    "AKIAIOSFODNN7EXAMPLE",
    "bearer-value-8831",
    "4111111111111111",
    "4111 1111 1111 1111",
    "p4ssw0rd-of-the-db",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "cookie-value-7741",
];

/// A megabyte of stack trace with every secret at several places.
fn stack_trace() -> String {
    let mut text = String::new();
    let mut n = 0;
    while text.len() < 1 << 20 {
        n += 1;
        text.push_str(&format!(
            "Error {n}: key={} aws {} Authorization: Bearer {} card {} pan {}\n\
             postgres://app:{}@db.example:5432/app refused {}\nCookie: sid={}\n    at handler.js:{n}\n",
            SECRETS[0], SECRETS[1], SECRETS[2], SECRETS[3], SECRETS[4], SECRETS[5], SECRETS[6], SECRETS[7]
        ));
    }
    text
}

async fn file_with_secrets(db: &Db, group: &str) {
    let payload = json!({"id": 7, "items": [{"sku": "A1", "card": SECRETS[4]}], "auth": {"token": SECRETS[0]}, "note": SECRETS[5]});
    let headers = json!({"Authorization": SECRETS[2], "cookie": SECRETS[7], "x-api-key": SECRETS[0], "url": format!("amqp://a:{}@h", SECRETS[5]), "h": "fine"});
    db.run(&format!(
        "SELECT queen.push('q', {}, transaction_id => 'a', headers => {})",
        lit(&payload.to_string()),
        lit(&headers.to_string())
    ))
    .await;
    let batch = db.pop(&format!("'q', '{group}', subscription_mode => 'all'")).await;
    let nack = format!(
        "SELECT dlq FROM queen.nack('{}', 'a', {}, 'dlq', {})",
        batch.lease,
        lit(&stack_trace()),
        lit(&format!("gave up: password={}", SECRETS[5]))
    );
    assert_eq!(db.rows(&nack).await, "t");
}

fn no_secret(place: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {place}: {}", text.chars().take(4000).collect::<String>());
    }
}

const REDACT: &str =
    r#"{"deadLetterPayload": "redact", "redactionAllow": ["$.id", "$.items[*].sku"], "deadLetterTo": ".dead"}"#;

#[tokio::test]
async fn seeded_secrets_are_in_no_record_no_forwarded_message_no_answer_and_no_log() {
    let db = Db::new().await;
    db.configure("q", REDACT).await;
    file_with_secrets(&db, "g").await;
    let row = "SELECT r::text, convert_from(r.payload, 'UTF8'), convert_from(r.headers, 'UTF8') FROM queen.dead_letter_record r";
    no_secret("record", &db.rows(row).await);
    no_secret("forwarded", &db.rows("SELECT m::text FROM queen.messages('q.dead') m").await);
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q.dead')").await, "1");
    no_secret("dlq", &db.rows("SELECT d::text FROM queen.dlq() d").await);
    no_secret("dlq_list_json", &db.rows("SELECT queen.dlq_list_json()").await);
    no_secret("dlq_stats", &db.rows("SELECT s::text FROM queen.dlq_stats() s").await);
    no_secret("dlq_tally", &db.rows("SELECT t::text FROM queen.dlq_tally t").await);
    no_secret("log", &shared_cluster().log());
    let shown =
        db.rows("SELECT payload_text, headers ->> 'h', length(error) <= 4096, redaction FROM queen.dlq()").await;
    let payload =
        r#"{"id":7,"auth":{"token":"[REDACTED]"},"note":"[REDACTED]","items":[{"sku":"A1","card":"[REDACTED]"}]}"#;
    let (shown_payload, rest) = shown.split_once('|').unwrap();
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(shown_payload), value(payload));
    assert_eq!(rest, "fine|t|redacted");
}

#[tokio::test]
async fn without_redaction_everything_is_kept_as_it_was_given() {
    let db = Db::new().await;
    db.run(
        r#"SELECT queen.push('q', '{"password": "x1"}', transaction_id => 'a', headers => '{"authorization": "x2"}')"#,
    )
    .await;
    let batch = db.pop("'q'").await;
    db.ack_with(&batch, "a", "dlq", &batch.lease, "'password=x3'").await;
    let kept =
        db.rows("SELECT payload ->> 'password', headers ->> 'authorization', error, redaction FROM queen.dlq()").await;
    assert_eq!(kept, "x1|x2|password=x3|none");
}

#[tokio::test]
async fn a_redacted_record_is_replayed_from_the_log_and_refused_once_the_log_has_lost_it() {
    for lost in [false, true] {
        let db = Db::new().await;
        db.configure("q", r#"{"deadLetterPayload": "redact", "maxWaitTimeSeconds": 10}"#).await;
        db.run(r#"SELECT queen.push('q', '{"a": "whole"}', transaction_id => 'a', headers => '{"token": "t"}')"#).await;
        let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
        db.ack(&batch, "a", "dlq").await;
        let id = db.rows("SELECT id FROM queen.dlq()").await;
        if lost {
            db.age("q", 11).await;
            db.run("SELECT queen.maintain()").await;
            assert_eq!(moved(&db, &lit(&id)).await, json!({"result": "redacted", "dlqId": id}));
            assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "1");
        } else {
            assert_eq!(moved(&db, &format!("'{id}', 'there'")).await["result"], "moved");
            let told = db.rows("SELECT payload_text, headers ->> 'token' FROM queen.messages('there')").await;
            assert_eq!(told, "{\"a\": \"whole\"}|t");
        }
    }
}

#[tokio::test]
async fn an_encrypted_record_is_whole_to_an_operator_redacted_to_a_viewer_and_sealed_at_rest() {
    let db = Db::new().await;
    db.run(&format!("SET queen.encryption_keys = '{KEY}'")).await;
    db.configure("q", r#"{"deadLetterPayload": "encrypt", "redactionAllow": ["$.id"]}"#).await;
    db.run(r#"SELECT queen.push('q', '{"id": 1, "s": "hidden"}', transaction_id => 'a')"#).await;
    let batch = db.pop("'q'").await;
    db.ack(&batch, "a", "dlq").await;
    let stored =
        db.rows("SELECT convert_from(payload, 'UTF8'), redaction, is_encrypted FROM queen.dead_letter_record").await;
    assert!(!stored.contains("hidden") && stored.ends_with("|encrypted|t"), "{stored}");
    let shown = "SELECT payload ->> 's', payload ->> 'id' FROM queen.dlq()";
    assert_eq!(db.rows(shown).await, "hidden|1");
    for (role, wanted) in
        [("queen_viewer", "[REDACTED]|1"), ("queen_operator", "hidden|1"), ("queen_admin", "hidden|1")]
    {
        db.run(&format!("SET ROLE {role}")).await;
        assert_eq!(db.rows(shown).await, wanted, "{role}");
        let list = "SELECT payload ->> 's', payload ->> 'id' FROM queen.dlq_list()";
        assert_eq!(db.rows(list).await, wanted, "{role}");
        let asked = "SELECT payload ->> 's' FROM queen.dlq_list(redacted => true)";
        assert_eq!(db.rows(asked).await, "[REDACTED]", "{role}");
        db.run("RESET ROLE").await;
    }
    let id = db.rows("SELECT id FROM queen.dlq()").await;
    db.run("DELETE FROM queen.segment").await;
    assert_eq!(moved(&db, &format!("'{id}', 'there'")).await["result"], "moved");
    assert_eq!(db.rows("SELECT payload ->> 's' FROM queen.messages('there')").await, "hidden");
}

#[tokio::test]
async fn without_a_key_what_was_to_be_encrypted_is_redacted_and_the_failure_is_not_lost() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadLetterPayload": "encrypt"}"#).await;
    db.run(r#"SELECT queen.push('q', '{"s": "hidden"}', transaction_id => 'a')"#).await;
    let batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
    let told = db.rows("SELECT payload_text, redaction, is_encrypted FROM queen.dlq()").await;
    assert_eq!(told, "{\"s\":\"[REDACTED]\"}|redacted|f");
}

#[tokio::test]
async fn a_message_that_is_filed_again_keeps_its_first_record_and_is_counted_once() {
    let db = Db::new().await;
    db.configure("q", r#"{"deadLetterTo": ".dead"}"#).await;
    db.push("q", "a").await;
    for _ in 0..2 {
        let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
        assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
        db.run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    }
    assert_eq!(db.rows("SELECT count(*), queen.dlq_count() FROM queen.dlq()").await, "1|1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q.dead')").await, "1");
}
