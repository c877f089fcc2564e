//! What waits, and what was consumed, does not make a pop and its acknowledgement dearer.

use crate::support::{Consumer, Message, Producer, Report, cluster};
use std::cell::Cell;

/// A consumer of a lane in which some number of messages always waits.
struct Lane {
    consumer: Consumer,
    producer: Producer,
    backlog: usize,
    waiting: Cell<usize>,
}

impl Lane {
    async fn open(backlog: usize, consumed: usize) -> Self {
        let database = cluster().fresh_database().await;
        let lane = Self {
            consumer: Consumer::open(&database, "billing", None).await,
            producer: Producer::open(&database).await,
            backlog,
            waiting: Cell::new(0),
        };
        lane.producer.fill(consumed, false).await;
        assert_eq!(lane.consumer.drain().await, consumed);
        lane.refill(backlog).await;
        lane
    }

    /// Has so many messages wait at least, and hardly more.
    async fn refill(&self, messages: usize) {
        let missing = messages.saturating_sub(self.waiting.get()).next_multiple_of(1000);
        self.producer.fill(missing, false).await;
        self.waiting.set(self.waiting.get() + missing);
    }

    /// Pops and acknowledges `times` batches; the backlog is never smaller.
    async fn work(&self, times: usize, batch: usize, ack: impl AsyncFn(&Consumer, Vec<Message>)) -> f64 {
        self.refill(self.backlog + times * batch).await;
        self.waiting.set(self.waiting.get() - times * batch);
        let consumer = &self.consumer;
        consumer
            .backend
            .cost(times, async {
                for _ in 0..times {
                    ack(consumer, consumer.pop(batch).await).await;
                }
            })
            .await
    }
}

async fn compare(report: &mut Report, what: &str, few: &Lane, many: &Lane) {
    let name = |how| format!("{what}/{how}");
    let by_lease = async |c: &Consumer, m: Vec<Message>| c.ack_lease(&m).await;
    let by_id = async |c: &Consumer, m: Vec<Message>| c.ack(&m[0]).await;
    let by_ids = async |c: &Consumer, m: Vec<Message>| c.ack_batch(&m).await;
    report.compare(&name("lease, 1"), 1.3, few, many, async |lane: &Lane| lane.work(40, 1, by_lease).await).await;
    report.compare(&name("id, 1"), 1.3, few, many, async |lane: &Lane| lane.work(40, 1, by_id).await).await;
    report.compare(&name("lease, 100"), 1.3, few, many, async |lane: &Lane| lane.work(10, 100, by_lease).await).await;
    report.compare(&name("ids, 100"), 1.3, few, many, async |lane: &Lane| lane.work(10, 100, by_ids).await).await;
}

#[tokio::test]
async fn pop_and_ack_do_not_get_dearer_with_the_backlog() {
    let few = Lane::open(1_000, 0).await;
    let many = Lane::open(1_000_000, 0).await;
    let mut report = Report::default();
    compare(&mut report, "backlog", &few, &many).await;
    report.end();
}

#[tokio::test]
async fn pop_and_ack_do_not_get_dearer_with_what_was_consumed() {
    let few = Lane::open(1_000, 1_000).await;
    let many = Lane::open(1_000, 1_000_000).await;
    let mut report = Report::default();
    compare(&mut report, "history", &few, &many).await;
    report.end();
}

/// The two ways to settle a delivery of 100; `ids` is false for the whole lease.
struct Way<'a> {
    lane: &'a Lane,
    ids: bool,
}

#[tokio::test]
async fn acknowledging_100_messages_by_id_is_not_out_of_proportion_to_the_whole_lease() {
    let lane = Lane::open(1_000, 0).await;
    let way = |ids| Way { lane: &lane, ids };
    let mut report = Report::default();
    report
        .compare("ack/100 ids against the lease", 8.0, &way(false), &way(true), async |way: &Way| {
            let consumer = &way.lane.consumer;
            way.lane.refill(2_000).await;
            let mut cost = 0.0;
            for _ in 0..5 {
                let messages = consumer.pop(100).await;
                cost += consumer
                    .backend
                    .cost(5, async {
                        if way.ids {
                            consumer.ack_batch(&messages).await;
                        } else {
                            consumer.ack_lease(&messages).await;
                        }
                    })
                    .await;
            }
            way.lane.waiting.set(way.lane.waiting.get() - 500);
            cost
        })
        .await;
    report.end();
}
