//! Transaction ids that are remembered for deduplication do not make pushes and acknowledgements dearer.

use crate::support::{Consumer, Producer, Report, cluster, item};
use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio_postgres::Statement;

const FEW: usize = 1_000;
const MANY: usize = 500_000;
const LIMIT: f64 = 1.3;
/// Batches of explicit ids: nearly all of their cost is in the ids, each of which goes to a place of its own in an index
/// that the CPU's caches do not hold any more.
const BATCH_LIMIT: f64 = 2.0;

struct Lane {
    producer: Producer,
    consumer: Consumer,
    push: Statement,
    n: Cell<usize>,
}

impl Lane {
    async fn open(ids: usize, explicit: bool) -> Self {
        let database = cluster().fresh_database().await;
        let producer = Producer::open(&database).await;
        let lane = Self {
            push: producer
                .backend
                .prepare("SELECT (queen.push('orders', $1::text::jsonb, transaction_id => $2)).status")
                .await,
            consumer: Consumer::open(&database, "billing", None).await,
            n: Cell::new(ids),
            producer,
        };
        lane.producer.fill(ids, explicit).await;
        lane
    }

    fn next(&self) -> usize {
        self.n.replace(self.n.get() + 1)
    }

    async fn batches(&self, times: usize, size: usize, id: impl Fn(usize) -> Option<String>) -> f64 {
        let mut batches = Vec::new();
        for _ in 0..times {
            let items = (0..size).map(|_| self.next());
            batches.push(items.map(|n| item("Default", n, id(n))).collect::<Vec<_>>());
        }
        let work = async {
            for items in &batches {
                self.producer.push(items).await;
            }
        };
        self.producer.backend.cost(times, work).await
    }

    /// Pushes at commit.
    async fn pushes(&self, times: usize, explicit: bool) -> f64 {
        let backend = &self.producer.backend;
        let work = async {
            for _ in 0..times {
                let n = self.next();
                let (payload, id) = (format!("{{\"order\":{n}}}"), explicit.then(|| format!("order-{n}")));
                let row = backend.client.query_one(&self.push, &[&payload, &id]).await;
                assert_eq!(row.expect("push").get::<_, String>(0), "queued");
            }
        };
        backend.cost(times, work).await
    }

    /// Pushes of ids that are there.
    async fn duplicates(&self, times: usize) -> f64 {
        let backend = &self.producer.backend;
        let work = async {
            for i in 0..times {
                let id = Some(format!("order-{}", i * 17 % FEW));
                let row = backend.client.query_one(&self.push, &[&"{}", &id]).await;
                assert_eq!(row.expect("push").get::<_, String>(0), "duplicate");
            }
        };
        backend.cost(times, work).await
    }

    /// Acknowledges messages of one delivery one by one.
    async fn acks(&self, times: usize) -> f64 {
        let messages = self.consumer.pop(times).await;
        let work = async {
            for message in &messages {
                self.consumer.ack(message).await;
            }
        };
        self.consumer.backend.cost(times, work).await
    }
}

/// A UUID v7 as a client makes it, so many seconds ago.
fn uuid_v7(n: usize, seconds_ago: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("clock");
    let millis = now.as_millis() as u64 - seconds_ago * 1000;
    let (high, low) = (millis >> 16, millis & 0xffff);
    format!("{high:08x}-{low:04x}-7{:03x}-8abc-{n:012x}", n & 0xfff)
}

#[tokio::test]
async fn pushes_and_acks_with_500_000_explicit_ids_in_the_window() {
    let few = Lane::open(FEW, true).await;
    let many = Lane::open(MANY, true).await;
    let mut report = Report::default();
    let order = |n| Some(format!("order-{n}"));
    report.compare("dedup/push at commit", LIMIT, &few, &many, async |lane: &Lane| lane.pushes(20, true).await).await;
    report
        .compare("dedup/push_batch of 1", LIMIT, &few, &many, async |lane: &Lane| lane.batches(20, 1, order).await)
        .await;
    report
        .compare("dedup/push_batch of 100", BATCH_LIMIT, &few, &many, async |lane: &Lane| {
            lane.batches(2, 100, order).await
        })
        .await;
    report
        .compare("dedup/push_batch of 10, client's UUIDs", BATCH_LIMIT, &few, &many, async |lane: &Lane| {
            lane.batches(5, 10, |n| Some(uuid_v7(n, 0))).await
        })
        .await;
    report
        .compare("dedup/push_batch of 10, client's UUIDs of 2 s ago", BATCH_LIMIT, &few, &many, async |lane: &Lane| {
            lane.batches(5, 10, |n| Some(uuid_v7(n, 2))).await
        })
        .await;
    report.compare("dedup/duplicate", LIMIT, &few, &many, async |lane: &Lane| lane.duplicates(20).await).await;
    report.compare("dedup/ack by id", LIMIT, &few, &many, async |lane: &Lane| lane.acks(40).await).await;
    report.end();
}

#[tokio::test]
async fn pushes_and_acks_with_500_000_minted_ids_in_the_window() {
    let few = Lane::open(FEW, false).await;
    let many = Lane::open(MANY, false).await;
    let mut report = Report::default();
    report
        .compare("dedup/minted, push at commit", LIMIT, &few, &many, async |lane: &Lane| lane.pushes(20, false).await)
        .await;
    report
        .compare("dedup/minted, push_batch of 100", LIMIT, &few, &many, async |lane: &Lane| {
            lane.batches(2, 100, |_| None).await
        })
        .await;
    report.compare("dedup/minted, ack by id", LIMIT, &few, &many, async |lane: &Lane| lane.acks(40).await).await;
    report.end();
}
