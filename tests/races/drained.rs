//! The handshake between the end of a lane and what comes after it: whoever settles the last message and whoever appends
//! the next one do not wait for each other, and a pop of any partition finds the new message all the same.

use queen_tests::session::Session;
use queen_tests::shared_cluster;

/// Ways to be done with the lane's only message, of which the group holds a lease.
const SETTLE: &[(&str, &str)] = &[
    ("ack", "SELECT queen.ack('{partition}', 'one', 'completed', 'g', '{lease}')"),
    ("ack without lease id", "SELECT queen.ack('{partition}', 'one', consumer_group => 'g')"),
    ("ack_lease", "SELECT queen.ack_lease('{lease}')"),
    (
        "ack_batch",
        r#"SELECT queen.ack_batch('[{"transactionId": "one", "partitionId": "{partition}", "leaseId": "{lease}"}]', 'g')"#,
    ),
    ("dead letter", "SELECT queen.nack('{lease}', 'one', 'no', 'dlq')"),
    ("nack", "SELECT queen.nack('{lease}', 'one', 'no')"),
    ("release", "SELECT queen.release('{lease}')"),
    ("seek", "SELECT queen.seek('{queue}', 'g', to_end => true)"),
    ("seek of the partition", "SELECT queen.seek('{queue}', 'g', to_end => true, partition => 'Default')"),
    ("pop auto_ack", "SELECT queen.release('{lease}'); SELECT queen.pop('{queue}', 'g', 10, auto_ack => true)"),
    (
        "pop of the partition, auto_ack",
        "SELECT queen.release('{lease}'); SELECT queen.pop('{queue}', 'g', 10, 'Default', auto_ack => true)",
    ),
];

/// Ways to append, in a transaction.
const APPEND: &[(&str, &str)] = &[
    ("push_batch", r#"SELECT queen.push_batch('[{"queue": "{queue}", "payload": 2, "transactionId": "two"}]')"#),
    ("flush", "SELECT queen.push('{queue}', '2', transaction_id => 'two'); SELECT queen.flush()"),
];

struct Sessions {
    settler: Session,
    pusher: Session,
    consumer: Session,
}

impl Sessions {
    async fn open() -> Self {
        let cluster = shared_cluster();
        let db = cluster.fresh_database().await;
        let session = || async {
            let session = Session::open(cluster, &db).await;
            // Whoever waits for the other fails.
            session.run("SET statement_timeout = '10s'").await;
            session
        };
        Self { settler: session().await, pusher: session().await, consumer: session().await }
    }

    /// A registered group with the lane's only message under lease; answers the placeholders' values.
    async fn begin(&self, queue: &str) -> [(&'static str, String); 3] {
        self.pusher.append(queue, "Default", &["one"]).await;
        let got =
            self.settler.pop(&format!("'{queue}', 'g', 10, subscription_mode => 'all', lease_seconds => 3600")).await;
        let lease = got[0].lease.clone().expect("a lease");
        [("{lease}", lease), ("{partition}", got[0].partition_id.clone()), ("{queue}", queue.to_owned())]
    }

    /// Everything that is stored and not done is found by pops of any partition, and so is what comes next.
    async fn nothing_is_stuck(&self, queue: &str, story: &str) {
        let c = &self.consumer;
        let last = c.number(&format!("SELECT last_offset FROM queen.partitions WHERE queue = '{queue}'")).await;
        let state = c
            .rows(&format!(
                "SELECT c.committed, c.lease_id IS NULL FROM queen.cursor c JOIN queen.subscription s USING (gid)
                   JOIN queen.queue q USING (qid) WHERE q.name = '{queue}' ORDER BY c.seq DESC LIMIT 1"
            ))
            .await
            .remove(0);
        if state[1].as_deref() == Some("f") {
            // The settling was undone, and the lease lives: give it back.
            let sql = "SELECT queen.release(lease_id) FROM queen.cursor c JOIN queen.subscription s USING (gid)
                         JOIN queen.queue q USING (qid) WHERE lease_id IS NOT NULL AND q.name = ";
            c.run(&format!("{sql}'{queue}'")).await;
        }
        let committed: i64 = state[0].as_deref().expect("committed").parse().expect("committed");
        let mut found = Vec::new();
        loop {
            let got = c.pop(&format!("'{queue}', 'g', 10, max_partitions => 0, auto_ack => true")).await;
            if got.is_empty() {
                break;
            }
            found.extend(got.into_iter().map(|m| m.offset));
        }
        assert_eq!(found, (committed + 1..=last).collect::<Vec<_>>(), "{story}");
        self.pusher.append(queue, "Default", &["next"]).await;
        let got = c.pop(&format!("'{queue}', 'g', 10, auto_ack => true")).await;
        assert_eq!(got.len(), 1, "{story}: the next message is not found");
    }
}

/// Both in open transactions, begun in either order, ended in either order, committed or rolled back.
async fn beside(append: (&str, &str)) {
    const ENDS: [&str; 2] = ["COMMIT", "ROLLBACK"];
    let sessions = Sessions::open().await;
    let mut n = 0;
    for settle in SETTLE {
        for case in 0..16 {
            let (settle_begins, settle_ends_first) = (case & 1 == 0, case & 2 == 0);
            let (settle_end, append_end) = (ENDS[case >> 2 & 1], ENDS[case >> 3 & 1]);
            n += 1;
            let queue = format!("q{n}");
            let values = sessions.begin(&queue).await;
            let filled = |sql: &str| {
                let sql = values.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value));
                format!("BEGIN; {sql}")
            };
            let story = format!(
                "{} ({settle_end}) beside {} ({append_end}); {} begins, {} ends first",
                settle.0,
                append.0,
                if settle_begins { "settling" } else { "append" },
                if settle_ends_first { "settling" } else { "append" },
            );
            let (settler, pusher) = (&sessions.settler, &sessions.pusher);
            if settle_begins {
                settler.run(&filled(settle.1)).await;
                pusher.run(&filled(append.1)).await;
            } else {
                pusher.run(&filled(append.1)).await;
                settler.run(&filled(settle.1)).await;
            }
            if settle_ends_first {
                settler.run(settle_end).await;
                pusher.run(append_end).await;
            } else {
                pusher.run(append_end).await;
                settler.run(settle_end).await;
            }
            sessions.nothing_is_stuck(&queue, &story).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_the_last_message_beside_an_uncommitted_push_batch_leaves_nothing_stuck() {
    beside(APPEND[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_the_last_message_beside_an_uncommitted_flush_leaves_nothing_stuck() {
    beside(APPEND[1]).await;
}
