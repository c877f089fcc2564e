//! Which role may call what.

use crate::{ask, database, rows};
use queen_tests::shared_cluster;
use std::collections::BTreeSet;

const ID: &str = "'0190aaaa-0000-7000-8000-00000000000f'";

/// A partition that is there.
const KNOWN: &str = "'0190aaaa-0000-7000-8000-0000000000aa'";

const PRODUCER: &str = "queen_producer";
const CONSUMER: &str = "queen_consumer";
const VIEWER: &str = "queen_viewer";
const OPERATOR: &str = "queen_operator";
const ADMIN: &str = "queen_admin";
const SIDECAR: &str = "queen_sidecar";
const ROLES: [&str; 6] = [PRODUCER, CONSUMER, VIEWER, OPERATOR, ADMIN, SIDECAR];

/// Every function: a call of it that does no harm, and who may make it.
fn calls() -> Vec<(&'static str, String, Vec<&'static str>)> {
    let produce = vec![PRODUCER, ADMIN];
    let consume = vec![CONSUMER, ADMIN];
    let view = vec![VIEWER, OPERATOR, ADMIN];
    let admin = vec![ADMIN];
    let sidecar = vec![SIDECAR];
    // What an HTTP route needs too.
    let consume_or_serve = vec![CONSUMER, ADMIN, SIDECAR];
    let view_or_serve = vec![VIEWER, OPERATOR, ADMIN, SIDECAR];
    let operate_or_serve = vec![OPERATOR, ADMIN, SIDECAR];
    let admin_or_serve = vec![ADMIN, SIDECAR];
    let nobody = vec![];
    let some = "'0190aaaa-0000-7000-8000-00000000000e'";
    let call = |name, arguments: &str, who: &Vec<&'static str>| {
        (name, format!("SELECT queen.{name}({arguments})"), who.clone())
    };
    vec![
        call("push", "'r', '1'", &produce),
        call("push_many", "'r', ARRAY['1']::jsonb[]", &produce),
        call("push_batch", "'[]'", &produce),
        call("flush", "", &produce),
        call("pop", "'r', 'x'", &consume),
        call("pop_matching", "'nowhere'", &consume),
        ("wait", "CALL queen.wait('r', 'x', 0)".to_owned(), consume_or_serve.clone()),
        call("ack", &format!("{ID}, 'a'"), &consume),
        call("ack_batch", "'[]'", &consume),
        call("ack_lease", ID, &consume),
        call("nack", &format!("{ID}, 'a'"), &consume),
        call("release", ID, &consume_or_serve),
        call("renew_lease", ID, &consume_or_serve),
        // Both a producer and a consumer: of the single roles the admin only.
        call("transaction", "'[{\"type\":\"push\",\"queue\":\"r\"}]'", &admin),
        call("dlq", "", &view_or_serve),
        call("dlq_list", "", &view_or_serve),
        call("dlq_list_json", "", &view_or_serve),
        call("dlq_record_json", "gen_random_uuid()", &view_or_serve),
        call("dlq_count", "", &view_or_serve),
        call("dlq_stats", "", &view_or_serve),
        // A trigger.
        call("dlq_tally_change", "", &vec![]),
        call("messages", "", &view_or_serve),
        call("message", &format!("{ID}, 'a'"), &view_or_serve),
        call("read", &format!("{ID}, 0"), &view),
        call("verify", "", &view),
        call("decode_segment", "NULL", &view),
        call("dlq_move_v1", ID, &operate_or_serve),
        call("dlq_delete", &format!("{ID}, 'a'"), &operate_or_serve),
        call("dlq_delete_row", ID, &operate_or_serve),
        call("dlq_purge", "'nowhere'", &admin_or_serve),
        call("dlq_list", "", &view_or_serve),
        call("dlq_count", "", &view_or_serve),
        call("dlq_stats", "", &view_or_serve),
        call("dlq_list_json", "", &view_or_serve),
        call("dlq_record_json", "gen_random_uuid()", &view_or_serve),
        call("dlq_plan", &format!("'r', 'c', ids => ARRAY[{ID}]::uuid[]"), &operate_or_serve),
        call("dlq_approve", some, &operate_or_serve),
        call("dlq_run", some, &operate_or_serve),
        call("dlq_widen", some, &operate_or_serve),
        call("dlq_pause_plan", some, &operate_or_serve),
        call("dlq_resume_plan", some, &operate_or_serve),
        call("dlq_cancel_plan", some, &operate_or_serve),
        ("run_replays", "CALL queen.run_replays(0)".to_owned(), operate_or_serve.clone()),
        call("dlq_repair", &format!("{some}, '1', 'r'"), &operate_or_serve),
        call("dlq_discard", "'{}', 'test', 'n'", &operate_or_serve),
        call("dlq_plan_status", some, &view_or_serve),
        call("dlq_events", "", &view_or_serve),
        call("dlq_ancestry", ID, &view_or_serve),
        call("process_once", &format!("'c', {ID}"), &consume_or_serve),
        call("actor", "", &view_or_serve),
        call("dlq_audit", "'a', NULL, NULL, NULL, NULL", &nobody),
        call("dlq_event_refuse", "", &nobody),
        call("replay_failed_again", "", &nobody),
        call("dlq_needs_approval", &format!("{ID}, 'r'"), &nobody),
        call("dlq_is_approved", &format!("{ID}, 'q', 'p', NULL"), &nobody),
        call("repair_hash", "'1'", &nobody),
        call("same_person", "'a', 'b'", &nobody),
        call("dlq_payload", "'', false", &nobody),
        call("dlq_replay_row", &format!("{ID}, NULL, NULL"), &nobody),
        call("dlq_tally_change", "", &nobody),
        call("replay_batch", "NULL", &nobody),
        call("replay_canary", &format!("{ID}, 1"), &nobody),
        call("replay_digest", "NULL, NULL", &nobody),
        call("replay_plan_end", &format!("{ID}, 'done', 'me'"), &nobody),
        call("replay_plan_lock", &format!("{ID}, '{{}}', 's', false"), &nobody),
        call("replay_plans_expire", "NULL", &nobody),
        call("configure", "'r'", &admin_or_serve),
        call("drop_queue", "'nowhere'", &admin_or_serve),
        call("pause_group", "'r', 'nobody'", &operate_or_serve),
        call("resume_group", "'r', 'nobody'", &operate_or_serve),
        call("dlq_audit", "'a', NULL, NULL, NULL, NULL", &vec![]),
        call("actor", "", &view_or_serve),
        call("seek", "'r', 'x', to_end => true", &admin_or_serve),
        call("drop_consumer_group", "'nobody'", &admin_or_serve),
        call("maintain", "", &admin_or_serve),
        call("set_subscription", "'nobody', now()", &admin_or_serve),
        call("record_trace", &format!("{KNOWN}, 'a', '1'"), &consume_or_serve),
        call("traces", &format!("{ID}, 'a'"), &view_or_serve),
        call("traces_by_name", "'a'", &view_or_serve),
        call("trace_names", "", &view_or_serve),
        call("delete_traces", "'1 day'", &admin),
        call("push_batch_json", "'[]'", &sidecar),
        call("pop_json", "'r', 'x'", &sidecar),
        call("pop_matching_json", "'nowhere'", &sidecar),
        call("ack_batch_json", "'[]', 'x'", &sidecar),
        call("renew_lease_json", "gen_random_uuid()", &sidecar),
        call("ack_many_json", "'[]'", &sidecar),
        call("transaction_json", "'[{\"type\":\"push\",\"queue\":\"r\"}]'", &sidecar),
        ("wait_changes", "CALL queen.wait_changes(NULL, 0)".to_owned(), sidecar.clone()),
        call("due_json", "'[[\"r\", \"x\"]]'", &sidecar),
        call("current_tenant", "", &ROLES.to_vec()),
    ]
}

const VIEWS: [&str; 6] = ["queues", "partitions", "consumer_groups", "group_partitions", "dlq_depth", "replay_plans"];

async fn logs_in(role: &'static str) {
    let (db, admin) = database().await;
    rows(&admin, "SELECT queen.push('r', '1')").await;
    rows(&admin, &format!("UPDATE queen.partition p SET partition_id = {KNOWN} FROM queen.queue q WHERE q.qid = p.qid AND q.name = 'r'")).await;
    let login = format!("login_{role}");
    shared_cluster().create_login(&login, &[role]);
    let client = shared_cluster().client_as(&db, &login).await;
    for (name, sql, who) in calls() {
        let answer = ask(&client, &sql).await;
        if who.contains(&role) {
            // There is no such plan or record: whoever is told so got past the grant.
            let reached = answer.as_ref().is_err_and(|state| state == "QN020" || state == "QN027");
            assert!(answer.is_ok() || reached, "{role} may call {name}: {answer:?}");
        } else {
            assert_eq!(answer, Err("42501".to_owned()), "{role} may not call {name}");
        }
    }
    for view in VIEWS {
        let answer = ask(&client, &format!("SELECT * FROM queen.{view}")).await;
        if [VIEWER, OPERATOR, ADMIN, SIDECAR].contains(&role) {
            assert!(answer.is_ok(), "{role} may read {view}: {answer:?}");
        } else {
            assert_eq!(answer, Err("42501".to_owned()), "{role} may not read {view}");
        }
    }
    // Neither tables nor sequences nor the parts of views, by whatever statement.
    let relations = rows(
        &admin,
        "SELECT relname FROM pg_class WHERE relnamespace = 'queen'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')",
    )
    .await;
    let mut seen = 0;
    for relation in relations.lines().filter(|r| !VIEWS.contains(r)) {
        for sql in [
            format!("SELECT * FROM queen.{relation}"),
            format!("SELECT FROM queen.{relation} LIMIT 0"),
            format!("INSERT INTO queen.{relation} DEFAULT VALUES"),
            format!("DELETE FROM queen.{relation}"),
            format!("TRUNCATE queen.{relation}"),
            format!("COPY queen.{relation} TO STDOUT"),
        ] {
            let answer = ask(&client, &sql).await;
            // A sequence or view is the wrong kind for some of them, which is as good.
            let state = answer.as_ref().err().map_or("", String::as_str);
            assert!(["42501", "42809", "55000"].contains(&state), "{role}: {sql}: {answer:?}");
            seen += usize::from(answer == Err("42501".to_owned()));
        }
    }
    assert!(seen > 60, "or this shows nothing: {seen}");
    for sql in [
        "SELECT nextval('queen.queue_qid_seq')",
        "CREATE TABLE queen.mine (n int)",
        "CREATE FUNCTION queen.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE OR REPLACE VIEW queen.queues AS SELECT 1",
        "DROP FUNCTION queen.flush()",
        "DROP EXTENSION queen",
        "ALTER EXTENSION queen UPDATE",
        "UPDATE queen.queue SET name = name",
    ] {
        assert_eq!(ask(&client, sql).await, Err("42501".to_owned()), "{role}: {sql}");
    }
    assert_eq!(rows(&admin, "SELECT count(*) FROM queen.dlq()").await, "1", "nothing was harmed");
}

#[tokio::test]
async fn a_producer_pushes_and_nothing_else() {
    logs_in(PRODUCER).await;
}

#[tokio::test]
async fn a_consumer_pops_waits_and_settles_and_nothing_else() {
    logs_in(CONSUMER).await;
}

#[tokio::test]
async fn a_viewer_looks_and_nothing_else() {
    logs_in(VIEWER).await;
}

#[tokio::test]
async fn an_operator_looks_and_handles_single_dead_letters() {
    logs_in(OPERATOR).await;
}

#[tokio::test]
async fn an_admin_does_everything_but_what_is_the_sidecars() {
    logs_in(ADMIN).await;
}

#[tokio::test]
async fn the_sidecar_calls_the_json_twins_and_what_its_routes_need() {
    logs_in(SIDECAR).await;
}

#[tokio::test]
async fn every_function_of_the_extension_is_in_this_test() {
    let (_, admin) = database().await;
    let known: BTreeSet<String> = calls().into_iter().map(|(name, _, _)| name.to_owned()).collect();
    let all: BTreeSet<String> =
        rows(&admin, "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'queen'::regnamespace")
            .await
            .lines()
            .map(str::to_owned)
            .collect();
    assert_eq!(known, all);
}

#[tokio::test]
async fn whoever_is_both_producer_and_consumer_may_bundle_and_one_alone_is_told_what_is_missing() {
    let (db, _) = database().await;
    let sql = "SELECT queen.transaction('[{\"type\":\"push\",\"queue\":\"r\"}]') ->> 'success'";
    shared_cluster().create_login("bundles", &[PRODUCER, CONSUMER]);
    let both = shared_cluster().client_as(&db, "bundles").await;
    assert_eq!(rows(&both, sql).await, "true");
    for (login, role, missing) in [("only_push", PRODUCER, "queen.ack"), ("only_ack", CONSUMER, "queen.push")] {
        shared_cluster().create_login(login, &[role]);
        let client = shared_cluster().client_as(&db, login).await;
        let error = client.simple_query(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "42501");
        assert!(error.message().contains(missing), "{}", error.message());
    }
}

#[tokio::test]
async fn a_login_without_a_role_reaches_nothing() {
    let (db, admin) = database().await;
    shared_cluster().create_login("nobody_special", &[]);
    let client = shared_cluster().client_as(&db, "nobody_special").await;
    for (name, sql, _) in calls() {
        assert_eq!(ask(&client, &sql).await, Err("42501".to_owned()), "{name}");
    }
    for view in VIEWS {
        assert_eq!(ask(&client, &format!("SELECT * FROM queen.{view}")).await, Err("42501".to_owned()), "{view}");
    }
    assert_eq!(rows(&admin, "SELECT count(*) FROM queen.messages()").await, "2");
}

#[tokio::test]
async fn nothing_is_granted_to_public() {
    let (_, admin) = database().await;
    // A missing list means the default, and that is PUBLIC for functions.
    let public = rows(
        &admin,
        "SELECT 'function ' || oid::regprocedure FROM pg_proc p
          WHERE pronamespace = 'queen'::regnamespace
            AND (proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) a WHERE a.grantee = 0))
         UNION ALL
         SELECT 'relation ' || oid::regclass FROM pg_class c
          WHERE relnamespace = 'queen'::regnamespace AND EXISTS (SELECT FROM aclexplode(relacl) a WHERE a.grantee = 0)
         UNION ALL
         SELECT 'column ' || attrelid::regclass || '.' || attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
          WHERE relnamespace = 'queen'::regnamespace AND attacl IS NOT NULL
         UNION ALL
         SELECT 'schema' FROM pg_namespace n
          WHERE nspname = 'queen' AND EXISTS (SELECT FROM aclexplode(nspacl) a WHERE a.grantee = 0)",
    )
    .await;
    assert_eq!(public, "");
}

#[tokio::test]
async fn grants_are_to_the_six_roles_and_cannot_be_handed_on() {
    let (_, admin) = database().await;
    let strange = rows(
        &admin,
        "SELECT what, a.grantee::regrole, a.privilege_type FROM (
           SELECT oid::regprocedure::text AS what, proacl AS acl FROM pg_proc WHERE pronamespace = 'queen'::regnamespace
           UNION ALL SELECT oid::regclass::text, relacl FROM pg_class WHERE relnamespace = 'queen'::regnamespace
           UNION ALL SELECT nspname::text, nspacl FROM pg_namespace WHERE nspname = 'queen') o
          CROSS JOIN aclexplode(acl) a
          WHERE a.grantee <> a.grantor
            AND (a.is_grantable OR a.privilege_type NOT IN ('EXECUTE', 'SELECT', 'USAGE')
                 OR a.grantee::regrole::text NOT IN ('queen_producer', 'queen_consumer', 'queen_viewer', 'queen_operator', 'queen_admin', 'queen_sidecar'))",
    )
    .await;
    assert_eq!(strange, "");
    let roles = rows(
        &admin,
        "SELECT count(*), bool_or(rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)
           FROM pg_roles WHERE rolname LIKE 'queen\\_%'",
    )
    .await;
    assert_eq!(roles, "6|f");
}

#[tokio::test]
async fn what_runs_with_the_rights_of_its_owner_has_a_pinned_search_path() {
    let (_, admin) = database().await;
    let path = "search_path=pg_catalog, pg_temp";
    let loose = rows(
        &admin,
        &format!(
            "SELECT oid::regprocedure FROM pg_proc
              WHERE pronamespace = 'queen'::regnamespace AND (prosecdef OR prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c'))
                AND NOT coalesce('{path}' = ANY (proconfig), false)"
        ),
    )
    .await;
    assert_eq!(loose, "");
}

#[tokio::test]
async fn nobody_but_a_superuser_changes_the_audit() {
    let (db, admin) = database().await;
    rows(&admin, "SELECT queen.dlq_purge('q')").await;
    for role in ROLES {
        let login = format!("audited_{role}");
        shared_cluster().create_login(&login, &[role]);
        let client = shared_cluster().client_as(&db, &login).await;
        for sql in [
            "UPDATE queen.dlq_event SET actor = 'nobody'",
            "DELETE FROM queen.dlq_event",
            "TRUNCATE queen.dlq_event",
            "DROP TABLE queen.dlq_event",
            "ALTER TABLE queen.dlq_event DISABLE TRIGGER ALL",
            "DROP TRIGGER dlq_event_append_only ON queen.dlq_event",
            "CREATE OR REPLACE FUNCTION queen.dlq_event_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "INSERT INTO queen.dlq_event (tenant, actor, action, detail) VALUES (gen_random_uuid(), 'a', 'b', '{}')",
            "SET session_replication_role = replica",
        ] {
            assert_eq!(ask(&client, sql).await, Err("42501".to_owned()), "{role}: {sql}");
        }
        // Only the HTTP server's login speaks for others.
        let speaks = ask(&client, "SET queen.actor = 'somebody else'").await;
        assert_eq!(speaks.is_ok(), role == SIDECAR, "{role}: {speaks:?}");
    }
    assert_eq!(rows(&admin, "SELECT action FROM queen.dlq_events()").await, "purged");
}

#[tokio::test]
async fn an_actor_that_a_session_had_no_right_to_set_before_the_library_was_loaded_is_refused() {
    let (db, _) = database().await;
    shared_cluster().create_login("forger", &["queen_operator"]);
    let client = shared_cluster().client_as(&db, "forger").await;
    assert_eq!(ask(&client, "SET queen.actor = 'ada'").await, Err("42501".to_owned()));
    assert_eq!(rows(&client, "SELECT queen.actor()").await, "forger");
}
