//! process_once: the first time, and only then.

use crate::support::Db;
use queen_tests::session::Session;
use queen_tests::shared_cluster;

const ID: &str = "0190aaaa-0000-7000-8000-00000000000f";

#[tokio::test]
async fn true_the_first_time_for_each_consumer_and_tenant() {
    let db = Db::new().await;
    let once = |consumer: &str| format!("SELECT queen.process_once('{consumer}', '{ID}')");
    assert_eq!(db.rows(&once("a")).await, "t");
    assert_eq!(db.rows(&once("a")).await, "f");
    assert_eq!(db.rows(&once("b")).await, "t");
    assert_eq!(db.rows(&format!("BEGIN; {}; ROLLBACK; {}", once("c"), once("c"))).await.lines().last(), Some("t"));
    db.run("SET queen.tenant = '00000000-0000-0000-0000-000000000002'").await;
    assert_eq!(db.rows(&once("a")).await, "t");
    assert_eq!(db.state(&once(" ")).await, "QN001");
    assert_eq!(db.state("SELECT queen.process_once('a', NULL)").await, "22023");
}

#[tokio::test]
async fn a_second_caller_waits_and_hears_what_became_of_the_first() {
    let name = shared_cluster().fresh_database().await;
    for (end, expected) in [("COMMIT", "f"), ("ROLLBACK", "t")] {
        let (first, second, observer) = (
            Session::open(shared_cluster(), &name).await,
            Session::open(shared_cluster(), &name).await,
            Session::open(shared_cluster(), &name).await,
        );
        let once = format!("SELECT queen.process_once('{end}', '{ID}')");
        first.run("BEGIN").await;
        assert_eq!(first.one(&once).await, "t");
        let (started, waits) = second.start_and_watch(&observer, &once).await;
        assert!(waits, "the second does not wait");
        first.run(end).await;
        assert_eq!(started.end().await[0][0].as_deref(), Some(expected), "{end}");
    }
}

#[tokio::test]
async fn maintenance_forgets_what_is_old_and_nothing_else() {
    let db = Db::new().await;
    db.run("SELECT queen.process_once('c', gen_random_uuid()) FROM generate_series(1, 3)").await;
    db.run("UPDATE queen.processed_message SET at = now() - interval '31 days' WHERE ctid = (SELECT min(ctid) FROM queen.processed_message)").await;
    assert_eq!(db.rows("SELECT queen.maintain() ->> 'processedForgotten'").await, "1");
    assert_eq!(db.rows("SELECT count(*) FROM queen.processed_message").await, "2");
    db.run("SET queen.processed_message_days = 60").await;
    db.run("UPDATE queen.processed_message SET at = now() - interval '31 days'").await;
    assert_eq!(db.rows("SELECT queen.maintain() ->> 'processedForgotten'").await, "0");
}
