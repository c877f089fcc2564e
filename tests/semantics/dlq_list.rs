//! Lists, counts and figures of many dead letters.

use crate::support::{Db, filed, lit};

/// Files `count` messages of a queue for a group, one after the other, with this error.
async fn file(db: &Db, queue: &str, group: &str, error: &str, count: usize) {
    for _ in 0..count {
        db.run(&format!("SELECT queen.push({}, '1')", lit(queue))).await;
        let batch = db.pop(&format!("{}, '{group}', subscription_mode => 'all'", lit(queue))).await;
        let status = if error == "spent" { "failed" } else { "dlq" };
        assert_eq!(db.ack_with(&batch, &batch.ids, status, &batch.lease, &lit(error)).await, "ok released dlq");
    }
}

async fn filled() -> Db {
    let db = Db::new().await;
    let rules = r#"{"retryLimit": 0, "owner": "shop", "runbook": "https://r", "severity": "page", "deadLetterRules": [
        {"pattern": "timeout", "class": "transient", "code": "T"}, {"pattern": "crash", "class": "poison", "code": "C"}]}"#;
    for queue in ["q", "r"] {
        db.configure(queue, rules).await;
    }
    file(&db, "q", "g", "timeout", 3).await;
    file(&db, "q", "g", "crash", 2).await;
    // The first message of `q` seen by another group.
    file(&db, "q", "h", "timeout", 1).await;
    file(&db, "r", "g", "spent", 1).await;
    db
}

#[tokio::test]
async fn every_filter_lists_and_counts_the_same_records() {
    let db = filled().await;
    let fingerprint = db.rows("SELECT DISTINCT fingerprint FROM queen.dlq() WHERE error_code = 'C'").await;
    db.run("UPDATE queen.dead_letter_record SET status = 'discarded' WHERE id = (SELECT id FROM queen.dlq('q', 'g') WHERE error_code = 'T' LIMIT 1)").await;
    for (filter, condition) in [
        ("", "status = 'pending'"),
        ("queue => 'q'", "queue = 'q' AND status = 'pending'"),
        ("'q', 'g'", "queue = 'q' AND consumer_group = 'g' AND status = 'pending'"),
        ("failure_class => 'transient'", "failure_class = 'transient' AND status = 'pending'"),
        ("error_code => 'C'", "error_code = 'C'"),
        ("error_code => ''", "error_code = ''"),
        (&format!("fingerprint => '{fingerprint}'"), "error_code = 'C'"),
        ("status => 'discarded'", "status = 'discarded'"),
        ("status => 'all'", "true"),
        ("'q', 'g', 'transient', 'T', status => 'all'", "queue = 'q' AND consumer_group = 'g' AND error_code = 'T'"),
        ("queue => 'nobody'", "false"),
    ] {
        let wanted = db
            .rows(&format!(
                "SELECT count(*), string_agg(id::text, ' ' ORDER BY failed_at DESC, id DESC) FROM queen.dead_letter_record WHERE {condition}"
            ))
            .await;
        let list = format!("SELECT count(*), string_agg(id::text, ' ') FROM queen.dlq_list({filter})");
        let listed = db.rows(&list).await;
        assert_eq!(listed, wanted, "{filter}");
        let counted = db.rows(&format!("SELECT queen.dlq_count({filter})")).await;
        assert_eq!(counted, wanted.split('|').next().unwrap(), "{filter}");
    }
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repetition_while_records_come_and_go() {
    let db = filled().await;
    let all = db
        .rows("SELECT string_agg(id::text, ' ' ORDER BY failed_at DESC, id DESC) FROM queen.dead_letter_record")
        .await;
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let page: serde_json::Value = serde_json::from_str(
            &db.rows(&format!("SELECT queen.dlq_list_json(after => '{after}', max_rows => 2)")).await,
        )
        .unwrap();
        let records = page["records"].as_array().unwrap();
        seen.extend(records.iter().map(|r| r["id"].as_str().unwrap().to_owned()));
        // What is behind us changes: a new one, and the last one seen is deleted.
        file(&db, "r", "g", "spent", 1).await;
        if let Some(last) = seen.last() {
            db.run(&format!("SELECT queen.dlq_delete_row('{last}')")).await;
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.join(" "), all);
    for bad in ["after => 'x'", "after => '1-2'", "max_rows => -1", "failure_class => 'odd'", "status => 'odd'"] {
        assert_eq!(db.state(&format!("SELECT queen.dlq_list_json({bad})")).await, "22023", "{bad}");
    }
    let range = |from: &str, to: &str| {
        format!(
            "SELECT count(*) FROM queen.dlq_list(status => 'all', max_rows => 1000, \"from\" => {from}, \"to\" => {to})"
        )
    };
    let newest = "(SELECT max(failed_at) FROM queen.dead_letter_record)";
    let count: i64 = db.rows("SELECT count(*) FROM queen.dead_letter_record").await.parse().unwrap();
    assert_eq!(db.rows(&range(newest, "NULL")).await, "1");
    assert_eq!(db.rows(&range("NULL", newest)).await, (count - 1).to_string());
    // Of a cursor and an end the earlier counts.
    let nth =
        |n: i32| format!("FROM queen.dlq_list(status => 'all') ORDER BY failed_at DESC, id DESC LIMIT 1 OFFSET {n}");
    for (after, to) in [(0, 1), (1, 0)] {
        let both = format!(
            "SELECT count(*) FROM queen.dlq_list(status => 'all', max_rows => 1000, after => (SELECT page_cursor {}),
                                                 \"to\" => (SELECT failed_at {}))",
            nth(after),
            nth(to)
        );
        assert_eq!(db.rows(&both).await, (count - 2).to_string(), "behind {after}, before {to}");
    }
}

#[tokio::test]
async fn a_list_of_many_kinds_is_read_by_time_and_is_the_same() {
    let db = filled().await;
    // As many kinds as records, so that reading each would cost more than reading all.
    db.run(
        "INSERT INTO queen.dead_letter_record
         SELECT gen_random_uuid(), r.tenant, r.qid, r.queue, r.partition, r.partition_id, 'many', n, r.message_id, r.transaction_id,
                r.payload, r.headers, r.trace_id, r.producer, r.error, r.reason, r.retry_count, r.enqueued_at, r.first_failed_at,
                r.failed_at + make_interval(secs => n), r.is_encrypted, r.failure_class, r.error_code, n::text, r.payload_hash, r.attempts,
                r.retry_policy, r.traceparent, r.redaction, r.status, r.hops, r.transaction_hash, gen_random_uuid()
           FROM (SELECT * FROM queen.dead_letter_record LIMIT 1) r, generate_series(1, 6000) n;
         INSERT INTO queen.dlq_tally
         SELECT tenant, queue, consumer_group, failure_class, error_code, fingerprint, status, kind, '-infinity', 1, 0, 1
           FROM queen.dead_letter_record WHERE consumer_group = 'many'",
    )
    .await;
    for (filter, condition) in [("'q', 'many'", "queue = 'q' AND consumer_group = 'many'"), ("NULL", "true")] {
        let wanted = db
            .rows(&format!("SELECT string_agg(i, ' ') FROM (SELECT id::text AS i FROM queen.dead_letter_record WHERE {condition} ORDER BY failed_at DESC, id DESC LIMIT 7) x"))
            .await;
        let list = format!("SELECT string_agg(id::text, ' ') FROM queen.dlq_list({filter}, max_rows => 7)");
        let got = db.rows(&list).await;
        assert_eq!(got, wanted, "{filter}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq('q', 'many', 10, 5995)").await, "5");
}

#[tokio::test]
async fn the_tally_is_exact_after_every_way_that_records_come_change_and_go() {
    let db = filled().await;
    let check = |what: &'static str| {
        let db = &db;
        async move {
            let wrong = "SELECT count(*) FROM
                (SELECT kind, status, sum(n) AS n FROM queen.dlq_tally GROUP BY 1, 2 HAVING sum(n) <> 0) t
                FULL JOIN (SELECT kind, status, count(*) AS n FROM queen.dead_letter_record GROUP BY 1, 2) r USING (kind, status)
                WHERE t.n IS DISTINCT FROM r.n";
            assert_eq!(db.rows(wrong).await, "0", "{what}");
        }
    };
    check("filing").await;
    db.push("q", "x").await;
    let batch = db.pop("'q', 'g'").await;
    db.run("BEGIN").await;
    assert_eq!(db.ack(&batch, &batch.ids, "dlq").await, "ok released dlq");
    db.run("ROLLBACK").await;
    check("a rollback").await;
    db.run(
        "UPDATE queen.dead_letter_record SET status = CASE WHEN error_code = 'T' THEN 'replayed' ELSE 'approved' END",
    )
    .await;
    check("statuses").await;
    assert_eq!(db.rows("SELECT queue, dead_letters FROM queen.queues ORDER BY 1").await, "q|2\nr|1");
    let depth = "SELECT queue, consumer_group, dead_letters, pending, approved, replayed, discarded FROM queen.dlq_depth ORDER BY 1, 2";
    assert_eq!(db.rows(depth).await, "q|g|2|0|2|3|0\nq|h|0|0|0|1|0\nr|g|1|0|1|0|0");
    db.run("SELECT queen.maintain()").await;
    check("folding").await;
    assert_eq!(db.rows(depth).await, "q|g|2|0|2|3|0\nq|h|0|0|0|1|0\nr|g|1|0|1|0|0");
    let id = db.rows("SELECT id FROM queen.dlq('r')").await;
    db.run(&format!("SELECT queen.dlq_move_v1('{id}')")).await;
    check("a move").await;
    db.run("SELECT queen.dlq_purge('q', 'h')").await;
    check("a purge").await;
    db.run("SELECT queen.drop_queue('q')").await;
    check("dropping the queue").await;
    db.run("UPDATE queen.dlq_tally SET minute = minute - interval '2 hours'; SELECT queen.maintain()").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq_tally").await, "0", "nothing is left of what is gone");
}

#[tokio::test]
async fn figures_have_depth_age_rates_failures_and_whom_to_call() {
    let db = filled().await;
    let told = db
        .rows(
            "SELECT queue, consumer_group, pending, approved, oldest_pending_seconds BETWEEN 0 AND 600,
                    round((arrivals_per_minute / net_per_minute)::numeric, 3), round(exhaustion_rate::numeric, 2),
                    jsonb_array_length(top_fingerprints), top_fingerprints -> 0 ->> 'code', top_fingerprints -> 0 ->> 'count',
                    owner, runbook, severity FROM queen.dlq_stats()",
        )
        .await;
    assert_eq!(
        told,
        "q|g|5|0|t|1.000|0.00|2|T|3|shop|https://r|page\nq|h|1|0|t|1.000|0.00|1|T|1|shop|https://r|page\nr|g|1|0|t|1.000|1.00|1||1|shop|https://r|page"
    );
    db.run("SELECT queen.dlq_purge('q')").await;
    let told = db.rows("SELECT pending, arrivals_per_minute > 0, round(net_per_minute::numeric, 6), top_fingerprints, oldest_pending_at FROM queen.dlq_stats('q', 'g')").await;
    assert_eq!(told, "0|t|0.000000|[]|~");
    for bad in [0, 61] {
        assert_eq!(db.state(&format!("SELECT * FROM queen.dlq_stats(window_minutes => {bad})")).await, "22023");
    }
}

#[tokio::test]
async fn a_reader_folds_a_long_tally_and_nobody_waits_for_another_who_does() {
    let db = filled().await;
    db.run("INSERT INTO queen.dlq_tally SELECT t.* FROM (SELECT * FROM queen.dlq_tally LIMIT 1) t, generate_series(1, 10000)").await;
    let count = db.rows("SELECT queen.dlq_count()").await;
    let rows: i64 = db.rows("SELECT count(*) FROM queen.dlq_tally").await.parse().unwrap();
    assert!(rows < 100, "{rows}");
    assert_eq!(db.rows("SELECT queen.dlq_count()").await, count);
    // Rows that filing adds have no index: whose they are does not matter.
    db.run("INSERT INTO queen.dlq_tally_filed SELECT gen_random_uuid(), t.queue, t.consumer_group, t.failure_class, t.error_code, t.fingerprint, t.status, t.kind, t.minute, t.filed, t.exhausted, t.n, t.again FROM (SELECT * FROM queen.dlq_tally LIMIT 1) t, generate_series(1, 6000)").await;
    assert_eq!(db.rows("SELECT queen.dlq_count()").await, count);
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq_tally_filed").await, "0");
    db.run("DELETE FROM queen.dlq_tally WHERE tenant <> queen.current_tenant()").await;
    db.run("INSERT INTO queen.dlq_tally SELECT t.* FROM (SELECT * FROM queen.dlq_tally LIMIT 1) t, generate_series(1, 10000)").await;
    let other = db.session().await;
    db.run("BEGIN").await;
    let counted = db.rows("SELECT queen.dlq_count()").await;
    other.run("SET lock_timeout = '1s'").await;
    assert_eq!(other.rows("SELECT queen.dlq_count()").await, counted);
    // A transaction that must not write, or that looks at its beginning, does not fold either.
    other.run("BEGIN READ ONLY").await;
    assert_eq!(other.rows("SELECT queen.dlq_count()").await, counted);
    other.run("COMMIT").await;
    db.run("COMMIT").await;
}

#[tokio::test]
async fn a_record_is_found_by_its_id_whatever_its_status() {
    let db = Db::new().await;
    let id = filed(&db, "g").await;
    let list = "SELECT queen.dlq_list_json('q', status => 'all')::json -> 'records' ->> 0";
    assert_eq!(db.rows(&format!("SELECT queen.dlq_record_json('{id}')")).await, db.rows(list).await);
    db.run(&format!("SELECT queen.dlq_discard(ARRAY['{id}'::uuid], 'test', 'n')")).await;
    assert_eq!(db.rows(&format!("SELECT queen.dlq_record_json('{id}')::json ->> 'status'")).await, "discarded");
    assert_eq!(db.rows("SELECT queen.dlq_record_json(gen_random_uuid()) IS NULL").await, "t");
    assert_eq!(db.state("SELECT queen.dlq_record_json(NULL)").await, "22023");
    db.run("SET queen.tenant = '00000000-0000-4000-8000-00000000000b'").await;
    assert_eq!(db.rows(&format!("SELECT queen.dlq_record_json('{id}') IS NULL")).await, "t", "another tenant's");
}
