//! Traces: what consumers note about messages.

use crate::support::Db;

const OTHER: &str = "00000000-0000-0000-0000-0000000000aa";
const NOBODY: &str = "0190aaaa-0000-7000-8000-00000000000f";

/// A database with queue `q`, and the id of its one partition.
async fn noted_queue() -> (Db, String) {
    let db = Db::new().await;
    db.push("q", "a b").await;
    let id = db.partition_id("q", "Default").await;
    (db, id)
}

#[tokio::test]
async fn notes_on_a_message_come_oldest_first_and_byte_for_byte() {
    let (db, id) = noted_queue().await;
    db.run(&format!("SELECT queen.record_trace('{id}', 'a', '{{\"z\":  1.50, \"a\": \"\\u0000\"}}')")).await;
    db.run(&format!("SELECT queen.record_trace('{id}', 'a', 'null', 'g', 'done', ARRAY['two', 'one', 'two'])")).await;
    db.run(&format!("SELECT queen.record_trace('{id}', 'b', '1')")).await;
    let notes = format!(
        "SELECT queue, partition, transaction_id, consumer_group, event_type, data, trace_names FROM queen.traces('{id}', 'a')"
    );
    assert_eq!(
        db.rows(&notes).await,
        "q|Default|a|__QUEUE_MODE__|info|{\"z\":  1.50, \"a\": \"\\u0000\"}|{}\nq|Default|a|g|done|null|{two,one}",
        "each name once"
    );
    let long = "x".repeat(65_535);
    db.run(&format!("SELECT queen.record_trace('{id}', '{long}', '2')")).await;
    assert_eq!(
        db.rows(&format!("SELECT data FROM queen.traces('{id}', '{long}')")).await,
        "2",
        "a message need not be there, and its id may be long"
    );
}

#[tokio::test]
async fn a_name_gathers_notes_newest_first_and_pages_through_them() {
    let (db, id) = noted_queue().await;
    for n in 0..5 {
        let message = if n % 2 == 0 { "a" } else { "b" };
        db.run(&format!("SELECT queen.record_trace('{id}', '{message}', '{n}', trace_names => ARRAY['all', 'n{n}'])"))
            .await;
    }
    let page = |arguments: &str| format!("SELECT string_agg(data::text, ' ') FROM queen.traces_by_name({arguments})");
    for (arguments, wanted) in [
        ("'all'", "4 3 2 1 0"),
        ("'all', 2", "4 3"),
        ("'all', 2, 1", "3 2"),
        ("'all', 0", "~"),
        ("'all', skip => 5", "~"),
        ("'n3'", "3"),
        ("'ALL'", "~"),
        ("'al'", "~"),
    ] {
        assert_eq!(db.rows(&page(arguments)).await, wanted, "{arguments}");
    }
    assert_eq!(
        db.rows("SELECT trace_name, trace_count, message_count, total FROM queen.trace_names(3)").await,
        "all|5|2|6\nn4|1|1|6\nn3|1|1|6",
        "the name used last first; names made at once by bytes"
    );
    assert_eq!(db.rows("SELECT trace_name, total FROM queen.trace_names(2, 4)").await, "n1|6\nn0|6");
    assert_eq!(db.rows("SELECT trace_name, trace_count, total FROM queen.trace_names(name => 'n2')").await, "n2|1|1");
    assert_eq!(db.rows("SELECT * FROM queen.trace_names(name => 'n')").await, "");
}

#[tokio::test]
async fn a_foreign_partition_is_refused_like_an_unknown_one() {
    let (db, id) = noted_queue().await;
    let note = |id: &str| format!("SELECT queen.record_trace('{id}', 'a', '1', trace_names => '{{n}}')");
    db.run(&note(&id)).await;
    let unknown = db.error(&note(NOBODY)).await;
    let theirs = db.session().await;
    theirs.run(&format!("SET queen.tenant = '{OTHER}'")).await;
    assert_eq!(theirs.error(&note(&id)).await, unknown);
    assert_eq!(unknown.0, "QN014");
    assert_eq!(theirs.rows(&format!("SELECT * FROM queen.traces('{id}', 'a')")).await, "");
    assert_eq!(theirs.rows("SELECT queen.delete_traces('-1 day')").await, "0");
    assert_eq!(db.rows("SELECT count(*) FROM queen.trace_names()").await, "1");
}

#[tokio::test]
async fn notes_belong_to_the_transaction_and_outlive_the_queue() {
    let (db, id) = noted_queue().await;
    db.run(&format!("BEGIN; SELECT queen.record_trace('{id}', 'a', '1', trace_names => '{{n}}'); ROLLBACK")).await;
    assert_eq!(db.rows("SELECT * FROM queen.trace_names()").await, "");
    db.run(&format!("SELECT queen.record_trace('{id}', 'a', '2', trace_names => '{{n}}')")).await;
    db.run("SELECT queen.drop_queue('q')").await;
    let kept = "q|Default|2";
    assert_eq!(db.rows(&format!("SELECT queue, partition, data FROM queen.traces('{id}', 'a')")).await, kept);
    assert_eq!(db.rows("SELECT queue, partition, data FROM queen.traces_by_name('n')").await, kept);
}

#[tokio::test]
async fn old_notes_are_deleted_with_their_names_and_young_ones_are_kept() {
    let (db, id) = noted_queue().await;
    for n in ["old", "young"] {
        db.run(&format!("SELECT queen.record_trace('{id}', 'a', '\"{n}\"', trace_names => ARRAY['both', '{n}'])"))
            .await;
    }
    db.run(
        "UPDATE queen.trace SET created_at = created_at - interval '2 days' WHERE 'old' = ANY (names);
         UPDATE queen.trace_name n SET created_at = t.created_at FROM queen.trace t WHERE t.id = n.trace_id",
    )
    .await;
    assert_eq!(db.rows("SELECT queen.delete_traces('3 days')").await, "0");
    assert_eq!(db.rows("SELECT queen.delete_traces('1 day')").await, "1");
    assert_eq!(db.rows(&format!("SELECT data FROM queen.traces('{id}', 'a')")).await, "\"young\"");
    assert_eq!(db.rows("SELECT trace_name, trace_count FROM queen.trace_names() ORDER BY 1").await, "both|1\nyoung|1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.trace_name").await, "2");
}

#[tokio::test]
async fn bad_arguments_are_refused_and_nothing_is_noted() {
    let (db, id) = noted_queue().await;
    let long = "x".repeat(256);
    for (arguments, state) in [
        ("NULL, 'a', '1'".to_owned(), "22023"),
        (format!("'{id}', NULL, '1'"), "22023"),
        (format!("'{id}', 'a', NULL"), "22023"),
        (format!("'{id}', '', '1'"), "QN004"),
        (format!("'{id}', 'a', '1', ' '"), "QN001"),
        (format!("'{id}', 'a', '1', event_type => ''"), "QN001"),
        (format!("'{id}', 'a', '1', event_type => '{long}'"), "QN001"),
        (format!("'{id}', 'a', '1', trace_names => ARRAY['n', NULL]"), "22023"),
        (format!("'{id}', 'a', '1', trace_names => ARRAY['n', '']"), "QN001"),
        (format!("'{id}', 'a', '1', trace_names => ARRAY['{long}']"), "QN001"),
        (format!("'{id}', 'a', '1', trace_names => ARRAY[['n'], ['m']]"), "22023"),
    ] {
        assert_eq!(db.state(&format!("SELECT queen.record_trace({arguments})")).await, state, "{arguments:.80}");
    }
    db.run("SET queen.max_payload_bytes = 4").await;
    assert_eq!(db.state(&format!("SELECT queen.record_trace('{id}', 'a', '\"123\"')")).await, "QN003");
    for bad in [
        "queen.traces(NULL, 'a')".to_owned(),
        format!("queen.traces('{id}', NULL)"),
        "queen.traces_by_name(NULL)".to_owned(),
        "queen.traces_by_name('n', -1)".to_owned(),
        "queen.traces_by_name('n', skip => -1)".to_owned(),
        "queen.trace_names(-1)".to_owned(),
        "queen.trace_names(skip => -1)".to_owned(),
        "queen.delete_traces(NULL)".to_owned(),
    ] {
        assert_eq!(db.state(&format!("SELECT * FROM {bad}")).await, "22023", "{bad}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.trace").await, "0");
}
