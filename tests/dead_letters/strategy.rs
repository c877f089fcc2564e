//! The eight points of a testing strategy for dead letters, each the whole way through the real database.

use crate::shop::*;
use queen_tests::session::{Session, quote};
use queen_tests::shared_cluster;
use serde_json::json as value;

/// Retries of a transient failure: two, with growing and varied pauses, within ten minutes.
const BOUNDED: &str = r#"{"retryLimit": 2, "retryBackoff": "exponential", "retryDelay": 60000, "retryJitter": 0.2,
    "maxElapsedSeconds": 600, "deadLetterTo": ".dead",
    "deadLetterRules": [{"pattern": "timed? ?out", "class": "transient", "code": "db_timeout"}]}"#;

#[tokio::test]
async fn a_spent_transient_budget_makes_exactly_one_recovery_record_with_the_original_message_id() {
    let shop = shop().await;
    configure(&shop, "orders", BOUNDED).await;
    push(&shop, "orders", r#"{"order": 847}"#, "msg-847").await;
    let original = shop.one("SELECT message_id FROM queen.messages('orders')").await;
    for attempt in 1..=3 {
        let message = next(&shop, "orders").await;
        assert_eq!(
            (message.id.as_str(), message.transaction_id.as_str(), message.attempt),
            (&*original, "msg-847", attempt)
        );
        assert_eq!(nack(&shop, &message, "connection timed out", None).await, attempt == 3);
        assert_eq!(pop(&shop, "orders").await, None, "it rests, or is done with");
        time_passes(&shop).await;
    }
    assert_eq!(pop(&shop, "orders").await, None);
    let record = line(
        &shop,
        "SELECT message_id, transaction_id, failure_class, error_code, reason, attempts, retry_count, status
           FROM queen.dlq()",
    )
    .await;
    assert_eq!(record, format!("{original}|msg-847|transient|db_timeout|retries_exhausted|3|2|pending"));
    let copy = line(
        &shop,
        "SELECT headers ->> 'x-original-message-id', headers ->> 'x-attempts' FROM queen.messages('orders.dead')",
    )
    .await;
    assert_eq!(copy, format!("{original}|3"));
}

#[tokio::test]
async fn malformed_json_and_a_valid_poison_message_do_not_loop_and_leave_redacted_diagnostics() {
    let shop = shop().await;
    configure(&shop, "orders", r#"{"deadLetterPayload": "redact", "redactionAllow": ["$.order"], "maxDeliveries": 3}"#)
        .await;
    // What is no JSON does not get in.
    let broken = quote(r#"[{"queue": "orders", "payload": {"card": 4111"#);
    assert_eq!(refused(&shop, &format!("SELECT queen.push_batch({broken})")).await, "22P02");
    // What is JSON and not what the consumer reads: one diagnostic attempt.
    push(&shop, "orders", r#""{\"card\": 4111111111111111""#, "malformed").await;
    // What is well-formed and kills whoever reads it: nobody reports anything, the leases run out.
    push(&shop, "orders", r#"{"order": 2, "card": "4111111111111111"}"#, "poison").await;
    push(&shop, "orders", r#"{"order": 3}"#, "healthy").await;
    let message = next(&shop, "orders").await;
    let text = "cannot read {\"card\": 4111111111111111";
    assert!(nack(&shop, &message, text, Some("decode_error")).await, "the retry policy is not asked");
    let mut deliveries = Vec::new();
    while let Some(message) = pop(&shop, "orders").await {
        deliveries.push(message.transaction_id.clone());
        match message.transaction_id.as_str() {
            "healthy" => complete(&shop, &message).await,
            _ => time_passes(&shop).await,
        }
        assert!(deliveries.len() < 10, "{deliveries:?}");
    }
    assert_eq!(deliveries, ["poison", "poison", "poison", "healthy"]);
    let records = line(
        &shop,
        "SELECT transaction_id, failure_class, reason, attempts, redaction, payload_text, error
           FROM queen.dlq() ORDER BY \"offset\"",
    )
    .await;
    let (malformed, poison) = records.split_once('\n').expect("two records");
    assert_eq!(
        malformed,
        "malformed|malformed|decode_error|1|redacted|\"[REDACTED]\"|cannot read {\"card\": [REDACTED]"
    );
    let poisoned = "poison|poison|max_deliveries|3|redacted|{\"order\":2,\"card\":\"[REDACTED]\"}|";
    let same = |text: &str| {
        text.replace(' ', "").replace(r#"{"card":"[REDACTED]","order":2}"#, r#"{"order":2,"card":"[REDACTED]"}"#)
    };
    assert!(same(poison).starts_with(poisoned), "{poison}");
}

#[tokio::test]
async fn a_confirmed_filing_whose_answer_was_lost_is_one_recovery_record_when_the_message_comes_again() {
    let shop = shop().await;
    configure(&shop, "orders", r#"{"deadLetterTo": ".dead"}"#).await;
    push(&shop, "orders", "1", "msg-847").await;
    // Filed and committed, and the consumer is gone before it hears of it.
    let doomed = another(&shop).await;
    let message = next(&doomed, "orders").await;
    assert!(nack(&doomed, &message, "no such product", Some("fatal")).await);
    shop.terminate(doomed.pid).await;
    // The next one says it again.
    let again = format!("SELECT n.success, n.error FROM {} n", nack_sql(&message, "no such product", Some("fatal")));
    let answer = line(&shop, &again).await;
    assert!(answer.starts_with("f|"), "{answer}");
    // And even a redelivery that ends in the same failure makes no second record, and no second copy.
    shop.run("SELECT queen.seek('orders', 'g', to_timestamp => '-infinity')").await;
    let redelivered = next(&shop, "orders").await;
    assert_eq!(redelivered.id, message.id);
    assert!(nack(&shop, &redelivered, "no such product", Some("fatal")).await);
    assert_eq!(
        line(&shop, "SELECT count(*), min(message_id::text) FROM queen.dlq()").await,
        format!("1|{}", message.id)
    );
    assert_eq!(shop.number("SELECT queen.dlq_count('orders')").await, 1);
    assert_eq!(shop.number("SELECT count(*) FROM queen.messages('orders.dead')").await, 1);
}

#[tokio::test]
async fn while_filing_is_uncertain_the_source_is_not_acknowledged() {
    let shop = shop().await;
    configure(&shop, "orders", r#"{"deadLetterTo": ".dead"}"#).await;
    push(&shop, "orders", "1", "msg-847").await;
    let unsettled = async |why: &str| {
        assert_eq!(shop.number("SELECT count(*) FROM queen.dlq()").await, 0, "{why}");
        assert_eq!(shop.number("SELECT count(*) FROM queen.messages('orders.dead')").await, 0, "{why}");
        assert_eq!(shop.number("SELECT settled FROM queen.group_partitions WHERE queue = 'orders'").await, -1, "{why}");
    };
    // The session dies between the answer and the commit.
    let doomed = another(&shop).await;
    let message = next(&doomed, "orders").await;
    doomed.run("BEGIN").await;
    assert!(nack(&doomed, &message, "no such product", Some("fatal")).await);
    shop.terminate(doomed.pid).await;
    unsettled("no commit").await;
    // The store of the records does not answer in time.
    let blocker = another(&shop).await;
    blocker.run("BEGIN; LOCK TABLE queen.dead_letter_record IN SHARE MODE").await;
    shop.run("SET lock_timeout = '100 ms'").await;
    let file = format!("SELECT {}", nack_sql(&message, "no such product", Some("fatal")));
    assert_eq!(refused(&shop, &file).await, "55P03");
    unsettled("no answer").await;
    blocker.run("ROLLBACK").await;
    time_passes(&shop).await;
    let redelivered = next(&shop, "orders").await;
    assert_eq!(redelivered.id, message.id);
    assert!(nack(&shop, &redelivered, "no such product", Some("fatal")).await);
    assert_eq!(shop.number("SELECT count(*) FROM queen.dlq()").await, 1);
    assert_eq!(shop.number("SELECT count(*) FROM queen.messages('orders.dead')").await, 1);
}

/// Reserves once, guarded by a unique constraint, and acknowledges: answers whether there was a message, and how
/// many reservations it made.
async fn reserve_once(shop: &Session) -> Option<i64> {
    shop.run("BEGIN").await;
    let message = pop(shop, "orders").await;
    let mut reserved = None;
    if let Some(message) = &message {
        let original = format!(
            "SELECT coalesce(m.headers ->> 'x-causation-id', m.message_id::text) FROM queen.messages('orders') m
              WHERE m.message_id = '{}'",
            message.id
        );
        let id = shop.one(&original).await;
        reserved = Some(reserve(shop, &id).await);
        complete(shop, message).await;
    }
    shop.run("COMMIT").await;
    reserved
}

async fn reserve(shop: &Session, id: &str) -> i64 {
    let new = "SELECT 'inventory', {id}::uuid ON CONFLICT DO NOTHING RETURNING 1".replace("{id}", &quote(id));
    shop.number(&format!(
        "WITH new AS (INSERT INTO processed_message {new}),
              taken AS (UPDATE inventory SET stock = stock - 1 WHERE EXISTS (SELECT FROM new) RETURNING 1)
         SELECT count(*) FROM taken"
    ))
    .await
}

#[tokio::test]
async fn an_approved_replay_and_the_original_twice_make_one_reservation_through_the_unique_constraint() {
    for committed_before_it_timed_out in [false, true] {
        let shop = shop().await;
        shop.run(
            "CREATE TABLE processed_message (consumer_name text, message_id uuid, PRIMARY KEY (consumer_name, message_id));
             CREATE TABLE inventory (stock int); INSERT INTO inventory VALUES (10)",
        )
        .await;
        configure(&shop, "orders", r#"{"requireApproval": true}"#).await;
        push(&shop, "orders", "1", "msg-847").await;
        let message = next(&shop, "orders").await;
        if committed_before_it_timed_out {
            assert_eq!(reserve(&shop, &message.id).await, 1);
        }
        assert!(nack(&shop, &message, "statement timeout", Some("fatal")).await);
        acts_as(&shop, "ada").await;
        let plan = plan(&shop, "orders", "").await;
        acts_as(&shop, "bob").await;
        assert_eq!(step(&shop, "dlq_approve", &plan).await, "approved");
        step(&shop, "dlq_run", &plan).await;
        run(&shop).await;
        let first = i64::from(!committed_before_it_timed_out);
        assert_eq!(reserve_once(&shop).await, Some(first), "the replay");
        // Everything once more: the original, and its replay.
        shop.run("SELECT queen.seek('orders', 'g', to_timestamp => '-infinity')").await;
        assert_eq!(reserve_once(&shop).await, Some(0), "the original");
        assert_eq!(reserve_once(&shop).await, Some(0), "the replay again");
        assert_eq!(reserve_once(&shop).await, None);
        assert_eq!(line(&shop, "SELECT stock, (SELECT count(*) FROM processed_message) FROM inventory").await, "9|1");
    }
}

#[tokio::test]
async fn unapproved_expired_and_over_limit_replay_requests_are_rejected() {
    let shop = shop().await;
    configure(&shop, "orders", r#"{"requireApproval": true}"#).await;
    file(&shop, "orders", &["a", "b", "c"]).await;
    let before = shop.number("SELECT count(*) FROM queen.messages('orders')").await;
    acts_as(&shop, "ada").await;
    let over = r#"SELECT queen.dlq_plan('r', 'c', filter => '{"queue": "orders"}', max_records => 2)"#;
    assert_eq!(refused(&shop, over).await, "QN025", "over the limit");
    let unapproved = plan(&shop, "orders", "").await;
    assert_eq!(refused(&shop, &format!("SELECT queen.dlq_run('{unapproved}')")).await, "QN022", "unapproved");
    assert_eq!(refused(&shop, &format!("SELECT queen.dlq_approve('{unapproved}')")).await, "QN026", "by its planner");
    // Expired before it was approved, and after.
    let approved = plan(&shop, "orders", ", expires_in => '1 hour'").await;
    let late = plan(&shop, "orders", ", expires_in => '1 hour'").await;
    acts_as(&shop, "bob").await;
    assert_eq!(step(&shop, "dlq_approve", &approved).await, "approved");
    shop.run(&format!(
        "UPDATE queen.replay_plan SET expires_at = clock_timestamp() WHERE plan_id IN ('{approved}', '{late}')"
    ))
    .await;
    assert_eq!(refused(&shop, &format!("SELECT queen.dlq_run('{approved}')")).await, "QN023", "expired");
    assert_eq!(refused(&shop, &format!("SELECT queen.dlq_approve('{late}')")).await, "QN023", "expired");
    run(&shop).await;
    assert_eq!(shop.number("SELECT count(*) FROM queen.messages('orders')").await, before, "nothing was moved");
    assert_eq!(line(&shop, "SELECT count(*), min(status), max(status) FROM queen.dlq()").await, "3|pending|pending");
}

const SECRETS: [&str; 6] = [
    "sk-live-51H8xJ2eZvKYlo2CQW7dNzTq",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "bearer-token-5512-abcdef",
    "4111111111111111",
    "hunter2-of-the-database",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0NyJ9.c2lnbmF0dXJlLW9mLTQ3",
];

#[tokio::test]
async fn seeded_secrets_and_long_stack_traces_are_in_no_envelope_log_or_alert() {
    let shop = shop().await;
    configure(
        &shop,
        "orders",
        r#"{"deadLetterPayload": "redact", "redactionAllow": ["$.order"], "deadLetterTo": ".dead", "autoPauseCount": 1}"#,
    )
    .await;
    let payload =
        value!({"order": 1, "key": SECRETS[0], "nested": [{"card": SECRETS[3]}, SECRETS[1]], "pw": SECRETS[4]});
    let headers = value!({"authorization": format!("Bearer {}", SECRETS[2]), "cookie": SECRETS[5], "note": format!("card {}", SECRETS[3])});
    shop.run(&format!(
        "SELECT queen.push('orders', {}, headers => {}, transaction_id => 'a')",
        quote(&payload.to_string()),
        quote(&headers.to_string())
    ))
    .await;
    let frame = format!(
        "    at charge (key {}, token {}, Authorization: Bearer {}, card {}) postgres://app:{}@db/app {}\n",
        SECRETS[0], SECRETS[1], SECRETS[2], SECRETS[3], SECRETS[4], SECRETS[5]
    );
    let trace = format!("Error: declined\n{}", frame.repeat((1 << 20) / frame.len() + 1));
    let message = next(&shop, "orders").await;
    assert!(nack(&shop, &message, &trace, Some("fatal")).await);

    // Every table but the log itself, whose bytes are the messages as they were pushed.
    let tables = shop
        .rows(
            "SELECT relname FROM pg_class
              WHERE relnamespace = 'queen'::regnamespace AND relkind = 'r' AND relname <> 'segment' ORDER BY 1",
        )
        .await;
    let mut places = Vec::new();
    for table in tables.iter().flatten().flatten() {
        places.push((table.clone(), line(&shop, &format!("SELECT t::text FROM queen.{table} t")).await));
    }
    assert!(places.iter().any(|(table, text)| table == "dead_letter_record" && text.contains("5b52454441435445445d")));
    for (place, sql) in [
        ("forwarded", "SELECT m::text FROM queen.messages('orders.dead') m"),
        ("list", "SELECT queen.dlq_list_json()"),
        ("plan", r#"SELECT queen.dlq_plan('r', 'c', filter => '{"queue": "orders"}', dry_run => true)"#),
        ("figures that alerts are made of", "SELECT s::text FROM queen.dlq_stats() s"),
        ("pause", "SELECT g::text FROM queen.consumer_groups g WHERE paused_at IS NOT NULL"),
        ("audit", "SELECT e::text FROM queen.dlq_events() e"),
    ] {
        let text = line(&shop, sql).await;
        assert!(!text.is_empty(), "{place}");
        places.push((place.to_owned(), text));
    }
    places.push(("log".to_owned(), shared_cluster().log()));
    for (place, text) in &places {
        for secret in SECRETS {
            let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
            assert!(!text.contains(secret) && !text.contains(&hex), "{secret} in {place}");
        }
    }
    assert_eq!(line(&shop, "SELECT octet_length(error) <= 4096, payload ->> 'order' FROM queen.dlq()").await, "t|1");
}

/// One step of the order's way: a durable effect, the next message with a stable id of its own, the acknowledgment.
/// `watcher` sees neither before the commit, and both after.
async fn work(shop: &Session, watcher: &Session, queue: &str, then: Option<&str>) -> bool {
    shop.run("BEGIN").await;
    let Some(message) = pop(shop, queue).await else {
        shop.run("COMMIT").await;
        return false;
    };
    let effects = format!("SELECT count(*) FROM effect WHERE step = {}", quote(queue));
    let settled = format!(
        "SELECT coalesce(sum(settled + 1), 0) FROM queen.group_partitions WHERE consumer_group = 'g' AND queue = {}",
        quote(queue)
    );
    let look = async || (watcher.number(&effects).await, watcher.number(&settled).await);
    let before = look().await;
    let order = format!("{}::jsonb ->> 'order'", quote(&message.payload));
    shop.run(&format!("INSERT INTO effect VALUES ({}, {order})", quote(queue))).await;
    if let Some(then) = then {
        shop.run(&format!(
            "SELECT queen.push({}, {}, transaction_id => {} || ({order}))",
            quote(then),
            quote(&message.payload),
            quote(&format!("{then}-"))
        ))
        .await;
    }
    complete(shop, &message).await;
    assert_eq!(look().await, before, "not before the commit");
    shop.run("COMMIT").await;
    let after = look().await;
    assert_eq!(after.0, before.0 + 1);
    assert!(after.1 > before.1, "settled with its effect");
    true
}

#[tokio::test]
async fn a_replayed_canary_goes_through_inventory_payment_and_notification_and_settles_after_each_effect() {
    let (shop, watcher) = {
        let shop = shop().await;
        let watcher = another(&shop).await;
        (shop, watcher)
    };
    // No unique constraint here: a second effect is to be seen.
    shop.run("CREATE TABLE effect (step text, id text)").await;
    file(&shop, "inventory", &["o1", "o2", "o3", "o4", "o5"]).await;
    let plan = plan(&shop, "inventory", ", canary => 2").await;
    step(&shop, "dlq_run", &plan).await;
    run(&shop).await;
    let canary = async || json(&shop, &format!("SELECT queen.dlq_plan_status('{plan}') -> 'canary'")).await;
    let now = canary().await;
    assert_eq!((&now["replayed"], &now["stillPending"]), (&value!(2), &value!(2)));
    let way = [("inventory", Some("payment")), ("payment", Some("notification")), ("notification", None)];
    for (queue, then) in way {
        while work(&shop, &watcher, queue, then).await {}
    }
    let effects = "SELECT step, string_agg(id, ' ' ORDER BY id) FROM effect GROUP BY step ORDER BY step";
    assert_eq!(line(&shop, effects).await, "inventory|o1 o2\nnotification|o1 o2\npayment|o1 o2");
    let ids = "SELECT string_agg(transaction_id, ' ' ORDER BY transaction_id) FROM queen.messages('notification')";
    assert_eq!(shop.one(ids).await, "notification-o1 notification-o2", "ids are the orders', not the attempt's");
    let now = canary().await;
    assert_eq!((&now["settled"], &now["failedAgain"], &now["stillPending"]), (&value!(2), &value!(0), &value!(0)));
    // Seen, and widened.
    step(&shop, "dlq_widen", &plan).await;
    run(&shop).await;
    for (queue, then) in way {
        while work(&shop, &watcher, queue, then).await {}
    }
    let all = "o1 o2 o3 o4 o5";
    assert_eq!(line(&shop, effects).await, format!("inventory|{all}\nnotification|{all}\npayment|{all}"));
}
