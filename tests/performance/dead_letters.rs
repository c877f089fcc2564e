//! Dead letters: looking at a million costs what looking at a thousand does, and filing one costs an ack little.

use crate::support::{Backend, Producer, Report, cluster};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A database with so many dead letters of 40 kinds of failures, in every status, spread over a day.
struct Filed {
    backend: Backend,
    middle: String,
}

impl Filed {
    async fn open(count: usize) -> Self {
        let database = cluster().fresh_database().await;
        let backend = Backend::open(&database).await;
        backend.run("SET statement_timeout = 0; SET jit = off").await;
        backend
            .run(&format!(
                "INSERT INTO queen.dead_letter_record
                 SELECT gen_random_uuid(), queen.current_tenant(), 1, 'orders', 'Default', '0190aaaa-0000-7000-8000-00000000000f',
                        g.name, n, gen_random_uuid(), 't' || n, convert_to('{{\"order\": ' || n || ', \"note\": \"please ring twice\"}}', 'UTF8'),
                        NULL, NULL, NULL, 'timeout after ' || n || ' ms', 'retries_exhausted', 3, m.at, m.at, m.at, false,
                        c.class, c.code, f.print, NULL, 4, '{{}}', NULL, 'none', s.status, 0, n,
                        md5(g.name || c.code || f.print)::uuid
                   FROM generate_series(1, {count}) n
                  CROSS JOIN LATERAL (SELECT clock_timestamp() - interval '1 day' * n / {count} AS at) m
                  CROSS JOIN LATERAL (SELECT 'g' || n % 2 AS name) g
                  CROSS JOIN LATERAL (SELECT (ARRAY['transient', 'permanent', 'poison', 'policy', 'unknown'])[n / 2 % 5 + 1] AS class,
                                             'C' || n / 2 % 5 AS code) c
                  CROSS JOIN LATERAL (SELECT md5('f' || n / 10 % 4) AS print) f
                  CROSS JOIN LATERAL (SELECT (ARRAY['pending', 'pending', 'approved', 'discarded'])[n / 40 % 4 + 1] AS status) s;
                 INSERT INTO queen.dlq_tally
                 SELECT tenant, queue, consumer_group, failure_class, error_code, fingerprint, status, kind, '-infinity',
                        count(*), 0, count(*)
                   FROM queen.dead_letter_record GROUP BY 1, 2, 3, 4, 5, 6, 7, 8"
            ))
            .await;
        // As autovacuum would.
        backend.run("VACUUM ANALYZE queen.dead_letter_record").await;
        let middle = backend
            .client
            .query_one(
                "SELECT page_cursor FROM queen.dlq_list(\"to\" => clock_timestamp() - interval '12 hours', max_rows => 1)",
                &[],
            )
            .await;
        Self { middle: middle.expect("a record").get(0), backend }
    }

    async fn ask(&self, sql: &str) -> f64 {
        let sql = sql.replace("MIDDLE", &self.middle);
        let work = async {
            for _ in 0..5 {
                let rows = self.backend.client.query(&sql, &[]).await.expect("rows");
                assert!(!rows.is_empty(), "{sql}");
            }
        };
        self.backend.cost(5, work).await
    }
}

#[tokio::test]
async fn listing_filtering_and_counting_a_million_dead_letters() {
    let few = Filed::open(1_000).await;
    let many = Filed::open(1_000_000).await;
    let mut report = Report::default();
    for sql in [
        "SELECT * FROM queen.dlq()",
        "SELECT * FROM queen.dlq_list(max_rows => 100)",
        "SELECT * FROM queen.dlq_list(after => 'MIDDLE', max_rows => 100)",
        "SELECT * FROM queen.dlq_list('orders', 'g1', 'poison', max_rows => 20)",
        "SELECT * FROM queen.dlq_list(error_code => 'C4', status => 'discarded', max_rows => 20)",
        "SELECT * FROM queen.dlq_list(fingerprint => md5('f2'), after => 'MIDDLE', max_rows => 20)",
        "SELECT queen.dlq_list_json('orders', max_rows => 100)",
        "SELECT queen.dlq_count('orders')",
        "SELECT queen.dlq_count(fingerprint => md5('f2'), status => 'all')",
        "SELECT * FROM queen.dlq_stats()",
        "SELECT * FROM queen.dlq_depth",
    ] {
        report.compare(&format!("dlq/{sql}"), 2.0, &few, &many, async |side: &Filed| side.ask(sql).await).await;
    }
    report.end();
}

/// A group with a leased message in each of 20 partitions, which it gives up on, or only fails.
struct Failing {
    backend: Backend,
    pop: String,
    nack: &'static str,
}

impl Failing {
    async fn open(group: &str, nack: &'static str) -> Self {
        let database = cluster().fresh_database().await;
        let producer = Producer::open(&database).await;
        producer.backend.run("SELECT queen.configure('orders', '{\"retryLimit\": 1000000000}')").await;
        for partition in 0..20 {
            let items: Vec<String> =
                (0..300).map(|n| crate::support::item(&format!("p{partition}"), n, None)).collect();
            producer.push(&items).await;
        }
        let pop = format!(
            "SELECT p.partition_id, p.transaction_id, p.lease_id
               FROM generate_series(0, 19) n,
                    queen.pop('orders', '{group}', 1, 'p' || n, 1, 3600, subscription_mode => 'all') p"
        );
        Self { backend: Backend::open(&database).await, pop, nack }
    }

    /// What 20 acks cost, each: CPU time of the server, and what the client waits, in microseconds.
    async fn nack(&self) -> (f64, f64) {
        let leased = self.backend.client.query(&self.pop, &[]).await.expect("a pop");
        assert_eq!(leased.len(), 20);
        let statement = self.backend.prepare(self.nack).await;
        let mut waited = 0.0;
        let work = async {
            let begun = std::time::Instant::now();
            for row in &leased {
                let (partition, id, lease): (Uuid, &str, Uuid) = (row.get(0), row.get(1), row.get(2));
                let arguments: &[&(dyn ToSql + Sync)] = &[&partition, &id, &lease];
                let row = self.backend.client.query_one(&statement, arguments).await.expect("an ack");
                assert!(row.get::<_, bool>(0));
            }
            waited = begun.elapsed().as_secs_f64() * 1e6 / leased.len() as f64;
        };
        (self.backend.cost(leased.len(), work).await, waited)
    }
}

impl Failing {
    /// CPU time of an ack in the cheapest of three goes: what else the machine does only ever adds to it.
    async fn least(&self) -> f64 {
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            least = least.min(self.nack().await.0);
        }
        least
    }
}

#[tokio::test]
async fn filing_a_dead_letter_costs_little_more_than_a_failed_ack() {
    const FAILED: &str =
        "SELECT success FROM queen.ack($1, $2, 'failed', 'g', $3, 'the payment service answered 503 after 3000 ms')";
    const DEAD: &str =
        "SELECT dlq FROM queen.ack($1, $2, 'dlq', 'g', $3, 'the payment service answered 503 after 3000 ms')";
    // A new server touches its memory for the first time, which is dear, and filing writes more: no part of what it costs
    // later on.
    let warm = Backend::open(&cluster().fresh_database().await).await;
    warm.run("CREATE TABLE warm AS SELECT repeat('x', 1000) FROM generate_series(1, 100000); DROP TABLE warm").await;
    let failed = Failing::open("g", FAILED).await;
    let dead = Failing::open("g", DEAD).await;
    let mut report = Report::default();
    // What the consumer waits for, its commit not even being flushed to disk; and the server's CPU time alone.
    report.compare("dlq/filing one, waited", 1.5, &failed, &dead, async |s: &Failing| s.nack().await.1).await;
    report.compare("dlq/filing one, CPU", 1.5, &failed, &dead, async |s: &Failing| s.least().await).await;
    report.end();
}
