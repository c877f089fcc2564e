//! A transaction that was forgotten, and keeps vacuum from removing anything, does not make the broker slow.

use crate::support::{Backend, Consumer, Producer, ROUNDS, Report, cluster, item};

/// One in so many rounds counts, those at the end: by then most rows are dead ones that nobody may remove.
const LAST: usize = 3;

struct Side {
    database: String,
    /// With a transaction that holds a snapshot from the start.
    holder: Option<Backend>,
    producer: Producer,
    consumer: Consumer,
}

impl Side {
    async fn open(held: bool) -> Self {
        let database = cluster().fresh_database().await;
        let producer = Producer::open(&database).await;
        let consumer = Consumer::open(&database, "billing", None).await;
        // The queue and the group are there before.
        producer.fill(10, false).await;
        consumer.drain().await;
        let holder = if held {
            let holder = Backend::open(&database).await;
            holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queen.queues").await;
            Some(holder)
        } else {
            None
        };
        Self { database, holder, producer, consumer }
    }

    /// CPU time of pushing, and of popping and acknowledging, `times` batches of 100.
    async fn batches(&self, times: usize) -> (f64, f64) {
        let items: Vec<String> = (0..100).map(|n| item("Default", n, None)).collect();
        let push = self.producer.backend.cost(times, async {
            for _ in 0..times {
                self.producer.push(&items).await;
            }
        });
        let push = push.await;
        (push, self.consume(&self.consumer, times, 100).await)
    }

    async fn consume(&self, consumer: &Consumer, times: usize, batch: usize) -> f64 {
        let work = async {
            for _ in 0..times {
                consumer.ack_lease(&consumer.pop(batch).await).await;
            }
        };
        consumer.backend.cost(times, work).await
    }

    /// The snapshot is still the one from the start.
    async fn check(&self) {
        let Some(holder) = &self.holder else { return };
        let age = "SELECT max(age(backend_xmin))::bigint FROM pg_stat_activity WHERE pid = $1";
        let age = self.producer.backend.number(age, &[&holder.pid]).await;
        assert!(age > 40_000, "the snapshot is {age} transactions old");
    }
}

fn last(of: &[f64]) -> Vec<f64> {
    of[of.len() - of.len() / LAST..].to_vec()
}

#[tokio::test]
async fn an_old_snapshot_makes_nothing_dearer() {
    let none = Side::open(false).await;
    let held = Side::open(true).await;
    let mut report = Report::default();

    // 200,000 messages in batches of 100.
    let mut push = (Vec::new(), Vec::new());
    let mut consume = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let (p, c) = none.batches(40).await;
        push.0.push(p);
        consume.0.push(c);
        let (p, c) = held.batches(40).await;
        push.1.push(p);
        consume.1.push(c);
    }
    report.ratio("snapshot/push, 100", 1.5, last(&push.0), last(&push.1));
    report.ratio("snapshot/pop + ack, 100", 1.5, last(&consume.0), last(&consume.1));

    // 20,000 single ones.
    none.producer.fill(50_000, false).await;
    held.producer.fill(50_000, false).await;
    let mut single = (Vec::new(), Vec::new());
    for _ in 0..100 {
        single.0.push(none.consume(&none.consumer, 200, 1).await);
        single.1.push(held.consume(&held.consumer, 200, 1).await);
    }
    report.ratio("snapshot/pop + ack, 1", 1.5, last(&single.0), last(&single.1));
    held.check().await;

    // Backends that know nothing yet.
    let mut first = (Vec::new(), Vec::new());
    let mut fresh = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (side, first, fresh) in [(&none, &mut first.0, &mut fresh.0), (&held, &mut first.1, &mut fresh.1)] {
            let consumer = Consumer::open(&side.database, "billing", None).await;
            first.push(side.consume(&consumer, 1, 1).await);
            fresh.push(side.consume(&consumer, 20, 1).await);
        }
    }
    // It looks at every used-up hint once: some 40,000 here. What it does after that is not dearer.
    report.ratio("snapshot/new backend, first pop + ack", 6.0, first.0, first.1);
    report.ratio("snapshot/new backend, then", 1.5, fresh.0, fresh.1);
    report
        .compare("snapshot/pop + ack, 1, after that", 1.5, &none, &held, async |side: &Side| {
            side.consume(&side.consumer, 40, 1).await
        })
        .await;
    held.check().await;
    report.end();
}
