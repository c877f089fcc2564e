//! Behaviour vectors of bundles, configuration, dead letters and groups, by their numbers.

use crate::support::{Batch, Db, INVALID_LEASE, verdict_columns};

async fn three(db: &Db) -> Batch {
    db.push("q", "m1 m2 m3").await;
    db.pop("'q', batch => 3").await
}

#[tokio::test]
async fn vector_a25_renewing_an_unknown_lease() {
    let db = Db::new().await;
    assert_eq!(db.rows("SELECT queen.renew_lease('0190aaaa-0000-7000-8000-00000000000f')").await, "~");
}

#[tokio::test]
async fn vector_a26_a_duplicate_push_undoes_the_bundle() {
    let db = Db::new().await;
    db.push("out", "x").await;
    let batch = three(&db).await;
    let answer = db
        .rows(&format!(
            r#"SELECT t ->> 'success', t ->> 'reason', t -> 'results' FROM queen.transaction('[
                {{"type":"ack","transactionId":"m1","partitionId":"{}","leaseId":"{}"}},
                {{"type":"push","queue":"out","payload":1,"transactionId":"x"}}]') t"#,
            batch.partition_id, batch.lease
        ))
        .await;
    assert_eq!(answer, "false|duplicate|[]");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|0|t");
}

#[tokio::test]
async fn vector_a27_two_pushes_of_one_new_id_in_a_bundle() {
    let db = Db::new().await;
    let answer = db
        .rows(
            r#"SELECT t ->> 'success', t #>> '{results,0,duplicate}', t #>> '{results,1,duplicate}' FROM queen.transaction('[
               {"type":"push","queue":"q","payload":1,"transactionId":"x"},{"type":"push","queue":"q","payload":1,"transactionId":"x"}]') t"#,
        )
        .await;
    assert_eq!(answer, "true|~|true");
}

#[tokio::test]
async fn vector_a28_an_empty_bundle() {
    assert_eq!(Db::new().await.state("SELECT queen.transaction('{}')").await, "QN008");
}

#[tokio::test]
async fn vector_a29_merge_keeps_the_lease_time_of_a_pushed_queue_and_replace_does_not() {
    let db = Db::new().await;
    db.push("q", "a").await;
    assert_eq!(db.rows("SELECT queen.configure('q') ->> 'leaseTime'").await, "60");
    assert_eq!(db.rows("SELECT queen.configure('q', '{}', 'replace') ->> 'leaseTime'").await, "300");
}

#[tokio::test]
async fn vector_a30_two_configures_both_stick() {
    let db = Db::new().await;
    db.configure("q", r#"{"leaseTime": 10}"#).await;
    let options = db
        .rows(r#"SELECT o ->> 'leaseTime', o ->> 'retryLimit' FROM queen.configure('q', '{"retryLimit": 5}') o"#)
        .await;
    assert_eq!(options, "10|5");
}

#[tokio::test]
async fn vector_a31_an_unknown_mode_writes_nothing() {
    let db = Db::new().await;
    assert_eq!(db.state("SELECT queen.configure('q', '{}', 'x')").await, "22023");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0");
}

#[tokio::test]
async fn vector_a32_dropping_a_missing_queue() {
    assert_eq!(Db::new().await.rows("SELECT queen.drop_queue('q')").await, "f");
}

#[tokio::test]
async fn vector_a33_moving_a_dead_letter_and_again() {
    let db = Db::new().await;
    let batch = three(&db).await;
    db.ack(&batch, "m1", "dlq").await;
    let id = db.rows("SELECT id FROM queen.dlq()").await;
    let verdict =
        format!("SELECT v ->> 'result', v ->> 'transactionId', v ->> 'offset' FROM queen.dlq_move_v1('{id}') v");
    assert_eq!(db.rows(&verdict).await, format!("moved|dlq:{id}|3"));
    assert_eq!(db.rows(&verdict).await, "gone|~|~");
}

#[tokio::test]
async fn vector_a34_moving_one_of_two_groups_records_and_deleting_by_address() {
    let db = Db::new().await;
    db.push("q", "m1").await;
    for group in ["g1", "g2", "g3"] {
        let batch = db.pop(&format!("'q', '{group}', subscription_mode => 'all'")).await;
        db.ack(&batch, "m1", "dlq").await;
    }
    db.run("SELECT queen.dlq_move_v1(id) FROM queen.dlq(max_rows => 1)").await;
    assert_eq!(db.rows("SELECT consumer_group FROM queen.dlq() ORDER BY 1").await, "g1\ng2");
    assert_eq!(db.rows("SELECT queen.dlq_delete(partition_id, 'm1') FROM queen.dlq(max_rows => 1)").await, "2");
}

#[tokio::test]
async fn vector_a35_moving_to_a_blank_queue() {
    let db = Db::new().await;
    assert_eq!(db.state("SELECT queen.dlq_move_v1('0190aaaa-0000-7000-8000-00000000000f', '  ')").await, "QN001");
}

#[tokio::test]
async fn vector_a38_a_purge_without_a_queue() {
    assert_eq!(Db::new().await.state("SELECT queen.dlq_purge(NULL)").await, "22023");
}

#[tokio::test]
async fn vector_a39_a_seek_to_the_end_under_a_lease() {
    let db = Db::new().await;
    let batch = three(&db).await;
    assert_eq!(db.rows("SELECT queen.seek('q', '__QUEUE_MODE__', to_end => true)").await, "1");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "");
    assert_eq!(db.ack(&batch, "m3", "completed").await, INVALID_LEASE);
    db.push("q", "m4").await;
    assert_eq!(db.pop("'q', batch => 9").await.ids, "m4");
}

#[tokio::test]
async fn vector_a40_a_seek_without_target() {
    let db = Db::new().await;
    db.push("q", "m1").await;
    assert_eq!(db.state("SELECT queen.seek('q', 'g')").await, "QN015");
}

#[tokio::test]
async fn vector_a41_two_groups_get_every_message_each() {
    let db = Db::new().await;
    db.push("q", "m1 m2").await;
    for group in ["g1", "g2"] {
        assert_eq!(db.pop(&format!("'q', '{group}', batch => 9, subscription_mode => 'all'")).await.ids, "m1 m2");
    }
}

#[tokio::test]
async fn vector_a42_two_of_three_partitions_under_one_lease() {
    let db = Db::new().await;
    for partition in ["p1", "p2", "p3"] {
        db.push_to("q", partition, partition).await;
    }
    let batch = db.pop("'q', batch => 10, max_partitions => 2").await;
    let claimed: Vec<&str> = batch.partitions.split(' ').collect();
    assert_eq!(claimed.len(), 2);
    assert_eq!(
        db.rows("SELECT count(*), count(DISTINCT lease_id) FROM queen.cursor WHERE lease_id IS NOT NULL").await,
        "2|1"
    );
    // One is settled: only that one is free.
    assert_eq!(db.ack(&batch, claimed[0], "retry").await, "ok released");
    let next = db.pop("'q', batch => 10, max_partitions => 0").await;
    let mut ids: Vec<&str> = next.ids.split(' ').collect();
    ids.sort_unstable();
    let mut wanted = vec![claimed[0]];
    wanted.extend(["p1", "p2", "p3"].iter().filter(|p| !claimed.contains(p)));
    wanted.sort_unstable();
    assert_eq!(ids, wanted);
}

#[tokio::test]
async fn vector_a44_discovery_without_filter() {
    assert_eq!(Db::new().await.state("SELECT queen.pop_matching_json()").await, "22023");
}

#[tokio::test]
async fn vector_a46_a_delayed_message() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 2}"#).await;
    db.push("q", "m1").await;
    assert_eq!(db.pop("'q'").await.ids, "");
    db.run("SELECT pg_sleep(2.05)").await;
    assert_eq!(db.pop("'q'").await.ids, "m1");
}

#[tokio::test]
async fn vector_a36_an_id_that_is_none_is_gone_or_refused_by_its_type() {
    let db = Db::new().await;
    assert_eq!(db.rows("SELECT queen.dlq_move_v1('0190aaaa-0000-7000-8000-00000000000f') ->> 'result'").await, "gone");
    assert_eq!(db.state("SELECT queen.dlq_move_v1('not-a-uuid')").await, "22P02");
    let verdict = db
        .rows(&format!(
            "SELECT {} FROM queen.ack_batch('[{{\"transactionId\":\"m1\",\"partitionId\":\"not-a-uuid\"}}]') a",
            verdict_columns("a")
        ))
        .await;
    assert_eq!(verdict, "no: partitionId is not a UUID");
}
