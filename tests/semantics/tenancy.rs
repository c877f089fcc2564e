//! Tenants: what is another's answers as what is not there.

use crate::support::{Batch, Db, lit};

const OTHER: &str = "00000000-0000-0000-0000-0000000000aa";
const NOBODY: &str = "0190aaaa-0000-7000-8000-00000000000f";

/// Two sessions in one database: of the default tenant and of another.
async fn two() -> (Db, Db) {
    let ours = Db::new().await;
    let theirs = ours.session().await;
    theirs.run(&format!("SET queen.tenant = '{OTHER}'")).await;
    (ours, theirs)
}

#[tokio::test]
async fn the_default_tenant_is_number_one_and_the_setting_decides() {
    let (ours, theirs) = two().await;
    assert_eq!(ours.rows("SELECT queen.current_tenant()").await, "00000000-0000-0000-0000-000000000001");
    assert_eq!(theirs.rows("SELECT queen.current_tenant()").await, OTHER);
    theirs.run("SET queen.tenant = ''").await;
    assert_eq!(theirs.rows("SELECT queen.current_tenant()").await, "00000000-0000-0000-0000-000000000001");
    theirs.run("SET queen.tenant = 'not a uuid'").await;
    for sql in [
        "SELECT queen.current_tenant()",
        "SELECT queen.push('q', '1')",
        "SELECT * FROM queen.pop('q')",
        "SELECT * FROM queen.queues",
    ] {
        assert_eq!(theirs.state(sql).await, "22P02", "{sql}");
    }
}

#[tokio::test]
async fn the_same_names_in_two_tenants_are_two_queues() {
    let (ours, theirs) = two().await;
    ours.push("q", "a b").await;
    theirs.push("q", "a").await;
    assert_eq!(ours.stored("q").await, "a b");
    assert_eq!(theirs.stored("q").await, "a", "and no duplicate");
    ours.configure("q", r#"{"retryLimit": 9}"#).await;
    assert_eq!(theirs.rows("SELECT options ->> 'retryLimit' FROM queen.queues").await, "3");
    assert_eq!(theirs.pop("'q', 'g', batch => 9, subscription_mode => 'all'").await.ids, "a");
    assert_eq!(ours.rows("SELECT count(*) FROM queen.consumer_groups").await, "0");
    assert_eq!(theirs.rows("SELECT queen.drop_queue('q')").await, "t");
    assert_eq!(ours.stored("q").await, "a b");
}

#[tokio::test]
async fn a_push_belongs_to_the_tenant_that_it_was_made_in() {
    let ours = Db::new().await;
    ours.run(&format!("BEGIN; SELECT queen.push('q', '1', transaction_id => 'a'); SET LOCAL queen.tenant = '{OTHER}'; SELECT queen.push('q', '1', transaction_id => 'b'); COMMIT")).await;
    assert_eq!(ours.stored("q").await, "a");
    ours.run(&format!("SET queen.tenant = '{OTHER}'")).await;
    assert_eq!(ours.stored("q").await, "b");
}

#[tokio::test]
async fn every_listing_and_view_shows_the_own_tenant_only() {
    let (ours, theirs) = two().await;
    ours.push("s.t", "a b").await;
    let batch = ours.pop("'s.t', 'g', subscription_mode => 'all'").await;
    ours.ack(&batch, "a", "dlq").await;
    ours.run(&format!("SELECT queen.record_trace('{}', 'a', '1', trace_names => '{{n}}')", batch.partition_id)).await;
    for sql in [
        "SELECT * FROM queen.queues",
        "SELECT * FROM queen.partitions",
        "SELECT * FROM queen.consumer_groups",
        "SELECT * FROM queen.group_partitions",
        "SELECT * FROM queen.trace_names()",
        "SELECT * FROM queen.traces_by_name('n')",
        "SELECT * FROM queen.dlq_depth",
        "SELECT * FROM queen.messages()",
        "SELECT * FROM queen.messages('s.t')",
        "SELECT * FROM queen.dlq()",
        "SELECT * FROM queen.dlq('s.t')",
        "SELECT * FROM queen.verify()",
        "SELECT * FROM queen.pop_matching('s', 't', 'g', subscription_mode => 'all')",
    ] {
        assert_eq!(theirs.rows(sql).await, "", "{sql}");
    }
    for sql in [
        "SELECT count(*) FROM queen.queues",
        "SELECT count(*) FROM queen.partitions",
        "SELECT count(*) FROM queen.consumer_groups",
        "SELECT count(*) FROM queen.group_partitions",
        "SELECT count(*) FROM queen.trace_names()",
        "SELECT count(*) FROM queen.traces_by_name('n')",
        "SELECT count(*) FROM queen.dlq_depth",
        "SELECT count(*) FROM queen.dlq()",
    ] {
        assert_eq!(ours.rows(sql).await, "1", "{sql}");
    }
}

/// What a session gets for an id that is another tenant's, and for one that does not exist: they must be the same.
async fn foreign_is_missing(theirs: &Db, sql: impl Fn(&str) -> String, foreign: &str) {
    let (foreign, missing) = (sql(foreign), sql(NOBODY));
    let foreign_answer = theirs.rows(&foreign).await;
    let missing_answer = theirs.rows(&missing).await.replace(NOBODY, "<id>");
    let shown: String = foreign.chars().take(200).collect();
    let id = foreign_answer.split('"').find(|w| w.len() == 36).unwrap_or("<none>").to_owned();
    assert_eq!(foreign_answer.replace(&id, "<id>"), missing_answer, "{shown}");
}

#[tokio::test]
async fn every_function_that_takes_an_id_answers_for_a_foreign_one_as_for_a_missing_one() {
    let (ours, theirs) = two().await;
    ours.push("q", "a b c").await;
    let first = ours.pop("'q'").await;
    ours.ack(&first, "a", "dlq").await;
    let batch = ours.pop("'q', batch => 2").await;
    // The other tenant has a group of the same name on a queue of the same name.
    theirs.push("q", "x").await;
    theirs.pop("'q'").await;
    let record = ours.rows("SELECT id FROM queen.dlq()").await;
    let (partition, lease) = (batch.partition_id.as_str(), batch.lease.as_str());
    for status in ["completed", "failed", "retry", "dlq"] {
        foreign_is_missing(&theirs, |p| format!("SELECT queen.ack('{p}', 'b', '{status}')"), partition).await;
        foreign_is_missing(
            &theirs,
            |p| format!("SELECT queen.ack('{p}', 'b', '{status}', lease_id => '{lease}')"),
            partition,
        )
        .await;
        foreign_is_missing(
            &theirs,
            |p| {
                format!(
                    r#"SELECT queen.ack_batch('[{{"transactionId":"b","partitionId":"{p}","status":"{status}"}}]')"#
                )
            },
            partition,
        )
        .await;
        foreign_is_missing(&theirs, |l| format!("SELECT queen.nack('{l}', 'b', status => '{status}')"), lease).await;
        foreign_is_missing(
            &theirs,
            |p| format!(r#"SELECT t - 'transactionId' FROM queen.transaction('[{{"type":"ack","transactionId":"b","partitionId":"{p}","status":"{status}"}}]') t"#),
            partition,
        )
        .await;
    }
    foreign_is_missing(&theirs, |l| format!("SELECT queen.ack_lease('{l}')"), lease).await;
    foreign_is_missing(&theirs, |l| format!("SELECT queen.release('{l}')"), lease).await;
    foreign_is_missing(&theirs, |l| format!("SELECT queen.renew_lease('{l}', 1000)"), lease).await;
    foreign_is_missing(&theirs, |p| format!("SELECT queen.message('{p}', 'b')"), partition).await;
    foreign_is_missing(&theirs, |p| format!("SELECT queen.read('{p}', 0)"), partition).await;
    foreign_is_missing(&theirs, |p| format!("SELECT queen.dlq_delete('{p}', 'a')"), partition).await;
    foreign_is_missing(&theirs, |d| format!("SELECT queen.dlq_delete_row('{d}')"), &record).await;
    foreign_is_missing(&theirs, |d| format!("SELECT queen.dlq_move_v1('{d}')"), &record).await;
    foreign_is_missing(&theirs, |d| format!("SELECT queen.dlq_move_v1('{d}', 'q', 'p')"), &record).await;
    // Nothing of it had an effect.
    assert_eq!(ours.cursor("q", "__QUEUE_MODE__").await.lines().next().unwrap(), "0|0|t");
    assert_eq!(ours.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    assert_eq!(ours.ack(&batch, "c", "completed").await, "ok released");
    assert_eq!(theirs.stored("q").await, "x");
}

#[tokio::test]
async fn names_of_another_tenant_are_unknown_names() {
    let (ours, theirs) = two().await;
    ours.push("q", "a").await;
    let batch: Batch = ours.pop("'q', 'g', subscription_mode => 'all'").await;
    ours.ack(&batch, "a", "dlq").await;
    assert_eq!(theirs.state("SELECT queen.seek('q', 'g', to_end => true)").await, "QN013");
    for (sql, answer) in [
        ("SELECT queen.drop_queue('q')", "f"),
        ("SELECT queen.drop_consumer_group('g')", "0"),
        ("SELECT queen.dlq_purge('q')", "0"),
        ("SELECT count(*) FROM queen.pop('q', partition => 'Default')", "0"),
        ("SELECT queen.maintain() ->> 'messagesRemoved'", "0"),
    ] {
        assert_eq!(theirs.rows(sql).await, answer, "{sql}");
    }
    assert_eq!(ours.rows("SELECT count(*) FROM queen.dlq()").await, "1");
    assert_eq!(ours.rows("SELECT count(*) FROM queen.consumer_groups").await, "1");
}

#[tokio::test]
async fn maintenance_of_one_tenant_leaves_the_others_messages_alone() {
    let (ours, theirs) = two().await;
    for db in [&ours, &theirs] {
        db.configure("q", r#"{"maxWaitTimeSeconds": 10}"#).await;
        db.push("q", "a").await;
    }
    ours.age("q", 11).await; // of both
    assert_eq!(ours.rows("SELECT queen.maintain() ->> 'messagesRemoved'").await, "1");
    assert_eq!(ours.stored("q").await, "");
    assert_eq!(theirs.stored("q").await, "a");
}

#[tokio::test]
async fn a_condition_of_a_query_is_not_tried_on_rows_of_another_tenant() {
    let (ours, theirs) = two().await;
    ours.push("secret name", "a").await;
    theirs.push("q", "a").await;
    theirs
        .run("CREATE FUNCTION leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE EXCEPTION '%', $1; END $$")
        .await;
    for view in ["queues", "partitions", "consumer_groups", "dlq_depth"] {
        let sql = format!("SELECT * FROM queen.{view} WHERE leak(queue)");
        let shown = match theirs.client.simple_query(&sql).await {
            Ok(_) => String::new(),
            Err(_) => theirs.error(&sql).await.1,
        };
        assert!(shown.is_empty() || shown == "q", "{view}: {shown}");
    }
    assert_eq!(
        theirs.rows(&format!("SELECT count(*) FROM queen.queues WHERE queue = {}", lit("secret name"))).await,
        "0"
    );
}
