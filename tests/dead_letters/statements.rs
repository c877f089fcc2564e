//! Statements about dead letters that the whole ways do not show.

use crate::shop::*;
use queen_tests::Cluster;
use queen_tests::session::{Session, quote};

#[tokio::test]
async fn the_header_of_a_forwarded_dead_letter_tells_each_cause_and_its_body_is_verbatim() {
    let shop = shop().await;
    configure(&shop, "q", r#"{"deadLetterTo": ".dead", "retryLimit": 1}"#).await;
    let body = r#"{"to" : "fatal@example.com", "n": 1.50}"#;
    let causes =
        [("fatal", 1), ("retries_exhausted", 2), ("no_handler", 1), ("decode_error", 1), ("malformed_envelope", 1)];
    for (cause, attempts) in causes {
        let item = format!(r#"[{{"queue": "q", "payload": {body}, "transactionId": "{cause}"}}]"#);
        shop.run(&format!("SELECT queen.push_batch({})", quote(&item))).await;
        let reason = Some(cause).filter(|cause| *cause != "retries_exhausted");
        for attempt in 1..=attempts {
            let message = next(&shop, "q").await;
            assert_eq!(nack(&shop, &message, "boom", reason).await, attempt == attempts, "{cause}");
        }
        assert_eq!(pop(&shop, "q").await, None, "nothing is left to be redelivered");
    }
    let told = line(
        &shop,
        "SELECT headers ->> 'x-death-reason', headers ->> 'x-original-queue', headers ->> 'x-attempts', payload_text
           FROM queen.messages('q.dead') ORDER BY \"offset\"",
    )
    .await;
    let wanted: Vec<String> = causes.iter().map(|(cause, n)| format!("{cause}|q|{n}|{body}")).collect();
    assert_eq!(told, wanted.join("\n"));
}

#[tokio::test]
async fn the_depth_of_the_dead_queue_is_what_nobody_has_looked_at_and_zero_when_all_is_well() {
    let shop = shop().await;
    configure(&shop, "q", r#"{"deadLetterTo": ".dead"}"#).await;
    let depth = "SELECT coalesce(sum(pending), 0) FROM queen.queues WHERE queue = 'q.dead'";
    push(&shop, "q", "1", "fine").await;
    let message = next(&shop, "q").await;
    complete(&shop, &message).await;
    assert_eq!(shop.number(depth).await, 0);
    file(&shop, "q", &["a", "b"]).await;
    assert_eq!(shop.number(depth).await, 2);
    let seen = next(&shop, "q.dead").await;
    complete(&shop, &seen).await;
    assert_eq!(shop.number(depth).await, 1);
}

#[tokio::test]
async fn a_retry_is_not_made_after_the_business_deadline() {
    let shop = shop().await;
    configure(&shop, "q", r#"{"deadlines": true, "retryLimit": 9}"#).await;
    let deadline =
        "to_char((clock_timestamp() + interval '4 s') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let headers = format!("jsonb_build_object('x-deadline', {deadline})");
    shop.run(&format!("SELECT queen.push('q', '1', transaction_id => 'offer', headers => {headers})")).await;
    let message = next(&shop, "q").await;
    assert!(!nack(&shop, &message, "busy", None).await, "the budget is not spent");
    shop.run("SELECT pg_sleep(4.1)").await;
    assert_eq!(pop(&shop, "q").await, None);
    let record = line(&shop, "SELECT transaction_id, reason, failure_class, attempts FROM queen.dlq()").await;
    assert_eq!(record, "offer|expired|expired|1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_count_of_attempts_and_the_pause_between_them_survive_a_crash() {
    let cluster = Cluster::durable();
    let db = cluster.fresh_database().await;
    let shop = Session::open(&cluster, &db).await;
    configure(&shop, "q", r#"{"retryLimit": 1, "retryBackoff": "fixed", "retryDelay": 3600000}"#).await;
    push(&shop, "q", "1", "a").await;
    let message = next(&shop, "q").await;
    assert!(!nack(&shop, &message, "busy", None).await);
    cluster.stop_immediate();
    cluster.restart();
    let shop = Session::open(&cluster, &db).await;
    assert_eq!(pop(&shop, "q").await, None, "it still rests");
    time_passes(&shop).await;
    let again = next(&shop, "q").await;
    assert_eq!((again.id.as_str(), again.attempt), (message.id.as_str(), 2));
    assert!(nack(&shop, &again, "busy", None).await, "the first failure counts");
    cluster.stop_immediate();
    cluster.restart();
    let shop = Session::open(&cluster, &db).await;
    assert_eq!(line(&shop, "SELECT transaction_id, attempts, status FROM queen.dlq()").await, "a|2|pending");
}

#[tokio::test]
async fn the_record_keeps_what_an_investigation_needs_from_the_message() {
    let shop = shop().await;
    configure(&shop, "q", r#"{"owner": "inventory", "retryLimit": 1}"#).await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = format!(
        r#"{{"event-type": "OrderPlaced", "schema": "3", "correlation-id": "c-9", "traceparent": "{traceparent}"}}"#
    );
    shop.run(&format!(
        "SELECT queen.push('q', '{{\"order\": 847}}', 'ada', 'msg-847', '0190aaaa-0000-7000-8000-00000000000f', {})",
        quote(&headers)
    ))
    .await;
    let source = line(&shop, "SELECT message_id, created_at FROM queen.messages('q')").await;
    for _ in 0..2 {
        let message = next(&shop, "q").await;
        nack(&shop, &message, r#"{"class": "transient", "code": "db_timeout", "message": "late"}"#, None).await;
    }
    let record =
        "SELECT message_id, enqueued_at, headers ->> 'event-type', headers ->> 'schema', headers ->> 'correlation-id',
                         traceparent, trace_id, queue, partition, failure_class, error_code, attempts,
                         first_failed_at < failed_at, enqueued_at <= first_failed_at, retry_policy ->> 'retryLimit',
                         length(payload_hash), status
                    FROM queen.dlq()";
    let wanted = format!(
        "{source}|OrderPlaced|3|c-9|{traceparent}|0190aaaa-0000-7000-8000-00000000000f|q|ada|transient|db_timeout|2|t|t|1|64|pending"
    );
    assert_eq!(line(&shop, record).await, wanted);
    assert_eq!(shop.one("SELECT owner FROM queen.dlq_stats()").await, "inventory");
}

#[tokio::test]
async fn nothing_is_replayed_unless_somebody_decides() {
    let shop = shop().await;
    file(&shop, "q", &["a"]).await;
    plan(&shop, "q", "").await;
    run(&shop).await;
    shop.run("SELECT queen.maintain()").await;
    time_passes(&shop).await;
    assert_eq!(pop(&shop, "q").await, None);
    assert_eq!(shop.one("SELECT status FROM queen.dlq()").await, "pending");
}

#[tokio::test]
async fn an_approval_records_actor_scope_reason_remediation_destination_rate_expiry_and_the_exact_records() {
    let shop = shop().await;
    configure(&shop, "q", r#"{"requireApproval": true}"#).await;
    file(&shop, "q", &["a", "b"]).await;
    acts_as(&shop, "ada").await;
    let plan = plan(&shop, "q", ", to_queue => 'repair', expires_in => '2 hours'").await;
    // Filed afterwards: not approved with them.
    file(&shop, "q", &["c"]).await;
    acts_as(&shop, "bob").await;
    shop.run(&format!("SELECT queen.dlq_approve('{plan}', 'looked at the trace')")).await;
    let recorded = line(
        &shop,
        &format!(
            "SELECT s ->> 'plannedBy', s ->> 'approvedBy', s ->> 'approvalNote', s ->> 'selection', s ->> 'reason',
                    s ->> 'remediation', s ->> 'toQueue', s ->> 'rate',
                    (s ->> 'expiresAt')::timestamptz - (s ->> 'plannedAt')::timestamptz BETWEEN '119 min' AND '121 min'
               FROM queen.dlq_plan_status('{plan}') s"
        ),
    )
    .await;
    assert_eq!(recorded, "ada|bob|looked at the trace|{\"queue\": \"q\"}|schema mismatch|release 4712|repair|1000|t");
    let exact = "SELECT string_agg(r.transaction_id, ' ' ORDER BY i.n) FROM queen.replay_item i
                   JOIN queen.dead_letter_record r ON r.id = i.dlq_id";
    assert_eq!(shop.one(exact).await, "a b");
    let status = "SELECT string_agg(transaction_id || ' ' || status, ', ' ORDER BY transaction_id) FROM queen.dlq()";
    assert_eq!(shop.one(status).await, "a approved, b approved, c pending");
}

#[tokio::test]
async fn a_business_question_joins_dead_letters_with_what_they_hold_up() {
    let shop = shop().await;
    shop.run("CREATE TABLE shop_order (id text PRIMARY KEY, total numeric); INSERT INTO shop_order VALUES ('a', 120), ('b', 30), ('c', 7)")
        .await;
    file(&shop, "q", &["a", "b"]).await;
    let risk = "SELECT count(*), sum(o.total) FROM queen.dlq_list('q', max_rows => 1000) d
                  JOIN shop_order o ON o.id = d.payload ->> 'order'";
    assert_eq!(line(&shop, risk).await, "2|150");
}

#[tokio::test]
async fn decided_records_are_deleted_by_age_and_pending_ones_stay() {
    let shop = shop().await;
    file(&shop, "q", &["old", "new", "undecided"]).await;
    shop.run("SELECT queen.dlq_discard(ARRAY(SELECT id FROM queen.dlq() WHERE transaction_id <> 'undecided'), 'test', 'ours')")
        .await;
    shop.run(
        "UPDATE queen.dead_letter_record SET failed_at = failed_at - interval '91 days' WHERE transaction_id <> 'new'",
    )
    .await;
    // The statement of docs/dead-letters.md.
    let document = include_str!("../../docs/dead-letters.md");
    let retention = document
        .split("```")
        .filter_map(|block| block.strip_prefix("sql\n"))
        .find(|block| block.contains("dlq_delete_row"))
        .expect("the document's statement");
    shop.run(retention).await;
    let left = "SELECT string_agg(transaction_id, ' ' ORDER BY transaction_id) FROM queen.dlq_list(status => 'all')";
    assert_eq!(shop.one(left).await, "new undecided");
}

#[test]
fn every_test_that_the_document_names_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.to_owned(), root.join("../crates/queen-core/src")];
    let mut source = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                source.push_str(&std::fs::read_to_string(path).expect("a file"));
            }
        }
    }
    let document = include_str!("../../docs/dead-letters.md");
    let (_, table) = document.split_once("\n## Statement by statement\n").expect("the table");
    let names = table.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() >= 4);
    let missing: Vec<&str> = names.clone().filter(|name| !source.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(names.count() > 50);
}

#[tokio::test]
async fn the_audit_of_a_repair_has_the_hash_of_what_was_pushed_also_where_the_record_is_redacted() {
    let shop = shop().await;
    configure(&shop, "q", r#"{"deadLetterPayload": "redact"}"#).await;
    file(&shop, "q", &["a"]).await;
    shop.run("SELECT queen.dlq_repair(id, '{\"order\": \"b\"}', 'typing error') FROM queen.dlq()").await;
    let hashes = "SELECT e.detail ->> 'originalPayloadHash' = encode(sha256('{\"order\": \"a\"}'), 'hex'),
                         e.detail ->> 'payloadHash' = encode(sha256('{\"order\": \"b\"}'), 'hex')
                    FROM queen.dlq_events() e WHERE e.action = 'repaired'";
    assert_eq!(line(&shop, hashes).await, "t|t");
}
