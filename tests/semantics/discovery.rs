//! Pops of any partition of a queue, and of any queue of a namespace or task.

use crate::support::Db;

#[tokio::test]
async fn any_partition_means_up_to_max_partitions_one_budget_and_one_lease_id() {
    let db = Db::new().await;
    for partition in ["p1", "p2", "p3"] {
        db.push_to("q", partition, "a b c").await;
    }
    let batch = db.pop("'q', batch => 4, max_partitions => 2").await;
    assert_eq!(batch.ids, "a b c a", "the budget is one for all");
    assert_eq!(batch.partitions.split(' ').count(), 2);
    let rest = db.pop("'q', batch => 100, max_partitions => 0").await;
    assert_eq!(rest.ids, "a b c", "leased partitions are skipped");
    assert_ne!(rest.lease, batch.lease);
    assert_eq!(db.pop("'q', batch => 100, max_partitions => 0").await.ids, "");
}

#[tokio::test]
async fn one_partition_is_the_default_and_less_than_one_means_no_cap() {
    let db = Db::new().await;
    for partition in ["p1", "p2", "p3"] {
        db.push_to("q", partition, "a").await;
    }
    assert_eq!(db.pop("'q', 'g1', batch => 10, subscription_mode => 'all'").await.ids, "a");
    let all = db.pop("'q', 'g2', batch => 10, max_partitions => -1, subscription_mode => 'all'").await;
    assert_eq!(all.ids, "a a a");
    let null = db.pop("'q', 'g3', batch => 10, max_partitions => 0, subscription_mode => 'all'").await;
    assert_eq!(null.ids, "a a a");
}

#[tokio::test]
async fn no_partition_waits_behind_a_busy_one() {
    let db = Db::new().await;
    db.push_to("q", "busy", "a b c d e f").await;
    db.push_to("q", "quiet", "z").await;
    // The busy partition always has more: the quiet one must come all the same.
    let mut seen = vec![];
    for _ in 0..4 {
        seen.push(db.pop("'q', auto_ack => true").await.ids);
    }
    assert!(seen.contains(&"z".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn discovery_takes_the_queues_whose_namespace_and_task_are_exactly_as_given() {
    let db = Db::new().await;
    db.push("shop.orders", "a").await;
    db.push("shop.orders.eu", "b").await;
    db.push("shop.bills", "c").await;
    db.push("shopping.orders", "d").await;
    db.configure("odd name", r#"{"namespace": "shop", "task": "bills"}"#).await;
    db.push("odd name", "e").await;
    db.push("plain", "f").await;
    for (filter, wanted) in [
        ("namespace => 'shop'", "a b c e"),
        ("task => 'orders'", "a b d"),
        ("namespace => 'shop', task => 'bills'", "c e"),
        ("namespace => 'shop', task => 'x'", ""),
        ("namespace => ''", "f"),
    ] {
        let batch = db
            .popped(&format!("queen.pop_matching({filter}, consumer_group => '{}', batch => 99, max_partitions => 0, subscription_mode => 'all')", filter.replace('\'', "")))
            .await;
        let mut ids: Vec<&str> = batch.ids.split_whitespace().collect();
        ids.sort_unstable();
        assert_eq!(ids.join(" "), wanted, "{filter}");
    }
    assert_eq!(db.state("SELECT * FROM queen.pop_matching()").await, "22023");
}

#[tokio::test]
async fn discovery_finds_queues_that_come_later() {
    let db = Db::new().await;
    let pop = "queen.pop_matching('s', consumer_group => 'g', batch => 9, max_partitions => 0)";
    db.push("s.one", "old").await;
    assert_eq!(db.popped(pop).await.ids, "");
    db.push("s.one", "a").await;
    assert_eq!(db.popped(pop).await.ids, "a");
    // Created after the group's first contact: with a mode of its own it starts there.
    db.push("s.two", "b").await;
    let all = db.popped(&pop.replace("'g'", "'g', subscription_mode => 'all'")).await;
    assert_eq!(all.ids, "b");
}

/// The first queue by name was asked first each time, so that as long as it had messages no other was served.
#[tokio::test]
async fn no_queue_of_a_namespace_waits_behind_a_busy_one() {
    let db = Db::new().await;
    db.push("s.a", "1 2 3 4 5 6 7 8 9 10 11 12").await;
    db.push("s.b", "quiet").await;
    let mut seen = vec![];
    for _ in 0..8 {
        seen.push(db.popped("queen.pop_matching('s', auto_ack => true)").await.ids);
    }
    assert!(seen.contains(&"quiet".to_owned()), "{seen:?}");
}

/// A pop that was satisfied by the first queues did not make the group known in the others: what came there until it did
/// was skipped.
#[tokio::test]
async fn the_first_discovery_subscribes_the_group_in_every_queue_that_fits() {
    let db = Db::new().await;
    db.push("s.a", "old").await;
    db.push("s.b", "old").await;
    let pop = "queen.pop_matching('s', consumer_group => 'g', batch => 1, auto_ack => true)";
    assert_eq!(db.popped(pop).await.ids, "");
    db.run("SELECT queen.configure('s.c', '{\"namespace\": \"s\"}'); SELECT queen.configure('s.d', '{\"namespace\": \"s\"}')").await;
    db.push("s.a", "a").await;
    assert_eq!(db.popped(pop).await.ids, "a");
    let known = db
        .rows("SELECT string_agg(queue, ' ' ORDER BY queue) FROM queen.consumer_groups WHERE consumer_group = 'g'")
        .await;
    assert_eq!(known, "s.a s.b s.c s.d");
}
