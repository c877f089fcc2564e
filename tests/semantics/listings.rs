//! What an HTTP server lists: its statements, as a login that has queen_sidecar and nothing else; and the views below.

use crate::support::{Db, lit};
use queen_tests::shared_cluster;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

const TIME: &str = "t";

fn statements() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sidecar/sql")
}

/// A session of the server's login.
async fn serving(db: &Db) -> Db {
    let login = format!("serves_{}", db.name);
    shared_cluster().create_login(&login, &["queen_sidecar"]);
    let session = db.session_as(&login).await;
    session.run("SET jit = off").await;
    session
}

/// What a statement answers, as text; empty: no row. Arguments as in SQL.
async fn text(session: &Db, name: &str, arguments: &str) -> String {
    let statement =
        std::fs::read_to_string(statements().join(format!("{name}.sql"))).expect("a statement of that name");
    if arguments.is_empty() {
        return session.rows(&statement).await;
    }
    session.run(&format!("DEALLOCATE ALL; PREPARE listing AS {statement}")).await;
    session.rows(&format!("EXECUTE listing({arguments})")).await
}

/// The same as a value, with every time replaced by [`TIME`].
async fn answer(session: &Db, name: &str, arguments: &str) -> Value {
    let text = text(session, name, arguments).await;
    let mut value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
    hide_times(&mut value);
    value
}

fn hide_times(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        Value::Object(map) => map.values_mut().for_each(hide_times),
        Value::String(s) if s.len() == 24 && s.ends_with('Z') && s.as_bytes()[10] == b'T' => *s = TIME.to_owned(),
        _ => {}
    }
}

fn keys(value: &Value) -> String {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys.join(" ")
}

/// Queue `shop.eu`: partition `ada` with a (dead letter of g), b (under a lease of g) and c; partition `bob` with d, which
/// nobody has touched. Queue `plain`: x, under a lease of queue mode.
async fn shop() -> (Db, String) {
    let db = Db::new().await;
    db.run(
        r#"SELECT queen.push_batch('[
            {"queue": "shop.eu", "partition": "ada", "transactionId": "a", "payload": {"z":  1.50, "a": "\u0000"}},
            {"queue": "shop.eu", "partition": "ada", "transactionId": "b", "payload": 2},
            {"queue": "shop.eu", "partition": "ada", "transactionId": "c", "payload": 3},
            {"queue": "shop.eu", "partition": "bob", "transactionId": "d", "payload": 4}]')"#,
    )
    .await;
    db.push("plain", "x").await;
    let batch = db.pop("'shop.eu', 'g', partition => 'ada', subscription_mode => 'all'").await;
    db.ack_with(&batch, "a", "dlq", &batch.lease, "'boom'").await;
    db.pop("'shop.eu', 'g', partition => 'ada'").await;
    db.pop("'plain'").await;
    db.run(&format!(
        "SELECT queen.record_trace('{}', 'a', '{{\"k\":  1}}', trace_names => '{{n}}')",
        batch.partition_id
    ))
    .await;
    (db, batch.partition_id)
}

/// A statement of each file; what is not here is not tried.
fn all(partition: &str) -> Vec<(&'static str, String)> {
    vec![
        ("queues", String::new()),
        ("queue", "'shop.eu'".to_owned()),
        ("depth", "'shop.eu', NULL".to_owned()),
        ("overview", "1.5, NULL".to_owned()),
        ("namespaces", String::new()),
        ("tasks", String::new()),
        ("messages", "NULL, NULL, NULL, NULL, NULL, NULL, NULL, 200, 0".to_owned()),
        ("message", format!("'{partition}', 'a'")),
        ("dlq", "NULL, NULL, 100, 0".to_owned()),
        ("dlq_newest", format!("'{partition}', 'a'")),
        ("consumer_groups", String::new()),
        ("consumer_group", "'g'".to_owned()),
        ("lagging", "0".to_owned()),
        ("traces", format!("'{partition}', 'a'")),
        ("traces_by_name", "'n', 100, 0".to_owned()),
        ("trace_names", "50, 0".to_owned()),
        ("status", "NULL, NULL, NULL".to_owned()),
        ("status_queues", "100, 0".to_owned()),
        ("status_queue", "'shop.eu'".to_owned()),
        ("depths", String::new()),
        ("dlq_signatures", "'shop.eu', NULL".to_owned()),
        ("partition_liveness", "NULL, 10".to_owned()),
        ("postgres_stats", String::new()),
        ("stats_refresh", String::new()),
        ("workload", String::new()),
        ("dlq_record", "'0190aaaa-0000-7000-8000-00000000000f', true".to_owned()),
        ("dlq_stats", "NULL, NULL, NULL".to_owned()),
        ("dlq_events", "NULL, NULL, NULL, 0, 100".to_owned()),
        ("replay_plans", "NULL, 100".to_owned()),
    ]
}

#[tokio::test]
async fn every_statement_answers_json_to_the_servers_login_whatever_the_plan() {
    let (db, partition) = shop().await;
    let session = serving(&db).await;
    for plan in ["auto", "force_generic_plan"] {
        session.run(&format!("SET plan_cache_mode = {plan}")).await;
        for (name, arguments) in all(&partition) {
            let text = text(&session, name, &arguments).await;
            if name == "dlq_record" {
                assert!(text.is_empty(), "there is no such record: {text}");
                continue;
            }
            assert!(!text.is_empty(), "{name}");
            if name != "dlq_newest" {
                serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
            }
        }
    }
    let files: BTreeSet<String> = std::fs::read_dir(statements())
        .expect("the statements")
        .filter_map(|f| f.ok()?.file_name().to_str()?.strip_suffix(".sql").map(str::to_owned))
        // Asked before anything else, and of the catalogs: no JSON, and no role needed.
        .filter(|name| name != "fitness")
        .collect();
    let tried: BTreeSet<String> = all("").into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(tried, files, "every file is in this test");
}

#[tokio::test]
async fn every_statement_answers_for_an_empty_database() {
    let db = Db::new().await;
    let session = serving(&db).await;
    for (name, arguments) in all("0190aaaa-0000-7000-8000-00000000000f") {
        let text = text(&session, name, &arguments).await;
        let missing = ["queue", "depth", "message", "dlq_newest", "dlq_record", "status_queue"].contains(&name);
        assert_eq!(text.is_empty(), missing, "{name}: no row is a 404: {text}");
    }
}

#[tokio::test]
async fn a_queue_shows_each_partition_as_the_group_furthest_behind_sees_it() {
    let (db, _) = shop().await;
    let session = serving(&db).await;
    let queue = answer(&session, "queue", "'shop.eu'").await;
    assert_eq!(keys(&queue), "createdAt id name namespace options partitions retainedBytes segments task totals");
    let stats = |p: usize| queue["partitions"][p]["stats"].clone();
    assert_eq!(
        stats(0),
        json!({"total": 3, "pending": 2, "processing": 1, "completed": 0, "failed": null, "deadLetter": 1})
    );
    assert_eq!(
        stats(1),
        json!({"total": 1, "pending": 1, "processing": 0, "completed": 0, "failed": null, "deadLetter": 0}),
        "nobody reads it: everything is pending"
    );
    assert_eq!(queue["totals"]["total"], 4);
    assert_eq!(queue["segments"], json!({"segments": 2, "messages": 4}));
    let list = answer(&session, "queues", "").await;
    let names: Vec<&Value> = list["queues"].as_array().expect("queues").iter().map(|q| &q["name"]).collect();
    assert_eq!(names, ["plain", "shop.eu"], "newest first");
    assert_eq!(list["queues"][1]["messages"], json!({"total": 4, "pending": 2, "processing": 1}));
    assert_eq!(list["queues"][1]["createdAt"], TIME, "in milliseconds");
}

#[tokio::test]
async fn the_depth_of_a_group_is_its_own_and_everything_for_one_that_nobody_has_used() {
    let (db, _) = shop().await;
    let session = serving(&db).await;
    for (group, pending, processing, lanes) in [("NULL", 3, 1, 2), ("'g'", 2, 1, 1), ("'new'", 4, 0, 2)] {
        let depth = answer(&session, "depth", &format!("'shop.eu', {group}")).await;
        assert_eq!(depth["pending"], pending, "{group}");
        assert_eq!(depth["processing"], processing, "{group}");
        assert_eq!(depth["ready"], pending - processing, "{group}");
        assert_eq!(depth["partitionsPending"], lanes, "{group}: g has only named ada");
    }
}

#[tokio::test]
async fn payloads_pass_byte_for_byte() {
    let (db, partition) = shop().await;
    let session = serving(&db).await;
    let payload = r#"{"z":  1.50, "a": "\u0000"}"#;
    for (name, arguments) in [
        ("messages", "'shop.eu', 'ada', NULL, NULL, NULL, NULL, NULL, 200, 0".to_owned()),
        ("message", format!("'{partition}', 'a'")),
        ("dlq", "NULL, NULL, 100, 0".to_owned()),
    ] {
        assert!(text(&session, name, &arguments).await.contains(payload), "{name}");
    }
    assert!(text(&session, "traces", &format!("'{partition}', 'a'")).await.contains(r#"{"k":  1}"#));
}

#[tokio::test]
async fn listed_messages_say_where_they_are_and_who_has_them() {
    let (db, _) = shop().await;
    let session = serving(&db).await;
    let list = |arguments: &str| format!("{arguments}, NULL, NULL, 200, 0");
    let found = answer(&session, "messages", &list("'shop.eu', 'ada', NULL, NULL, NULL")).await;
    let brief: Vec<Value> = found["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|m| {
            json!([
                m["transactionId"],
                m["status"],
                m["segment"]["frameIdx"],
                m["busStatus"]["consumedBy"],
                m["leaseExpiresAt"]
            ])
        })
        .collect();
    assert_eq!(
        Value::from(brief),
        json!([["c", "pending", 2, 0, null], ["b", "processing", 1, 0, TIME], ["a", "dead_letter", 0, 1, null]])
    );
    assert_eq!(found["mode"], json!({"hasQueueMode": false, "busGroupsCount": 1, "type": "bus"}));
    assert_eq!(found["total"], 3);
    for (arguments, total, mode) in [
        ("NULL, NULL, NULL, NULL, NULL", 5, "hybrid"),
        ("'plain', NULL, NULL, NULL, NULL", 1, "queue"),
        ("NULL, NULL, 'shop', NULL, NULL", 4, "bus"),
        ("NULL, NULL, 'shop', 'eu', 'pending'", 2, "bus"),
        ("NULL, NULL, NULL, 'us', NULL", 0, "none"),
        ("'plain', NULL, 'shop', NULL, NULL", 0, "none"),
    ] {
        let found = answer(&session, "messages", &list(arguments)).await;
        assert_eq!((found["total"].clone(), found["mode"]["type"].clone()), (json!(total), json!(mode)), "{arguments}");
    }
    let paged = answer(&session, "messages", "'shop.eu', 'ada', NULL, NULL, NULL, NULL, NULL, 1, 1").await;
    assert_eq!(paged["messages"][0]["transactionId"], "b");
    db.age("shop.eu", 7200).await;
    assert_eq!(
        answer(&session, "messages", &list("'shop.eu', NULL, NULL, NULL, NULL")).await["total"],
        0,
        "the last hour"
    );
    let day = "'shop.eu', NULL, NULL, NULL, NULL, '2020-01-01T00:00:00Z', NULL, 200, 0";
    assert_eq!(answer(&session, "messages", day).await["total"], 4);
}

#[tokio::test]
async fn a_message_that_retention_has_removed_is_answered_from_its_dead_letter() {
    let (db, partition) = shop().await;
    let session = serving(&db).await;
    let stored = answer(&session, "message", &format!("'{partition}', 'a'")).await;
    assert_eq!((&stored["status"], &stored["errorMessage"]), (&json!("dead_letter"), &json!("boom")));
    assert_eq!(stored["mode"]["type"], "bus");
    assert_eq!(
        stored["consumerGroups"],
        json!([{"name": "g", "group": "g", "consumed": true, "leaseExpiresAt": TIME}])
    );
    assert_eq!(answer(&session, "message", &format!("'{partition}', 'b'")).await["status"], "processing");
    db.configure("shop.eu", r#"{"retentionEnabled": true, "retentionSeconds": 60}"#).await;
    db.age("shop.eu", 3600).await;
    db.expire().await;
    db.run("SELECT queen.maintain()").await;
    assert_eq!(db.stored("shop.eu").await, "");
    let mut kept = answer(&session, "message", &format!("'{partition}', 'a'")).await;
    assert_eq!(text(&session, "message", &format!("'{partition}', 'b'")).await, "", "not one without a dead letter");
    for changing in ["queueConfig", "consumerGroups"] {
        kept[changing] = stored[changing].clone();
    }
    assert_eq!(kept, stored);
}

#[tokio::test]
async fn a_dead_letter_is_found_by_address_the_newest_first() {
    let (db, partition) = shop().await;
    let other = db.pop("'shop.eu', 'h', partition => 'ada', subscription_mode => 'all'").await;
    db.ack(&other, "a", "dlq").await;
    let session = serving(&db).await;
    let of = |arguments: &str| format!("SELECT string_agg(consumer_group, ' ') FROM queen.dlq({arguments})");
    for (arguments, wanted) in [
        (format!("partition_id => '{partition}', transaction_id => 'a'"), "h g"),
        (format!("partition_id => '{partition}'"), "h g"),
        ("transaction_id => 'a'".to_owned(), "h g"),
        (format!("'shop.eu', 'g', 9, 0, '{partition}', 'a'"), "g"),
        (format!("partition_id => '{partition}', transaction_id => 'b'"), "~"),
        ("partition_id => '0190aaaa-0000-7000-8000-00000000000f'".to_owned(), "~"),
    ] {
        assert_eq!(session.rows(&of(&arguments)).await, wanted, "{arguments}");
    }
    let newest = db.rows("SELECT id FROM queen.dlq(max_rows => 1)").await;
    assert_eq!(text(&session, "dlq_newest", &format!("'{partition}', 'a'")).await, newest);
}

#[tokio::test]
async fn groups_show_their_lag_by_partition_and_in_all() {
    let (db, _) = shop().await;
    let session = serving(&db).await;
    assert_eq!(
        session
            .rows(
                "SELECT queue, consumer_group, partition, settled, last_offset, pending, processing, lease_id IS NULL,
                        lease_expires_at > now(), retries, oldest_unsettled_at <= oldest_pending_at, lag_seconds > 0
                   FROM queen.group_partitions ORDER BY queue"
            )
            .await,
        "plain|__QUEUE_MODE__|Default|-1|0|0|1|f|t|0|~|t\nshop.eu|g|ada|0|2|1|1|f|t|0|t|t"
    );
    db.age("shop.eu", 600).await;
    let groups = answer(&session, "consumer_groups", "").await;
    let brief: Vec<Value> = groups
        .as_array()
        .expect("a bare array")
        .iter()
        .map(|g| {
            json!([
                g["name"],
                g["members"],
                g["partitionCursors"],
                g["partitionsWithLag"],
                g["totalLag"],
                g["state"],
                g["subscriptionMode"]
            ])
        })
        .collect();
    assert_eq!(
        Value::from(brief),
        json!([["__QUEUE_MODE__", 1, 1, 1, 1, "Dead", "all"], ["g", 1, 1, 1, 2, "Lagging", null]]),
        "g has only named a partition"
    );
    let one = answer(&session, "consumer_group", "'g'").await;
    assert_eq!(keys(&one), "shop.eu");
    let lane = &one["shop.eu"]["partitions"][0];
    assert_eq!(
        (&lane["totalConsumed"], &lane["offsetLag"], &lane["leaseActive"]),
        (&json!(1), &json!(2), &json!(true))
    );
    assert_eq!(answer(&session, "consumer_group", "'nobody'").await, json!({}));
    let lagging = answer(&session, "lagging", "300").await;
    assert_eq!(lagging.as_array().map(Vec::len), Some(1));
    assert_eq!((&lagging[0]["consumer_group"], &lagging[0]["offset_lag"]), (&json!("g"), &json!(2)));
}

#[tokio::test]
async fn a_group_without_a_live_lease_holds_nothing() {
    let (db, _) = shop().await;
    db.expire().await;
    assert_eq!(
        db.rows("SELECT consumer_group, processing, active_leases FROM queen.consumer_groups ORDER BY 1").await,
        "__QUEUE_MODE__|0|0\ng|0|0"
    );
    let held = "SELECT count(*) FROM queen.group_partitions WHERE lease_id IS NOT NULL OR lease_expires_at IS NOT NULL";
    assert_eq!(db.rows(held).await, "0");
}

#[tokio::test]
async fn set_subscription_moves_the_start_of_partitions_not_read_yet_and_no_cursor() {
    let db = Db::new().await;
    for (queue, partition, id) in [("q", "p", "a"), ("q", "r", "b"), ("other", "p", "c")] {
        db.push_to(queue, partition, id).await;
    }
    db.pop("'q', 'g', subscription_mode => 'new'").await;
    db.pop("'other', 'g', subscription_mode => 'new'").await;
    let pending = "SELECT sum(pending) FROM queen.consumer_groups";
    assert_eq!(db.rows(pending).await, "0");
    db.push_to("q", "p", "d").await;
    assert_eq!(db.pop("'q', 'g', auto_ack => true").await.ids, "d");
    let created = db.rows("SELECT subscription_created_at FROM queen.consumer_groups ORDER BY queue").await;
    assert_eq!(db.rows("SELECT queen.set_subscription('g', '2020-01-01')").await, "2");
    assert_eq!(
        db.rows("SELECT subscription_mode, subscription_timestamp FROM queen.consumer_groups WHERE queue = 'q'").await,
        "timestamp|2020-01-01 00:00:00+00"
    );
    assert_eq!(db.rows("SELECT subscription_created_at FROM queen.consumer_groups ORDER BY queue").await, created);
    let got = db.pop("'q', 'g', batch => 9, max_partitions => 0").await;
    assert_eq!(got.ids, "b", "p has a cursor");
    assert_eq!(db.pop("'other', 'g'").await.ids, "c", "in all queues, hinted or not");
    assert_eq!(db.rows("SELECT queen.set_subscription('nobody', now())").await, "0");
    assert_eq!(db.state(&format!("SELECT queen.set_subscription({}, now())", lit(""))).await, "QN001");
    assert_eq!(db.state("SELECT queen.set_subscription('g', NULL)").await, "22023");
    db.verify().await;
}
