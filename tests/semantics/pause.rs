//! Groups that are paused, by an operator or by themselves.

use crate::support::{Batch, Db, lit};

async fn popped(db: &Db, group: &str) -> Batch {
    db.pop(&format!("'q', '{group}', subscription_mode => 'all'")).await
}

/// Pushes a message and lets it become a dead letter with this error.
async fn dead_letter(db: &Db, id: &str, error: &str) {
    db.push("q", id).await;
    let batch = popped(db, "g").await;
    assert_eq!(batch.ids, id);
    assert_eq!(db.ack_with(&batch, id, "dlq", &batch.lease, &lit(error)).await, "ok released dlq");
}

async fn paused(db: &Db, group: &str) -> String {
    db.rows(&format!(
        "SELECT paused_at IS NOT NULL, pause_reason FROM queen.consumer_groups WHERE queue = 'q' AND consumer_group = '{group}'"
    ))
    .await
}

const AUTO: &str = r#"{"autoPauseCount": 3, "autoPauseSeconds": 60}"#;

#[tokio::test]
async fn the_pops_of_a_paused_group_bring_nothing_and_charge_nothing_until_it_is_resumed() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = popped(&db, "g").await;
    assert_eq!(db.ack(&batch, "a", "failed").await, "ok released");
    assert_eq!(paused(&db, "g").await, "f|~");
    assert_eq!(db.rows("SELECT queen.pause_group('q', 'g', 'the provider is down')").await, "t");
    assert_eq!(paused(&db, "g").await, "t|the provider is down");
    for arguments in ["'q', 'g'", "'q', 'g', partition => 'Default'", "'q', 'g', auto_ack => true"] {
        assert_eq!(db.pop(arguments).await.ids, "", "{arguments}");
    }
    db.configure("q", r#"{"namespace": "n"}"#).await;
    assert_eq!(db.popped("queen.pop_matching('n', consumer_group => 'g')").await.ids, "");
    assert_eq!(db.rows("CALL queen.wait('q', 'g', 0)").await, "f");
    assert_eq!(db.rows(r#"SELECT queen.due_json('[["q", "g"], ["q", "g", "Default"]]')"#).await, "[null,null]");
    assert_eq!(db.cursor("q", "g").await, "-1|1|f");
    assert_eq!(popped(&db, "h").await.ids, "a", "another group goes on");
    assert_eq!(db.rows("SELECT queen.resume_group('q', 'g')").await, "t");
    assert_eq!(paused(&db, "g").await, "f|~");
    assert_eq!(db.rows("CALL queen.wait('q', 'g', 0)").await, "t");
    let batch = popped(&db, "g").await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("a", 2));
}

/// An append that passes the group's row while it is replaced leaves no hint.
#[tokio::test]
async fn what_was_pushed_during_a_pause_without_a_hint_is_found_after_it() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let batch = popped(&db, "g").await;
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
    db.run("SELECT queen.pause_group('q', 'g')").await;
    db.push("q", "b").await;
    db.run("DELETE FROM queen.ready").await;
    db.run("SELECT queen.resume_group('q', 'g')").await;
    assert_eq!(popped(&db, "g").await.ids, "b");
}

#[tokio::test]
async fn leases_under_way_are_settled_while_the_group_is_paused() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = popped(&db, "g").await;
    db.run("SELECT queen.pause_group('q', 'g')").await;
    assert_ne!(db.rows(&format!("SELECT queen.renew_lease('{}')", batch.lease)).await, "~");
    assert_eq!(db.ack(&batch, "a", "completed").await, "ok released");
    assert_eq!(popped(&db, "g").await.ids, "");
    db.run("SELECT queen.resume_group('q', 'g')").await;
    assert_eq!(popped(&db, "g").await.ids, "b");
}

#[tokio::test]
async fn pausing_twice_and_resuming_what_runs_changes_nothing() {
    let db = Db::new().await;
    db.push("q", "a").await;
    assert_eq!(db.rows("SELECT queen.pause_group('q', 'g')").await, "f", "it has never popped");
    popped(&db, "g").await;
    assert_eq!(db.rows("SELECT queen.resume_group('q', 'g')").await, "f");
    assert_eq!(db.rows("SELECT queen.pause_group('q', 'g', 'first')").await, "t");
    assert_eq!(db.rows("SELECT queen.pause_group('q', 'g', 'second')").await, "f");
    assert_eq!(paused(&db, "g").await, "t|first");
    assert_eq!(db.state("SELECT queen.pause_group('nowhere', 'g')").await, "QN013");
    assert_eq!(db.state("SELECT queen.resume_group('nowhere', 'g')").await, "QN013");
    assert_eq!(db.state("SELECT queen.pause_group('q', '')").await, "QN001");
    assert_eq!(db.state("SELECT queen.pause_group('q', NULL)").await, "22023");
}

#[tokio::test]
async fn a_pause_is_of_one_queue_and_stays_whatever_else_happens_to_the_group() {
    let db = Db::new().await;
    for queue in ["q", "other"] {
        db.push(queue, "a").await;
        db.pop(&format!("'{queue}', 'g', partition => 'Default', subscription_mode => 'all'")).await;
    }
    db.expire().await;
    db.run("SELECT queen.pause_group('q', 'g', 'why')").await;
    assert_eq!(db.pop("'other', 'g'").await.ids, "a");
    // It comes to pop from any partition, is told another start, and is sought.
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    db.run("SELECT queen.set_subscription('g', '-infinity'), queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    assert_eq!(paused(&db, "g").await, "t|why");
    assert_eq!(
        db.rows("SELECT registered, mode FROM queen.subscription s JOIN queen.queue q USING (qid) WHERE q.name = 'q'")
            .await,
        "t|timestamp"
    );
    db.run("SELECT queen.resume_group('q', 'g')").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "a");
    // Who is forgotten begins anew.
    db.run("SELECT queen.pause_group('q', 'g'), queen.drop_consumer_group('g', 'q')").await;
    assert_eq!(popped(&db, "g").await.ids, "a");
}

#[tokio::test]
async fn pausing_and_resuming_are_in_the_audit() {
    let db = Db::new().await;
    db.push("q", "a").await;
    popped(&db, "g").await;
    db.run("SELECT queen.pause_group('q', 'g', 'why')").await;
    db.run("SELECT queen.pause_group('q', 'g', 'again')").await;
    db.run("SELECT queen.resume_group('q', 'g')").await;
    assert_eq!(
        db.rows("SELECT action, actor = session_user, queue, consumer_group, detail ->> 'reason' FROM queen.dlq_event ORDER BY seq").await,
        "group_paused|t|q|g|why\ngroup_resumed|t|q|g|~"
    );
}

#[tokio::test]
async fn so_many_dead_letters_of_one_cause_pause_the_group() {
    let db = Db::new().await;
    db.configure("q", AUTO).await;
    dead_letter(&db, "a", "boom").await;
    dead_letter(&db, "b", "another thing").await;
    dead_letter(&db, "c", "boom").await;
    assert_eq!(paused(&db, "g").await, "f|~");
    dead_letter(&db, "d", "boom").await;
    let reason = paused(&db, "g").await;
    assert!(reason.starts_with("t|3 dead letters with fingerprint "), "{reason}");
    db.push("q", "e").await;
    assert_eq!(popped(&db, "g").await.ids, "");
    let event = db
        .rows("SELECT action, actor, queue, consumer_group, detail ->> 'count', detail ->> 'reason' LIKE '%' || (detail ->> 'fingerprint') FROM queen.dlq_event WHERE actor = 'queen'")
        .await;
    assert_eq!(event, "group_auto_paused|queen|q|g|3|t");
    // What led to it does not count again.
    db.run("SELECT queen.resume_group('q', 'g')").await;
    let batch = popped(&db, "g").await;
    assert_eq!(db.ack_with(&batch, "e", "dlq", &batch.lease, "'boom'").await, "ok released dlq");
    assert_eq!(paused(&db, "g").await, "f|~");
}

#[tokio::test]
async fn failures_that_differ_in_numbers_and_class_only_are_one_cause_whatever_has_become_of_them() {
    let db = Db::new().await;
    db.configure("q", AUTO).await;
    dead_letter(&db, "a", "order 17 is gone").await;
    dead_letter(&db, "b", "order 18 is gone").await;
    db.run("SELECT queen.dlq_discard(ARRAY(SELECT id FROM queen.dlq()), 'obsolete', 'nobody needs them')").await;
    assert_eq!(paused(&db, "g").await, "f|~");
    db.configure("q", r#"{"deadLetterRules": [{"pattern": "is gone", "class": "poison"}]}"#).await;
    dead_letter(&db, "c", "order 19 is gone").await;
    assert!(paused(&db, "g").await.starts_with("t|3 dead letters"));
    assert_eq!(
        db.rows("SELECT count(DISTINCT fingerprint), count(DISTINCT failure_class) FROM queen.dead_letter_record")
            .await,
        "1|2"
    );
}

#[tokio::test]
async fn dead_letters_older_than_the_window_do_not_pause_the_group() {
    let db = Db::new().await;
    db.configure("q", AUTO).await;
    for id in ["a", "b"] {
        dead_letter(&db, id, "boom").await;
    }
    db.run("UPDATE queen.dead_letter_record SET failed_at = failed_at - interval '61 seconds'").await;
    dead_letter(&db, "c", "boom").await;
    dead_letter(&db, "d", "boom").await;
    assert_eq!(paused(&db, "g").await, "f|~");
    dead_letter(&db, "e", "boom").await;
    assert!(paused(&db, "g").await.starts_with("t|"));
}

#[tokio::test]
async fn messages_that_a_pop_gives_up_count_too_and_that_pop_still_delivers() {
    let db = Db::new().await;
    db.configure("q", r#"{"autoPauseCount": 2, "maxDeliveries": 1}"#).await;
    db.push("q", "a b c").await;
    db.pop("'q', 'g', batch => 2, subscription_mode => 'all'").await;
    db.expire().await;
    assert_eq!(popped(&db, "g").await.ids, "c");
    assert!(paused(&db, "g").await.starts_with("t|2 dead letters"));
}

#[tokio::test]
async fn only_dead_letters_that_are_committed_pause_the_group() {
    let db = Db::new().await;
    db.configure("q", r#"{"autoPauseCount": 1}"#).await;
    db.push("q", "a").await;
    let batch = popped(&db, "g").await;
    for undo in ["ROLLBACK", "ROLLBACK TO s; COMMIT"] {
        db.run("BEGIN; SAVEPOINT s").await;
        assert_eq!(db.ack(&batch, "a", "dlq").await, "ok released dlq");
        db.run(undo).await;
        assert_eq!(paused(&db, "g").await, "f|~");
        assert_eq!(db.rows("SELECT count(*) FROM queen.dlq_event WHERE actor = 'queen'").await, "0");
    }
    // In a transaction that does more than that, too.
    db.run("BEGIN; SELECT queen.push('other', '1')").await;
    db.ack(&batch, "a", "dlq").await;
    db.run("COMMIT").await;
    assert!(paused(&db, "g").await.starts_with("t|"));
}
