//! Looking things up, and moving to a time, cost about the same however much is stored; views cost what their rows do.

use crate::support::{Backend, Producer, Report, cluster, item};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

struct Lane {
    backend: Backend,
    partition_id: Uuid,
    ids: Vec<String>,
    message: Statement,
    seek: Statement,
    range: Statement,
    read: Statement,
    messages: usize,
}

impl Lane {
    async fn open(messages: usize, explicit: bool) -> Self {
        let database = cluster().fresh_database().await;
        Producer::open(&database).await.fill(messages, explicit).await;
        let backend = Backend::open(&database).await;
        backend.run("SELECT queen.pop('orders', 'billing', subscription_mode => 'all')").await;
        let row = backend.client.query_one("SELECT partition_id FROM queen.partitions", &[]).await;
        let partition_id: Uuid = row.expect("a partition").get(0);
        // From all over the log.
        let ids = backend
            .client
            .query(
                "SELECT r.transaction_id
                   FROM generate_series(1, 40) n, queen.read($1, n * $2::bigint / 41, 1) r",
                &[&partition_id, &(messages as i64)],
            )
            .await
            .expect("ids");
        Self {
            message: backend.prepare("SELECT m.payload_text FROM queen.message($1, $2) m").await,
            seek: backend
                .prepare(
                    "SELECT queen.seek('orders', 'billing', to_timestamp =>
                        (SELECT created_at FROM queen.message($1, $2)))",
                )
                .await,
            range: backend
                .prepare(
                    "SELECT count(*) FROM queen.messages('orders', 'Default', max_rows => 10, \"to\" =>
                        (SELECT created_at + interval '1 microsecond' FROM queen.message($1, $2)))",
                )
                .await,
            read: backend.prepare("SELECT count(*) FROM queen.read($1, $2, 10)").await,
            ids: ids.iter().map(|row| row.get(0)).collect(),
            backend,
            partition_id,
            messages,
        }
    }

    /// Asks for 20 messages from all over the log.
    async fn each(&self, statement: &Statement, answers: impl Fn(&tokio_postgres::Row)) -> f64 {
        let work = async {
            for id in self.ids.iter().step_by(2) {
                let arguments: &[&(dyn ToSql + Sync)] = &[&self.partition_id, id];
                answers(&self.backend.client.query_one(statement, arguments).await.expect("an answer"));
            }
        };
        self.backend.cost(20, work).await
    }

    async fn read(&self) -> f64 {
        let work = async {
            for n in 1..=20 {
                let from = (n * self.messages / 21) as i64;
                let got = self.backend.number(&self.read, &[&self.partition_id, &from]).await;
                assert_eq!(got, 10);
            }
        };
        self.backend.cost(20, work).await
    }
}

async fn compare(what: &str, explicit: bool) {
    let few = Lane::open(1_000, explicit).await;
    let many = Lane::open(500_000, explicit).await;
    let mut report = Report::default();
    report
        .compare(&format!("read/{what}, message()"), 2.0, &few, &many, async |lane: &Lane| {
            lane.each(&lane.message, |row| assert!(row.get::<_, Option<String>>(0).is_some())).await
        })
        .await;
    report
        .compare(&format!("read/{what}, seek to a time"), 2.0, &few, &many, async |lane: &Lane| {
            lane.each(&lane.seek, |row| assert_eq!(row.get::<_, i64>(0), 1)).await
        })
        .await;
    report
        .compare(&format!("read/{what}, messages up to a time"), 2.0, &few, &many, async |lane: &Lane| {
            lane.each(&lane.range, |row| assert_eq!(row.get::<_, i64>(0), 10)).await
        })
        .await;
    report.compare(&format!("read/{what}, read()"), 2.0, &few, &many, async |lane: &Lane| lane.read().await).await;
    report.end();
}

#[tokio::test]
async fn looking_up_explicit_ids_among_500_000() {
    compare("explicit", true).await;
}

#[tokio::test]
async fn looking_up_minted_ids_among_500_000() {
    compare("minted", false).await;
}

/// A queue with so many partitions, of two messages each, and a group that is somewhere in half of them.
struct Partitions {
    backend: Backend,
    partitions: usize,
}

impl Partitions {
    async fn open(partitions: usize) -> Self {
        let database = cluster().fresh_database().await;
        let producer = Producer::open(&database).await;
        for _ in 0..2 {
            for from in (0..partitions).step_by(1000) {
                let items: Vec<String> = (from..from + 1000).map(|p| item(&format!("p{p}"), p, None)).collect();
                producer.push(&items).await;
            }
        }
        let backend = Backend::open(&database).await;
        // Whether the server compiles a query depends on its statistics, and costs more than 1,000 partitions do.
        backend.run("SET jit = off").await;
        for _ in 0..partitions / 1000 {
            backend
                .run(
                    "SELECT count(*) FROM queen.pop('orders', 'billing', 1000, NULL, 1000, subscription_mode => 'all')",
                )
                .await;
        }
        Self { backend, partitions }
    }

    /// Cost of a query for each partition.
    async fn query(&self, sql: &str) -> f64 {
        let work = async {
            let rows = self.backend.client.query(sql, &[]).await.expect(sql);
            assert!(!rows.is_empty());
        };
        self.backend.cost(self.partitions, work).await
    }
}

#[tokio::test]
async fn views_cost_the_same_for_each_of_10_000_partitions() {
    let few = Partitions::open(1_000).await;
    let many = Partitions::open(10_000).await;
    let mut report = Report::default();
    for sql in [
        "SELECT * FROM queen.partitions",
        "SELECT queue, partitions, messages FROM queen.queues",
        "SELECT queue, pending, processing, oldest_pending_at FROM queen.queues",
        "SELECT * FROM queen.queues",
        "SELECT * FROM queen.consumer_groups",
    ] {
        report
            .compare(&format!("views/{sql}, a partition"), 2.0, &few, &many, async |p: &Partitions| p.query(sql).await)
            .await;
    }
    report.end();
}
