//! Looking without consuming: messages, message, read, decode_segment, verify, views.

use crate::support::Db;

#[tokio::test]
async fn messages_are_newest_first_over_all_partitions_and_filtered() {
    let db = Db::new().await;
    for (queue, partition, id) in [("q", "p1", "a"), ("q", "p2", "b"), ("r", "p1", "c"), ("q", "p1", "d")] {
        db.push_to(queue, partition, id).await;
    }
    db.push_to("q", "p1", "e f").await;
    let list = |arguments: &str| format!("SELECT string_agg(transaction_id, ' ') FROM queen.messages({arguments})");
    for (arguments, wanted) in [
        ("", "f e d c b a"),
        ("'q'", "f e d b a"),
        ("'q', 'p1'", "f e d a"),
        ("partition => 'p2'", "b"),
        ("'nowhere'", "~"),
        ("max_rows => 2", "f e"),
        ("max_rows => 2, skip => 1", "e d"),
        ("skip => 6", "~"),
        ("max_rows => 0", "~"),
        ("NULL, NULL, NULL, NULL, NULL, NULL, NULL", "f e d c b a"),
    ] {
        assert_eq!(db.rows(&list(arguments)).await, wanted, "{arguments}");
    }
    for bad in ["max_rows => -1", "skip => -1", "status => 'done'", "status => ''"] {
        assert_eq!(db.state(&list(bad)).await, "22023", "{bad}");
    }
}

/// A message stored exactly at the end of the range was listed.
#[tokio::test]
async fn from_is_inclusive_and_to_is_exclusive() {
    let db = Db::new().await;
    for id in ["a", "b", "c"] {
        db.push("q", id).await;
    }
    db.run("UPDATE queen.segment SET created_at = '2026-01-01'::timestamptz + make_interval(days => base::int)").await;
    for (from, to, wanted) in [
        ("2026-01-01", "2026-01-03", "b a"),
        ("2026-01-02", "infinity", "c b"),
        ("2026-01-01 00:00:00.000001", "2026-01-03 00:00:00.000001", "c b"),
        ("-infinity", "2026-01-01", "~"),
        ("2026-01-02", "2026-01-02", "~"),
        ("2026-01-03", "2026-01-01", "~"),
        ("-infinity", "-infinity", "~"),
    ] {
        let sql = format!(
            "SELECT string_agg(transaction_id, ' ') FROM queen.messages('q', \"from\" => '{from}', \"to\" => '{to}')"
        );
        assert_eq!(db.rows(&sql).await, wanted, "{from} {to}");
    }
}

#[tokio::test]
async fn a_status_is_what_all_named_groups_have_done_with_the_message() {
    let db = Db::new().await;
    db.push("q", "a b c d").await;
    let statuses =
        "SELECT string_agg(transaction_id || ' ' || status, ', ' ORDER BY \"offset\") FROM queen.messages('q')";
    assert_eq!(db.rows(statuses).await, "a pending, b pending, c pending, d pending");
    let batch = db.pop("'q', batch => 3").await;
    db.ack(&batch, "a", "completed").await;
    assert_eq!(
        db.rows(statuses).await,
        "a completed, b processing, c processing, d pending",
        "queue mode counts where nobody else reads"
    );
    let named = db.pop("'q', 'g', batch => 2, subscription_mode => 'all'").await;
    assert_eq!(
        db.rows(statuses).await,
        "a processing, b processing, c processing, d pending",
        "it does not count beside a named group"
    );
    db.ack(&named, "b", "dlq").await;
    assert_eq!(db.rows(statuses).await, "a completed, b dead_letter, c processing, d pending");
    let other = db.pop("'q', 'h', subscription_mode => 'all'").await;
    db.ack(&other, "a", "completed").await;
    db.expire().await;
    assert_eq!(db.rows(statuses).await, "a completed, b dead_letter, c pending, d pending");
    for (status, wanted) in [("completed", "a"), ("dead_letter", "b"), ("pending", "d c"), ("processing", "~")] {
        let sql = format!("SELECT string_agg(transaction_id, ' ') FROM queen.messages('q', status => '{status}')");
        assert_eq!(db.rows(&sql).await, wanted);
    }
    let id = db.partition_id("q", "Default").await;
    assert_eq!(db.rows(&format!("SELECT status FROM queen.message('{id}', 'b')")).await, "dead_letter");
    assert_eq!(db.rows(&format!("SELECT status FROM queen.read('{id}', 0, 2)")).await, "completed\ndead_letter");
}

#[tokio::test]
async fn one_message_by_its_address_is_the_newest_of_that_id_or_null() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": 0}"#).await;
    db.push("q", "a").await;
    db.push("q", "b").await;
    db.push("q", "a").await;
    let id = db.partition_id("q", "Default").await;
    assert_eq!(
        db.rows(&format!("SELECT \"offset\", transaction_id, queue FROM queen.message('{id}', 'a')")).await,
        "2|a|q"
    );
    assert_eq!(db.rows(&format!("SELECT queen.message('{id}', 'nowhere') IS NULL")).await, "t");
    assert_eq!(db.rows("SELECT queen.message('0190aaaa-0000-7000-8000-00000000000f', 'a') IS NULL").await, "t");
}

#[tokio::test]
async fn read_goes_from_an_offset_on_and_moves_nothing() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    db.push("q", "c d").await;
    let id = db.partition_id("q", "Default").await;
    for (from, rows, wanted) in [
        ("0", "100", "a b c d"),
        ("1", "2", "b c"),
        ("3", "9", "d"),
        ("4", "9", "~"),
        ("9223372036854775807", "9", "~"),
        ("0", "0", "~"),
    ] {
        let sql = format!("SELECT string_agg(transaction_id, ' ') FROM queen.read('{id}', {from}, {rows})");
        assert_eq!(db.rows(&sql).await, wanted, "{from} {rows}");
    }
    for bad in ["-1, 1", "0, -1"] {
        assert_eq!(db.state(&format!("SELECT queen.read('{id}', {bad})")).await, "22023");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.cursor").await, "0");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "a b c d");
}

#[tokio::test]
async fn looking_is_possible_in_a_read_only_transaction() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = db.pop("'q'").await;
    db.ack(&batch, "a", "dlq").await;
    db.run("BEGIN READ ONLY").await;
    let seen = db
        .rows(&format!(
            "SELECT (SELECT count(*) FROM queen.messages()), (SELECT count(*) FROM queen.read('{0}', 0)), (SELECT count(*) FROM queen.dlq()),
                    (SELECT count(*) FROM queen.verify()), (SELECT count(*) FROM queen.queues), (SELECT \"offset\" FROM queen.message('{0}', 'b'))",
            batch.partition_id
        ))
        .await;
    assert_eq!(seen, "2|2|1|0|1|1");
    db.run("COMMIT").await;
}

#[tokio::test]
async fn decode_segment_shows_the_frames_of_a_stored_segment() {
    let db = Db::new().await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":{"a" : 1},"transactionId":"x","headers":{"h":1}},{"queue":"q","payload":null}]')"#).await;
    let frames = db
        .rows("SELECT f.frame_index, f.transaction_id = f.message_id::text, f.payload_text, f.headers, f.is_encrypted FROM queen.segment s, queen.decode_segment(s.data) f")
        .await;
    assert_eq!(frames, "0|f|{\"a\" : 1}|{\"h\": 1}|f\n1|t|null|~|f");
    let times = db
        .rows("SELECT bool_and(abs(extract(epoch FROM f.created_at - s.created_at)) < 60) FROM queen.segment s, queen.decode_segment(s.data) f")
        .await;
    assert_eq!(times, "t");
    assert_eq!(db.rows("SELECT count(*) FROM queen.decode_segment(NULL)").await, "0");
}

#[tokio::test]
async fn a_damaged_segment_is_named_by_everybody_who_meets_it_and_can_be_passed() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    db.push("q", "c").await;
    db.push("q", "d").await;
    db.run("UPDATE queen.segment SET data = set_byte(data, length(data) - 1, get_byte(data, length(data) - 1) # 1) WHERE base = 2").await;
    let id = db.partition_id("q", "Default").await;
    assert_eq!(db.rows("SELECT partition_id, base_offset FROM queen.verify()").await, format!("{id}|2"));
    assert_eq!(db.rows("SELECT count(*) FROM queen.verify('q')").await, "1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.verify('other')").await, "0");
    for sql in [
        "SELECT * FROM queen.messages('q')".to_owned(),
        format!("SELECT * FROM queen.read('{id}', 0)"),
        "SELECT queen.decode_segment(data) FROM queen.segment WHERE base = 2".to_owned(),
    ] {
        let (state, message) = db.error(&sql).await;
        assert_eq!(state, "QN011", "{sql}");
        assert!(sql.contains("decode") || message.contains("offset 2"), "{message}");
    }
    // What is before it comes, and a seek gets the group over it.
    let batch = db.pop("'q', batch => 9").await;
    assert_eq!(db.ack(&batch, "b", "completed").await, "ok released");
    let (state, message) = db.error("SELECT * FROM queen.pop('q', partition => 'Default')").await;
    assert_eq!(state, "QN011");
    assert!(message.contains("offset 2"), "{message}");
    db.run("SELECT queen.seek('q', '__QUEUE_MODE__', to_timestamp => (SELECT created_at FROM queen.segment WHERE base = 3))").await;
    assert_eq!(db.pop("'q', batch => 9").await.ids, "d");
}

#[tokio::test]
async fn every_changed_byte_of_a_segment_is_found() {
    let db = Db::new().await;
    db.run(r#"SELECT queen.push_batch('[{"queue":"q","payload":{"a":"some text to be damaged"},"transactionId":"x"},{"queue":"q","payload":[1,2,3]}]')"#).await;
    let silent = db
        .rows(
            "CREATE FUNCTION pg_temp.decodes(d bytea) RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN PERFORM queen.decode_segment(d); RETURN true; EXCEPTION WHEN OTHERS THEN
               IF SQLSTATE NOT IN ('QN011', 'QN012') THEN RAISE; END IF; RETURN false; END $$;
             SELECT count(*) FROM queen.segment s, generate_series(0, length(s.data) - 1) n
              WHERE pg_temp.decodes(set_byte(s.data, n, get_byte(s.data, n) # 64));",
        )
        .await;
    assert_eq!(silent, "0");
    // And every cut.
    let silent = db
        .rows("SELECT count(*) FROM queen.segment s, generate_series(0, length(s.data) - 1) n WHERE pg_temp.decodes(substr(s.data, 1, n))")
        .await;
    assert_eq!(silent, "0");
}

#[tokio::test]
async fn verify_finds_gaps_times_that_go_back_and_cursors_outside_the_log() {
    let db = Db::new().await;
    for id in ["a", "b", "c"] {
        db.push("q", id).await;
    }
    db.pop("'q', batch => 3, auto_ack => true").await;
    let problems = async |change: &str| {
        let text =
            db.rows(&format!("BEGIN; {change}; SELECT base_offset, problem FROM queen.verify(); ROLLBACK")).await;
        assert!(!text.is_empty(), "{change}");
        text
    };
    assert_eq!(problems("DELETE FROM queen.segment WHERE base = 1").await, "2|offsets 1 to 1 are missing");
    assert_eq!(problems("DELETE FROM queen.segment WHERE base = 0").await, "1|offsets 0 to 0 are missing");
    assert!(
        problems("UPDATE queen.segment SET created_at = '2020-01-01' WHERE base = 1")
            .await
            .contains("time is not after")
    );
    assert!(problems("UPDATE queen.cursor SET committed = 7").await.contains("past the end 2"));
    assert!(
        problems("UPDATE queen.cursor SET lease_id = gen_random_uuid(), batch_end = 9, expires_at = now()")
            .await
            .contains("lease reaches outside")
    );
    assert!(problems("UPDATE queen.segment SET frames = 2 WHERE base = 2").await.contains("frame count"));
    db.verify().await;
}

#[tokio::test]
async fn the_views_count_exactly() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a b c").await;
    db.push_to("q", "p2", "d").await;
    db.configure("empty", "{}").await;
    let queues = "SELECT queue, partitions, messages, pending, processing, dead_letters FROM queen.queues ORDER BY 1";
    assert_eq!(db.rows(queues).await, "empty|0|0|0|0|0\nq|2|4|4|0|0");
    let fast = db.pop("'q', 'fast', batch => 9, max_partitions => 0, subscription_mode => 'all'").await;
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", fast.lease)).await, "4");
    let slow = db.pop("'q', 'slow', batch => 2, partition => 'p1', subscription_mode => 'all'").await;
    assert_eq!(
        db.rows(queues).await,
        "empty|0|0|0|0|0\nq|2|4|1|2|0",
        "slow has named p1 only; the furthest behind counts"
    );
    db.ack(&slow, "a", "dlq").await;
    assert_eq!(
        db.rows("SELECT consumer_group, partitions, pending, processing, subscription_mode FROM queen.consumer_groups ORDER BY 1").await,
        "fast|2|0|0|all\nslow|1|2|0|~"
    );
    assert_eq!(db.rows(queues).await, "empty|0|0|0|0|0\nq|2|4|2|0|1");
    assert_eq!(
        db.rows("SELECT partition, log_start, last_offset FROM queen.partitions ORDER BY 1").await,
        "p1|0|2\np2|0|0"
    );
    assert_eq!(
        db.rows("SELECT queue, consumer_group, dead_letters, oldest_failed_at = newest_failed_at FROM queen.dlq_depth")
            .await,
        "q|slow|1|t"
    );
    let sizes = db
        .rows(
            "SELECT retained_bytes = (SELECT sum(length(data)) FROM queen.segment) FROM queen.queues WHERE queue = 'q'",
        )
        .await;
    assert_eq!(sizes, "t");
}
