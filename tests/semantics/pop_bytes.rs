//! `max_bytes` of the pops that answer JSON: what does not fit comes later, and nothing is passed over.

use crate::support::Db;
use serde_json::Value;

/// Pushes messages with payloads of these lengths, in one segment; data of the n-th is a string of so many letters.
async fn push(db: &Db, partition: &str, lengths: &[usize]) {
    let items: Vec<Value> = lengths
        .iter()
        .map(|&n| serde_json::json!({"queue": "q", "partition": partition, "payload": "x".repeat(n)}))
        .collect();
    db.run(&format!("SELECT queen.push_batch('{}')", Value::Array(items))).await;
}

/// Lengths of the data that each pop brings, until there is no more.
async fn drained(db: &Db, call: &str) -> Vec<Vec<usize>> {
    let mut pops = Vec::new();
    loop {
        let answer: Value = serde_json::from_str(&db.rows(&format!("SELECT queen.{call}")).await).expect("JSON");
        let of = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let segments = of(&answer, "batches").into_iter().flat_map(|batch| of(&batch, "segments"));
        let messages = segments.flat_map(|segment| of(&segment, "messages"));
        let lengths: Vec<usize> = messages.map(|m| m["data"].as_str().map_or(0, str::len)).collect();
        if lengths.is_empty() {
            return pops;
        }
        pops.push(lengths);
        assert!(pops.len() < 1000, "no end");
    }
}

/// Bytes that a message of this length counts: its quotes, and 64.
fn counted(length: usize) -> usize {
    length + 2 + 64
}

const REST: &str = "auto_ack => true, subscription_mode => 'all'";

#[tokio::test]
async fn a_pop_ends_before_the_message_that_does_not_fit() {
    let db = Db::new().await;
    push(&db, "p", &[100, 100, 100, 900, 10, 10]).await;
    let three = counted(100) * 3;
    for (limit, expected) in [
        (three, &[&[100, 100, 100][..], &[900], &[10, 10]][..]),
        (three - 1, &[&[100, 100], &[100], &[900], &[10, 10]]),
        (1, &[&[100], &[100], &[100], &[900], &[10], &[10]]),
        (1 << 30, &[&[100, 100, 100, 900, 10, 10]]),
    ] {
        for partition in ["NULL", "'p'"] {
            let group = format!("g{limit}{}", partition.len());
            let call = format!("pop_json('q', '{group}', 100, partition => {partition}, {REST}, max_bytes => {limit})");
            assert_eq!(drained(&db, &call).await, expected, "{call}");
        }
    }
    assert_eq!(db.state("SELECT queen.pop_json('q', 'g', max_bytes => 0)").await, "22023");
}

#[tokio::test]
async fn the_limit_is_of_all_partitions_together() {
    let db = Db::new().await;
    for (partition, lengths) in [("a", &[100, 100][..]), ("b", &[500]), ("c", &[100])] {
        push(&db, partition, lengths).await;
    }
    let call = |group: &str, limit: usize| {
        format!("pop_json('q', '{group}', 100, max_partitions => 0, {REST}, max_bytes => {limit})")
    };
    // The second partition's message does not fit beside the first's, and the pop looks no further.
    let got = drained(&db, &call("g", counted(100) * 3)).await;
    assert_eq!(got, [vec![100, 100], vec![500], vec![100]]);
    // Of whole segments some more is counted.
    let got = drained(&db, &call("h", counted(100) * 3 + counted(500) + 4 * 40)).await;
    assert_eq!(got, [[100, 100, 500, 100]]);
    db.configure("q", r#"{"namespace": "n"}"#).await;
    let matching = format!(
        "pop_matching_json('n', consumer_group => 'm', batch => 100, max_partitions => 0, {REST}, max_bytes => {}) ",
        counted(100) * 2
    );
    assert_eq!(drained(&db, &matching).await, [vec![100, 100], vec![500], vec![100]]);
}

#[tokio::test]
async fn conflating_groups_have_the_limit_too() {
    let db = Db::new().await;
    for partition in ["a", "b", "c"] {
        push(&db, partition, &[10, 400]).await;
    }
    let call = "pop_json('q', 'g', 100, max_partitions => 0, conflation => true, subscription_mode => 'all', max_bytes => 900)";
    assert_eq!(drained(&db, call).await, [vec![400, 400], vec![400]]);
}

/// Whatever the limits are, and however the messages lie in segments: each comes once, in order, and a batch that is larger
/// than the limit is a single message.
#[tokio::test]
async fn with_any_limits_each_message_comes_once_and_in_order() {
    let db = Db::new().await;
    let mut state = 7u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut all = Vec::new();
    for _ in 0..12 {
        let lengths: Vec<usize> = (0..=random(20)).map(|_| random(700) as usize).collect();
        push(&db, "p", &lengths).await;
        all.extend(lengths);
    }
    for round in 0..20 {
        let (limit, batch) = (random(4000) as usize + 1, random(30) + 1);
        let call = format!("pop_json('q', 'g{round}', {batch}, {REST}, max_bytes => {limit})");
        let pops = drained(&db, &call).await;
        for pop in &pops {
            let bytes: usize = pop.iter().map(|&n| counted(n)).sum();
            assert!(pop.len() == 1 || bytes <= limit, "{limit}: {pop:?}");
            assert!(pop.len() as u64 <= batch);
        }
        assert_eq!(pops.concat(), all, "limit {limit}, batch {batch}");
    }
}
