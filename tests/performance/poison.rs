//! One message that fails and fails, and rests in between, leaves the other partitions of its queue flowing.

use crate::support::{Backend, Consumer, Producer, Report, cluster, item};
use std::cell::{Cell, RefCell};
use std::time::Instant;
use tokio_postgres::Statement;

const OTHERS: usize = 99;

struct Shop {
    producer: Producer,
    consumer: Consumer,
    nack: Statement,
    n: Cell<usize>,
    /// Microseconds on the wall from the pop of a good message to the end of its ack, the retries in between included.
    latencies: RefCell<Vec<f64>>,
    /// Deliveries of the poison.
    failures: Cell<usize>,
}

impl Shop {
    async fn open(poisoned: bool) -> Self {
        let database = cluster().fresh_database().await;
        let operator = Backend::open(&database).await;
        let options = r#"{"retryLimit": 1000000, "retryBackoff": "fixed", "retryDelay": 20, "retryJitter": 0.5}"#;
        operator.run(&format!("SELECT queen.configure('orders', '{options}')")).await;
        let (producer, consumer) = (Producer::open(&database).await, Consumer::open(&database, "billing", None).await);
        let nack = consumer.backend.prepare("SELECT success FROM queen.nack($1, $2)").await;
        if poisoned {
            producer.push(&[item("poison", 0, Some("poison".to_owned()))]).await;
        }
        Self { producer, consumer, nack, n: Cell::new(1), latencies: RefCell::default(), failures: Cell::new(0) }
    }

    /// CPU time for each good message, what the poison costs beside it included.
    async fn day(&self) -> f64 {
        let items: Vec<String> = (0..OTHERS)
            .map(|p| {
                self.n.set(self.n.get() + 1);
                item(&format!("p{p}"), self.n.get(), None)
            })
            .collect();
        self.producer.push(&items).await;
        let work = async {
            let (mut done, mut begun) = (0, Instant::now());
            while done < OTHERS {
                let got = self.consumer.pop(1).await;
                if got[0].transaction_id == "poison" {
                    let arguments: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
                        &[&got[0].lease, &got[0].transaction_id];
                    let told = self.consumer.backend.client.query_one(&self.nack, arguments).await;
                    assert!(told.expect("nack").get::<_, bool>(0));
                    self.failures.set(self.failures.get() + 1);
                    continue;
                }
                self.consumer.ack_lease(&got).await;
                done += 1;
                self.latencies.borrow_mut().push(begun.elapsed().as_secs_f64() * 1e6);
                begun = Instant::now();
            }
        };
        self.consumer.backend.cost(OTHERS, work).await
    }
}

#[tokio::test]
async fn one_poison_message_that_rests_leaves_the_other_partitions_flowing() {
    let (healthy, poisoned) = (Shop::open(false).await, Shop::open(true).await);
    let mut report = Report::default();
    report.compare("pop and ack/one poisoned lane of 100", 1.5, &healthy, &poisoned, Shop::day).await;
    assert!(poisoned.failures.get() >= 10, "or this shows nothing: {}", poisoned.failures.get());
    let (before, after) = (healthy.latencies.take(), poisoned.latencies.take());
    report.ratio("latency of the other 99/one poisoned lane of 100", 2.0, before, after);
    report.end();
}
