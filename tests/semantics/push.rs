//! Pushing: order, atomicity, the caller's transaction, what is refused.

use crate::support::Db;

#[tokio::test]
async fn offsets_are_dense_from_zero_and_in_the_order_of_the_items() {
    let db = Db::new().await;
    db.push("q", "a b c").await;
    db.push("q", "d").await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":1,"transactionId":"e"},{"queue":"q","payload":1,"transactionId":"f"}]')"#).await;
    let id = db.partition_id("q", "Default").await;
    let read = db.rows(&format!("SELECT \"offset\", transaction_id FROM queen.read('{id}', 0)")).await;
    assert_eq!(read, "0|a\n1|b\n2|c\n3|d\n4|e\n5|f");
}

#[tokio::test]
async fn items_of_one_call_keep_their_order_in_each_partition_and_answers_follow_the_items() {
    let db = Db::new().await;
    let answer = db
        .rows(
            r#"SELECT index, transaction_id, queue, status, "offset" FROM queen.push_batch('[
               {"queue":"b","partition":"y","payload":1,"transactionId":"1"},
               {"queue":"a","partition":"z","payload":1,"transactionId":"2"},
               {"queue":"b","partition":"x","payload":1,"transactionId":"3"},
               {"queue":"b","partition":"y","payload":1,"transactionId":"4"},
               {"queue":"a","partition":"z","payload":1,"transactionId":"5"}]')"#,
        )
        .await;
    assert_eq!(answer, "0|1|b|queued|0\n1|2|a|queued|0\n2|3|b|queued|0\n3|4|b|queued|1\n4|5|a|queued|1");
    assert_eq!(db.stored("b").await, "3 1 4");
    assert_eq!(db.stored("a").await, "2 5");
}

#[tokio::test]
async fn the_first_push_creates_queue_and_partition_and_default_is_the_partition_of_those_who_name_none() {
    let db = Db::new().await;
    db.run(r#"SELECT queen.push('shop.orders.eu', '1'); SELECT queen.push_batch('[{"queue":"shop.orders.eu","payload":1}]')"#).await;
    assert_eq!(db.rows("SELECT queue, partition, last_offset FROM queen.partitions").await, "shop.orders.eu|Default|1");
    let options = db.rows("SELECT namespace, task, options ->> 'leaseTime' FROM queen.queues").await;
    assert_eq!(options, "shop|orders|60");
}

#[tokio::test]
async fn a_push_lands_at_commit_and_answers_neither_partition_nor_offset_before() {
    let db = Db::new().await;
    db.run("BEGIN").await;
    let answer = db
        .rows(
            "SELECT status, transaction_id, partition_id, \"offset\" FROM queen.push('q', '1', transaction_id => 'a')",
        )
        .await;
    assert_eq!(answer, "queued|a|~|~");
    assert_eq!(db.stored("q").await, "", "before its commit not even the pusher finds it");
    db.run("COMMIT").await;
    assert_eq!(db.stored("q").await, "a");
}

#[tokio::test]
async fn a_push_answers_the_message_id_that_the_message_has_after_commit() {
    let db = Db::new().await;
    db.run("BEGIN").await;
    let told = db.rows("SELECT message_id FROM queen.push('q', '1', transaction_id => 'a')").await;
    db.run("COMMIT").await;
    assert_eq!(db.rows("SELECT message_id FROM queen.messages('q')").await, told);
}

#[tokio::test]
async fn the_transaction_id_defaults_to_the_message_id_on_every_door() {
    let db = Db::new().await;
    db.run("SELECT queen.push('q', '1')").await;
    db.run("SELECT queen.push_many('q', ARRAY['2','3']::jsonb[], transaction_ids => ARRAY['x', NULL])").await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":4,"transactionId":null},{"queue":"q","payload":5}]')"#)
        .await;
    let same =
        db.rows("SELECT payload, transaction_id = message_id::text FROM queen.messages('q') ORDER BY payload").await;
    assert_eq!(same, "1|t\n2|f\n3|t\n4|t\n5|t");
}

#[tokio::test]
async fn message_ids_are_uuids_of_version_7_that_sort_like_offsets() {
    let db = Db::new().await;
    for _ in 0..3 {
        db.run("SELECT queen.push_many('q', ARRAY['1','2','3']::jsonb[])").await;
        db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":1},{"queue":"q","payload":1}]')"#).await;
    }
    let sorted = db
        .rows(
            "SELECT count(DISTINCT message_id), bool_and(substr(message_id::text, 15, 1) = '7'),
                    array_agg(message_id ORDER BY message_id) = array_agg(message_id ORDER BY \"offset\")
               FROM queen.messages('q')",
        )
        .await;
    assert_eq!(sorted, "15|t|t");
}

#[tokio::test]
async fn a_rolled_back_push_never_appears_and_uses_no_offset() {
    let db = Db::new().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'gone'); ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
    db.push("q", "a").await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'gone'); SELECT queen.flush(); ROLLBACK").await;
    db.run(r#"BEGIN; SELECT queen.push_batch('[{"queue":"q","payload":1,"transactionId":"gone"}]'); ROLLBACK"#).await;
    db.push("q", "b").await;
    let id = db.partition_id("q", "Default").await;
    let read = db.rows(&format!("SELECT \"offset\", transaction_id FROM queen.read('{id}', 0)")).await;
    assert_eq!(read, "0|a\n1|b");
}

#[tokio::test]
async fn a_push_rolls_back_with_its_savepoint_and_the_others_land() {
    let db = Db::new().await;
    db.run(
        "BEGIN;
         SELECT queen.push('q', '1', transaction_id => 'a');
         SAVEPOINT s; SELECT queen.push('q', '1', transaction_id => 'lost'); ROLLBACK TO s;
         SELECT queen.push('q', '1', transaction_id => 'b');
         SAVEPOINT t; SELECT queen.push('q', '1', transaction_id => 'c'); RELEASE t;
         SAVEPOINT u; SELECT queen.push('q', '1', transaction_id => 'd');
           SAVEPOINT v; SELECT queen.push('q', '1', transaction_id => 'lost too'); ROLLBACK TO v; RELEASE v;
           SELECT queen.push('q', '1', transaction_id => 'e');
         RELEASE u;
         COMMIT",
    )
    .await;
    assert_eq!(db.stored("q").await, "a b c d e");
}

#[tokio::test]
async fn a_push_kept_by_an_inner_savepoint_rolls_back_with_the_outer_one() {
    let db = Db::new().await;
    db.run(
        "BEGIN;
         SAVEPOINT outer_one;
           SAVEPOINT inner_one; SELECT queen.push('q', '1', transaction_id => 'lost'); RELEASE inner_one;
           SAVEPOINT second; RELEASE second;
         ROLLBACK TO outer_one;
         SELECT queen.push('q', '1', transaction_id => 'a');
         SAVEPOINT empty; ROLLBACK TO empty;
         COMMIT",
    )
    .await;
    assert_eq!(db.stored("q").await, "a");
}

#[tokio::test]
async fn a_push_in_an_exception_block_that_fails_is_forgotten() {
    let db = Db::new().await;
    db.run(
        "DO $$ BEGIN
           PERFORM queen.push('q', '1', transaction_id => 'a');
           BEGIN
             PERFORM queen.push('q', '1', transaction_id => 'lost');
             RAISE division_by_zero;
           EXCEPTION WHEN division_by_zero THEN
             PERFORM queen.push('q', '1', transaction_id => 'b');
           END;
         END $$",
    )
    .await;
    assert_eq!(db.stored("q").await, "a b");
}

#[tokio::test]
async fn a_failing_transaction_takes_its_pushes_with_it_and_the_session_goes_on() {
    let db = Db::new().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'lost')").await;
    assert_eq!(db.state("SELECT 1/0").await, "22012");
    db.run("COMMIT").await; // a rollback
    db.push("q", "a").await;
    assert_eq!(db.stored("q").await, "a");
}

#[tokio::test]
async fn flush_appends_what_is_pending_and_says_how_much_that_was() {
    let db = Db::new().await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'a'); SELECT queen.push('r', '1')").await;
    assert_eq!(db.rows("SELECT queen.flush()").await, "2");
    assert_eq!(db.rows("SELECT queen.flush()").await, "0");
    assert_eq!(db.stored("q").await, "a");
    db.run("SELECT queen.push('q', '1', transaction_id => 'b'); COMMIT").await;
    assert_eq!(db.stored("q").await, "a b");
}

/// A push made before a savepoint, appended by a flush inside it, was lost when the savepoint was rolled back.
#[tokio::test]
async fn a_flush_that_is_rolled_back_with_its_savepoint_takes_no_earlier_push_with_it() {
    let db = Db::new().await;
    db.run(
        "BEGIN;
         SELECT queen.push('q', '1', transaction_id => 'a');
         SAVEPOINT s;
         SELECT queen.push('q', '1', transaction_id => 'lost');
         SELECT queen.flush();
         ROLLBACK TO s;
         SELECT queen.push('q', '1', transaction_id => 'b');
         COMMIT",
    )
    .await;
    assert_eq!(db.stored("q").await, "a b");
}

#[tokio::test]
async fn a_push_pending_for_a_dropped_queue_creates_it_again() {
    let db = Db::new().await;
    db.push("q", "old").await;
    let before = db.partition_id("q", "Default").await;
    db.run("BEGIN; SELECT queen.push('q', '1', transaction_id => 'new')").await;
    let other = db.session().await;
    assert_eq!(other.rows("SELECT queen.drop_queue('q')").await, "t");
    db.run("COMMIT").await;
    assert_eq!(db.stored("q").await, "new");
    assert_ne!(db.partition_id("q", "Default").await, before);
}

#[tokio::test]
async fn everything_a_message_carries_comes_out_as_it_went_in() {
    let db = Db::new().await;
    let trace = "0190aaaa-0000-7000-8000-00000000000f";
    db.run(&format!("SELECT queen.push('q', '{{\"a\": 1}}', 'p', 't', '{trace}', '{{\"h\": [1]}}')")).await;
    db.run(&format!(
        r#"SELECT queen.push_batch('[{{"queue":"q","partition":"p","payload":{{"b" : 1.50}},"traceId":"{trace}","headers":{{"k":"v"}},"other":1}}]')"#
    ))
    .await;
    let popped = db
        .rows("SELECT queue, partition, \"offset\", payload, payload_text, headers, trace_id, producer FROM queen.pop('q', batch => 10)")
        .await;
    assert_eq!(
        popped,
        format!(
            "q|p|0|{{\"a\": 1}}|{{\"a\": 1}}|{{\"h\": [1]}}|{trace}|~\nq|p|1|{{\"b\": 1.50}}|{{\"b\" : 1.50}}|{{\"k\": \"v\"}}|{trace}|~"
        )
    );
}

#[tokio::test]
async fn a_large_append_is_cut_into_segments_and_stays_in_order() {
    let db = Db::new().await;
    // 40 payloads of a megabyte in one call: more than one segment holds.
    db.run(
        "SELECT count(*) FROM queen.push_many('q', (SELECT array_agg(to_jsonb(n || repeat('x', 1000000)) ORDER BY n) FROM generate_series(1, 40) n))",
    )
    .await;
    assert_ne!(db.rows("SELECT count(*) FROM queen.segment").await, "1", "or this test shows nothing");
    let read = db
        .rows("SELECT string_agg(rtrim(payload #>> '{}', 'x'), ' ' ORDER BY \"offset\") FROM queen.messages('q')")
        .await;
    let wanted: Vec<String> = (1..=40).map(|n: i32| n.to_string()).collect();
    assert_eq!(read, wanted.join(" "));
    db.verify().await;
}
