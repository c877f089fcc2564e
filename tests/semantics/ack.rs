//! Settling: what each acknowledgment does to cursor, lease and retry budget.

use crate::support::{ALREADY, Batch, Db, INVALID_LEASE, NO_LEASE, UNRESOLVABLE};

const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// A queue `q` with messages a b c d, all leased.
async fn leased(db: &Db) -> Batch {
    db.push("q", "a b c d").await;
    let batch = db.pop("'q', batch => 4").await;
    assert_eq!(batch.ids, "a b c d");
    batch
}

#[tokio::test]
async fn a_lease_id_that_is_not_the_live_one_moves_nothing_whatever_the_status() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    let foreign = "0190aaaa-0000-7000-8000-00000000000f";
    for status in ["completed", "failed", "retry", "dlq"] {
        let verdict = db.ack_with(&batch, "d", status, foreign, "NULL").await;
        assert_eq!(verdict, INVALID_LEASE, "{status}");
    }
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|t");
    assert_eq!(db.ack(&batch, "d", "completed").await, "ok released", "the lease was untouched");
    // Not even a noop, when the lease that is given is over.
    assert_eq!(db.ack(&batch, "d", "completed").await, INVALID_LEASE);
}

#[tokio::test]
async fn an_expired_lease_id_is_refused_even_when_nobody_took_over() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    db.expire().await;
    for status in ["completed", "failed", "retry", "dlq"] {
        assert_eq!(db.ack(&batch, "a", status).await, INVALID_LEASE, "{status}");
    }
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|t");
}

#[tokio::test]
async fn without_lease_id_one_may_complete_under_anothers_live_lease_and_nothing_else() {
    let db = Db::new().await;
    db.configure("q", r#"{"retryLimit": 0}"#).await;
    let batch = leased(&db).await;
    for status in ["failed", "retry", "dlq", "nonsense"] {
        assert_eq!(db.ack_unleased(&batch, "b", status).await, INVALID_LEASE, "{status}");
    }
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|t");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0");
    assert_eq!(db.ack_unleased(&batch, "b", "completed").await, "ok");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "1|0|t", "and the lease stays");
    assert_eq!(db.ack(&batch, "d", "completed").await, "ok released");
}

#[tokio::test]
async fn without_lease_id_a_completion_never_skips_a_failure_of_the_same_call() {
    let db = Db::new().await;
    let mut batch = leased(&db).await;
    batch.lease = String::new();
    let verdicts = db.ack_all(&batch, &[("b", "failed"), ("a", "completed"), ("d", "completed")]).await;
    assert_eq!(verdicts, format!("{INVALID_LEASE}\nok\nok"));
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "0|0|t");
}

#[tokio::test]
async fn a_failure_without_lease_id_on_an_expired_lease_counts_as_its_holders() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    db.expire().await;
    assert_eq!(db.ack_unleased(&batch, "b", "failed").await, "ok released");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|1|f");
    db.pop("'q', batch => 4").await;
    db.expire().await;
    assert_eq!(db.ack_unleased(&batch, "b", "dlq").await, "ok released dlq");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "1|0|f");
}

#[tokio::test]
async fn a_failure_without_any_lease_is_told_so_and_a_completion_may_move_to_any_stored_offset() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    db.push("q", "e f").await;
    db.run(&format!("SELECT queen.release('{}')", batch.lease)).await;
    for status in ["failed", "retry", "dlq"] {
        assert_eq!(db.ack_unleased(&batch, "a", status).await, NO_LEASE, "{status}");
    }
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|f");
    assert_eq!(db.ack_unleased(&batch, "e", "completed").await, "ok", "beyond what was leased");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "f");
}

#[tokio::test]
async fn below_the_cursor_a_completion_is_a_noop_and_a_failure_an_error() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    assert_eq!(db.ack(&batch, "b", "completed").await, "ok");
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok noop");
    assert_eq!(db.ack_unleased(&batch, "b", "success").await, "ok noop");
    for status in ["failed", "retry", "dlq"] {
        assert_eq!(db.ack(&batch, "a", status).await, ALREADY, "{status}");
    }
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "1|0|t");
}

#[tokio::test]
async fn an_id_that_is_nowhere_is_unresolvable_and_the_cursor_untouched() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    db.push("q", "beyond").await;
    for id in ["never pushed", "beyond", "", "0190aaaa-0000-7000-8000-00000000000f"] {
        for status in ["completed", "failed", "retry", "dlq"] {
            assert_eq!(db.ack(&batch, id, status).await, UNRESOLVABLE, "{id} {status}");
        }
    }
    assert_eq!(db.ack_unleased(&batch, "beyond", "completed").await, UNRESOLVABLE);
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "-1|0|t");
}

#[tokio::test]
async fn a_group_that_never_popped_and_a_partition_that_is_not_there_are_told_so() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    let stranger = Batch { group: "nobody".to_owned(), ..batch.clone() };
    for status in ["completed", "failed"] {
        assert_eq!(db.ack_unleased(&stranger, "a", status).await, "no: consumer not found");
        let lost = Batch { partition_id: "0190aaaa-0000-7000-8000-00000000000f".to_owned(), ..batch.clone() };
        assert_eq!(db.ack(&lost, "a", status).await, "no: partition not found");
    }
    // A group that is subscribed but has had nothing of this partition.
    db.pop("'q', 'subscribed'").await;
    let subscribed = Batch { group: "subscribed".to_owned(), ..batch };
    assert_eq!(db.ack_unleased(&subscribed, "a", "completed").await, "no: consumer not found");
}

#[tokio::test]
async fn of_an_id_that_occurs_twice_the_lowest_inside_the_lease_counts() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": 0}"#).await;
    for ids in ["a", "b", "a", "c", "a"] {
        db.push("q", ids).await;
    }
    let first = db.pop("'q', batch => 2").await;
    assert_eq!(db.ack(&first, "b", "completed").await, "ok released");
    // a is below the cursor, and twice inside the lease: inside wins, and there the lower one.
    let batch = db.pop("'q', batch => 3").await;
    assert_eq!(batch.ids, "a c a");
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "2|0|t");
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "4|0|f");
}

#[tokio::test]
async fn completing_a_message_completes_those_before_it() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    assert_eq!(db.ack(&batch, "c", "completed").await, "ok");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "2|0|t");
    assert_eq!(db.ack(&batch, "d", "completed").await, "ok released");
}

#[tokio::test]
async fn the_lowest_failure_decides_and_a_success_above_it_moves_nothing() {
    let db = Db::new().await;
    let batch = leased(&db).await;
    let verdicts = db.ack_all(&batch, &[("d", "completed"), ("c", "dlq"), ("a", "completed"), ("b", "retry")]).await;
    assert_eq!(verdicts, "ok released\nok released\nok released\nok released");
    assert_eq!(db.cursor("q", QUEUE_MODE).await, "0|0|f");
    assert_eq!(db.rows("SELECT count(*) FROM queen.dlq()").await, "0", "c was above b");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "b c d");
}

#[tokio::test]
async fn of_several_signals_for_one_message_dlq_beats_failed_beats_retry() {
    for (signals, cursor) in [
        (["retry", "failed"], "-1|1|f"),
        (["failed", "retry"], "-1|1|f"),
        (["retry", "dlq"], "0|0|f"),
        (["dlq", "failed"], "0|0|f"),
        (["completed", "retry"], "-1|0|f"),
        (["failed", "completed"], "-1|1|f"),
    ] {
        let db = Db::new().await;
        let batch = leased(&db).await;
        let items: Vec<(&str, &str)> = signals.iter().map(|s| ("a", *s)).collect();
        let verdicts = db.ack_all(&batch, &items).await;
        let one = if cursor.starts_with('0') { "ok released dlq" } else { "ok released" };
        assert_eq!(verdicts, format!("{one}\n{one}"), "items with one id share its flags: {signals:?}");
        assert_eq!(db.cursor("q", QUEUE_MODE).await, cursor, "{signals:?}");
    }
}

#[tokio::test]
async fn groups_do_not_see_each_others_cursors_leases_or_budgets() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let one = db.pop("'q', 'one', batch => 2, subscription_mode => 'all'").await;
    let two = db.pop("'q', 'two', batch => 2, subscription_mode => 'all'").await;
    assert_eq!((one.ids.as_str(), two.ids.as_str()), ("a b", "a b"));
    assert_eq!(db.ack(&one, "a", "failed").await, "ok released");
    assert_eq!(db.cursor("q", "two").await, "-1|0|t");
    assert_eq!(db.ack(&two, "b", "completed").await, "ok released");
    assert_eq!(db.cursor("q", "one").await, "-1|1|f");
    // The lease of one group is nothing to another.
    let one = db.pop("'q', 'one', batch => 2").await;
    let mixed = Batch { group: "two".to_owned(), ..one };
    assert_eq!(db.ack(&mixed, "a", "completed").await, INVALID_LEASE);
}

#[tokio::test]
async fn acknowledging_in_one_partition_leaves_the_lease_of_the_others_alone() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a b").await;
    db.push_to("q", "p2", "c d").await;
    let batch = db.pop("'q', batch => 9, max_partitions => 0").await;
    let p2 = Batch { partition_id: db.partition_id("q", "p2").await, ..batch.clone() };
    let p1 = Batch { partition_id: db.partition_id("q", "p1").await, ..batch };
    assert_eq!(db.ack(&p2, "c", "failed").await, "ok released");
    assert_eq!(db.ack(&p1, "a", "completed").await, "ok");
    assert_eq!(db.ack(&p1, "b", "completed").await, "ok released");
    assert_eq!(db.pop("'q', batch => 9").await.ids, "c d");
}
