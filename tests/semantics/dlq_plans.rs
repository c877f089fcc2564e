//! Replay plans: who decides, what is moved, how far it goes.

use crate::support::{Db, filed, lit};
use serde_json::{Value, json};

/// Files `n` dead letters of group `g` in queue `q`, with payloads 0, 1, ...
pub async fn letters(db: &Db, n: usize) {
    filed(db, "g").await;
    // The rest are copies: what a plan does with a record does not depend on how it was filed.
    db.run(&format!(
        "INSERT INTO queen.dead_letter_record
         SELECT (jsonb_populate_record(r, jsonb_build_object(
                    'id', gen_random_uuid(), 'at_offset', 1000000 + i, 'message_id', gen_random_uuid(), 'transaction_id', 't' || i,
                    'payload', '\\x' || encode(convert_to(i::text, 'UTF8'), 'hex')))).*
           FROM queen.dead_letter_record r, generate_series(1, {n} - 1) i;
         UPDATE queen.dlq_tally SET n = n * {n}, filed = filed * {n}"
    ))
    .await;
}

pub async fn json_of(db: &Db, sql: &str) -> Value {
    let text = db.rows(sql).await;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Plans for all of queue `q`; `more` as written in SQL. Answers the plan's id.
pub async fn planned(db: &Db, more: &str) -> String {
    let plan = json_of(
        db,
        &format!("SELECT queen.dlq_plan('down', 'change 1', filter => '{{\"queue\": \"q\"}}', rate => 10000 {more})"),
    )
    .await;
    plan["planId"].as_str().expect("a plan").to_owned()
}

pub async fn status(db: &Db, plan: &str) -> Value {
    let status = json_of(db, &format!("SELECT queen.dlq_plan_status('{plan}')")).await;
    let n = |key: &str| status[key].as_i64().unwrap();
    let sum: i64 = ["moved", "duplicate", "failed", "gone", "refused", "remaining"].iter().map(|key| n(key)).sum();
    assert_eq!(sum, n("planned"), "{status}");
    status
}

pub async fn acts_as(db: &Db, name: &str) {
    db.run(&format!("SET queen.actor = {}", lit(name))).await;
}

async fn step(db: &Db, function: &str, plan: &str) -> String {
    db.rows(&format!("SELECT queen.{function}('{plan}') ->> 'state'")).await
}

pub async fn run(db: &Db) {
    db.run("CALL queen.run_replays(60000)").await;
}

async fn require_approval(db: &Db) {
    let sql =
        "UPDATE queen.queue SET options = (options::jsonb || '{\"requireApproval\": true}')::text WHERE name = 'q'";
    db.run(sql).await;
}

#[tokio::test]
async fn a_dry_run_tells_count_queues_and_sample_and_writes_nothing() {
    let db = Db::new().await;
    letters(&db, 8).await;
    let plan = json_of(&db, "SELECT queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\"}', dry_run => true)").await;
    assert_eq!(plan["planId"], Value::Null);
    assert_eq!(plan["planned"], 8);
    assert_eq!(plan["queues"], json!([{"queue": "q", "records": 8, "needsApproval": false}]));
    assert_eq!(plan["sample"].as_array().unwrap().len(), 5);
    assert_eq!(plan["sample"][1]["payload"], 1);
    let left = "SELECT (SELECT count(*) FROM queen.replay_plan), (SELECT count(*) FROM queen.replay_item), (SELECT count(*) FROM queen.dlq_event)";
    assert_eq!(db.rows(left).await, "0|0|0");
}

#[tokio::test]
async fn a_plan_says_how_many_of_its_records_another_plan_holds() {
    let db = Db::new().await;
    letters(&db, 5).await;
    let held = |more: &str| {
        format!(
            "SELECT p -> 'planned', p -> 'heldElsewhere' FROM queen.dlq_plan('r', 'c', filter => '{{\"queue\": \"q\"}}' {more}) p"
        )
    };
    assert_eq!(db.rows(&held(", dry_run => true")).await, "5|0");
    let two = "SELECT queen.dlq_plan('r', 'c', ids => (SELECT array_agg(id) FROM (SELECT id FROM queen.dead_letter_record LIMIT 2) r)) ->> 'planId'";
    let (first, second) = (db.rows(two).await, db.rows(two).await);
    assert_eq!(db.rows(&held(", dry_run => true")).await, "5|2", "in both of the others, and counted once");
    assert_eq!(db.rows(&held("")).await, "5|2", "a plan does not hold against itself");
    let all = db.rows("SELECT plan_id FROM queen.replay_plans WHERE planned = 5").await;
    for plan in [&first, &all] {
        step(&db, "dlq_cancel_plan", plan).await;
    }
    db.run(&format!("UPDATE queen.replay_plan SET expires_at = now() WHERE plan_id = '{second}'")).await;
    assert_eq!(db.rows(&held(", dry_run => true")).await, "5|0", "what has ended or expired holds nothing");
    let sql = "SELECT detail -> 'heldElsewhere' FROM queen.dlq_events() WHERE action = 'plan_created' ORDER BY seq";
    assert_eq!(db.rows(sql).await, "0\n2\n2");
}

#[tokio::test]
async fn a_filter_selects_by_every_one_of_its_keys() {
    let db = Db::new().await;
    letters(&db, 10).await;
    db.run("UPDATE queen.dead_letter_record SET failure_class = 'transient', error_code = 'E7', fingerprint = 'f' WHERE transaction_id IN ('t1', 't2')").await;
    for (filter, n) in [
        (r#"{"queue": "q"}"#, 10),
        (r#"{"queue": "other"}"#, 0),
        (r#"{"consumerGroup": "g"}"#, 10),
        (r#"{"consumerGroup": "h"}"#, 0),
        (r#"{"class": "transient"}"#, 2),
        (r#"{"code": "E7"}"#, 2),
        (r#"{"fingerprint": "f", "queue": "q"}"#, 2),
        (r#"{"from": "2000-01-01T00:00:00Z"}"#, 10),
        (r#"{"to": "2000-01-01T00:00:00Z"}"#, 0),
        (r#"{"payload": "$ ? (@ > 6)"}"#, 3),
        (r#"{"payload": "$ > 6"}"#, 3),
        (r#"{"payload": "$.no.such"}"#, 0),
    ] {
        let sql = format!("SELECT queen.dlq_plan('r', 'c', filter => '{filter}', dry_run => true) ->> 'planned'");
        assert_eq!(db.rows(&sql).await, n.to_string(), "{filter}");
    }
    for (arguments, state) in [
        ("'r', 'c'", "22023"),
        ("'r', 'c', filter => '{}'", "22023"),
        ("'r', 'c', filter => '[]'", "22023"),
        ("'r', 'c', filter => '{\"colour\": \"red\"}'", "22023"),
        ("'r', 'c', filter => '{\"queue\": 1}'", "22023"),
        ("'r', 'c', filter => '{\"from\": \"never\"}'", "22007"),
        ("'r', 'c', filter => '{\"payload\": \"$[\"}'", "42601"),
        ("' ', 'c', filter => '{\"queue\": \"q\"}'", "22023"),
        ("'r', NULL, filter => '{\"queue\": \"q\"}'", "22023"),
        ("'r', 'c', ids => '{}', filter => '{\"queue\": \"q\"}'", "22023"),
        ("'r', 'c', ids => '{}', rate => 0", "22023"),
        ("'r', 'c', ids => '{}', rate => 'NaN'", "22023"),
        // Its next message would be due at a time that no timestamp holds, and the runner would stop for everybody.
        ("'r', 'c', ids => '{}', rate => 1e-14", "22023"),
        ("'r', 'c', ids => '{}', canary => -1", "22023"),
        ("'r', 'c', ids => '{}', expires_in => '-1 s'", "22023"),
        ("'r', 'c', ids => '{}', max_records => 0", "22023"),
        ("'r', 'c', ids => '{}', to_queue => ' '", "QN001"),
        ("'r', 'c', filter => '{\"queue\": \"q\"}', max_records => 9", "QN025"),
    ] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_plan({arguments})")).await, state, "{arguments}");
    }
}

#[tokio::test]
async fn the_set_is_what_it_was_when_planned_and_what_fails_again_does_not_loop() {
    let db = Db::new().await;
    letters(&db, 3).await;
    let plan = planned(&db, ", canary => 0").await;
    db.run("INSERT INTO queen.dead_letter_record SELECT (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(), 'at_offset', 99))).* FROM queen.dead_letter_record r LIMIT 1").await;
    step(&db, "dlq_run", &plan).await;
    run(&db).await;
    let done = status(&db, &plan).await;
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(3)));
    assert_eq!(
        db.rows("SELECT status, count(*) FROM queen.dead_letter_record GROUP BY 1 ORDER BY 1").await,
        "pending|1\nreplayed|3"
    );
    // Done is done.
    run(&db).await;
    for function in ["dlq_run", "dlq_widen", "dlq_pause_plan", "dlq_resume_plan", "dlq_cancel_plan"] {
        assert_eq!(db.state(&format!("SELECT queen.{function}('{plan}')")).await, "QN021", "{function}");
        let none = format!("SELECT queen.{function}('0190aaaa-0000-7000-8000-00000000000f')");
        assert_eq!(db.state(&none).await, "QN020", "{function}");
    }
}

#[tokio::test]
async fn a_planner_cannot_approve_and_another_can() {
    let db = Db::new().await;
    letters(&db, 2).await;
    require_approval(&db).await;
    acts_as(&db, "ada").await;
    let plan = planned(&db, "").await;
    assert_eq!(db.state(&format!("SELECT queen.dlq_approve('{plan}', 'me')")).await, "QN026");
    assert_eq!(db.state(&format!("SELECT queen.dlq_run('{plan}')")).await, "QN022");
    acts_as(&db, "bob").await;
    assert_eq!(step(&db, "dlq_approve", &plan).await, "approved");
    assert_eq!(db.rows("SELECT DISTINCT status FROM queen.dead_letter_record").await, "approved");
    assert_eq!(db.state(&format!("SELECT queen.dlq_approve('{plan}')")).await, "QN021");
    assert_eq!(step(&db, "dlq_run", &plan).await, "running");
    run(&db).await;
    let done = status(&db, &plan).await;
    assert_eq!((&done["moved"], &done["plannedBy"], &done["approvedBy"]), (&json!(2), &json!("ada"), &json!("bob")));
}

#[tokio::test]
async fn a_name_written_in_another_way_is_no_second_person() {
    let db = Db::new().await;
    letters(&db, 1).await;
    acts_as(&db, "Ann Ø. Strauß").await;
    let plan = planned(&db, "").await;
    for same in
        ["Ann Ø. Strauß", " ann ø. strauß\u{a0}", "ANN Ø. STRAUSS", "Ａｎｎ  Ø. Strauß", "Ann\u{200b} Ø. Strauß"]
    {
        acts_as(&db, same).await;
        assert_eq!(db.state(&format!("SELECT queen.dlq_approve('{plan}')")).await, "QN026", "{same}");
    }
    acts_as(&db, " Anne Ø. Strauß").await;
    assert_eq!(step(&db, "dlq_approve", &plan).await, "approved");
    let by = status(&db, &plan).await["approvedBy"].clone();
    assert_eq!(by, " Anne Ø. Strauß", "kept as it was given");
}

#[tokio::test]
async fn logins_are_told_apart_whatever_role_they_take_on() {
    let db = Db::new().await;
    letters(&db, 2).await;
    let cluster = queen_tests::shared_cluster();
    cluster.create_login("plan_ada", &["queen_operator"]);
    cluster.create_login("plan_bob", &["queen_operator"]);
    cluster.create_login("plan_eve", &["queen_viewer"]);
    let (ada, bob, eve) =
        (db.session_as("plan_ada").await, db.session_as("plan_bob").await, db.session_as("plan_eve").await);
    let plan = planned(&ada, "").await;
    ada.run("SET ROLE queen_operator").await;
    assert_eq!(ada.state(&format!("SELECT queen.dlq_approve('{plan}')")).await, "QN026");
    assert_eq!(ada.state("SET queen.actor = 'bob'").await, "42501");
    assert_eq!(eve.state(&format!("SELECT queen.dlq_approve('{plan}')")).await, "42501");
    assert_eq!(status(&eve, &plan).await["state"], "planned");
    assert_eq!(step(&bob, "dlq_approve", &plan).await, "approved");
    assert_eq!(
        db.rows(&format!("SELECT actor, action FROM queen.dlq_events(plan_id => '{plan}') WHERE dlq_id IS NULL")).await,
        "plan_ada|plan_created\nplan_bob|plan_approved"
    );
}

#[tokio::test]
async fn an_unapproved_expired_over_limit_or_altered_plan_is_refused() {
    let db = Db::new().await;
    letters(&db, 3).await;
    acts_as(&db, "ada").await;
    let alterations = [
        ("QN023", "UPDATE queen.replay_plan SET expires_at = now() - interval '1 s' WHERE plan_id = '$'"),
        ("QN025", "UPDATE queen.replay_plan SET max_records = 2 WHERE plan_id = '$'"),
        ("QN024", "UPDATE queen.replay_plan SET rate = 20000 WHERE plan_id = '$'"),
        ("QN024", "UPDATE queen.replay_plan SET to_queue = 'mine' WHERE plan_id = '$'"),
        ("QN024", "DELETE FROM queen.replay_item WHERE plan_id = '$' AND n = 2"),
        ("QN024", "UPDATE queen.replay_item SET dlq_id = gen_random_uuid() WHERE plan_id = '$' AND n = 2"),
    ];
    for (state, alter) in alterations {
        let before = planned(&db, "").await;
        let after = planned(&db, "").await;
        acts_as(&db, "bob").await;
        step(&db, "dlq_approve", &after).await;
        for plan in [&before, &after] {
            db.run(&alter.replace('$', plan)).await;
        }
        assert_eq!(db.state(&format!("SELECT queen.dlq_approve('{before}')")).await, state, "{alter}");
        assert_eq!(db.state(&format!("SELECT queen.dlq_run('{after}')")).await, state, "{alter}");
        acts_as(&db, "ada").await;
        db.run(&format!(
            "UPDATE queen.replay_plan SET expires_at = now() - interval '1 s' WHERE plan_id IN ('{before}', '{after}')"
        ))
        .await;
        db.run("CALL queen.run_replays(0)").await;
        // Of an item that is not there any more nobody knows.
        db.run("UPDATE queen.dead_letter_record SET status = 'pending'").await;
    }
    // An option that comes after the plan counts.
    let plan = planned(&db, "").await;
    require_approval(&db).await;
    assert_eq!(db.state(&format!("SELECT queen.dlq_run('{plan}')")).await, "QN022");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q')").await, "1", "nothing was moved");
}

#[tokio::test]
async fn where_approval_is_wanted_there_is_no_way_around_it() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    require_approval(&db).await;
    acts_as(&db, "ada").await;
    let (moves, repairs) =
        (format!("SELECT queen.dlq_move_v1('{id}')"), format!("SELECT queen.dlq_repair('{id}', '1', 'r')"));
    assert_eq!(db.state(&moves).await, "QN022");
    assert_eq!(db.state(&repairs).await, "QN022");
    let plan = planned(&db, "").await;
    acts_as(&db, "bob").await;
    step(&db, "dlq_approve", &plan).await;
    assert_eq!(db.state(&repairs).await, "QN022", "what was approved is the message as it was filed");
    assert_eq!(db.rows(&format!("{moves} ->> 'result'")).await, "moved");
}

#[tokio::test]
async fn an_approval_of_a_repair_is_for_that_payload_and_nothing_else() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    require_approval(&db).await;
    acts_as(&db, "ada").await;
    let plan = json_of(
        &db,
        &format!("SELECT queen.dlq_plan('r', 'c', ids => ARRAY['{id}'::uuid], repair => '{{\"sum\": 1}}')"),
    )
    .await;
    assert_eq!(Value::from(db.rows("SELECT encode(sha256('{\"sum\": 1}'), 'hex')").await), plan["repairHash"]);
    let plan = plan["planId"].as_str().unwrap();
    let repair = |payload: &str| format!("SELECT queen.dlq_repair('{id}', '{payload}', 'r') ->> 'result'");
    let right = repair("{\"sum\": 1}");
    assert_eq!(db.state(&right).await, "QN022", "not approved yet");
    acts_as(&db, "bob").await;
    assert_eq!(step(&db, "dlq_approve", plan).await, "approved");
    for other in ["{\"sum\": 2}", "{\"sum\":1}", "{\"sum\": 1, \"sum\": 1}", "null"] {
        assert_eq!(db.state(&repair(other)).await, "QN022", "{other}");
    }
    // Nor does it allow what was filed.
    assert_eq!(db.state(&format!("SELECT queen.dlq_move_v1('{id}')")).await, "QN022");
    assert_eq!(db.state(&format!("SELECT queen.dlq_run('{plan}')")).await, "QN021");
    let elsewhere = format!("SELECT queen.dlq_repair('{id}', '{{\"sum\": 1}}', 'r', 'elsewhere')");
    assert_eq!(db.state(&elsewhere).await, "QN022");
    // The digest has it.
    db.run(&format!(
        "BEGIN; UPDATE queen.replay_plan SET repair_hash = encode(sha256('2'), 'hex') WHERE plan_id = '{plan}'"
    ))
    .await;
    assert_eq!(db.state(&repair("2")).await, "QN024");
    db.run("ROLLBACK").await;
    assert_eq!(db.rows(&right).await, "repaired");
    let done = status(&db, plan).await;
    assert_eq!(
        (&done["state"], &done["moved"], &done["canary"]["stillPending"]),
        (&json!("done"), &json!(1), &json!(1))
    );
    assert_eq!(
        db.rows(&format!("SELECT actor, action FROM queen.dlq_events(plan_id => '{plan}')")).await,
        "ada|plan_created\nbob|plan_approved\nbob|approved\nbob|repaired\nbob|plan_done"
    );
    for (arguments, state) in [
        (format!("ids => ARRAY['{id}', '{plan}']::uuid[], repair => '1'"), "22023"),
        ("filter => '{\"queue\": \"q\"}', repair => '1'".to_owned(), "22023"),
        (format!("ids => ARRAY['{id}'::uuid], repair => '\"[REDACTED]\"'"), "QN002"),
    ] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_plan('r', 'c', {arguments})")).await, state, "{arguments}");
    }
}

#[tokio::test]
async fn an_approval_is_for_the_plans_destination_and_time() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    require_approval(&db).await;
    acts_as(&db, "ada").await;
    let plan = planned(&db, ", to_queue => 'there'").await;
    acts_as(&db, "bob").await;
    step(&db, "dlq_approve", &plan).await;
    acts_as(&db, "ada").await;
    for elsewhere in ["", ", 'elsewhere'", ", 'there', 'another'"] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_move_v1('{id}'{elsewhere})")).await, "QN022", "{elsewhere}");
    }
    assert_eq!(db.state(&format!("SELECT queen.dlq_repair('{id}', '1', 'r')")).await, "QN022");
    // Nobody has noticed yet, and the record still says approved.
    db.run("UPDATE queen.replay_plan SET expires_at = now() - interval '1 s'").await;
    assert_eq!(db.state(&format!("SELECT queen.dlq_move_v1('{id}', 'there')")).await, "QN022");
    assert_eq!(db.rows("SELECT status FROM queen.dead_letter_record").await, "approved");
    db.run("UPDATE queen.replay_plan SET expires_at = now() + interval '1 h'").await;
    assert_eq!(db.rows(&format!("SELECT queen.dlq_move_v1('{id}', 'there') ->> 'result'")).await, "moved");
}

#[tokio::test]
async fn pausing_and_resuming_again_and_again_is_not_faster_than_the_rate() {
    let db = Db::new().await;
    letters(&db, 20).await;
    let plan =
        json_of(&db, "SELECT queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\"}', rate => 0.5, canary => 0)").await;
    let plan = plan["planId"].as_str().unwrap();
    step(&db, "dlq_run", plan).await;
    for _ in 0..10 {
        db.run("CALL queen.run_replays(0)").await;
        step(&db, "dlq_pause_plan", plan).await;
        step(&db, "dlq_resume_plan", plan).await;
    }
    assert_eq!(status(&db, plan).await["moved"], 1);
}

#[tokio::test]
async fn an_approval_that_expires_or_is_cancelled_puts_records_back_to_pending() {
    let db = Db::new().await;
    letters(&db, 4).await;
    let statuses = "SELECT status, count(*) FROM queen.dead_letter_record GROUP BY 1 ORDER BY 1";
    acts_as(&db, "ada").await;
    let (first, second) = (planned(&db, "").await, planned(&db, ", expires_in => '1 hour'").await);
    acts_as(&db, "bob").await;
    step(&db, "dlq_approve", &first).await;
    step(&db, "dlq_approve", &second).await;
    step(&db, "dlq_cancel_plan", &first).await;
    assert_eq!(db.rows(statuses).await, "approved|4", "the other plan has approved them too");
    db.run("UPDATE queen.replay_plan SET expires_at = now() - interval '1 s' WHERE state = 'approved'").await;
    assert_eq!(status(&db, &second).await["state"], "expired", "even before anything has noticed");
    db.run("SELECT queen.maintain()").await;
    assert_eq!(db.rows(statuses).await, "pending|4");
    assert_eq!(db.state(&format!("SELECT queen.dlq_run('{second}')")).await, "QN023");
    assert_eq!(
        db.rows(&format!("SELECT action, count(*) FROM queen.dlq_events(plan_id => '{second}') GROUP BY 1 ORDER BY 1"))
            .await,
        "approval_ended|4\napproved|4\nplan_approved|1\nplan_created|1\nplan_expired|1".replace("approved|4\n", "")
    );
}

#[tokio::test]
async fn a_canary_goes_first_and_stops_and_shows_what_became_of_exactly_it() {
    let db = Db::new().await;
    letters(&db, 9).await;
    db.push("q", "later").await;
    let plan = planned(&db, ", canary => 3").await;
    step(&db, "dlq_run", &plan).await;
    run(&db).await;
    let now = status(&db, &plan).await;
    assert_eq!((&now["state"], &now["moved"], &now["remaining"]), (&json!("canary_done"), &json!(3), &json!(6)));
    let canary = |settled: i32, again: i32, pending: i32| {
        json!({"size": 3, "replayed": 3, "duplicate": 0, "failed": 0, "gone": 0, "refused": 0, "remaining": 0,
               "settled": settled, "failedAgain": again, "stillPending": pending})
    };
    assert_eq!(now["canary"], canary(0, 0, 3));
    // The consumer works off what was there before, one of the canary, and fails with the next.
    let batch = db.pop("'q', 'g', batch => 3").await;
    assert!(batch.ids.starts_with("later dlq:"), "{}", batch.ids);
    let ids: Vec<&str> = batch.ids.split(' ').collect();
    db.ack_all(&batch, &[(ids[0], "completed"), (ids[1], "completed"), (ids[2], "dlq")]).await;
    assert_eq!(status(&db, &plan).await["canary"], canary(1, 1, 1));
    run(&db).await;
    assert_eq!(status(&db, &plan).await["state"], "canary_done", "it waits to be told");
    assert_eq!(step(&db, "dlq_widen", &plan).await, "running");
    run(&db).await;
    let done = status(&db, &plan).await;
    assert_eq!((&done["state"], &done["moved"], &done["phase"]), (&json!("done"), &json!(9), &json!("rest")));
}

#[tokio::test]
async fn a_plan_that_says_so_widens_by_itself_once_the_canary_is_clean() {
    let db = Db::new().await;
    letters(&db, 4).await;
    let plan = planned(&db, ", canary => 2, auto_widen => true").await;
    step(&db, "dlq_run", &plan).await;
    db.run("CALL queen.run_replays(100)").await;
    assert_eq!(status(&db, &plan).await["state"], "canary_done", "still pending is not clean");
    let batch = db.pop("'q', 'g', batch => 9").await;
    let items: Vec<(&str, &str)> = batch.ids.split(' ').map(|id| (id, "completed")).collect();
    db.ack_all(&batch, &items).await;
    run(&db).await;
    assert_eq!(status(&db, &plan).await["moved"], 4);
    assert_eq!(
        db.rows("SELECT detail ->> 'automatic' FROM queen.dlq_events() WHERE action = 'plan_widened'").await,
        "true"
    );
}

#[tokio::test]
async fn a_canary_that_failed_again_stays_so_whatever_becomes_of_the_record() {
    for sweep in [
        "SELECT queen.dlq_delete_row(id) FROM queen.dlq('q')",
        "SELECT queen.dlq_delete(partition_id, transaction_id) FROM queen.dlq('q')",
        "SELECT queen.dlq_purge('q', 'g')",
        "SELECT queen.dlq_purge('q')",
        "SELECT queen.dlq_discard(ARRAY(SELECT id FROM queen.dlq('q')), 'test', 'n')",
        "SELECT queen.dlq_move_v1(id) FROM queen.dlq('q')",
        "SELECT queen.dlq_repair(id, '1', 'r') FROM queen.dlq('q')",
    ] {
        let db = Db::new().await;
        letters(&db, 3).await;
        let plan = planned(&db, ", canary => 2, auto_widen => true").await;
        step(&db, "dlq_run", &plan).await;
        db.run("CALL queen.run_replays(100)").await;
        let batch = db.pop("'q', 'g', batch => 9").await;
        let ids: Vec<&str> = batch.ids.split(' ').collect();
        db.ack_all(&batch, &[(ids[0], "completed"), (ids[1], "dlq")]).await;
        let wanted = (json!(1), json!(1), json!(0));
        let canary = async || {
            let of = status(&db, &plan).await["canary"].clone();
            (of["settled"].clone(), of["failedAgain"].clone(), of["stillPending"].clone())
        };
        assert_eq!(canary().await, wanted, "{sweep}");
        db.run(sweep).await;
        assert_eq!(canary().await, wanted, "{sweep}");
        db.run("CALL queen.run_replays(100)").await;
        assert_eq!(status(&db, &plan).await["state"], "canary_done", "it does not widen by itself: {sweep}");
    }
}

#[tokio::test]
async fn a_canary_that_fails_again_does_not_widen_by_itself() {
    let db = Db::new().await;
    letters(&db, 4).await;
    let plan = planned(&db, ", canary => 1, auto_widen => true").await;
    step(&db, "dlq_run", &plan).await;
    db.run("CALL queen.run_replays(50)").await;
    let batch = db.pop("'q', 'g'").await;
    db.ack(&batch, &batch.ids, "dlq").await;
    db.run("CALL queen.run_replays(2500)").await;
    let now = status(&db, &plan).await;
    assert_eq!(
        (&now["state"], &now["canary"]["failedAgain"], &now["moved"]),
        (&json!("canary_done"), &json!(1), &json!(1))
    );
}

#[tokio::test]
async fn a_plan_is_paused_resumed_and_cancelled() {
    let db = Db::new().await;
    letters(&db, 6).await;
    let plan =
        json_of(&db, "SELECT queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\"}', rate => 20, canary => 0)").await;
    let plan = plan["planId"].as_str().unwrap().to_owned();
    step(&db, "dlq_run", &plan).await;
    db.run("CALL queen.run_replays(0)").await;
    assert_eq!(step(&db, "dlq_pause_plan", &plan).await, "paused");
    let moved = status(&db, &plan).await["moved"].clone();
    run(&db).await;
    assert_eq!(status(&db, &plan).await["moved"], moved, "a paused plan stands still");
    assert_eq!(step(&db, "dlq_resume_plan", &plan).await, "running");
    db.run("CALL queen.run_replays(0)").await;
    assert_eq!(step(&db, "dlq_cancel_plan", &plan).await, "cancelled");
    let end = status(&db, &plan).await;
    assert!(end["remaining"].as_i64() > Some(0), "{end}");
    run(&db).await;
    assert_eq!(status(&db, &plan).await["remaining"], end["remaining"]);
    let actions = format!(
        "SELECT string_agg(action, ' ' ORDER BY seq) FROM queen.dlq_events(plan_id => '{plan}') WHERE dlq_id IS NULL"
    );
    assert_eq!(db.rows(&actions).await, "plan_created plan_started plan_paused plan_resumed plan_cancelled");
}

#[tokio::test]
async fn one_bad_record_does_not_stop_the_rest_and_every_outcome_is_counted() {
    let db = Db::new().await;
    letters(&db, 6).await;
    let id = |t: &str| format!("(SELECT id FROM queen.dead_letter_record WHERE transaction_id = '{t}')");
    // t1 cannot be opened, t2 is there already, t3 is decided on, t4 deleted.
    db.run("UPDATE queen.dead_letter_record SET is_encrypted = true WHERE transaction_id = 't1'").await;
    db.run(&format!("SELECT queen.push('q', '1', transaction_id => 'dlq:' || {}::text)", id("t2"))).await;
    let plan = planned(&db, ", canary => 0").await;
    db.run(&format!("SELECT queen.dlq_discard(ARRAY[{}], 'test', 'made up')", id("t3"))).await;
    db.run(&format!("SELECT queen.dlq_delete_row({})", id("t4"))).await;
    step(&db, "dlq_run", &plan).await;
    run(&db).await;
    let done = status(&db, &plan).await;
    for (key, n) in [("moved", 2), ("duplicate", 1), ("failed", 1), ("gone", 2), ("refused", 0), ("remaining", 0)] {
        assert_eq!(done[key], n, "{key}: {done}");
    }
    let errors = done["errors"].to_string();
    assert!(errors.contains("QN009"), "{errors}");
    let items = "SELECT state, count(*) FROM queen.replay_item GROUP BY 1 ORDER BY 1";
    assert_eq!(db.rows(items).await, "duplicate|1\nfailed|1\ngone|2\nmoved|2");
    assert_eq!(db.rows("SELECT status FROM queen.dead_letter_record WHERE transaction_id = 't1'").await, "pending");
    // Whoever may push could have put t2 there: its record has not been replayed.
    assert_eq!(db.rows("SELECT status FROM queen.dead_letter_record WHERE transaction_id = 't2'").await, "pending");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages('q') WHERE transaction_id LIKE 'dlq:%'").await, "3");
    db.verify().await;
}

#[tokio::test]
async fn two_runners_at_once_do_not_double_the_rate_and_move_nothing_twice() {
    let db = Db::new().await;
    letters(&db, 150).await;
    let plan =
        json_of(&db, "SELECT queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\"}', rate => 100, canary => 0)").await;
    step(&db, "dlq_run", plan["planId"].as_str().unwrap()).await;
    let (one, two) = (db.session().await, db.session().await);
    tokio::join!(run(&one), run(&two));
    // By the plan's own clock: never more in a second than the rate and a tenth.
    let most = "SELECT max(n) <= 110 FROM (SELECT count(*) OVER (ORDER BY done_at RANGE BETWEEN interval '0.999 s' PRECEDING AND CURRENT ROW) AS n FROM queen.replay_item) w";
    assert_eq!(db.rows(most).await, "t");
    assert_eq!(db.rows("SELECT count(*), count(DISTINCT transaction_id) FROM queen.messages('q', max_rows => 1000) WHERE transaction_id LIKE 'dlq:%'").await, "150|150");
}

#[tokio::test]
async fn a_late_runner_makes_up_for_little_and_never_in_a_burst() {
    let db = Db::new().await;
    letters(&db, 400).await;
    let plan =
        json_of(&db, "SELECT queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\"}', rate => 100, canary => 0)").await;
    step(&db, "dlq_run", plan["planId"].as_str().unwrap()).await;
    // As if nobody had come by for an hour.
    db.run("UPDATE queen.replay_plan SET due_at = due_at - interval '1 hour', next_at = next_at - interval '1 hour'")
        .await;
    run(&db).await;
    let most = db.rows("SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY done_at RANGE BETWEEN interval '0.999 s' PRECEDING AND CURRENT ROW) AS n FROM queen.replay_item) w").await;
    assert!(most.parse::<i64>().unwrap() <= 110, "{most} in one second");
    assert_eq!(
        db.rows("SELECT max(n) <= 10 FROM (SELECT count(*) AS n FROM queen.replay_item GROUP BY done_at) w").await,
        "t"
    );
}

#[tokio::test]
async fn a_rate_below_one_a_second_is_kept_too() {
    let db = Db::new().await;
    letters(&db, 3).await;
    let plan =
        json_of(&db, "SELECT queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\"}', rate => 0.8, canary => 0)").await;
    step(&db, "dlq_run", plan["planId"].as_str().unwrap()).await;
    run(&db).await;
    let gaps = "SELECT count(*), min(gap) >= interval '1.15 s' FROM (SELECT done_at - lag(done_at) OVER (ORDER BY n) AS gap FROM queen.replay_item) w WHERE gap IS NOT NULL";
    assert_eq!(db.rows(gaps).await, "2|t");
}

#[tokio::test]
async fn plans_of_all_tenants_are_run_by_who_may_take_on_any_of_them() {
    let db = Db::new().await;
    letters(&db, 3).await;
    let plan = planned(&db, ", canary => 0").await;
    step(&db, "dlq_run", &plan).await;
    let cluster = queen_tests::shared_cluster();
    cluster.create_login("runs_theirs", &["queen_operator"]);
    let theirs = db.session_as("runs_theirs").await;
    assert_eq!(theirs.state("CALL queen.run_replays(1000, true)").await, "42501");
    assert_eq!(status(&db, &plan).await["moved"], 0);
    db.run("SET queen.tenant = '00000000-0000-0000-0000-0000000000aa'").await;
    run(&db).await;
    db.run("RESET queen.tenant").await;
    assert_eq!(status(&db, &plan).await["moved"], 0, "another tenant's");
    db.run("SET queen.tenant = '00000000-0000-0000-0000-0000000000aa'").await;
    db.run("CALL queen.run_replays(60000, all_tenants => true)").await;
    db.run("RESET queen.tenant").await;
    assert_eq!(status(&db, &plan).await["moved"], 3);
}

#[tokio::test]
async fn plans_of_another_tenant_are_not_there() {
    let db = Db::new().await;
    letters(&db, 2).await;
    let plan = planned(&db, ", canary => 0").await;
    db.run(&format!("SELECT queen.dlq_run('{plan}')")).await;
    db.run("SET queen.tenant = '00000000-0000-0000-0000-000000000002'").await;
    for function in ["dlq_plan_status", "dlq_approve", "dlq_run", "dlq_pause_plan", "dlq_cancel_plan"] {
        assert_eq!(db.state(&format!("SELECT queen.{function}('{plan}')")).await, "QN020", "{function}");
    }
    run(&db).await;
    assert_eq!(db.rows("SELECT (SELECT count(*) FROM queen.replay_plans), (SELECT count(*) FROM queen.dlq_events()), (SELECT sum(moved) FROM queen.replay_plan)").await, "0|0|0");
    assert_eq!(json_of(&db, &format!("SELECT queen.dlq_plan('r', 'c', ids => (SELECT array_agg(dlq_id) FROM queen.replay_item WHERE plan_id = '{plan}'))")).await["planned"], 0);
}

#[tokio::test]
async fn several_plans_run_side_by_side_each_at_its_own_rate() {
    let db = Db::new().await;
    letters(&db, 60).await;
    let plan = |rate: i32, from: i32, to: i32| {
        format!(
            "SELECT queen.dlq_run((queen.dlq_plan('r', 'c', rate => {rate}, canary => 0, to_queue => 'q{rate}',
                 filter => '{{\"payload\": \"$ ? (@ >= {from} && @ < {to})\"}}') ->> 'planId')::uuid)"
        )
    };
    db.run(&plan(40, 0, 40)).await;
    db.run(&plan(20, 40, 60)).await;
    run(&db).await;
    let spans = "SELECT p.rate, count(*), extract(epoch FROM max(i.done_at) - min(i.done_at)) >= 0.85
                   FROM queen.replay_plan p JOIN queen.replay_item i USING (plan_id) GROUP BY 1 ORDER BY 1";
    assert_eq!(db.rows(spans).await, "20|20|t\n40|40|t");
}

#[tokio::test]
async fn a_plan_that_selects_nothing_runs_to_its_end() {
    let db = Db::new().await;
    let plan = planned(&db, "").await;
    step(&db, "dlq_run", &plan).await;
    run(&db).await;
    assert_eq!(status(&db, &plan).await["state"], "done");
}

#[tokio::test]
async fn replayed_messages_that_fail_for_good_again_are_counted_for_ever() {
    let db = Db::new().await;
    filed(&db, "g").await;
    let figures = "SELECT replays_ok, replays_failed_again FROM queen.dlq_stats('q')";
    assert_eq!(db.rows(figures).await, "0|0");
    let plan = planned(&db, ", canary => 0").await;
    step(&db, "dlq_run", &plan).await;
    run(&db).await;
    assert_eq!(db.rows(figures).await, "1|0", "not settled yet, and not failed");
    let again = "WITH m AS MATERIALIZED (SELECT * FROM queen.pop('q', 'g')) \
                 SELECT (queen.ack(m.partition_id, m.transaction_id, 'dlq', 'g', m.lease_id)).dlq FROM m";
    assert_eq!(db.rows(again).await, "t");
    assert_eq!(db.rows(figures).await, "0|1");
    db.run("SELECT queen.dlq_delete_row(id) FROM queen.dlq_list('q', max_rows => 1)").await;
    db.run("UPDATE queen.dlq_tally SET minute = minute - interval '2 hours'").await;
    db.run("SELECT queen.maintain()").await;
    assert_eq!(db.rows(figures).await, "0|1", "also when the record is gone and the tally was folded");
}
