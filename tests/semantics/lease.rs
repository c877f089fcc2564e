//! Whole leases: complete, give back, hold for longer; and nack.

use crate::support::{ALREADY, Db, INVALID_LEASE, UNRESOLVABLE, verdict_columns};

const NOBODY: &str = "0190aaaa-0000-7000-8000-00000000000f";

async fn of_two_partitions(db: &Db) -> crate::support::Batch {
    db.push_to("q", "p1", "a b").await;
    db.push_to("q", "p2", "c").await;
    let batch = db.pop("'q', batch => 9, max_partitions => 0").await;
    assert_eq!(batch.partitions, "p1 p2");
    batch
}

#[tokio::test]
async fn ack_lease_completes_everything_in_all_partitions_and_counts_it() {
    let db = Db::new().await;
    let batch = of_two_partitions(&db).await;
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", batch.lease)).await, "3");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "1|0|f\n0|0|f");
}

#[tokio::test]
async fn release_gives_back_all_partitions_at_once_and_charges_nothing() {
    let db = Db::new().await;
    let batch = of_two_partitions(&db).await;
    assert_eq!(db.rows(&format!("SELECT queen.release('{}')", batch.lease)).await, "2");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|0|f\n-1|0|f");
    let again = db.pop("'q', batch => 9, max_partitions => 0").await;
    let mut ids: Vec<&str> = again.ids.split(' ').collect();
    ids.sort_unstable();
    assert_eq!((ids.join(" "), again.attempt), ("a b c".to_owned(), 2));
}

#[tokio::test]
async fn release_keeps_what_was_completed() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = db.pop("'q', batch => 2").await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok");
    assert_eq!(db.rows(&format!("SELECT queen.release('{}')", batch.lease)).await, "1");
    assert_eq!(db.pop("'q', batch => 2").await.ids, "b");
}

#[tokio::test]
async fn on_a_dead_lease_ack_lease_and_release_answer_0_renew_null_and_nack_a_refusal() {
    let db = Db::new().await;
    let batch = of_two_partitions(&db).await;
    db.expire().await;
    let taken = db.pop("'q', partition => 'p1', batch => 9").await;
    for dead in [batch.lease.as_str(), NOBODY] {
        assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{dead}')")).await, "0");
        assert_eq!(db.rows(&format!("SELECT queen.release('{dead}')")).await, "0");
        assert_eq!(db.rows(&format!("SELECT queen.renew_lease('{dead}')")).await, "~");
        for id in ["a", "c", "nowhere"] {
            let verdict =
                db.rows(&format!("SELECT {} FROM queen.nack('{dead}', '{id}') a", verdict_columns("a"))).await;
            assert_eq!(verdict, INVALID_LEASE, "{dead} {id}");
        }
    }
    assert_eq!(db.ack(&taken, "b", "completed").await, "ok released", "the new holder lost nothing");
}

#[tokio::test]
async fn renew_lengthens_all_partitions_and_answers_the_new_end() {
    let db = Db::new().await;
    let batch = of_two_partitions(&db).await;
    let answer = db
        .rows(&format!("SELECT renewed BETWEEN now() + interval '1000 s' AND clock_timestamp() + interval '1000 s' FROM queen.renew_lease('{}', 1000) renewed", batch.lease))
        .await;
    assert_eq!(answer, "t");
    let ends = db
        .rows("SELECT count(*), bool_and(expires_at > now() + interval '900 s') FROM queen.cursor WHERE lease_id IS NOT NULL")
        .await;
    assert_eq!(ends, "2|t");
    assert_eq!(db.pop("'q'").await.ids, "");
}

#[tokio::test]
async fn renew_never_shortens() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', lease_seconds => 5000").await;
    let end = db.rows("SELECT expires_at FROM queen.cursor").await;
    assert_eq!(db.rows(&format!("SELECT queen.renew_lease('{}', 1)", batch.lease)).await, end);
    assert_eq!(db.rows("SELECT expires_at FROM queen.cursor").await, end);
}

#[tokio::test]
async fn renew_answers_the_earliest_end_of_the_partitions() {
    let db = Db::new().await;
    let batch = of_two_partitions(&db).await;
    db.run("UPDATE queen.cursor SET expires_at = expires_at + interval '5000 s' WHERE pid = (SELECT min(pid) FROM queen.partition)").await;
    let answer = db
        .rows(&format!(
            "SELECT renewed < now() + interval '200 s' FROM queen.renew_lease('{}', 100) renewed",
            batch.lease
        ))
        .await;
    assert_eq!(answer, "t");
}

#[tokio::test]
async fn renew_takes_sixty_seconds_by_default_and_one_second_to_seven_days() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', lease_seconds => 1").await;
    let default = db
        .rows(&format!("SELECT renewed BETWEEN now() + interval '60 s' AND clock_timestamp() + interval '60 s' FROM queen.renew_lease('{}') renewed", batch.lease))
        .await;
    assert_eq!(default, "t");
    for seconds in ["0", "-1", "604801"] {
        let state = db.state(&format!("SELECT queen.renew_lease('{}', {seconds})", batch.lease)).await;
        assert_eq!(state, "22023", "{seconds}");
    }
    assert_ne!(db.rows(&format!("SELECT queen.renew_lease('{}', 604800)", batch.lease)).await, "~");
}

#[tokio::test]
async fn a_renewed_lease_is_found_when_it_ends_and_not_before() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', lease_seconds => 1").await;
    db.run(&format!("SELECT queen.renew_lease('{}', 2); SELECT pg_sleep(1.05)", batch.lease)).await;
    assert_eq!(db.pop("'q'").await.ids, "");
    db.run("SELECT pg_sleep(1.05)").await;
    assert_eq!(db.pop("'q'").await.ids, "a");
}

#[tokio::test]
async fn a_nack_of_an_id_that_the_lease_holds_in_several_partitions_is_refused() {
    let db = Db::new().await;
    db.push_to("q", "p1", "same a").await;
    db.push_to("q", "p2", "same b").await;
    let batch = db.pop("'q', batch => 9, max_partitions => 0").await;
    let (state, message) = db.error(&format!("SELECT queen.nack('{}', 'same')", batch.lease)).await;
    assert_eq!(state, "QN017");
    assert!(message.contains("same") && message.contains('2'), "{message}");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|0|t\n-1|0|t");
    // One that is in one of them is fine, and the other partition keeps its lease.
    let verdict = db.rows(&format!("SELECT {} FROM queen.nack('{}', 'b') a", verdict_columns("a"), batch.lease)).await;
    assert_eq!(verdict, "ok released");
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|0|t\n-1|1|f");
    // And then the other one is no longer ambiguous.
    let verdict = db
        .rows(&format!("SELECT {} FROM queen.nack('{}', 'same', 'boom', 'dlq') a", verdict_columns("a"), batch.lease))
        .await;
    assert_eq!(verdict, "ok released dlq");
}

/// Under a live lease, an id that was done or not there was told that the lease is over.
#[tokio::test]
async fn a_nack_of_an_id_that_the_lease_does_not_hold_is_told_why_as_ack_tells_it() {
    let db = Db::new().await;
    let batch = of_two_partitions(&db).await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok");
    db.push_to("q", "p1", "beyond").await;
    for (id, status, wanted) in [
        ("a", "failed", ALREADY),
        ("a", "dlq", ALREADY),
        ("a", "completed", "ok noop"),
        ("nowhere", "failed", UNRESOLVABLE),
        ("beyond", "retry", UNRESOLVABLE),
        ("nowhere", "completed", UNRESOLVABLE),
    ] {
        let sql =
            format!("SELECT {} FROM queen.nack('{}', '{id}', NULL, '{status}') a", verdict_columns("a"), batch.lease);
        assert_eq!(db.rows(&sql).await, wanted, "{id} {status}");
    }
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "0|0|t\n-1|0|t");
}

#[tokio::test]
async fn nack_is_failed_unless_it_says_otherwise() {
    let db = Db::new().await;
    db.push("q", "a").await;
    for (status, cursor) in [("'failed'", "-1|1|f"), ("NULL", "-1|2|f"), ("'retry'", "-1|2|f")] {
        let batch = db.pop("'q'").await;
        db.run(&format!("SELECT queen.nack('{}', 'a', status => {status})", batch.lease)).await;
        assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, cursor, "{status}");
    }
    let batch = db.pop("'q'").await;
    db.run(&format!("SELECT queen.nack('{}', 'a')", batch.lease)).await;
    assert_eq!(db.cursor("q", "__QUEUE_MODE__").await, "-1|3|f");
}
