//! A pop from any partition does not look through the partitions that have nothing for it.

use crate::support::{Consumer, Producer, ROUNDS, Report, cluster, item};
use std::cell::Cell;

const FEW: usize = 10;
const MANY: usize = 10_000;
const LIMIT: f64 = 2.0;

struct Queue {
    database: String,
    partitions: usize,
    producer: Producer,
    consumer: Consumer,
    /// Messages are counted through, so that each has another payload.
    n: Cell<usize>,
}

impl Queue {
    /// With two messages or more in each partition.
    async fn open(partitions: usize) -> Self {
        let database = cluster().fresh_database().await;
        let queue = Self {
            producer: Producer::open(&database).await,
            consumer: Consumer::open(&database, "billing", None).await,
            n: Cell::new(0),
            partitions,
            database,
        };
        queue.fill(1000).await;
        queue
    }

    /// One message more for each of the first `partitions` partitions, a segment each.
    async fn push(&self, partitions: usize) {
        for from in (0..partitions).step_by(1000) {
            let items: Vec<String> = (from..partitions.min(from + 1000))
                .map(|p| {
                    self.n.set(self.n.get() + 1);
                    item(&format!("p{p}"), self.n.get(), None)
                })
                .collect();
            self.producer.push(&items).await;
        }
    }

    /// At least two messages for each partition, and `total` altogether.
    async fn fill(&self, total: usize) {
        for _ in 0..(total.div_ceil(self.partitions)).max(2) {
            self.push(self.partitions).await;
        }
    }

    /// Pops and acknowledges single messages, whichever partition has one.
    async fn consume(&self, consumer: &Consumer, times: usize) -> f64 {
        let work = async {
            for _ in 0..times {
                consumer.ack_lease(&consumer.pop(1).await).await;
            }
        };
        consumer.backend.cost(times, work).await
    }
}

async fn both() -> (Queue, Queue) {
    (Queue::open(FEW).await, Queue::open(MANY).await)
}

#[tokio::test]
async fn pop_from_any_of_10_000_partitions_that_all_have_data() {
    let (few, many) = both().await;
    let mut report = Report::default();
    report
        .compare("partitions/all have data", LIMIT, &few, &many, async |queue: &Queue| {
            queue.consume(&queue.consumer, 20).await
        })
        .await;
    report.end();
}

#[tokio::test]
async fn pop_from_any_of_10_000_partitions_of_which_10_have_data() {
    let (few, many) = both().await;
    let mut report = Report::default();
    few.consumer.drain().await;
    many.consumer.drain().await;
    report
        .compare("partitions/9,990 are empty", LIMIT, &few, &many, async |queue: &Queue| {
            queue.push(FEW).await;
            queue.push(FEW).await;
            let cost = queue.consume(&queue.consumer, 20).await;
            assert!(queue.consumer.pop_from(1, 1).await.is_empty());
            cost
        })
        .await;
    report
        .compare("partitions/all are empty", LIMIT, &few, &many, async |queue: &Queue| {
            let consumer = &queue.consumer;
            let work = async {
                // Many, since now and then one of them looks at used-up hints, too.
                for _ in 0..100 {
                    assert!(consumer.pop_from(1, 1).await.is_empty());
                }
            };
            consumer.backend.cost(100, work).await
        })
        .await;
    report.end();
}

#[tokio::test]
async fn pop_from_any_of_10_000_partitions_of_which_5_000_are_leased() {
    let (few, many) = both().await;
    let mut report = Report::default();
    let mut leases = Vec::new();
    for queue in [&few, &many] {
        let other = Consumer::open(&queue.database, "billing", None).await;
        let mut leased = 0;
        while leased < queue.partitions / 2 {
            let wanted = (queue.partitions / 2 - leased).min(1000);
            // As many messages as partitions: a partition that has more gives one for each that it keeps from another.
            let got = other.pop_from(wanted as i32, wanted).await;
            let mut partitions: Vec<_> = got.iter().map(|m| m.partition_id).collect();
            partitions.sort();
            partitions.dedup();
            assert!(!partitions.is_empty(), "something to lease");
            leased += partitions.len();
        }
        leases.push(other);
    }
    report
        .compare("partitions/half are leased", LIMIT, &few, &many, async |queue: &Queue| {
            queue.consume(&queue.consumer, 20).await
        })
        .await;
    report.end();
}

#[tokio::test]
async fn a_new_group_on_10_000_old_partitions() {
    let (few, many) = both().await;
    let mut report = Report::default();
    let mut first = (Vec::new(), Vec::new());
    let mut then = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let group = format!("new {round}");
        for (queue, first, then) in [(&few, &mut first.0, &mut then.0), (&many, &mut first.1, &mut then.1)] {
            let consumer = Consumer::open(&queue.database, &group, None).await;
            first.push(queue.consume(&consumer, 1).await);
            then.push(queue.consume(&consumer, 20).await);
        }
    }
    report.ratio("partitions/new group, first pop + ack", LIMIT, first.0, first.1);
    report.ratio("partitions/new group, then", LIMIT, then.0, then.1);
    report.end();
}

/// A view that joined before it looked computed where every group is everywhere, to answer for one partition.
#[tokio::test]
async fn looking_at_one_partition_of_10_000() {
    let (few, many) = both().await;
    let mut report = Report::default();
    for queue in [&few, &many] {
        queue.consumer.pop(1).await;
        queue.producer.backend.run("ANALYZE; SET jit = off").await;
    }
    for view in ["partitions", "group_partitions"] {
        let found = "(SELECT count(*) + coalesce(sum(pending), 0) FROM queen.VIEW WHERE partition_id = $1)::bigint";
        let sql = format!("SELECT {}", found.replace("VIEW", view));
        report
            .compare(&format!("partitions/one row of {view}"), LIMIT, &few, &many, async |queue: &Queue| {
                let backend = &queue.producer.backend;
                let one = backend.client.query_one("SELECT partition_id FROM queen.partitions LIMIT 1", &[]).await;
                let id: uuid::Uuid = one.expect("a partition").get(0);
                let statement = backend.prepare(&sql).await;
                let work = async {
                    for _ in 0..50 {
                        assert!(backend.number(&statement, &[&id]).await > 0);
                    }
                };
                backend.cost(50, work).await
            })
            .await;
    }
    report.end();
}

/// Each of the partitions read all records anew, once the planner had learnt that they are all of one partition: minutes.
#[tokio::test]
async fn counting_dead_letters_of_1_000_partitions_when_one_has_them_all() {
    let (none, heap) = (Queue::open(1000).await, Queue::open(1000).await);
    let file = "INSERT INTO queen.dead_letter_record
                SELECT gen_random_uuid(), q.tenant, q.qid, q.name, p.name, p.partition_id, 'billing', n, gen_random_uuid(),
                       'tx' || n, '1', NULL, NULL, NULL, 'e', 'r', 0, now(), now(), now(), false,
                       'unknown', '', 'f', NULL, 1, '{}', NULL, 'none', 'pending', 0, n, gen_random_uuid()
                  FROM queen.queue q JOIN queen.partition p USING (qid), generate_series(1, 20000) n WHERE p.name = 'p7'";
    heap.producer.backend.run(file).await;
    let mut report = Report::default();
    for queue in [&none, &heap] {
        queue.producer.backend.run("ANALYZE; SET jit = off").await;
    }
    report
        .compare("partitions/dead letters", 10.0, &none, &heap, async |queue: &Queue| {
            let backend = &queue.producer.backend;
            let count = backend.prepare("SELECT sum(dead_letters)::bigint FROM queen.partitions").await;
            backend.cost(1, async { assert!(backend.number(&count, &[]).await % 20_000 == 0) }).await
        })
        .await;
    report.end();
}

/// First contacts each kept a lock until the end of the transaction: about 10,000 of them filled the server's lock table
/// ("out of shared memory"), for everybody. And a pop of any number of partitions never ended where more than 1,000 of
/// them were new to the group.
#[tokio::test]
async fn first_contacts_of_30_000_partitions_in_one_call_need_no_room_in_the_lock_table() {
    let queue = Queue::open(30_000).await;
    let (messages, all) = (60_000, 0);
    let open = async |group| Consumer::open(&queue.database, group, None).await;
    let number = async |sql: &str| queue.producer.backend.number(sql, &[]).await;
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";

    let backlog = open("has a backlog").await.pop_from(all, 100_000).await;
    assert_eq!(backlog.len(), messages);

    // Nothing to deliver anywhere.
    let late = "SELECT count(*) FROM queen.pop('orders', 'late', subscription_from => '2200-01-01')";
    assert_eq!(number(late).await, 0);

    queue.producer.backend.run("BEGIN").await;
    let moved = number("SELECT queen.seek('orders', 'seeks', to_end => true)").await;
    assert_eq!(moved, 30_000);
    let kept = number(locks).await;
    assert!(kept < 10, "a seek keeps {kept} locks");
    queue.producer.backend.run("COMMIT").await;

    // Told by pushes, partition by partition.
    let new = "SELECT count(*) FROM queen.pop('orders', 'new', subscription_mode => 'new')";
    assert_eq!(number(new).await, 0);
    queue.push(queue.partitions).await;
    let told = open("new").await.pop_from(all, 100_000).await;
    assert_eq!(told.len(), 30_000);
}
