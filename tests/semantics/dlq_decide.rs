//! Repairing and discarding dead letters, the ancestry of what was replayed, and the audit.

use crate::dlq_plans::{acts_as, json_of, letters, planned, run};
use crate::support::{Db, filed, moved};
use serde_json::json;

#[tokio::test]
async fn a_repair_is_a_new_message_and_the_evidence_stays() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    let original = db.rows("SELECT message_id FROM queen.messages('q')").await;
    let before = db.rows("SELECT payload, error, transaction_id FROM queen.dead_letter_record").await;
    let verdict = json_of(&db, &format!("SELECT queen.dlq_repair('{id}', '{{\"b\" : 2}}', 'b was missing')")).await;
    assert_eq!(verdict["result"], "repaired");
    let transaction = verdict["transactionId"].as_str().unwrap();
    assert!(transaction.starts_with("repair:"), "{transaction}");
    let sql = format!("SELECT payload_text, headers FROM queen.messages('q') WHERE transaction_id = '{transaction}'");
    let message = db.rows(&sql).await;
    let (payload, headers) = message.split_once('|').unwrap();
    assert_eq!(payload, "{\"b\" : 2}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(headers).unwrap(),
        json!({"x-causation-id": original, "x-original-transaction-id": "a", "x-replay-hops": "1"})
    );
    assert_eq!(db.rows("SELECT payload, error, transaction_id FROM queen.dead_letter_record").await, before);
    assert_eq!(db.rows("SELECT status FROM queen.dead_letter_record").await, "replayed");
    assert_eq!(
        db.rows("SELECT detail ->> 'reason', detail ->> 'originalPayloadHash' = encode(sha256('0'), 'hex'), detail ->> 'payloadHash' = encode(sha256('{\"b\" : 2}'), 'hex') FROM queen.dlq_events() WHERE action = 'repaired'").await,
        "b was missing|t|t"
    );
    assert_eq!(db.state(&format!("SELECT queen.dlq_repair('{id}', '1', 'again')")).await, "QN027");
}

#[tokio::test]
async fn a_repair_wants_a_reason_a_payload_and_a_record() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    for (arguments, state) in [
        (format!("'{id}', '1', ' '"), "22023"),
        (format!("'{id}', NULL, 'r'"), "QN002"),
        // What an operator sees of a redacted record must not come back as data.
        (format!("'{id}', '{{\"sku\": \"lamp\", \"card\": \"[REDACTED]\"}}', 'r'"), "QN002"),
        (format!("'{id}', '1', 'r', to_queue => ''"), "QN001"),
        ("'0190aaaa-0000-7000-8000-00000000000f', '1', 'r'".to_owned(), "QN027"),
    ] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_repair({arguments})")).await, state, "{arguments}");
    }
    assert_eq!(db.rows("SELECT status FROM queen.dead_letter_record").await, "pending");
}

#[tokio::test]
async fn a_discard_needs_a_cause_of_the_list_and_words_and_keeps_the_record() {
    let db = Db::new().await;
    letters(&db, 3).await;
    let two = "(SELECT array_agg(id) FROM queen.dead_letter_record WHERE transaction_id <> 'a')";
    for arguments in [format!("{two}, 'boring', 'n'"), format!("{two}, 'test', ' '"), "NULL, 'test', 'n'".to_owned()] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_discard({arguments})")).await, "22023", "{arguments}");
    }
    acts_as(&db, "ada").await;
    assert_eq!(db.rows(&format!("SELECT queen.dlq_discard({two}, 'satisfied', 'paid by hand')")).await, "2");
    assert_eq!(db.rows(&format!("SELECT queen.dlq_discard({two}, 'satisfied', 'paid by hand')")).await, "0");
    assert_eq!(
        db.rows(
            "SELECT actor, action, queue, consumer_group, detail ->> 'cause', detail ->> 'note' FROM queen.dlq_events()"
        )
        .await,
        "ada|discarded|q|g|satisfied|paid by hand\nada|discarded|q|g|satisfied|paid by hand"
    );
    assert_eq!(
        db.rows("SELECT status, count(*) FROM queen.dead_letter_record GROUP BY 1 ORDER BY 1").await,
        "discarded|2\npending|1"
    );
    // Nothing brings them back.
    let plan = planned(&db, "").await;
    assert_eq!(db.rows(&format!("SELECT planned FROM queen.replay_plans WHERE plan_id = '{plan}'")).await, "1");
    let id = db.rows("SELECT id FROM queen.dead_letter_record WHERE status = 'discarded' LIMIT 1").await;
    assert_eq!(moved(&db, &format!("'{id}'")).await["result"], "gone");
}

#[tokio::test]
async fn a_message_replayed_three_times_shows_its_ancestry_and_hops() {
    let db = Db::new().await;
    let first = filed(&db, "g").await;
    let original = db.rows("SELECT message_id FROM queen.messages('q')").await;
    let fails = "SELECT a.dlq FROM queen.pop('q', 'g') p CROSS JOIN LATERAL queen.nack(p.lease_id, p.transaction_id, 'boom', 'dlq') a";
    let newest = "SELECT id FROM queen.dead_letter_record WHERE status = 'pending'";
    // Once by a plan, once by a move, once by a repair.
    let plan = planned(&db, "").await;
    db.run(&format!("SELECT queen.dlq_run('{plan}')")).await;
    run(&db).await;
    assert_eq!(db.rows(fails).await, "t");
    let second = db.rows(newest).await;
    assert_eq!(moved(&db, &format!("'{second}'")).await["result"], "moved");
    assert_eq!(db.rows(fails).await, "t");
    let third = db.rows(newest).await;
    let last = json_of(&db, &format!("SELECT queen.dlq_repair('{third}', '1', 'r')")).await;
    let last = last["messageId"].as_str().unwrap();
    for of in [&original, last] {
        assert_eq!(
            db.rows(&format!("SELECT hops, regexp_replace(transaction_id, 'repair:.*', 'repair'), dlq_id, action FROM queen.dlq_ancestry('{of}')")).await,
            format!("0|a|~|~\n1|dlq:{first}|{first}|replay_moved\n2|dlq:{second}|{second}|moved\n3|repair|{third}|repaired")
        );
    }
    let headers = db.rows(&format!("SELECT headers FROM queen.messages('q') WHERE message_id = '{last}'")).await;
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&headers).unwrap(),
        json!({"x-causation-id": original, "x-original-transaction-id": "a", "x-replay-hops": "3"})
    );
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq_ancestry('0190aaaa-0000-7000-8000-00000000000f')").await, "0");
}

#[tokio::test]
async fn deleting_moving_and_purging_are_in_the_audit() {
    let db = Db::new().await;
    letters(&db, 5).await;
    acts_as(&db, "ada").await;
    let id = |t: &str| format!("(SELECT id FROM queen.dead_letter_record WHERE transaction_id = '{t}')");
    let moved_id = db.rows(&format!("SELECT {}", id("t1"))).await;
    assert_eq!(moved(&db, &format!("'{moved_id}'")).await["result"], "moved");
    db.run(&format!("SELECT queen.dlq_delete_row({})", id("t2"))).await;
    db.run("SELECT queen.dlq_delete(partition_id, transaction_id) FROM queen.dlq('q') WHERE transaction_id = 'a'")
        .await;
    db.run("SELECT queen.dlq_purge('q')").await;
    db.run("SELECT queen.dlq_delete_row('0190aaaa-0000-7000-8000-00000000000f')").await;
    assert_eq!(
        db.rows("SELECT actor, action, queue, detail ->> 'records' FROM queen.dlq_events()").await,
        "ada|moved|q|~\nada|deleted|q|1\nada|deleted|q|1\nada|purged|q|2"
    );
    assert_eq!(
        db.rows("SELECT consumer_group, detail ->> 'originalTransactionId' FROM queen.dlq_events() WHERE dlq_id IS NOT NULL AND action = 'deleted'")
            .await,
        "g|t2",
        "what is gone is told by the audit"
    );
    // What is rolled back never happened.
    db.run("BEGIN; SELECT queen.dlq_purge('q'); ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq_events()").await, "4");
    let after = db.rows("SELECT max(seq) FROM queen.dlq_event WHERE action = 'deleted'").await;
    assert_eq!(db.rows(&format!("SELECT action FROM queen.dlq_events(after_seq => {after})")).await, "purged");
    assert_eq!(db.rows("SELECT action FROM queen.dlq_events(max_rows => 1)").await, "moved");
    assert_eq!(
        db.rows(&format!("SELECT action FROM queen.dlq_events(dlq_id => '{moved_id}', queue => 'q')")).await,
        "moved"
    );
    assert_eq!(db.state("SELECT queen.dlq_events(max_rows => -1)").await, "22023");
    // Records go with their queue, and not silently.
    db.run("SELECT queen.drop_queue('q')").await;
    filed(&db, "g").await;
    db.run("SELECT queen.drop_queue('q')").await;
    assert_eq!(
        db.rows(&format!("SELECT actor, action, queue, detail ->> 'records', detail -> 'options' FROM queen.dlq_events(after_seq => {after}) WHERE action = 'queue_dropped'"))
            .await,
        "ada|queue_dropped|q|0|null\nada|queue_dropped|q|1|null"
    );
}

#[tokio::test]
async fn changing_who_decides_or_what_is_kept_is_in_the_audit_with_both_values() {
    let db = Db::new().await;
    let events = "SELECT actor, action, queue, detail -> 'options' FROM queen.dlq_events()";
    acts_as(&db, "ada").await;
    db.run("SELECT queen.configure('q', '{\"leaseTime\": 30}')").await;
    assert_eq!(db.rows(events).await, "", "nothing of the kind");
    db.run("SELECT queen.configure('q', '{\"requireApproval\": true, \"owner\": \"shop\", \"leaseTime\": 31}')").await;
    db.run("SELECT queen.configure('q', '{\"requireApproval\": true}')").await;
    db.run("BEGIN; SELECT queen.configure('q', '{\"requireApproval\": false}'); ROLLBACK").await;
    acts_as(&db, "bob").await;
    db.run("SELECT queen.configure('q', '{\"deadLetterPayload\": \"redact\", \"redactionAllow\": [\"$.a\"]}')").await;
    db.run("SELECT queen.configure('q', '{}', 'replace')").await;
    // A queue that begins otherwise than queues do.
    db.run("SELECT queen.configure('r', '{\"deadLetterTo\": \".dead\"}')").await;
    db.run("SELECT queen.drop_queue('r')").await;
    assert_eq!(
        db.rows(events).await,
        [
            r#"ada|queue_configured|q|{"owner": {"to": "shop", "from": ""}, "requireApproval": {"to": true, "from": false}}"#,
            r#"bob|queue_configured|q|{"redactionAllow": {"to": ["$.a"], "from": []}, "deadLetterPayload": {"to": "redact", "from": "keep"}}"#,
            r#"bob|queue_configured|q|{"owner": {"to": "", "from": "shop"}, "redactionAllow": {"to": [], "from": ["$.a"]}, "requireApproval": {"to": false, "from": true}, "deadLetterPayload": {"to": "keep", "from": "redact"}}"#,
            r#"bob|queue_configured|r|{"deadLetterTo": {"to": ".dead", "from": ""}}"#,
            r#"bob|queue_dropped|r|{"deadLetterTo": {"to": "", "from": ".dead"}}"#,
        ]
        .join("\n")
    );
}

#[tokio::test]
async fn not_even_the_owner_of_the_table_changes_the_audit() {
    let db = Db::new().await;
    filed(&db, "g").await;
    db.run("SELECT queen.dlq_purge('q')").await;
    for replica in ["SET session_replication_role = origin", "SET session_replication_role = replica"] {
        db.run(replica).await;
        for sql in [
            "UPDATE queen.dlq_event SET actor = 'nobody'",
            "UPDATE queen.dlq_event SET actor = 'nobody' WHERE false",
            "DELETE FROM queen.dlq_event",
            "TRUNCATE queen.dlq_event",
            "INSERT INTO queen.dlq_event (seq, tenant, actor, action, detail) VALUES (1, gen_random_uuid(), 'a', 'b', '{}')",
        ] {
            let state = db.state(sql).await;
            // The last: numbers are given, not chosen.
            assert!(state == "42501" || state == "428C9", "{sql}: {state}");
        }
    }
    assert_eq!(db.rows("SELECT action FROM queen.dlq_events()").await, "purged");
}
