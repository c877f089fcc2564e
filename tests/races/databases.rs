//! Databases of one server share the place where lone pushes meet: each message stays in its own.

use queen_tests::session::Session;
use queen_tests::shared_cluster;
use std::sync::Arc;
use tokio::sync::Barrier;

const SESSIONS: usize = 16;
const EACH: usize = 60;

/// A database with this oid, whose first partition gets the key `pid`.
fn database(oid: u32, pid: i64) -> String {
    let name = format!("oid{oid}");
    let cluster = shared_cluster();
    cluster.psql(queen_tests::SUPERUSER, &format!("CREATE DATABASE {name} OID = {oid}"));
    cluster.psql(&name, &format!("CREATE EXTENSION queen; SELECT setval('queen.partition_pid_seq', {pid}, false)"));
    name
}

/// Many sessions in each of two databases push to the one lane there at the same time.
async fn beside_each_other(lanes: [(u32, i64); 2]) {
    let cluster = shared_cluster();
    let begin = Arc::new(Barrier::new(2 * SESSIONS));
    let mut databases = Vec::new();
    let mut producers = Vec::new();
    for (oid, pid) in lanes {
        let db = database(oid, pid);
        let observer = Session::open(cluster, &db).await;
        observer.append("q", "Default", &["first"]).await;
        assert_eq!(observer.number("SELECT pid FROM queen.partition").await, pid);
        for n in 0..SESSIONS {
            let session = Session::open(cluster, &db).await;
            let (db, begin) = (db.clone(), begin.clone());
            producers.push(tokio::spawn(async move {
                begin.wait().await;
                for i in 0..EACH {
                    session.run(&format!("SELECT queen.push('q', '\"{db} {n} {i}\"')")).await;
                }
            }));
        }
        databases.push((db, observer));
    }
    for producer in producers {
        producer.await.expect("a producer");
    }
    for (db, observer) in databases {
        let mut there = observer
            .rows("SELECT payload #>> '{}' FROM queen.messages('q', max_rows => 100000) WHERE \"offset\" > 0")
            .await
            .into_iter()
            .map(|row| row[0].clone().expect("a payload"))
            .collect::<Vec<_>>();
        let mut pushed: Vec<String> =
            (0..SESSIONS).flat_map(|n| (0..EACH).map(move |i| (n, i))).map(|(n, i)| format!("{db} {n} {i}")).collect();
        there.sort();
        pushed.sort();
        assert_eq!(there, pushed, "{db}");
        assert_eq!(observer.stored("q").await["Default"].len(), pushed.len() + 1, "{db}: dense");
        assert!(
            observer.number("SELECT max(frames) FROM queen.segment").await > 1,
            "{db}: no push went along with another"
        );
        assert_eq!(observer.rows("SELECT * FROM queen.verify()").await.len(), 0);
    }
}

/// Offers told databases apart by 26 bits of their oid: a session of one took messages of the other that had an equal
/// partition key, and answered that they were stored.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_with_equal_keys_in_two_databases_do_not_mix() {
    beside_each_other([(100_000, 1), (100_000 + (1 << 26), 1)]).await;
}

/// What a lane is shrunk to in shared memory can be that of another one, too: the full name decides.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_look_alike_in_shared_memory_do_not_mix() {
    // Database and key are multiplied by an odd number, and the lowest three bits left out (src/pg/shared_append.rs).
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut inverse = FACTOR;
    while FACTOR.wrapping_mul(inverse) != 1 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
    }
    let lane = |mixed: u64| ((mixed.wrapping_mul(inverse) >> 32) as u32, i64::from(mixed.wrapping_mul(inverse) as u32));
    let pairs = (200_001u64 << 32).wrapping_mul(FACTOR);
    let [one, two] = [2, 5].map(|low| lane(pairs & !7 | low));
    beside_each_other([one, two]).await;
}
