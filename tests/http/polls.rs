//! Waiting pops: what wakes them, whom they serve, and how they end.
//!
//! A poll that is woken is told from one that merely looked again by its own timeout, which is far away; and from the
//! server's looking after all polls every second by many of them (see `a_push_is_heard_of_and_not_found_by_looking`).

use crate::{data, queue, raw, shared, sidecar, sidecar_with};
use queen_tests::sidecar::{Answer, Sidecar, Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};

/// How long the polls of these tests would wait by themselves.
const LONG: Duration = Duration::from_secs(20);
/// Time enough to stand in its row.
const PARKING: Duration = Duration::from_millis(150);

/// A poll that waits.
struct Poll {
    answer: JoinHandle<Answer>,
}

impl Poll {
    async fn of(http: &'static Sidecar, queue: &str, params: &str) -> Poll {
        Poll::at(http, format!("/api/v1/pop/queue/{queue}?wait=true&timeout={}&{params}", LONG.as_millis())).await
    }

    async fn at(http: &'static Sidecar, path: String) -> Poll {
        let answer = tokio::spawn(async move { http.get(&path).await });
        tokio::time::sleep(PARKING).await;
        assert!(!answer.is_finished(), "it waits: {:?}", answer.await);
        Poll { answer }
    }

    /// What it brought, long before its own time was over.
    async fn messages(self) -> Vec<Value> {
        let woken = Instant::now();
        let answer = self.answer.await.expect("an answer").expect(200);
        assert!(woken.elapsed() < LONG - Duration::from_secs(5), "not woken: {:?}", woken.elapsed());
        answer["messages"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn a_push_over_http_wakes() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(0)]).await;
    http.pop(&q, "autoAck=true").await;
    let poll = Poll::of(http, &q, "").await;
    http.push(&q, &[json!(1)]).await;
    assert_eq!(data(&poll.messages().await), [1]);
}

#[tokio::test]
async fn a_push_into_a_queue_that_did_not_exist_wakes() {
    let (http, q) = (shared(), queue());
    let poll = Poll::of(http, &q, "").await;
    let group = Poll::of(http, &q, "consumerGroup=g").await;
    let pinned = Poll::at(
        http,
        format!("/api/v1/pop/queue/{q}/partition/p?consumerGroup=p&wait=true&timeout=20000&subscriptionMode=all"),
    )
    .await;
    let item = json!({"queue": q, "partition": "p", "payload": 1});
    http.post("/api/v1/push", &json!({"items": [item]})).await.expect(201);
    assert_eq!(data(&poll.messages().await), [1]);
    assert_eq!(data(&group.messages().await), [1]);
    assert_eq!(data(&pinned.messages().await), [1]);
}

#[tokio::test]
async fn a_push_in_sql_wakes() {
    let (http, q) = (shared(), queue());
    let sql = http.sql().await;
    for (n, call) in [
        "SELECT queen.push($1, to_jsonb($2::int))",
        "SELECT queen.push_many($1, ARRAY[to_jsonb($2::int)])",
        "SELECT queen.push_batch(json_build_array(json_build_object('queue', $1::text, 'payload', $2::int)))",
    ]
    .into_iter()
    .enumerate()
    {
        let poll = Poll::of(http, &q, "autoAck=true").await;
        sql.execute(call, &[&q, &(n as i32)]).await.expect("a push");
        assert_eq!(data(&poll.messages().await), [n], "{call}");
    }
}

#[tokio::test]
async fn a_push_in_a_transaction_wakes_when_it_commits_and_not_before() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(0)]).await;
    http.pop(&q, "autoAck=true").await;
    let sql = http.sql().await;
    for call in [
        format!("SELECT queen.push('{q}', '1')"),
        format!(r#"SELECT queen.push_batch('[{{"queue": "{q}", "payload": 1}}]')"#),
    ] {
        let poll = Poll::of(http, &q, "autoAck=true").await;
        sql.batch_execute(&format!("BEGIN; {call}")).await.expect("a push");
        tokio::time::sleep(PARKING).await;
        assert!(!poll.answer.is_finished(), "it has not happened yet");
        sql.batch_execute("COMMIT").await.expect("a commit");
        assert_eq!(data(&poll.messages().await), [1]);
    }
    let poll = Poll::of(http, &q, "").await;
    sql.batch_execute(&format!("BEGIN; SELECT queen.push('{q}', '2'); ROLLBACK")).await.expect("a rollback");
    tokio::time::sleep(PARKING).await;
    assert!(!poll.answer.is_finished(), "it never happened");
}

#[tokio::test]
async fn a_transaction_over_http_wakes() {
    let (http, q) = (shared(), queue());
    let poll = Poll::of(http, &q, "").await;
    let push = json!({"type": "push", "queue": q, "payload": 1});
    http.post("/api/v1/transaction", &json!({"operations": [push]})).await.expect(200);
    assert_eq!(data(&poll.messages().await), [1]);
}

/// A queue with one message, which is leased.
async fn leased(http: &Sidecar, params: &str) -> (String, Value) {
    let q = queue();
    http.push(&q, &[json!(1)]).await;
    let popped = http.pop(&q, params).await;
    (q, popped[0].clone())
}

#[tokio::test]
async fn a_nack_wakes() {
    let http = shared();
    for status in ["failed", "retry"] {
        let (q, message) = leased(http, "").await;
        let poll = Poll::of(http, &q, "").await;
        http.ack(&message, status).await;
        assert_eq!(data(&poll.messages().await), [1], "{status}");
    }
    let (q, message) = leased(http, "").await;
    let poll = Poll::of(http, &q, "").await;
    let nack = "SELECT queen.nack($1::text::uuid, $2)";
    let params: [&str; 2] = ["leaseId", "transactionId"].map(|name| message[name].as_str().unwrap());
    http.sql().await.execute(nack, &[&params[0], &params[1]]).await.expect("a nack");
    assert_eq!(data(&poll.messages().await), [1]);
}

#[tokio::test]
async fn an_ack_that_leaves_more_wakes() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1), json!(2)]).await;
    let popped = http.pop(&q, "batch=1").await;
    let poll = Poll::of(http, &q, "").await;
    http.ack(&popped[0], "completed").await;
    assert_eq!(data(&poll.messages().await), [2]);
}

#[tokio::test]
async fn a_lease_given_back_wakes() {
    let http = shared();
    let (q, message) = leased(http, "").await;
    let poll = Poll::of(http, &q, "").await;
    let release = "SELECT queen.release($1::text::uuid)";
    http.sql().await.execute(release, &[&message["leaseId"].as_str()]).await.expect("a release");
    assert_eq!(data(&poll.messages().await), [1]);
}

#[tokio::test]
async fn a_lease_that_runs_out_wakes() {
    let http = shared();
    let (q, _) = leased(http, "leaseSeconds=1").await;
    let pinned = Poll::at(http, format!("/api/v1/pop/queue/{q}/partition/Default?wait=true&timeout=20000")).await;
    assert_eq!(data(&pinned.messages().await), [1]);
    let (q, _) = leased(http, "leaseSeconds=1").await;
    let poll = Poll::of(http, &q, "").await;
    assert_eq!(poll.messages().await[0]["deliveryAttempt"], 2);
}

#[tokio::test]
async fn a_delay_that_ends_wakes() {
    let (http, q) = (shared(), queue());
    http.configure(&q, &json!({"delayedProcessing": 1})).await;
    let began = Instant::now();
    let poll = Poll::of(http, &q, "").await;
    http.push(&q, &[json!(1)]).await;
    assert_eq!(data(&poll.messages().await), [1]);
    assert!(began.elapsed() >= Duration::from_secs(1), "not before its time");
}

#[tokio::test]
async fn a_dead_letter_that_is_moved_back_wakes() {
    let http = shared();
    let (q, message) = leased(http, "").await;
    http.ack(&message, "dlq").await;
    let poll = Poll::of(http, &q, "").await;
    let moved = "SELECT queen.dlq_move_v1(id) FROM queen.dlq($1)";
    http.sql().await.execute(moved, &[&q]).await.expect("a move");
    let again = poll.messages().await;
    assert_eq!(data(&again), [1]);

    http.ack(&again[0], "dlq").await;
    let poll = Poll::of(http, &q, "").await;
    let part = |name: &str| again[0][name].as_str().unwrap();
    let path = format!("/api/v1/messages/{}/{}/retry", part("partitionId"), part("transactionId"));
    assert_eq!(http.post(&path, &json!({})).await.expect(200)["result"], "moved");
    assert_eq!(data(&poll.messages().await), [1]);
}

#[tokio::test]
async fn a_seek_back_wakes() {
    let (http, q) = (shared(), queue());
    http.push(&q, &[json!(1)]).await;
    http.pop(&q, "autoAck=true&consumerGroup=g&subscriptionMode=all").await;
    let poll = Poll::of(http, &q, "consumerGroup=g").await;
    let seek = "SELECT queen.seek($1, 'g', to_timestamp => '2000-01-01')";
    http.sql().await.execute(seek, &[&q]).await.expect("a seek");
    assert_eq!(data(&poll.messages().await), [1]);
}

// The server looks after all polls every second: that would take half a second, half of the time.
#[tokio::test]
async fn a_push_is_heard_of_and_not_found_by_looking() {
    let (http, q) = (shared(), queue());
    let mut times = Vec::new();
    for n in 0..15 {
        let poll = Poll::of(http, &q, "autoAck=true").await;
        let began = Instant::now();
        http.push(&q, &[json!(n)]).await;
        poll.messages().await;
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(n * 7 % 50)).await;
    }
    times.sort();
    assert!(times[times.len() / 2] < Duration::from_millis(250), "half of them took longer than {times:?}");
}

#[tokio::test]
async fn two_hundred_polls_share_a_hundred_messages_and_each_is_delivered_once() {
    let (http, q) = (shared(), queue());
    let path = format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&batch=1&consumerGroup=g");
    let mut polls = JoinSet::new();
    for _ in 0..200 {
        let path = path.clone();
        polls.spawn(async move { http.get(&path).await });
    }
    tokio::time::sleep(PARKING * 3).await;
    let items: Vec<Value> =
        (0..100).map(|n| json!({"queue": q, "partition": format!("p{}", n % 50), "payload": n})).collect();
    for items in items.chunks(10) {
        http.post("/api/v1/push", &json!({ "items": items })).await.expect(201);
    }
    let mut seen = HashSet::new();
    while seen.len() < 100 {
        let answer = polls.join_next().await.expect("a poll is left").expect("a task").expect(200);
        let messages = answer["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 1);
        assert!(seen.insert(messages[0]["data"].as_i64().unwrap()), "twice: {messages:?}");
        assert_eq!(messages[0]["deliveryAttempt"], 1);
        assert_eq!(http.ack(&messages[0], "completed").await["success"], true);
    }
    // The others wait on. They leave, and nothing of what comes then is theirs.
    polls.shutdown().await;
    tokio::time::sleep(PARKING).await;
    http.push(&q, &[json!("more")]).await;
    let popped = http.pop(&q, "consumerGroup=g&partitions=0").await;
    assert_eq!((data(&popped), &popped[0]["deliveryAttempt"]), (vec![&json!("more")], &json!(1)));
}

#[tokio::test]
async fn a_client_that_is_gone_never_claims() {
    let (http, q) = (shared(), queue());
    let poll = raw::get(&format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&leaseSeconds=600"));
    for n in 0..5 {
        let gone: Vec<_> = (0..4).map(|_| raw::send(http, &poll)).collect();
        tokio::time::sleep(PARKING).await;
        drop(gone);
        tokio::time::sleep(PARKING).await;
        http.push(&q, &[json!(n)]).await;
        let popped = http.pop(&q, "").await;
        assert_eq!((data(&popped), &popped[0]["deliveryAttempt"]), (vec![&json!(n)], &json!(1)));
        http.ack(&popped[0], "completed").await;
    }
}

// The database is slow, the client impatient; what is claimed in the end is for nobody.
#[tokio::test]
async fn what_was_claimed_for_a_client_that_left_meanwhile_is_given_back() {
    let http: &'static Sidecar = leaked(&[]).await;
    let sql = http.sql().await;
    for (n, wait) in ["", "&wait=true&timeout=60000"].into_iter().enumerate() {
        http.push("q", &[json!(n)]).await;
        sql.batch_execute("BEGIN; LOCK TABLE queen.cursor IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
        let gone = raw::send(http, &raw::get(&format!("/api/v1/pop/queue/q?leaseSeconds=600{wait}")));
        tokio::time::sleep(PARKING).await;
        drop(gone);
        tokio::time::sleep(PARKING).await;
        sql.batch_execute("COMMIT").await.expect("no lock");
        let popped = http.pop("q", "wait=true&timeout=20000").await;
        assert_eq!(data(&popped), [n], "{wait}");
        http.ack(&popped[0], "completed").await;
    }
    http.signal(9);
}

// With `autoAck` what is claimed is settled: nobody else would get it.
#[tokio::test]
async fn a_pop_that_settles_what_it_brings_is_waited_for_when_its_time_is_over() {
    let http: &'static Sidecar = leaked(&[]).await;
    let sql = http.sql().await;
    for n in 0..2 {
        http.push("q", &[json!(n)]).await;
        if n == 0 {
            // The server knows the queue then.
            assert_eq!(data(&http.pop("q", "wait=true&timeout=20000&autoAck=true").await), [0]);
            continue;
        }
        sql.batch_execute("BEGIN; LOCK TABLE queen.cursor IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
        let pop = tokio::spawn(http.pop("q", "wait=true&timeout=300&autoAck=true"));
        tokio::time::sleep(Duration::from_secs(4)).await;
        sql.batch_execute("COMMIT").await.expect("no lock");
        assert_eq!(data(&pop.await.unwrap()), [n]);
        assert_eq!(http.pop("q", "autoAck=true").await.len(), 0);
    }
    http.signal(9);
}

// Who leaves in the very moment of the push may have been sent the message; then its lease decides.
#[tokio::test]
async fn what_a_client_was_sent_that_left_comes_to_another() {
    let (http, q) = (shared(), queue());
    let poll = raw::get(&format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&leaseSeconds=1"));
    for n in 0..5 {
        let gone: Vec<_> = (0..3).map(|_| raw::send(http, &poll)).collect();
        tokio::time::sleep(PARKING).await;
        let payloads = [json!(n)];
        tokio::join!(http.push(&q, &payloads), async { drop(gone) });
        let popped = http.pop(&q, "wait=true&timeout=20000").await;
        assert_eq!(data(&popped), [n]);
        http.ack(&popped[0], "completed").await;
    }
}

#[tokio::test]
async fn a_client_that_has_closed_its_half_is_served_or_gone_but_not_both() {
    let (http, q) = (shared(), queue());
    let path = format!("/api/v1/pop/queue/{q}?wait=true&timeout=3000&leaseSeconds=600");
    let mut half = raw::send(http, &raw::get(&path));
    half.shutdown(std::net::Shutdown::Write).expect("half a shutdown");
    tokio::time::sleep(PARKING).await;
    http.push(&q, &[json!("once")]).await;
    let read = tokio::task::spawn_blocking(move || raw::until_closed(&mut half)).await.unwrap();
    let served = read.is_some_and(|text| text.contains("\"once\""));
    let popped = http.pop(&q, "").await;
    assert_eq!(popped.len(), usize::from(!served));
    assert!(popped.iter().all(|message| message["deliveryAttempt"] == 1));
}

#[tokio::test]
async fn a_poll_ends_when_its_time_is_over_and_neither_sooner_nor_never() {
    let (http, q) = (shared(), queue());
    // Leased: there is something that cannot be had.
    let (busy, _) = leased(http, "leaseSeconds=600").await;
    let mut polls = JoinSet::new();
    for (q, ms) in [(&q, 1), (&q, 150), (&q, 700), (&q, 1500), (&busy, 40), (&busy, 400), (&busy, 1200)] {
        let path = format!("/api/v1/pop/queue/{q}?wait=true&timeout={ms}");
        polls.spawn(async move {
            let began = Instant::now();
            let answer = http.get(&path).await;
            assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{ms}");
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(ms) && took < LONG, "{ms}: {took:?}");
        });
    }
    polls.join_all().await;
}

#[tokio::test]
async fn parked_polls_hold_nothing_that_others_need() {
    // Far more than there are connections to the database.
    let http: &'static Sidecar = leaked(&[("QUEEN_POOL_SIZE", "4")]).await;
    let mut polls = JoinSet::new();
    for n in 0..100 {
        polls.spawn(async move { http.get(&format!("/api/v1/pop/queue/parked{n}?wait=true&timeout=60000")).await });
    }
    tokio::time::sleep(PARKING * 3).await;
    for n in 0..20 {
        http.push("q", &[json!(n)]).await;
        let popped = http.pop("q", "").await;
        assert_eq!(http.ack(&popped[0], "completed").await["success"], true);
    }
    assert_eq!(polls.len(), 100);
    assert!(polls.try_join_next().is_none(), "none of them was answered");
    http.signal(9);
}

/// A server that stays, because polls of tasks go on in it.
async fn leaked(environment: &[(&str, &str)]) -> &'static mut Sidecar {
    Box::leak(Box::new(sidecar_with(environment).await))
}

#[tokio::test]
async fn with_min_pop_wait_time_a_waiting_pop_lets_its_batch_fill() {
    let http = sidecar().await;
    http.configure("q", &json!({"minPopWaitTime": 3000})).await;
    http.pop("q", "consumerGroup=g&subscriptionMode=all").await;
    // Fills up: the rest comes while the pop waits, and the batch is full before the time is over.
    http.push("q", &[json!(1)]).await;
    let began = std::time::Instant::now();
    let full = http.pop("q", "consumerGroup=g&batch=3&wait=true&timeout=20000");
    let rest = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        http.push("q", &[json!(2), json!(3)]).await;
    };
    let (popped, ()) = tokio::join!(full, rest);
    assert_eq!(popped.len(), 3);
    assert!(began.elapsed() < Duration::from_millis(2500), "a full batch waits no longer");
    assert!(http.ack(&popped[2], "completed").await["success"] == true);
    // Stays short: delivered as it is once the time is over, and not before.
    http.push("q", &[json!(4)]).await;
    let began = std::time::Instant::now();
    let popped = http.pop("q", "consumerGroup=g&batch=3&wait=true&timeout=20000").await;
    assert_eq!(popped.len(), 1);
    assert!(began.elapsed() >= Duration::from_millis(2900));
    http.ack(&popped[0], "completed").await;
    // The pop's own time ends first: it gets what there is.
    http.push("q", &[json!(5)]).await;
    let popped = http.pop("q", "consumerGroup=g&batch=3&wait=true&timeout=500").await;
    assert_eq!(popped.len(), 1);
    http.ack(&popped[0], "completed").await;
    // Not for single messages, and not without waiting.
    http.push("q", &[json!(6), json!(7)]).await;
    let began = std::time::Instant::now();
    let popped = http.pop("q", "consumerGroup=g&batch=1&wait=true&timeout=20000").await;
    http.ack(&popped[0], "completed").await;
    assert_eq!(http.pop("q", "consumerGroup=g&batch=3").await.len(), 1);
    assert!(began.elapsed() < Duration::from_millis(2500));
}

// Its group, gone with the queue, subscribed again only when the next queue's first message woke it, and began after it.
#[tokio::test]
async fn a_pop_that_waits_while_its_queue_is_dropped_gets_the_first_message_of_the_next_one() {
    let http = sidecar().await;
    http.push("q", &[json!(1)]).await;
    let waiting = http.pop("q", "consumerGroup=new&wait=true&timeout=20000");
    let drop_and_push = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        http.delete("/api/v1/resources/queues/q").await.expect(200);
        let sql = http.sql().await;
        loop {
            let subscribed = "SELECT FROM queen.consumer_groups WHERE queue = 'q' AND consumer_group = 'new'";
            if !sql.query(subscribed, &[]).await.unwrap().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        http.push("q", &[json!("first")]).await;
    };
    let (popped, ()) = tokio::join!(waiting, drop_and_push);
    assert_eq!(popped.iter().map(|m| &m["data"]).collect::<Vec<_>>(), [&json!("first")]);
}

#[tokio::test]
async fn a_statement_timeout_of_the_login_keeps_nobody_from_being_woken() {
    let http = sidecar().await;
    let sql = http.sql().await;
    http.get("/health").await.expect(200);
    let logins = "SELECT DISTINCT usename::text FROM pg_stat_activity \
                  WHERE application_name = 'queen-sidecar' AND datname = current_database()";
    let login: String = sql.query_one(logins, &[]).await.unwrap().get(0);
    sql.batch_execute(&format!("ALTER ROLE \"{login}\" SET statement_timeout = '300ms'")).await.unwrap();
    let end_sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                        WHERE application_name = 'queen-sidecar' AND datname = current_database()";
    sql.query(end_sessions, &[]).await.unwrap();
    for n in 0..3 {
        let waiting = http.pop("q", "wait=true&timeout=20000&autoAck=true");
        let push = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            sql.execute("SELECT queen.push('q', '1')", &[]).await.unwrap();
        };
        let (popped, ()) = tokio::join!(waiting, push);
        assert_eq!(popped.len(), 1, "round {n}");
    }
    let complaints = http.log().lines().filter(|line| line.contains("cannot listen")).count();
    assert!(complaints <= 1, "{}", http.log());
}
