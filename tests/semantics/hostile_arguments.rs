//! NULL, negative, zero and huge arguments of every function: a specific SQLSTATE or a harmless answer.

use crate::support::Db;

const ID: &str = "'0190aaaa-0000-7000-8000-00000000000f'";

#[tokio::test]
async fn a_required_argument_that_is_null_is_named_with_22023() {
    let db = Db::new().await;
    db.push("q", "a").await;
    for (call, argument) in [
        ("queen.push(NULL, '1')", "queue"),
        ("queen.push_many(NULL, ARRAY['1']::jsonb[])", "queue"),
        ("queen.push_many('q', NULL)", "payloads"),
        ("queen.push_batch(NULL)", "items"),
        ("queen.push_batch_json(NULL)", "items"),
        ("queen.pop(NULL)", "queue"),
        ("queen.pop_json(NULL)", "queue"),
        ("queen.ack(NULL, 'a')", "partition_id"),
        (&format!("queen.ack({ID}, NULL)"), "transaction_id"),
        ("queen.ack_batch(NULL)", "acknowledgments"),
        ("queen.ack_batch_json(NULL, 'g')", "acknowledgments"),
        ("queen.ack_many_json(NULL)", "requests"),
        ("queen.transaction_json(NULL)", "operations"),
        ("queen.ack_lease(NULL)", "lease_id"),
        ("queen.nack(NULL, 'a')", "lease_id"),
        (&format!("queen.nack({ID}, NULL)"), "transaction_id"),
        ("queen.release(NULL)", "lease_id"),
        ("queen.renew_lease(NULL)", "lease_id"),
        ("queen.transaction(NULL)", "operations"),
        ("queen.configure(NULL)", "queue"),
        ("queen.drop_queue(NULL)", "queue"),
        ("queen.dlq_move_v1(NULL)", "dlq_id"),
        ("queen.dlq_delete(NULL, 'a')", "partition_id"),
        (&format!("queen.dlq_delete({ID}, NULL)"), "transaction_id"),
        ("queen.dlq_delete_row(NULL)", "dlq_id"),
        ("queen.dlq_purge(NULL)", "queue"),
        ("queen.message(NULL, 'a')", "partition_id"),
        (&format!("queen.message({ID}, NULL)"), "transaction_id"),
        ("queen.read(NULL, 0)", "partition_id"),
        (&format!("queen.read({ID}, NULL)"), "from_offset"),
        ("queen.seek(NULL, 'g', true)", "queue"),
        ("queen.drop_consumer_group(NULL)", "consumer_group"),
    ] {
        let (state, message) = db.error(&format!("SELECT {call}")).await;
        assert_eq!(state, "22023", "{call}");
        assert_eq!(message, format!("{argument} must not be NULL"), "{call}");
    }
    assert_eq!(db.state("CALL queen.wait(NULL, 'g', 0)").await, "22023");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages()").await, "1");
}

#[tokio::test]
async fn null_for_an_optional_argument_means_its_default() {
    let db = Db::new().await;
    db.run("SELECT queen.push('q', '1', NULL, NULL, NULL, NULL); SELECT queen.push_many('q', ARRAY['1']::jsonb[], NULL, NULL)").await;
    assert_eq!(db.rows("SELECT partition, last_offset FROM queen.partitions").await, "Default|1");
    let batch = db.pop("'q', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL").await;
    assert_eq!((batch.group.as_str(), batch.attempt), ("__QUEUE_MODE__", 1));
    assert_ne!(batch.lease, "", "auto_ack is off");
    let verdict = db
        .rows(&format!(
            "SELECT success, lease_released FROM queen.ack('{}', '{}', NULL, NULL, NULL, NULL, NULL)",
            batch.partition_id, batch.ids
        ))
        .await;
    assert_eq!(verdict, "t|t");
    let batch = db.pop("'q'").await;
    assert_eq!(db.rows(&format!("SELECT queen.renew_lease('{}', NULL) IS NOT NULL", batch.lease)).await, "t");
    db.run(&format!("SELECT queen.nack('{}', '{}', NULL, NULL, NULL)", batch.lease, batch.ids)).await;
    db.run(
        "SELECT queen.dlq(NULL, NULL, NULL, NULL); SELECT queen.verify(NULL); SELECT queen.configure('q', NULL, NULL)",
    )
    .await;
    assert_eq!(db.rows("SELECT queen.drop_consumer_group('__QUEUE_MODE__', NULL, NULL)").await, "1");
    assert_eq!(db.state("SELECT queen.pop_matching(NULL, NULL)").await, "22023");
    assert_eq!(db.state("SELECT queen.seek('q', NULL)").await, "QN015");
    assert_eq!(db.rows("SELECT queen.seek('q', NULL, true, NULL, NULL)").await, "1");
}

#[tokio::test]
async fn numbers_outside_their_range_are_refused_with_22023_and_named() {
    let db = Db::new().await;
    db.push("q", "a").await;
    for call in [
        "queen.pop('q', batch => 0)".to_owned(),
        "queen.pop('q', batch => -1)".to_owned(),
        "queen.pop('q', batch => -2147483648)".to_owned(),
        "queen.pop('q', lease_seconds => 0)".to_owned(),
        "queen.pop('q', lease_seconds => -5)".to_owned(),
        "queen.pop('q', lease_seconds => 604801)".to_owned(),
        "queen.pop('q', lease_seconds => 2147483647)".to_owned(),
        "queen.pop_json('q', batch => 0)".to_owned(),
        "queen.pop_matching('', batch => 0)".to_owned(),
        "queen.pop_matching('', lease_seconds => 0)".to_owned(),
        "queen.pop_matching_json('', batch => -7)".to_owned(),
        format!("queen.renew_lease({ID}, 0)"),
        format!("queen.renew_lease({ID}, -1)"),
        format!("queen.renew_lease({ID}, 2147483647)"),
        "queen.dlq(max_rows => -1)".to_owned(),
        "queen.dlq(skip => -1)".to_owned(),
        "queen.messages(max_rows => -1)".to_owned(),
        "queen.messages(skip => -2147483648)".to_owned(),
        format!("queen.read({ID}, -1)"),
        format!("queen.read({ID}, -9223372036854775808)"),
        format!("queen.read({ID}, 0, -1)"),
    ] {
        let (state, message) = db.error(&format!("SELECT {call}")).await;
        assert_eq!(state, "22023", "{call}");
        assert!(message.contains(|c: char| c.is_ascii_digit()), "the value is named: {message}");
    }
    assert_eq!(db.state("CALL queen.wait('q', 'g', -1)").await, "22023");
    assert_eq!(db.rows("SELECT count(*) FROM queen.cursor").await, "0");
}

#[tokio::test]
async fn numbers_at_the_ends_of_their_range_work() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    for pop in [
        "batch => 2147483647",
        "max_partitions => 2147483647",
        "max_partitions => -2147483648",
        "lease_seconds => 1",
        "lease_seconds => 604800",
        "batch => 1",
    ] {
        let batch = db.pop(&format!("'q', {pop}")).await;
        assert!(batch.ids.starts_with('a'), "{pop}");
        db.run(&format!("SELECT queen.release('{}')", batch.lease)).await;
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages(max_rows => 2147483647)").await, "2");
    assert_eq!(db.rows("SELECT count(*) FROM queen.messages(skip => 2147483647)").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq(max_rows => 2147483647, skip => 2147483647)").await, "0");
    let id = db.partition_id("q", "Default").await;
    assert_eq!(
        db.rows(&format!("SELECT count(*) FROM queen.read('{id}', 9223372036854775807, 2147483647)")).await,
        "0"
    );
    db.verify().await;
}

#[tokio::test]
async fn arrays_must_have_one_dimension_and_their_bounds_do_not_count() {
    let db = Db::new().await;
    assert_eq!(db.state("SELECT queen.push_many('q', ARRAY[ARRAY['1'],ARRAY['2']]::jsonb[])").await, "22023");
    assert_eq!(
        db.state(
            "SELECT queen.push_many('q', ARRAY['1','2']::jsonb[], transaction_ids => ARRAY[ARRAY['a'],ARRAY['b']])"
        )
        .await,
        "22023"
    );
    db.run("SELECT queen.push_many('q', '[5:6]={1,2}'::jsonb[], transaction_ids => '[0:1]={a,b}'::text[])").await;
    assert_eq!(db.stored("q").await, "a b");
}

#[tokio::test]
async fn bytes_that_are_no_segment_are_refused_by_the_codec() {
    let db = Db::new().await;
    for bytes in [
        "''",
        "'\\x00'",
        "'\\xffffffffffffffffffffffffffffffffffffffff'",
        "repeat('queen', 1000)::bytea",
        "convert_to(repeat(E'\\x7f', 100000), 'UTF8')",
    ] {
        let state = db.state(&format!("SELECT queen.decode_segment({bytes})")).await;
        assert!(["QN011", "QN012"].contains(&state.as_str()), "{bytes} {state}");
    }
}

#[tokio::test]
async fn wait_is_refused_inside_a_transaction_block_and_a_function_and_looks_once_at_timeout_zero() {
    let db = Db::new().await;
    db.push("q", "a").await;
    assert_eq!(db.rows("CALL queen.wait('q', '__QUEUE_MODE__', 0)").await, "t");
    db.pop("'q'").await;
    assert_eq!(db.rows("CALL queen.wait('q', '__QUEUE_MODE__', 0)").await, "f");
    assert_eq!(db.rows("CALL queen.wait('unknown', 'g', 0)").await, "f");
    db.run("BEGIN").await;
    assert_eq!(db.state("CALL queen.wait('q', 'g', 0)").await, "25001");
    db.run("ROLLBACK").await;
    db.run("CREATE FUNCTION waits() RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE r boolean; BEGIN CALL queen.wait('q', 'g', 0, r); RETURN r; END $$").await;
    assert_eq!(db.state("SELECT waits()").await, "25001");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "1", "looking creates nothing");
}

#[tokio::test]
async fn after_every_refusal_the_session_and_what_was_pending_go_on() {
    let db = Db::new().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'a')").await;
    for (n, call) in [
        "queen.push('', '1')",
        "queen.push('q', NULL)",
        "queen.pop('q', batch => 0)",
        "queen.push_batch('5')",
        "queen.configure('q', '{\"x\": 1}')",
    ]
    .iter()
    .enumerate()
    {
        db.run(&format!("SAVEPOINT s{n}")).await;
        db.state(&format!("SELECT {call}")).await;
        db.run(&format!("ROLLBACK TO s{n}")).await;
    }
    db.run("SELECT queen.push('q', '1', transaction_id => 'b'); COMMIT").await;
    assert_eq!(db.stored("q").await, "a b");
    db.verify().await;
}
