//! Keys: where they come from, and that nobody sees them.

use crate::support::{Db, lit};
use queen_tests::{Cluster, shared_cluster};
use std::os::unix::fs::PermissionsExt;

const SECRET: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

#[tokio::test]
async fn a_key_is_shown_neither_by_show_nor_by_pg_settings_nor_to_anybody() {
    let db = Db::new().await;
    db.run(&format!("SET queen.encryption_keys = 'k:{SECRET}'")).await;
    for sql in ["SHOW queen.encryption_keys", "SELECT current_setting('queen.encryption_keys')"] {
        assert_eq!(db.rows(sql).await, "********", "{sql}");
    }
    let everything = db.rows("SHOW ALL").await + &db.rows("SELECT * FROM pg_settings").await;
    assert!(!everything.contains("c0ffee"));
    shared_cluster().create_login("keys_plain", &["queen_admin"]);
    let plain = db.session_as("keys_plain").await;
    // An admin of the broker is no superuser.
    plain.run("SELECT queen.current_tenant()").await;
    for sql in [
        "SHOW queen.encryption_keys",
        "SHOW queen.encryption_key_file",
        "SELECT current_setting('queen.encryption_keys')",
    ] {
        let got = match plain.client.simple_query(sql).await {
            Ok(_) => plain.rows(sql).await,
            Err(_) => plain.state(sql).await,
        };
        assert!(got == "42501" || got == "********", "{sql}: {got}");
    }
    for sql in
        ["SET queen.encryption_keys = ''", "SET queen.encryption_key_file = ''", "SET queen.max_payload_bytes = 1"]
    {
        assert_eq!(plain.state(sql).await, "42501", "{sql}");
    }
}

#[tokio::test]
async fn a_malformed_key_is_named_by_its_place_and_nothing_of_it_is_told() {
    let db = Db::new().await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
    let other = "0".repeat(64);
    for (keys, entry) in [
        (SECRET.to_owned(), "1"),
        (format!("k:{}", &SECRET[1..]), "1"),
        (format!("k:{other},{SECRET}:x"), "2"),
        (format!("k:{other},k:{SECRET}"), "2"),
        (format!("k:{other},"), "2"),
        (format!("k:{}zz", &SECRET[2..]), "1"),
        (format!("k k:{SECRET}"), "1"),
    ] {
        db.run(&format!("SET queen.encryption_keys = {}", lit(&keys))).await;
        let (state, message) = db.error("SELECT queen.push('q', '1')").await;
        assert_eq!(state, "QN010");
        assert!(
            message.contains(&format!("key {entry} ")) && !message.contains("c0ffee") && !message.contains("0000"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn keys_come_from_a_file_and_the_setting_wins() {
    let db = Db::new().await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
    let file = shared_cluster().data().join("keys-of-a-test");
    std::fs::write(&file, format!("  k:{SECRET}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    db.run(&format!("SET queen.encryption_key_file = {}", lit(&file.display().to_string()))).await;
    db.run("SELECT queen.push('q', '\"secret\"')").await;
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages()").await, "\"secret\"");
    db.run(&format!("SET queen.encryption_keys = 'other:{}'", "1".repeat(64))).await;
    assert_eq!(db.rows("SELECT is_encrypted FROM queen.messages()").await, "t");
    db.run(&format!("SET queen.encryption_keys = 'other:{}'", SECRET)).await;
    assert_eq!(db.rows("SELECT payload_text FROM queen.messages()").await, "\"secret\"");
}

#[tokio::test]
async fn a_key_file_that_cannot_be_read_refuses_pushes_and_names_no_content() {
    let db = Db::new().await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
    for file in ["/nonexistent/keys", "/", "/etc/passwd"] {
        db.run(&format!("SET queen.encryption_key_file = '{file}'")).await;
        let (state, message) = db.error("SELECT queen.push('q', '1')").await;
        assert_eq!(state, "QN010", "{file}");
        assert!(!message.contains("root"), "{message}");
    }
    db.push("plain", "a").await;
    assert_eq!(db.pop("'plain'").await.ids, "a", "nobody else is troubled");
}

#[tokio::test]
async fn neither_key_nor_payload_is_in_the_log_of_the_server() {
    let cluster = Cluster::start_with(&[
        ("log_min_messages", "debug5"),
        ("log_min_error_statement", "panic"),
        ("queen.encryption_keys", &format!("k:{SECRET}")),
    ]);
    let name = cluster.fresh_database().await;
    let db = Db { client: cluster.client(&name).await, name };
    let marker = "vertraulich";
    db.configure("q", r#"{"encryptionEnabled": true, "retryLimit": 0}"#).await;
    db.run(&format!("SELECT queen.push('q', '\"{marker}\"', transaction_id => 'a')")).await;
    db.run(&format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":"{marker}"}}]')"#)).await;
    // Whatever fails about a payload or a key.
    for sql in [
        format!(r#"SELECT queen.push_batch('[{{"queue":"q","payload":"{marker}","transactionId":""}}]')"#),
        format!(r#"SELECT queen.push_batch('{{"queue":"{marker}"}}')"#),
        format!(r#"SELECT queen.push_batch('["{marker}"]')"#),
        format!(r#"SELECT queen.transaction('{{"operations": "{marker}"}}')"#),
        format!(r#"SELECT queen.transaction('"{marker}"')"#),
        format!(r#"SELECT queen.ack_batch('[{{"transactionId": {{"{marker}": 1}}}}]')"#),
        format!("SET queen.max_payload_bytes = 5; SELECT queen.push('q', '\"{marker}\"')"),
        format!("SELECT queen.decode_segment('{marker}')"),
    ] {
        let (state, message) = db.error(&sql).await;
        assert!(!message.contains(marker), "{state} {message}");
    }
    db.run("RESET queen.max_payload_bytes").await;
    let batch = db.pop("'q'").await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released dlq");
    db.run("SELECT queen.dlq_move_v1(id) FROM queen.dlq()").await;
    db.run("SELECT count(*) FROM queen.messages(), queen.verify()").await;
    let log = cluster.log();
    assert!(log.contains("QN008"), "the errors are there");
    assert!(!log.contains(marker), "a payload is in the log: {:?}", log.lines().find(|l| l.contains(marker)));
    assert!(!log.contains("c0ffee"), "a key is in the log");
}
