//! `queen.wait` and `queen.due_json` look at hints; those that were used up are in its way as little as in that of a pop.

use crate::support::{Backend, Consumer, Producer, Report, cluster};

struct Side {
    producer: Producer,
    consumer: Consumer,
    waiter: Backend,
    /// Keeps what was used up in the index.
    holder: Backend,
}

impl Side {
    async fn open() -> Self {
        let database = cluster().fresh_database().await;
        let producer = Producer::open(&database).await;
        let consumer = Consumer::open(&database, "billing", None).await;
        producer.fill(10, false).await;
        consumer.drain().await;
        let holder = Backend::open(&database).await;
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queen.queues").await;
        Self { producer, consumer, waiter: Backend::open(&database).await, holder }
    }

    /// Uses up so many hints of messages, and as many of leases.
    async fn use_up(&self, hints: usize) {
        for _ in 0..hints {
            self.producer.fill(1, false).await;
            self.consumer.ack_lease(&self.consumer.pop(1).await).await;
        }
    }

    /// CPU time of a look that finds nothing.
    async fn look(&self) -> f64 {
        let looks = 40;
        let work = async {
            for _ in 0..looks {
                self.waiter.run("CALL queen.wait('orders', 'billing', 0)").await;
            }
        };
        self.waiter.cost(looks, work).await
    }

    /// CPU time of a question when the next pop may find something, answered with anything but now.
    async fn ask(&self) -> f64 {
        let questions = 200;
        let work = async {
            for _ in 0..questions {
                self.waiter.run("SELECT queen.due_json('[[\"orders\", \"billing\"]]')").await;
            }
        };
        self.waiter.cost(questions, work).await
    }
}

#[tokio::test]
async fn hints_that_were_used_up_under_an_old_snapshot_do_not_make_a_wait_dearer() {
    let (few, many) = (Side::open().await, Side::open().await);
    few.use_up(100).await;
    many.use_up(15_000).await;
    let mut report = Report::default();
    report.compare("wait/used up hints", 1.5, &few, &many, Side::look).await;
    for side in [few, many] {
        side.holder.run("COMMIT").await;
    }
    report.end();
}

#[tokio::test]
async fn hints_that_were_used_up_under_an_old_snapshot_do_not_make_due_json_dearer() {
    let (few, many) = (Side::open().await, Side::open().await);
    few.use_up(100).await;
    many.use_up(15_000).await;
    let mut report = Report::default();
    report.compare("due_json/used up hints", 1.5, &few, &many, Side::ask).await;
    for side in [few, many] {
        side.holder.run("COMMIT").await;
    }
    report.end();
}
