//! Where a group starts, and that this is written down once.

use crate::support::Db;

#[tokio::test]
async fn a_named_group_starts_with_what_comes_after_it_unless_told_otherwise() {
    let db = Db::new().await;
    db.push("q", "old").await;
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "");
    db.push("q", "a b").await;
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "a b");
}

#[tokio::test]
async fn mode_all_starts_at_the_log_start() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    assert_eq!(db.pop("'q', 'g', batch => 9, subscription_mode => 'all'").await.ids, "a b");
}

#[tokio::test]
async fn every_spelling_of_new_is_new_and_case_and_blanks_do_not_count() {
    let db = Db::new().await;
    db.push("q", "old").await;
    for (n, mode) in ["new", "new-only", "new_only", "newonly", " NEW "].iter().enumerate() {
        let pop = format!("'q', 'g{n}', subscription_mode => '{mode}'");
        assert_eq!(db.pop(&pop).await.ids, "", "{mode}");
    }
    assert_eq!(db.pop("'q', 'all', subscription_mode => ' All '").await.ids, "old");
}

#[tokio::test]
async fn an_unknown_mode_and_an_unreadable_time_are_refused_and_subscribe_nobody() {
    let db = Db::new().await;
    db.push("q", "a").await;
    for (argument, state) in [
        ("subscription_mode => 'everything'", "22023"),
        ("subscription_mode => ''", "22023"),
        ("subscription_from => 'yesterdayish'", "22007"),
        ("subscription_from => '2026-13-45'", "22007"),
        ("subscription_from => ''", "22007"),
    ] {
        for call in [
            format!("queen.pop('q', 'g', {argument})"),
            format!("queen.pop('q', 'g', partition => 'Default', {argument})"),
            format!("queen.pop_matching('', consumer_group => 'g', {argument})"),
            format!("queen.pop('unknown', 'g', {argument})"),
        ] {
            assert_eq!(db.state(&format!("SELECT * FROM {call}")).await, state, "{call}");
        }
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.subscription").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "1");
}

/// Group-less pops passed over a mode or time that cannot be read.
#[tokio::test]
async fn what_cannot_be_read_is_refused_in_queue_mode_too() {
    let db = Db::new().await;
    db.push("q", "a").await;
    let state = db.state("SELECT * FROM queen.pop('q', subscription_from => 'yesterdayish')").await;
    assert_eq!(state, "22007");
    let state = db.state("SELECT * FROM queen.pop('q', subscription_mode => 'everything')").await;
    assert_eq!(state, "22023");
}

#[tokio::test]
async fn queue_mode_starts_at_the_log_start_whatever_is_asked_for() {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let batch = db.pop("'q', batch => 9, subscription_mode => 'new', subscription_from => 'now'").await;
    assert_eq!(batch.ids, "a b");
    assert_eq!(batch.group, "__QUEUE_MODE__");
    db.push("r", "c").await;
    assert_eq!(db.pop("'r', NULL, partition => 'Default', subscription_mode => 'new'").await.ids, "c");
}

#[tokio::test]
async fn a_time_starts_with_the_first_segment_stored_at_or_after_it() {
    let db = Db::new().await;
    for ids in ["a b", "c d", "e"] {
        db.push("q", ids).await;
    }
    db.run(
        "UPDATE queen.segment SET created_at = CASE base WHEN 0 THEN '2026-01-01'::timestamptz WHEN 2 THEN '2026-01-02' ELSE '2026-01-03' END;
         UPDATE queen.partition SET created_at = '2026-01-01'",
    )
    .await;
    for (n, (from, wanted)) in [
        ("2025-06-01", "a b c d e"),
        ("2026-01-01T00:00:00Z", "a b c d e"),
        ("2026-01-01 00:00:00.000001+00", "c d e"),
        ("2026-01-02T01:00:00+01:00", "c d e"),
        ("2026-01-02T00:00:00.000001Z", "e"),
        ("2026-01-04", ""),
        ("-infinity", "a b c d e"),
        ("infinity", ""),
    ]
    .iter()
    .enumerate()
    {
        for form in ["", ", partition => 'Default'"] {
            let group = format!("g{n}{}", form.len());
            // It overrides the mode.
            let batch = db
                .pop(&format!(
                    "'q', '{group}', batch => 9{form}, subscription_from => '{from}', subscription_mode => 'all'"
                ))
                .await;
            assert_eq!(batch.ids, *wanted, "{from}{form}");
        }
    }
}

#[tokio::test]
async fn from_now_is_new() {
    let db = Db::new().await;
    db.push("q", "old").await;
    for (n, from) in ["now", " NOW "].iter().enumerate() {
        let pop = format!("'q', 'g{n}', subscription_from => '{from}', subscription_mode => 'all'");
        assert_eq!(db.pop(&pop).await.ids, "", "{from}");
    }
    db.push("q", "a").await;
    assert_eq!(db.pop("'q', 'g0', batch => 9").await.ids, "a");
}

#[tokio::test]
async fn the_first_contact_is_durable_and_later_modes_change_nothing() {
    let db = Db::new().await;
    db.push("q", "old").await;
    db.pop("'q', 'g'").await;
    let written = db.rows("SELECT subscription_mode, subscription_timestamp FROM queen.consumer_groups").await;
    assert!(written.starts_with("new|2"), "{written}");
    for argument in ["subscription_mode => 'all'", "subscription_from => '2020-01-01'"] {
        assert_eq!(db.pop(&format!("'q', 'g', {argument}")).await.ids, "");
        let again = db.rows("SELECT subscription_mode, subscription_timestamp FROM queen.consumer_groups").await;
        assert_eq!(again, written);
    }
}

#[tokio::test]
async fn partitions_created_later_are_read_from_their_start_whatever_the_mode() {
    let db = Db::new().await;
    db.push("q", "old").await;
    db.pop("'q', 'new'").await;
    db.pop("'q', 'late', subscription_from => '2020-01-01'").await;
    db.push_to("q", "later", "a b").await;
    for group in ["new", "late"] {
        let batch = db.pop(&format!("'q', '{group}', batch => 9, partition => 'later'")).await;
        assert_eq!(batch.ids, "a b", "{group}");
    }
    db.push_to("q", "last", "c").await;
    assert_eq!(db.pop("'q', 'new', batch => 9, max_partitions => 0").await.ids, "c");
}

#[tokio::test]
async fn a_pop_that_found_nothing_has_subscribed_the_group() {
    let db = Db::new().await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    db.push("q", "a").await;
    db.push_to("q", "p", "b").await;
    let batch = db.pop("'q', 'g', batch => 9, max_partitions => 0").await;
    let mut ids: Vec<&str> = batch.ids.split(' ').collect();
    ids.sort_unstable();
    assert_eq!(ids, ["a", "b"]);
}

#[tokio::test]
async fn a_pinned_pop_uses_its_own_intent_and_the_stored_one_where_there_is_one() {
    let db = Db::new().await;
    db.push_to("q", "p1", "a").await;
    db.push_to("q", "p2", "b").await;
    assert_eq!(db.pop("'q', 'fresh', partition => 'p1', subscription_mode => 'all'").await.ids, "a");
    assert_eq!(db.pop("'q', 'other', partition => 'p1'").await.ids, "", "new is the default");
    // A stored subscription wins.
    db.pop("'q', 'stored'").await;
    assert_eq!(db.pop("'q', 'stored', partition => 'p1', subscription_mode => 'all'").await.ids, "");
}

#[tokio::test]
async fn the_default_mode_is_a_setting() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.run("SET queen.default_subscription_mode = 'all'").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "a");
    assert_eq!(db.pop("'q', 'h', subscription_mode => 'new'").await.ids, "");
    db.run("SET queen.default_subscription_mode = 'new'").await;
    assert_eq!(db.pop("'q', 'i'").await.ids, "");
}

#[tokio::test]
async fn a_rolled_back_first_contact_subscribes_nobody() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.run("BEGIN; SELECT * FROM queen.pop('q', 'g'); ROLLBACK").await;
    assert_eq!(db.rows("SELECT count(*) FROM queen.subscription").await, "0");
    assert_eq!(db.pop("'q', 'g', subscription_mode => 'all'").await.ids, "a");
}

#[tokio::test]
async fn a_group_of_many_partitions_gets_them_all_once() {
    let db = Db::new().await;
    db.run("SELECT count(*) FROM generate_series(1, 700) n CROSS JOIN queen.push('q', '1', partition => 'p' || n)")
        .await;
    db.pop("'q', 'g', subscription_mode => 'all', auto_ack => true").await;
    let mut total = 1;
    loop {
        let n = db
            .rows("SELECT count(*) FROM queen.pop('q', 'g', batch => 100, max_partitions => 0, auto_ack => true)")
            .await;
        if n == "0" {
            break;
        }
        total += n.parse::<i32>().unwrap();
    }
    assert_eq!(total, 700);
}
