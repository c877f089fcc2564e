//! What a review of the locking found, each as it went wrong.

use crate::registration::{drain, sessions};
use queen_tests::session::{Session, batch, describe, sqlstate};
use std::collections::HashMap;

const KEYS: &str = "SET queen.encryption_keys = 'k:abababababababababababababababababababababababababababababababab'";

/// `push_batch` of these (queue, partition, transaction id).
fn push_batch(items: &[(&str, &str, &str)]) -> String {
    let items: Vec<_> = items
        .iter()
        .map(|(queue, partition, id)| {
            serde_json::json!({"queue": queue, "partition": partition, "payload": "secret", "transactionId": id})
        })
        .collect();
    format!("SELECT queen.push_batch('{}')", serde_json::Value::Array(items))
}

/// Whether each message of the queue lies sealed in its segment, in order.
async fn sealed(s: &Session, queue: &str) -> Vec<bool> {
    let rows = s
        .rows(&format!(
            "SELECT f.is_encrypted AND position('secret'::bytea IN s.data) = 0
               FROM queen.segment s JOIN queen.partition p USING (pid) JOIN queen.queue q USING (qid)
              CROSS JOIN queen.decode_segment(s.data) f WHERE q.name = '{queue}' ORDER BY s.pid, s.base, f.frame_index"
        ))
        .await;
    rows.into_iter().map(|row| row[0].as_deref() == Some("t")).collect()
}

/// A push that lands at commit had found its lane earlier in the transaction. When the queue was dropped and the lane's row
/// vacuumed away meanwhile, it locked what was left in that place: the header of the page.
async fn a_lane_is_vacuumed_away(row_is_last: bool) {
    let s = sessions(2).await;
    let [producer, other] = s.as_slice() else { panic!("two sessions") };
    producer.append("q", "Default", &["before"]).await;
    producer.run("SELECT queen.push('q', '1', transaction_id => 'remembered')").await;
    if !row_is_last {
        other.append("keep", "Default", &["kept"]).await;
    }
    producer.run("BEGIN; SELECT queen.push('q', '2', transaction_id => 'pending')").await;
    other.run("SELECT queen.drop_queue('q')").await;
    other.run("VACUUM queen.partition").await;
    // What pageinspect shows, where it is installed.
    let inspect = other.number("SELECT count(*) FROM pg_available_extensions WHERE name = 'pageinspect'").await > 0;
    let prune_xid = "SELECT prune_xid FROM page_header(get_raw_page('queen.partition', 0))";
    let mut before = String::new();
    if inspect {
        other.run("CREATE EXTENSION pageinspect").await;
        let rows = "SELECT count(*) FROM heap_page_items(get_raw_page('queen.partition', 0)) WHERE lp_flags = 1";
        assert_eq!(other.number(rows).await, i64::from(!row_is_last), "the row is there still: nothing is tested");
        before = other.one(prune_xid).await;
    }
    producer.run("COMMIT").await;
    if inspect {
        assert_eq!(other.one(prune_xid).await, before, "the page's header was written to");
    }
    assert_eq!(other.stored("q").await, HashMap::from([("Default".to_owned(), vec!["pending".to_owned()])]));
    assert_eq!(other.stored("keep").await.len(), usize::from(!row_is_last));
    assert_eq!(other.rows("SELECT * FROM queen.verify()").await.len(), 0);
    producer.append("q", "Default", &["next"]).await;
    assert_eq!(other.stored("q").await["Default"], ["pending", "next"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_lane_was_dropped_and_vacuumed_away_lands_in_a_new_queue() {
    a_lane_is_vacuumed_away(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_lane_was_the_last_row_and_was_vacuumed_away_lands_in_a_new_queue() {
    a_lane_is_vacuumed_away(true).await;
}

/// A transaction read a queue's options with its first push and no more: what it pushed after encryption had been
/// configured and answered was stored in plain text.
#[tokio::test(flavor = "multi_thread")]
async fn a_pending_push_is_sealed_when_encryption_is_configured_before_its_commit() {
    let s = sessions(2).await;
    let [producer, admin] = s.as_slice() else { panic!("two sessions") };
    for session in &s {
        session.run(KEYS).await;
    }
    for (n, push) in ["", ", transaction_id => 'one'", ", 'fresh partition'"].into_iter().enumerate() {
        let queue = format!("q{n}");
        producer.append(&queue, "Default", &["zero"]).await;
        producer.run(&format!("SELECT queen.push('{queue}', '0', transaction_id => 'remembered')")).await;
        producer.run(&format!("BEGIN; SELECT queen.push('{queue}', '\"secret\"'{push})")).await;
        admin.run(&format!("SELECT queen.configure('{queue}', '{{\"encryptionEnabled\": true}}')")).await;
        producer.run(&format!("SELECT queen.push('{queue}', '\"secret\"', transaction_id => 'two'); COMMIT")).await;
        let mut found = sealed(admin, &queue).await;
        found.sort();
        assert_eq!(found, [false, false, true, true], "push(…{push})");
        let opened = format!("SELECT count(*) FROM queen.messages('{queue}') WHERE payload_text = '\"secret\"'");
        assert_eq!(admin.number(&opened).await, 2, "push(…{push}): what is sealed can be read");
    }
}

/// Options were read before the wait for a busy lane: what waited while encryption was configured was stored in plain text.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_waits_for_a_lane_is_sealed_when_encryption_is_configured_meanwhile() {
    let s = sessions(4).await;
    let [holder, waiter, admin, observer] = s.as_slice() else { panic!("four sessions") };
    for session in &s {
        session.run(KEYS).await;
    }
    let doors = [
        r#"SELECT queen.push_batch('[{"queue": "{q}", "payload": "secret"}]')"#,
        r#"SELECT queen.push_batch('[{"queue": "{q}", "partition": "A", "payload": "secret"}, {"queue": "{q}", "payload": "secret"}]')"#,
        r#"SELECT queen.push('{q}', '"secret"')"#,
        r#"SELECT queen.push('{q}', '"secret"', transaction_id => 'own')"#,
        r#"SELECT queen.push_many('{q}', ARRAY['"secret"', '"secret"']::jsonb[])"#,
        r#"BEGIN; SELECT queen.push('{q}', '"secret"'); SELECT queen.flush(); COMMIT"#,
        r#"SELECT queen.transaction('[{"type": "push", "queue": "{q}", "payload": "secret"}]')"#,
    ];
    for (n, door) in doors.into_iter().enumerate() {
        let queue = format!("q{n}");
        observer.append(&queue, "Default", &["zero"]).await;
        observer.append(&queue, "A", &["zero"]).await;
        let plain = sealed(observer, &queue).await.len();
        holder.run(&format!("BEGIN; SELECT queen.push_batch({})", batch(&queue, "Default", &["held"]))).await;
        let (pushed, waits) = waiter.start_and_watch(observer, &door.replace("{q}", &queue)).await;
        assert!(waits, "{door}");
        admin.run(&format!("SELECT queen.configure('{queue}', '{{\"encryptionEnabled\": true}}')")).await;
        holder.run("COMMIT").await;
        pushed.end().await;
        let secrets = door.matches("secret").count();
        // Lane A was locked, and written to, before there was encryption.
        let early = usize::from(door.contains(r#""A""#));
        let sealed = sealed(observer, &queue).await;
        let counted = (sealed.iter().filter(|s| !**s).count(), sealed.iter().filter(|s| **s).count());
        assert_eq!(counted, (plain + 1 + early, secrets - early), "{door}");
    }
}

/// A batch over two lanes read the groups at the first lane and waited for the second: a group that came meanwhile got no
/// hint of what was then stored in the second, and none of anything later in that lane.
async fn a_group_registers_while_a_batch_waits(held: &str) {
    let s = sessions(4).await;
    let [holder, waiter, consumer, observer] = s.as_slice() else { panic!("four sessions") };
    observer.append("q", "a", &["a0"]).await;
    observer.append("q", "b", &["b0"]).await;
    holder.run(&format!("BEGIN; {}", push_batch(&[("q", "b", held)]))).await;
    let both = push_batch(&[("q", "a", "a1"), ("q", "b", "b2")]);
    let (pushed, waits) = waiter.start_and_watch(observer, &both).await;
    assert!(waits, "for lane b");
    let first = consumer.pop("'q', 'g', 10, max_partitions => 0, subscription_mode => 'new'").await;
    assert_eq!(first, []);
    holder.run("COMMIT").await;
    pushed.end().await;
    // Pushed before the group came and committed after, a1 and b1 may be there or not.
    let mut found = drain(consumer, "q", "g").await;
    found.retain(|id| id != "a1" && id != "b1");
    assert_eq!(found, ["b2"]);
    for (lane, id) in [("b", "b3"), ("a", "a2")] {
        observer.append("q", lane, &[id]).await;
        assert_eq!(drain(consumer, "q", "g").await, [id], "the next message");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_registers_while_a_batch_waits_behind_an_append_gets_what_lands_later() {
    a_group_registers_while_a_batch_waits("b1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_registers_while_a_batch_waits_behind_a_duplicate_gets_what_lands_later() {
    a_group_registers_while_a_batch_waits("b0").await;
}

/// A backend remembers where it saw the newest cursor row. It kept the place of one that it had rolled back, looked only
/// above it when somebody else was just going back, and overlooked the row that counts: the push hinted nobody.
async fn a_place_that_was_rolled_back(begin: &str, end: &str) {
    let s = sessions(3).await;
    let [consumer, producer, seeker] = s.as_slice() else { panic!("three sessions") };
    let back = "SELECT queen.seek('q', 'g', to_timestamp => '-infinity')";
    consumer.pop("'q', 'g', subscription_mode => 'all'").await;
    consumer.append("q", "Default", &["done"]).await;
    assert_eq!(drain(consumer, "q", "g").await, ["done"]);
    producer.run(&format!("{begin}; {back}")).await;
    assert_eq!(drain(producer, "q", "g").await, ["done"]);
    producer.append("q", "Default", &["undone"]).await;
    producer.run(end).await;
    // As many rows as the producer has rolled back, and more.
    seeker.run(&format!("BEGIN; {back}; {back}; {back}; {back}")).await;
    producer.append("q", "Default", &["message"]).await;
    seeker.run("ROLLBACK").await;
    assert_eq!(drain(consumer, "q", "g").await, ["message"]);
    producer.append("q", "Default", &["next"]).await;
    assert_eq!(drain(consumer, "q", "g").await, ["next"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_after_a_rolled_back_pop_beside_a_rolled_back_seek_is_found() {
    a_place_that_was_rolled_back("BEGIN", "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_after_a_pop_undone_with_its_savepoint_beside_a_rolled_back_seek_is_found() {
    a_place_that_was_rolled_back("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT").await;
}

/// A pop of an unknown queue creates it, and keeps its name until the end. Whoever pushed to that queue and to another one
/// waited for the name with the other's lane locked, for which the first then waited.
#[tokio::test(flavor = "multi_thread")]
async fn a_pop_that_creates_a_queue_never_deadlocks_with_a_push_to_it() {
    let s = sessions(4).await;
    let [popper, pusher, holder, observer] = s.as_slice() else { panic!("four sessions") };
    let mut n = 0;
    // The new queue comes before or after the known one in the order of lanes.
    for (known, new) in [("apples", "pears"), ("pears", "apples")] {
        for held in [false, true] {
            for popper_first in [true, false] {
                n += 1;
                let (known, new) = (format!("{known} {n}"), format!("{new} {n}"));
                let story = format!("{new} beside {known}; popper first: {popper_first}, lane held: {held}");
                observer.append(&known, "Default", &["before"]).await;
                popper.run(&format!("BEGIN; SELECT queen.pop('{new}', 'g')")).await;
                popper.run(&format!("SELECT queen.push('{known}', '0', transaction_id => 'popper')")).await;
                pusher.run(&format!("BEGIN; SELECT queen.push('{known}', '0', transaction_id => 'pusher')")).await;
                pusher.run(&format!("SELECT queen.push('{new}', '0', transaction_id => 'pusher')")).await;
                if held {
                    let append = batch(&known, "Default", &["held"]);
                    holder.run(&format!("BEGIN; SELECT queen.push_batch({append})")).await;
                }
                let mut commits = Vec::new();
                for session in if popper_first { [popper, pusher] } else { [pusher, popper] } {
                    let (commit, waits) = session.start_and_watch(observer, "COMMIT").await;
                    if held {
                        assert!(waits, "{story}: somebody has the lane");
                    }
                    commits.push(commit);
                }
                holder.run("COMMIT").await;
                for commit in commits {
                    commit.try_end().await.unwrap_or_else(|e| panic!("{story}: {}", describe(&e)));
                }
                let mut there = observer.stored(&known).await.remove("Default").expect("messages");
                there.sort();
                let wanted: &[&str] =
                    if held { &["before", "held", "popper", "pusher"] } else { &["before", "popper", "pusher"] };
                assert_eq!(there, wanted, "{story}");
                assert_eq!(drain(observer, &new, "g").await, ["pusher"], "{story}");
            }
        }
    }
}

/// Deleting with the snapshot of a transaction's beginning left what had been pushed since: segments of no partition, and
/// partitions of no queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_dropped_whole_or_not_at_all_whatever_the_isolation() {
    let s = sessions(2).await;
    let [admin, producer] = s.as_slice() else { panic!("two sessions") };
    producer.append("q", "0", &["before"]).await;
    producer.pop("'q', 'g', max_partitions => 0, subscription_mode => 'all'").await;
    for (n, isolation) in ["REPEATABLE READ", "SERIALIZABLE"].into_iter().enumerate() {
        admin.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT 1")).await;
        producer.append("q", &format!("later {n}"), &["meanwhile"]).await;
        let refused = admin.try_rows("SELECT queen.drop_queue('q')").await.expect_err("refused");
        assert_eq!(sqlstate(&refused), "22023", "{isolation}: {}", describe(&refused));
        admin.run("ROLLBACK").await;
        assert_eq!(admin.stored("q").await.len(), n + 2);
    }
    admin.run("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT count(*) FROM queen.segment").await;
    producer.append("q", "last", &["meanwhile"]).await;
    assert_eq!(admin.one("SELECT queen.drop_queue('q')").await, "t");
    admin.run("COMMIT").await;
    for table in ["queue", "partition", "segment", "transaction_id", "subscription", "cursor", "ready"] {
        assert_eq!(admin.number(&format!("SELECT count(*) FROM queen.{table}")).await, 0, "{table}");
    }
}
