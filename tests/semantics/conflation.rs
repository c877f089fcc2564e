//! Conflation: of each partition a group gets the newest message only, and settling it settles all before it.

use crate::support::{Batch, Db, UNRESOLVABLE, ack_items, lit, messages};
use serde_json::{Value, json};

const POP: &str = "'q', 'g', conflation => true, subscription_mode => 'all'";

/// What a JSON twin answers.
async fn popped(db: &Db, call: &str) -> Value {
    serde_json::from_str(&db.rows(&format!("SELECT queen.{call}")).await).unwrap()
}

/// The two keys about conflation, as `conflation conflict`.
async fn echo(db: &Db, call: &str) -> String {
    let answer = popped(db, call).await;
    let shown = |key: &str| answer.get(key).map_or("-".to_owned(), Value::to_string);
    format!("{} {}", shown("conflation"), shown("conflationConflict"))
}

/// The wire's answers to acks of a batch.
async fn settled(db: &Db, batch: &Batch, items: &[(&str, &str)]) -> Vec<Value> {
    let call = format!("SELECT queen.ack_batch_json({}, {})", lit(&ack_items(batch, items)), lit(&batch.group));
    serde_json::from_str(&db.rows(&call).await).unwrap()
}

/// One append for each id.
async fn push_each(db: &Db, queue: &str, ids: &str) {
    for id in ids.split_whitespace() {
        db.push(queue, id).await;
    }
}

/// Messages `ids`, of which a conflating group has the newest.
async fn leased(ids: &str) -> (Db, Batch) {
    let db = Db::new().await;
    push_each(&db, "q", ids).await;
    let batch = db.pop(POP).await;
    (db, batch)
}

#[tokio::test]
async fn only_the_newest_message_comes_and_its_ack_settles_all_before_it() {
    let (db, batch) = leased("a b c").await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("c", 1));
    assert_eq!(db.pop(POP).await.ids, "", "one lease over all of it");
    let answer = settled(&db, &batch, &[("c", "completed")]).await;
    assert_eq!(
        answer[0],
        json!({"index": 0, "transactionId": "c", "success": true, "error": null, "leaseReleased": true, "dlq": false,
               "noop": false, "conflated": 2})
    );
    assert_eq!(db.cursor("q", "g").await, "2|0|f");
    assert_eq!(db.pop(POP).await.ids, "", "the others never come");
    db.push("q", "d").await;
    let batch = db.pop(POP).await;
    assert_eq!(batch.ids, "d");
    assert_eq!(settled(&db, &batch, &[("d", "completed")]).await[0]["conflated"], 0);
    db.verify().await;
}

#[tokio::test]
async fn of_messages_stored_together_it_is_the_last() {
    let db = Db::new().await;
    db.push("q", "a b c").await;
    let batch = db.pop(&format!("{POP}, batch => 9")).await;
    assert_eq!(batch.ids, "c");
    let message =
        messages(&db.rows("SELECT queen.pop_json('q', 'h', 9, conflation => true, subscription_mode => 'all')").await);
    assert_eq!((message.len(), &message[0]["offset"], &message[0]["data"]), (1, &json!(2), &json!(2)));
    assert_eq!(settled(&db, &batch, &[("c", "completed")]).await[0]["conflated"], 2);
}

#[tokio::test]
async fn each_partition_gives_its_newest_and_each_counts_its_own() {
    let db = Db::new().await;
    for (partition, ids) in [("x", "x1 x2 x3"), ("y", "y1"), ("z", "z1 z2")] {
        db.push_to("q", partition, ids).await;
    }
    let answer = popped(&db, &format!("pop_json({POP}, batch => 2, max_partitions => 0)")).await;
    assert_eq!(answer["batches"].as_array().unwrap().len(), 2, "a message counts as one, whatever it supersedes");
    let rest = db.pop(&format!("{POP}, batch => 9, max_partitions => 0")).await;
    assert_eq!(rest.ids.split_whitespace().count(), 1);
    db.expire().await;
    let batch = db.pop(&format!("{POP}, batch => 9, max_partitions => 0")).await;
    let mut ids: Vec<_> = batch.ids.split_whitespace().collect();
    ids.sort_unstable();
    assert_eq!(ids, ["x3", "y1", "z2"]);
    let mut counts = Vec::new();
    for (partition, id) in [("x", "x3"), ("y", "y1"), ("z", "z2")] {
        let one = Batch { partition_id: db.partition_id("q", partition).await, ..batch.clone() };
        counts.push(settled(&db, &one, &[(id, "completed")]).await[0]["conflated"].as_i64().unwrap());
    }
    assert_eq!(counts, [2, 0, 1]);
}

#[tokio::test]
async fn after_a_lease_that_ran_out_comes_what_is_newest_then() {
    let (db, batch) = leased("a b").await;
    assert_eq!(batch.ids, "b");
    db.expire().await;
    let again = db.pop(POP).await;
    assert_eq!((again.ids.as_str(), again.attempt), ("b", 2));
    db.push("q", "c").await;
    db.expire().await;
    let newer = db.pop(POP).await;
    assert_eq!((newer.ids.as_str(), newer.attempt), ("c", 1), "a message of its own, delivered once");
    assert_eq!(settled(&db, &newer, &[("c", "completed")]).await[0]["conflated"], 2);
    assert_eq!(db.pop(POP).await.ids, "");
}

#[tokio::test]
async fn what_arrives_under_the_lease_comes_after_it() {
    let (db, batch) = leased("a b").await;
    push_each(&db, "q", "c d").await;
    assert_eq!(db.pop(POP).await.ids, "");
    assert_eq!(settled(&db, &batch, &[("b", "completed")]).await[0]["conflated"], 1);
    let batch = db.pop(POP).await;
    assert_eq!(batch.ids, "d");
    assert_eq!(settled(&db, &batch, &[("d", "completed")]).await[0]["conflated"], 1);
}

#[tokio::test]
async fn a_failure_settles_nothing_charges_the_budget_and_brings_the_newest_then() {
    let (db, batch) = leased("a b").await;
    for (n, status) in ["failed", "retry"].into_iter().enumerate() {
        let batch = if n == 0 { batch.clone() } else { db.pop(POP).await };
        let answer = settled(&db, &batch, &[(batch.ids.as_str(), status)]).await;
        assert_eq!((&answer[0]["success"], &answer[0]["leaseReleased"]), (&json!(true), &json!(true)), "{status}");
        assert_eq!(answer[0].get("conflated"), None, "{status}");
        assert_eq!(db.cursor("q", "g").await, "-1|1|f", "{status} charges only if it failed");
    }
    assert_eq!(db.pop(POP).await.ids, "b");
    db.expire().await;
    db.push("q", "c").await;
    assert_eq!(db.pop(POP).await.ids, "c");
}

#[tokio::test]
async fn a_dead_letter_of_the_newest_settles_all_before_it() {
    for (status, limit) in [("dlq", 3), ("failed", 0)] {
        let db = Db::new().await;
        db.configure("q", &format!(r#"{{"retryLimit": {limit}}}"#)).await;
        push_each(&db, "q", "a b c").await;
        let batch = db.pop(POP).await;
        let answer = settled(&db, &batch, &[("c", status)]).await;
        assert_eq!((&answer[0]["dlq"], &answer[0]["conflated"]), (&json!(true), &json!(2)), "{status}");
        assert_eq!(db.rows("SELECT transaction_id FROM queen.dlq()").await, "c");
        assert_eq!(db.cursor("q", "g").await, "2|0|f");
        assert_eq!(db.pop(POP).await.ids, "");
    }
}

// It is below the end of the lease, as in any lease: settling it says that all up to it are done.
#[tokio::test]
async fn a_superseded_message_is_settled_as_a_part_of_the_lease() {
    let (db, batch) = leased("a b c d").await;
    let answer = settled(&db, &batch, &[("b", "completed"), ("nope", "completed")]).await;
    assert_eq!((&answer[0]["success"], &answer[0]["leaseReleased"]), (&json!(true), &json!(false)));
    assert_eq!(answer[0].get("conflated"), None, "the lease goes on");
    assert_eq!(format!("no: {}", answer[1]["error"].as_str().unwrap()), UNRESOLVABLE);
    assert_eq!(db.cursor("q", "g").await, "1|0|t");
    let answer = settled(&db, &batch, &[("a", "completed"), ("c", "completed"), ("d", "completed")]).await;
    assert_eq!(answer[0]["noop"], true);
    assert_eq!(answer[1].get("conflated"), None, "only the one that was delivered says how many");
    assert_eq!(answer[2]["conflated"], 1, "those that were done before are not counted again");
    let (db, batch) = leased("a b c").await;
    assert_eq!(settled(&db, &batch, &[("b", "failed"), ("c", "completed")]).await[1].get("conflated"), None);
    assert_eq!(db.cursor("q", "g").await, "-1|1|f", "a failure is never skipped by a later success");
}

#[tokio::test]
async fn every_door_settles_a_conflating_lease() {
    let (db, batch) = leased("a b c").await;
    assert_eq!(db.ack(&batch, "c", "completed").await, "ok released");
    let (db, batch) = leased("a b c").await;
    assert_eq!(db.rows(&format!("SELECT queen.ack_lease('{}')", batch.lease)).await, "3");
    for (id, cursor) in [("c", "-1|1|f"), ("a", "-1|1|f")] {
        let (db, batch) = leased("a b c").await;
        let verdict =
            db.rows(&format!("SELECT success, lease_released FROM queen.nack('{}', '{id}')", batch.lease)).await;
        assert_eq!((verdict.as_str(), db.cursor("q", "g").await.as_str()), ("t|t", cursor), "{id}");
    }
    let (db, batch) = leased("a b c").await;
    assert_eq!(
        db.rows(&format!("SELECT success, error LIKE 'unresolvable%' FROM queen.nack('{}', 'nope')", batch.lease))
            .await,
        "f|t"
    );
    let (db, batch) = leased("a b c").await;
    let ack = json!([{"type": "ack", "transactionId": "c", "partitionId": batch.partition_id, "leaseId": batch.lease, "consumerGroup": "g"}]);
    assert_eq!(db.rows(&format!("SELECT queen.transaction({}) ->> 'success'", lit(&ack.to_string()))).await, "true");
    for db in [&db] {
        assert_eq!(db.cursor("q", "g").await, "2|0|f");
    }
    let many =
        json!([{"consumerGroup": "g", "acknowledgments": [{"transactionId": "c", "partitionId": batch.partition_id}]}]);
    assert_eq!(popped(&db, &format!("ack_many_json({})", lit(&many.to_string()))).await[0][0]["noop"], true);
}

// With dedup off an id may come again and again: "the price of X".
#[tokio::test]
async fn an_id_that_is_there_several_times_means_the_message_that_was_delivered() {
    let db = Db::new().await;
    db.configure("q", r#"{"dedupWindowSeconds": 0}"#).await;
    push_each(&db, "q", "x y x x").await;
    let batch = db.pop(POP).await;
    assert_eq!(settled(&db, &batch, &[("x", "completed")]).await[0]["conflated"], 3);
    assert_eq!(db.cursor("q", "g").await, "3|0|f");
}

#[tokio::test]
async fn messages_with_default_ids_are_settled_too() {
    let db = Db::new().await;
    for _ in 0..3 {
        db.run("SELECT queen.push('q', '1')").await;
    }
    let ids = db.stored("q").await;
    let ids: Vec<&str> = ids.split_whitespace().collect();
    let batch = db.pop(POP).await;
    assert_eq!(batch.ids, ids[2]);
    assert_eq!(settled(&db, &batch, &[(ids[0], "completed")]).await[0]["leaseReleased"], false);
    assert_eq!(settled(&db, &batch, &[(ids[2], "completed")]).await[0]["conflated"], 1);
}

#[tokio::test]
async fn the_newest_is_the_newest_that_is_visible() {
    let db = Db::new().await;
    db.configure("q", r#"{"delayedProcessing": 60}"#).await;
    assert_eq!(db.pop(POP).await.ids, "");
    push_each(&db, "q", "a b").await;
    let named = format!("{POP}, partition => 'Default'");
    assert_eq!(db.pop(&named).await.ids, "", "nothing is old enough");
    db.age("q", 61).await;
    push_each(&db, "q", "c d").await;
    let batch = db.pop(&named).await;
    assert_eq!(batch.ids, "b");
    assert_eq!(settled(&db, &batch, &[("b", "completed")]).await[0]["conflated"], 1);
    assert_eq!(db.pop(POP).await.ids, "", "the hint leads here too early");
    let hint = "SELECT count(*) FROM queen.ready r JOIN queen.segment s USING (pid)
                 WHERE s.base = 2 AND r.due_at = s.created_at + interval '60 seconds'";
    assert_eq!(db.rows(hint).await, "1", "and is kept for when c can be seen");
    db.age("q", 61).await;
    assert_eq!(db.pop(&named).await.ids, "d");
}

#[tokio::test]
async fn a_window_that_is_open_holds_the_newest_back() {
    let db = Db::new().await;
    db.configure("q", r#"{"windowBuffer": 60}"#).await;
    push_each(&db, "q", "a b").await;
    let named = format!("{POP}, partition => 'Default'");
    assert_eq!(db.pop(&named).await.ids, "");
    db.age("q", 61).await;
    db.push("q", "c").await;
    assert_eq!(db.pop(&named).await.ids, "c", "the oldest has waited long enough");
}

#[tokio::test]
async fn seeking_back_brings_the_newest_again_and_not_what_it_superseded() {
    let (db, batch) = leased("a b c").await;
    settled(&db, &batch, &[("c", "completed")]).await;
    db.run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
    let batch = db.pop(POP).await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("c", 1));
    assert_eq!(settled(&db, &batch, &[("c", "completed")]).await[0]["conflated"], 2);
    db.push("q", "d").await;
    db.run("SELECT queen.seek('q', 'g', to_end => true)").await;
    assert_eq!(db.pop(POP).await.ids, "");
    db.push("q", "e").await;
    assert_eq!(db.pop(POP).await.ids, "e");
}

#[tokio::test]
async fn a_group_beside_it_gets_every_message() {
    let (db, batch) = leased("a b c").await;
    let other = db.pop("'q', 'h', 9, subscription_mode => 'all'").await;
    assert_eq!((batch.ids.as_str(), other.ids.as_str()), ("c", "a b c"));
    let answer = settled(&db, &other, &[("a", "completed"), ("c", "completed")]).await;
    assert!(answer.iter().all(|a| a.get("conflated").is_none()), "{answer:?}");
    assert_eq!(
        db.rows("SELECT consumer_group, conflation, pending, processing FROM queen.consumer_groups ORDER BY 1").await,
        "g|t|0|3\nh|f|0|0"
    );
}

#[tokio::test]
async fn the_policy_of_the_first_registration_counts_ever_after() {
    let db = Db::new().await;
    push_each(&db, "q", "a b").await;
    assert_eq!(echo(&db, "pop_json('q', 'g', conflation => true)").await, "true -", "said when nothing comes, too");
    push_each(&db, "q", "c d").await;
    assert_eq!(echo(&db, "pop_json('q', 'g', conflation => false)").await, "true true");
    db.expire().await;
    let answer = popped(&db, "pop_json('q', 'g', 9)").await;
    assert_eq!(messages(&answer.to_string()).len(), 1, "{answer}");
    assert_eq!((&answer["conflation"], answer.get("conflationConflict")), (&json!(true), None));

    assert_eq!(echo(&db, "pop_json('q', 'h', subscription_mode => 'all')").await, "- -");
    assert_eq!(echo(&db, "pop_json('q', 'h', conflation => false)").await, "- -");
    db.expire().await;
    let answer = popped(&db, "pop_json('q', 'h', 9, conflation => true)").await;
    assert_eq!(messages(&answer.to_string()).len(), 4, "{answer}");
    assert_eq!((answer.get("conflation"), &answer["conflationConflict"]), (None, &json!(true)));

    db.run("SELECT queen.drop_consumer_group('g', delete_metadata => false)").await;
    assert_eq!(echo(&db, "pop_json('q', 'g')").await, "true -", "the subscription is still there");
    db.run("SELECT queen.drop_consumer_group('g')").await;
    assert_eq!(echo(&db, "pop_json('q', 'g', conflation => false)").await, "- -");
}

#[tokio::test]
async fn a_pop_of_a_named_partition_registers_only_if_it_conflates() {
    let db = Db::new().await;
    let registered = async || {
        db.rows("SELECT consumer_group, conflation, subscription_mode FROM queen.consumer_groups ORDER BY 1").await
    };
    assert_eq!(echo(&db, "pop_json('q', 'g', partition => 'p', conflation => true)").await, "true -");
    assert_eq!(db.rows("SELECT count(*) FROM queen.queues").await, "0", "what is not there is not made");
    push_each(&db, "q", "a b").await;
    assert_eq!(echo(&db, "pop_json('q', 'g', partition => 'p', conflation => true)").await, "true -");
    assert_eq!(registered().await, "");

    let named = "partition => 'Default', subscription_mode => 'all'";
    assert_eq!(db.pop(&format!("'q', 'g', conflation => true, {named}")).await.ids, "b");
    assert_eq!(db.pop(&format!("'q', 'h', {named}")).await.ids, "a");
    assert_eq!(registered().await, "g|t|all\nh|f|~");
    assert_eq!(echo(&db, "pop_json('q', 'g', partition => 'p', conflation => false)").await, "true true");
    db.push_to("q", "p", "c d").await;
    assert_eq!(db.pop("'q', 'g', batch => 9").await.ids, "d", "from then on it pops any partition");

    db.expire().await;
    assert_eq!(
        db.pop(&format!("'q', 'h', conflation => true, {named}")).await.ids,
        "b",
        "not decided until it is registered"
    );
    assert_eq!(registered().await, "g|t|all\nh|t|all", "with the start that it had");
}

#[tokio::test]
async fn of_a_pop_over_several_queues_each_queues_policy_counts() {
    let db = Db::new().await;
    for queue in ["ns.a", "ns.b"] {
        push_each(&db, queue, "1 2").await;
    }
    assert_eq!(echo(&db, "pop_json('ns.a', 'g', conflation => true)").await, "true -");
    assert_eq!(echo(&db, "pop_json('ns.b', 'g')").await, "- -");
    for queue in ["ns.a", "ns.b"] {
        db.run(&format!("SELECT queen.seek('{queue}', 'g', to_timestamp => '-infinity')")).await;
    }
    let answer = popped(&db, "pop_matching_json('ns', NULL, 'g', 9, 9)").await;
    assert_eq!((&answer["conflation"], answer.get("conflationConflict")), (&json!(true), None));
    let mut got: Vec<String> = messages(&answer.to_string())
        .iter()
        .map(|m| format!("{}:{}", m["queue"].as_str().unwrap(), m["transactionId"].as_str().unwrap()))
        .collect();
    got.sort_unstable();
    assert_eq!(got, ["ns.a:2", "ns.b:1", "ns.b:2"]);
    assert_eq!(echo(&db, "pop_matching_json('ns', NULL, 'g', conflation => true)").await, "true true");
    assert_eq!(echo(&db, "pop_matching_json('ns', NULL, 'h', conflation => true)").await, "true -");
    assert_eq!(echo(&db, "pop_matching_json('none', NULL, 'h', conflation => true)").await, "true -");
}

#[tokio::test]
async fn conflation_needs_a_named_group_and_a_lease() {
    let (db, _) = leased("a").await;
    let together = ("22023".to_owned(), "conflation cannot be combined with auto_ack".to_owned());
    for call in [
        "pop('q', 'n', conflation => true, auto_ack => true)",
        "pop('q', 'g', auto_ack => true)",
        "pop('q', 'g', auto_ack => true, conflation => false)",
        "pop_json('q', 'g', partition => 'Default', auto_ack => true)",
        "pop_matching('', '', 'g', auto_ack => true)",
    ] {
        assert_eq!(db.error(&format!("SELECT queen.{call}")).await, together, "{call}");
    }
    let group = ("22023".to_owned(), "conflation requires a consumer group".to_owned());
    for call in [
        "pop('q', conflation => true)",
        "pop_json('q', NULL, conflation => true, auto_ack => true)",
        "pop_matching('x', conflation => true)",
    ] {
        assert_eq!(db.error(&format!("SELECT queen.{call}")).await, group, "{call}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM queen.consumer_groups").await, "1", "nothing was subscribed");
    assert_eq!(db.pop("'q', conflation => false").await.ids, "a");
}

#[tokio::test]
async fn what_retention_has_removed_is_not_counted() {
    let db = Db::new().await;
    db.configure("q", r#"{"maxWaitTimeSeconds": 3600}"#).await;
    db.push("q", "a").await;
    db.age("q", 7200).await;
    push_each(&db, "q", "b c").await;
    db.run("SELECT queen.maintain()").await;
    let batch = db.pop(POP).await;
    assert_eq!(settled(&db, &batch, &[("c", "completed")]).await[0]["conflated"], 1);
    db.age("q", 7200).await;
    db.run("SELECT queen.maintain()").await;
    assert_eq!(db.pop(POP).await.ids, "", "nothing is left");
    db.push("q", "d").await;
    assert_eq!(db.pop(POP).await.ids, "d");
}

#[tokio::test]
async fn damage_below_the_newest_stands_in_nobodys_way() {
    let db = Db::new().await;
    push_each(&db, "q", "a b c").await;
    let damage = |offset: i64| {
        format!("UPDATE queen.segment SET data = set_byte(data, 60, get_byte(data, 60) # 1) WHERE base = {offset}")
    };
    db.run(&damage(1)).await;
    let batch = db.pop(POP).await;
    assert_eq!(batch.ids, "c");
    assert_eq!(settled(&db, &batch, &[("c", "completed")]).await[0]["conflated"], 2);

    db.push("q", "d").await;
    db.run(&damage(3)).await;
    let named = format!("{POP}, partition => 'Default'");
    assert_eq!(db.state(&format!("SELECT queen.pop({named})")).await, "QN011");
    db.push_to("q", "other", "x").await;
    assert_eq!(db.pop(&format!("{POP}, max_partitions => 0, batch => 9")).await.ids, "x", "others are delivered");
    db.push("q", "e").await;
    assert_eq!(db.pop(&named).await.ids, "e", "a newer one supersedes it");
}

#[tokio::test]
async fn an_encrypted_message_is_opened() {
    let db = Db::new().await;
    db.run("SET queen.encryption_keys = '1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'").await;
    db.configure("q", r#"{"encryptionEnabled": true}"#).await;
    db.run(r#"SELECT queen.push('q', '{"n": 1}'); SELECT queen.push('q', '{"n": 2}')"#).await;
    assert_eq!(db.rows(&format!("SELECT payload FROM queen.pop({POP})")).await, r#"{"n": 2}"#);
}
