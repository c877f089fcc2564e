//! What a dead letter says about its failure: class, code, reason, fingerprint, attempts.

use crate::support::{Db, lit};

/// Files message `id` of queue `q` with this nack, and answers the columns asked for.
async fn filed_as(db: &Db, status: &str, reason: &str, error: &str, columns: &str) -> String {
    db.run("SELECT queen.push('q', '1')").await;
    let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
    let reason = if reason.is_empty() { "NULL".to_owned() } else { lit(reason) };
    let nack =
        format!("SELECT dlq FROM queen.nack('{}', '{}', {}, '{status}', {reason})", batch.lease, batch.ids, lit(error));
    assert_eq!(db.rows(&nack).await, "t");
    db.rows(&format!("SELECT {columns} FROM queen.dlq(max_rows => 1)")).await
}

const RULES: &str = r#"{"retryLimit": 0, "deadLetterRules": [
    {"pattern": "(?i)time ?out|429", "class": "transient", "code": "TIMEOUT"},
    {"pattern": "timeout", "class": "permanent", "code": "NEVER"},
    {"pattern": "^no account", "class": "permanent"}]}"#;

#[tokio::test]
async fn the_first_rule_that_matches_says_class_and_code_and_without_one_the_class_is_unknown() {
    let db = Db::new().await;
    db.configure("q", RULES).await;
    for (error, wanted) in [
        ("read timeout", "transient|TIMEOUT"),
        ("HTTP 429", "transient|TIMEOUT"),
        ("no account 7", "permanent|"),
        ("there is no account", "unknown|"),
    ] {
        assert_eq!(filed_as(&db, "failed", "", error, "failure_class, error_code").await, wanted, "{error}");
    }
}

#[tokio::test]
async fn what_the_consumer_states_comes_before_reason_and_rules() {
    let db = Db::new().await;
    db.configure("q", RULES).await;
    for (reason, error, wanted) in [
        (r#"{"class": "policy", "code": "EU.1"}"#, "timeout", "policy|EU.1|fatal"),
        (r#"{"class": "poison", "code": "P", "reason": "no_handler"}"#, "timeout", "poison|P|no_handler"),
        ("", r#"{"class": "poison", "message": "timeout"}"#, "poison|TIMEOUT|fatal"),
        ("decode_error", "timeout", "malformed|decode_error|decode_error"),
        ("malformed_envelope", "timeout", "malformed|malformed_envelope|malformed_envelope"),
        ("no_handler", "timeout", "permanent|no_handler|no_handler"),
        ("my own word", "timeout", "transient|TIMEOUT|my own word"),
        (r#"{"class": "odd"}"#, "else", "unknown||{\"class\": \"odd\"}"),
    ] {
        let told = filed_as(&db, "failed", reason, error, "failure_class, error_code, reason").await;
        assert_eq!(told, wanted, "{reason}");
    }
}

#[tokio::test]
async fn the_same_failure_has_the_same_fingerprint_and_another_has_another() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    let one = filed_as(&db, "failed", "", "order 17: no stock of 'a'", "fingerprint").await;
    assert_eq!(filed_as(&db, "failed", "", "order 4711: no stock of 'bcd'", "fingerprint").await, one);
    assert_ne!(filed_as(&db, "failed", "", "order 17: no price of 'a'", "fingerprint").await, one);
}

#[tokio::test]
async fn attempts_policy_and_traceparent_are_kept() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 1, "retryDelay": 7}"#).await;
    db.run(r#"SELECT queen.push('q', '1', transaction_id => 'a', headers => '{"traceparent": "00-ab-cd-01", "x-replay-hops": "2"}')"#).await;
    let batch = db.pop("'q', 'g', subscription_mode => 'all'").await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
    let batch = db.pop("'q', 'g'").await;
    db.expire().await;
    drop(batch);
    let batch = db.pop("'q', 'g'").await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released dlq");
    let told = db
        .rows("SELECT attempts, retry_count, retry_policy ->> 'retryLimit', traceparent, hops, status, redaction FROM queen.dlq()")
        .await;
    assert_eq!(told, "3|1|1|00-ab-cd-01|2|pending|none");
}

#[tokio::test]
async fn the_payload_hash_is_the_sha_256_of_the_payload_as_pushed() {
    let db = Db::new().await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":{"b" : 1.50},"transactionId":"a"}]')"#).await;
    let batch = db.pop("'q'").await;
    db.ack(&batch, "a", "dlq").await;
    let same =
        db.rows("SELECT payload_hash = encode(sha256(convert_to(payload_text, 'UTF8')), 'hex') FROM queen.dlq()");
    assert_eq!(same.await, "t");
}

#[tokio::test]
async fn a_rule_that_cannot_be_used_is_refused_and_the_queue_stays_as_it_was() {
    let db = Db::new().await;
    db.configure("q", RULES).await;
    for bad in [
        r#"{"deadLetterRules": [{"pattern": "(", "class": "poison"}]}"#,
        r#"{"deadLetterRules": [{"pattern": "a", "class": "odd"}]}"#,
        r#"{"deadLetterPayload": "shred"}"#,
        r#"{"redactionAllow": ["id"]}"#,
        r#"{"deadLetterTo": "."}"#,
    ] {
        assert_eq!(db.state(&format!("SELECT queen.configure('q', {})", lit(bad))).await, "QN006", "{bad}");
    }
    assert_eq!(filed_as(&db, "failed", "", "timeout", "failure_class").await, "transient");
}
