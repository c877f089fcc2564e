//! Operators, functions and tables that somebody has put in front of the server's own are not used.

use crate::{ask, database, rows};
use queen_tests::{Client, shared_cluster};

/// Names of functions and operators that an unqualified query would use; each raises when it runs.
const EVIL: &str = "
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.boom() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil' USING ERRCODE = 'EV111'; END $$;
    DO $$
    DECLARE t text; o text; f text;
    BEGIN
      FOREACH t IN ARRAY ARRAY['bigint', 'int', 'text', 'uuid', 'timestamptz', 'boolean', 'bytea', 'oid', 'name', 'jsonb'] LOOP
        EXECUTE format('CREATE FUNCTION evil.op(%1$s, %1$s) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN PERFORM evil.boom(); RETURN true; END $f$', t);
        FOREACH o IN ARRAY ARRAY['=', '<', '>', '<=', '>=', '<>', '+', '-', '||'] LOOP
          EXECUTE format('CREATE OPERATOR evil.%1$s (LEFTARG = %2$s, RIGHTARG = %2$s, FUNCTION = evil.op)', o, t);
        END LOOP;
      END LOOP;
      FOREACH f IN ARRAY ARRAY['now()', 'clock_timestamp()', 'current_tenant()', 'count(bigint)', 'sum(bigint)', 'max(bigint)', 'min(bigint)',
          'format(text, text)', 'length(text)', 'octet_length(bytea)', 'decode_segment(bytea)', 'push(text, jsonb)', 'unnest(anyarray)', 'hashtextextended(text, bigint)', 'to_hex(bigint)', 'lpad(text, int, text)'] LOOP
        EXECUTE format('CREATE FUNCTION evil.%s RETURNS bigint LANGUAGE plpgsql AS $f$ BEGIN PERFORM evil.boom(); RETURN 1; END $f$', f);
      END LOOP;
      FOREACH t IN ARRAY ARRAY['queue', 'partition', 'segment', 'trimmed', 'transaction_id', 'subscription', 'cursor', 'ready', 'dead_letter_record', 'dlq_tally', 'dlq_tally_filed',
          'dropped_duplicate', 'trace', 'trace_name', 'partition_extent', 'group_position', 'pg_proc', 'pg_class', 'pg_namespace'] LOOP
        EXECUTE format('CREATE VIEW evil.%I AS SELECT evil.op(1, 1)', t);
      END LOOP;
    END $$";

async fn set_trap(admin: &Client) {
    rows(admin, EVIL).await;
    rows(admin, "SET search_path = evil, public, pg_catalog").await;
    // It works: whoever is not careful falls into it.
    for sql in ["SELECT 1::bigint = 1::bigint", "SELECT 'a'::text = 'a'::text", "SELECT now()", "SELECT * FROM queue"] {
        assert_eq!(ask(admin, sql).await, Err("EV111".to_owned()), "{sql}");
    }
}

/// Calls that reach every statement the broker makes for itself.
const CALLS: &[&str] = &[
    "SELECT queen.push('q', '1', transaction_id => 'x')",
    "SELECT queen.push_many('q', ARRAY['1']::pg_catalog.jsonb[], transaction_ids => ARRAY['y'])",
    "SELECT queen.push_batch('[{\"queue\":\"q\",\"payload\":1,\"transactionId\":\"a\"}]')",
    "SELECT queen.push_batch_json('[{\"queue\":\"new.one\",\"payload\":1}]')",
    "SELECT queen.flush()",
    "SELECT queen.pop('q', 'h', batch => 9, subscription_mode => 'all')",
    "SELECT queen.pop('q', 'i', partition => 'Default')",
    "SELECT queen.pop_matching('new', consumer_group => 'h', subscription_mode => 'all')",
    "SELECT queen.pop_json('q', 'k', subscription_mode => 'all')",
    "CALL queen.wait('q', 'h', 0)",
    "CALL queen.wait_changes('', 0)",
    "SELECT queen.due_json('[[\"q\", \"h\"], [\"q\", \"h\", \"Default\"]]')",
    "SELECT queen.ack(p.partition_id, 'a', 'dlq', 'h') FROM queen.partitions p",
    "SELECT queen.ack_batch('[{\"transactionId\":\"b\",\"partitionId\":\"0190aaaa-0000-7000-8000-00000000000f\"}]')",
    "SELECT queen.ack_lease(m.lease_id) FROM queen.pop('q', 'm', batch => 1, subscription_mode => 'all') m",
    "SELECT queen.nack(m.lease_id, m.transaction_id, status => 'dlq') FROM queen.pop('q', 'm', batch => 1) m",
    "SELECT queen.transaction('[{\"type\":\"push\",\"queue\":\"q\",\"payload\":1}]')",
    "SELECT queen.transaction_json('[{\"type\":\"push\",\"queue\":\"q\",\"payload\":1}]', 'ada')",
    "SELECT queen.ack_many_json(pg_catalog.format('[{\"acknowledgments\":[{\"transactionId\":\"b\",\"partitionId\":\"%s\"}]}]', p.partition_id)) FROM queen.partitions p",
    "SELECT queen.configure('q', '{\"retryLimit\": 1}')",
    "SELECT queen.configure('q', '{\"autoPauseCount\": 1}')",
    "SELECT queen.nack(m.lease_id, m.transaction_id, status => 'dlq') FROM queen.pop('q', 'p', batch => 1, subscription_mode => 'all') m",
    "SELECT queen.pause_group('q', 'h', 'why')",
    "SELECT queen.resume_group('q', 'h')",
    "SELECT queen.seek('q', 'h', to_end => true)",
    "SELECT queen.messages('q')",
    "SELECT queen.message(p.partition_id, 'a') FROM queen.partitions p",
    "SELECT queen.read(p.partition_id, 0) FROM queen.partitions p",
    "SELECT queen.verify()",
    "SELECT queen.dlq('q', 'g')",
    "SELECT queen.dlq_list('q', status => 'all')",
    "SELECT queen.dlq_list_json('q', error_code => 'x')",
    "SELECT queen.dlq_record_json(id) FROM queen.dlq('q')",
    "SELECT queen.dlq_count('q')",
    "SELECT queen.dlq_stats('q')",
    "SELECT queen.dlq_move_v1(d.id) FROM queen.dlq('q', 'g') d",
    "SELECT queen.dlq_run((queen.dlq_plan('r', 'c', filter => '{\"queue\": \"q\", \"payload\": \"$\"}') ->> 'planId')::pg_catalog.uuid)",
    "CALL queen.run_replays(2000)",
    "SELECT queen.dlq_plan_status(p.plan_id) FROM queen.replay_plans p",
    "SELECT queen.dlq_cancel_plan((queen.dlq_plan('r', 'c', ids => '{}') ->> 'planId')::pg_catalog.uuid)",
    "SELECT queen.dlq_events()",
    "SELECT queen.dlq_ancestry('0190aaaa-0000-7000-8000-00000000000f')",
    "SELECT queen.dlq_discard(ARRAY[d.id], 'test', 'n') FROM queen.dlq('q') d",
    "SELECT queen.dlq_repair(d.id, '1', 'r') FROM queen.dlq('q') d",
    "SELECT queen.process_once('c', '0190aaaa-0000-7000-8000-00000000000f')",
    "SELECT queen.actor()",
    "SELECT queen.dlq_purge('q', 'g')",
    "SELECT queen.set_subscription('h', '2020-01-01')",
    "SELECT queen.record_trace(p.partition_id, 'a', '1', trace_names => ARRAY['n']) FROM queen.partitions p",
    "SELECT queen.traces(p.partition_id, 'a') FROM queen.partitions p",
    "SELECT queen.traces_by_name('n')",
    "SELECT queen.trace_names()",
    "SELECT queen.delete_traces('1 day')",
    "SELECT queen.maintain()",
    "SELECT queen.current_tenant()",
    "SELECT queen.drop_consumer_group('h')",
    "SELECT queen.drop_queue('new.one')",
];

const VIEWS: [&str; 5] = [
    "SELECT * FROM queen.queues",
    "SELECT * FROM queen.partitions",
    "SELECT * FROM queen.consumer_groups",
    "SELECT * FROM queen.group_partitions",
    "SELECT * FROM queen.dlq_depth",
];

#[tokio::test]
async fn a_superuser_with_a_hostile_search_path_runs_nothing_of_it() {
    let (_, admin) = database().await;
    set_trap(&admin).await;
    for sql in VIEWS.iter().chain(CALLS).chain(&VIEWS) {
        let answer = ask(&admin, sql).await;
        assert!(answer.is_ok(), "{sql}: {answer:?}");
    }
}

#[tokio::test]
async fn a_plain_role_with_a_hostile_search_path_gets_the_brokers_rights_for_nothing_of_it() {
    let (db, admin) = database().await;
    set_trap(&admin).await;
    rows(&admin, "GRANT USAGE ON SCHEMA evil TO PUBLIC").await;
    shared_cluster().create_login("path_plain", &["queen_admin", "queen_sidecar"]);
    let client = shared_cluster().client_as(&db, "path_plain").await;
    rows(&client, "SET search_path = evil, public, pg_catalog").await;
    for sql in VIEWS.iter().chain(CALLS).chain(&VIEWS) {
        let answer = ask(&client, sql).await;
        assert!(answer.is_ok(), "{sql}: {answer:?}");
    }
}

#[tokio::test]
async fn temporary_tables_of_the_same_names_hide_nothing() {
    let (_, admin) = database().await;
    let tables = rows(
        &admin,
        "SELECT string_agg(format('CREATE TEMP TABLE %I (n int)', relname), '; ') FROM pg_class
          WHERE relnamespace = 'queen'::regnamespace AND relkind IN ('r', 'v')",
    )
    .await;
    rows(&admin, &tables).await;
    rows(&admin, "SET search_path = pg_temp, queen, pg_catalog").await;
    for sql in VIEWS.iter().chain(CALLS) {
        let answer = ask(&admin, sql).await;
        assert!(answer.is_ok(), "{sql}: {answer:?}");
    }
    assert_eq!(rows(&admin, "SELECT count(*) FROM queen.verify()").await, "0");
}

#[tokio::test]
async fn installing_under_a_hostile_search_path_runs_nothing_of_it() {
    let db = shared_cluster().empty_database();
    let admin = shared_cluster().client(&db).await;
    set_trap(&admin).await;
    rows(&admin, "CREATE EXTENSION queen").await;
    rows(&admin, "SELECT queen.push('q', '1')").await;
    let used = rows(
        &admin,
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend d
          WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_operator'::pg_catalog.regclass
            AND d.refobjid IN (SELECT o.oid FROM pg_catalog.pg_operator o
                                WHERE o.oprnamespace OPERATOR(pg_catalog.=) 'evil'::pg_catalog.regnamespace)
            AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass",
    )
    .await;
    assert_eq!(used, "0", "no view was built on them");
    for sql in VIEWS {
        assert!(ask(&admin, sql).await.is_ok(), "{sql}");
    }
}

#[tokio::test]
async fn a_schema_that_is_not_a_superusers_alone_is_refused() {
    for (prepare, words) in [
        ("CREATE ROLE squatter_a; CREATE SCHEMA queen AUTHORIZATION squatter_a", "42501"),
        ("CREATE ROLE squatter_b; CREATE SCHEMA queen; GRANT CREATE ON SCHEMA queen TO squatter_b", "42501"),
        ("CREATE SCHEMA queen; GRANT CREATE ON SCHEMA queen TO PUBLIC", "42501"),
        ("CREATE SCHEMA queen; CREATE TABLE queen.queue (n int)", "42710"),
        ("CREATE SCHEMA queen; CREATE FUNCTION queen.now() RETURNS int LANGUAGE sql AS 'SELECT 1'", "42710"),
        ("CREATE SCHEMA queen; CREATE OPERATOR queen.= (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)", "42710"),
    ] {
        let db = shared_cluster().empty_database();
        let admin = shared_cluster().client(&db).await;
        rows(&admin, prepare).await;
        assert_eq!(ask(&admin, "CREATE EXTENSION queen").await, Err(words.to_owned()), "{prepare}");
    }
    let db = shared_cluster().empty_database();
    let admin = shared_cluster().client(&db).await;
    rows(&admin, "CREATE SCHEMA elsewhere").await;
    assert!(ask(&admin, "CREATE EXTENSION queen SCHEMA elsewhere").await.is_err());
}
