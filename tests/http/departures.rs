//! Clients that leave while bytes of theirs have not been read: the HTTP library does not see the end behind them.

use crate::{data, queue, raw, shared, sidecar_with};
use queen_tests::sidecar::{Sidecar, json};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Time enough to stand in its row, or to be missed there.
const PARKING: Duration = Duration::from_millis(150);

/// What lies behind a request when its client leaves.
fn unread(q: &str) -> [String; 4] {
    let whole = raw::get(&format!("/api/v1/pop/queue/{q}?autoAck=true"));
    [whole[..20].to_owned(), whole.clone(), "\r\n\0junk\u{ff}".to_owned(), whole.repeat(100)]
}

type Leaving = fn(TcpStream);
const CLOSED: Leaving = drop;
const RESET: Leaving = raw::reset;

#[tokio::test]
async fn who_leaves_unread_bytes_behind_never_claims() {
    let (http, q) = (shared(), queue());
    for auto_ack in [false, true] {
        for leave in [CLOSED, RESET] {
            for unread in unread(&q) {
                let poll = format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&leaseSeconds=600&autoAck={auto_ack}");
                let gone: Vec<_> = (0..3).map(|_| raw::send(http, &(raw::get(&poll) + &unread))).collect();
                tokio::time::sleep(PARKING).await;
                gone.into_iter().for_each(leave);
                tokio::time::sleep(PARKING).await;
                http.push(&q, &[json!("once")]).await;
                let popped = http.pop(&q, "").await;
                assert_eq!(data(&popped), [&json!("once")], "autoAck {auto_ack}, {unread:?}");
                assert_eq!(popped[0]["deliveryAttempt"], 1);
                http.ack(&popped[0], "completed").await;
            }
        }
    }
}

// The push and the leaving are heard of together.
#[tokio::test]
async fn who_waits_behind_one_that_has_left_is_served_at_once() {
    let (http, q) = (shared(), queue());
    let poll = format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&leaseSeconds=600&consumerGroup=g");
    for n in 0..10 {
        let gone: Vec<_> = (0..3).map(|_| raw::send(http, &(raw::get(&poll) + "GET"))).collect();
        tokio::time::sleep(PARKING).await;
        let waiting = http.pop(&q, "wait=true&timeout=20000&consumerGroup=g");
        let push = async {
            tokio::time::sleep(PARKING).await;
            drop(gone);
            http.push(&q, &[json!(n)]).await;
        };
        let (popped, ()) = tokio::join!(waiting, push);
        assert_eq!((data(&popped), &popped[0]["deliveryAttempt"]), (vec![&json!(n)], &json!(1)));
        http.ack(&popped[0], "completed").await;
    }
}

// As it is without unread bytes: the sending side closed is the client gone.
#[tokio::test]
async fn who_has_closed_its_half_behind_unread_bytes_is_gone_and_its_connection_ended() {
    let (http, q) = (shared(), queue());
    let poll = raw::get(&format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&leaseSeconds=600"));
    for unread in unread(&q) {
        let mut half = raw::send(http, &(poll.clone() + &unread));
        half.shutdown(Shutdown::Write).expect("half a shutdown");
        let read = tokio::task::spawn_blocking(move || raw::until_closed(&mut half)).await.unwrap();
        assert_eq!(read.as_deref(), Some(""), "{unread:?}");
    }
    http.push(&q, &[json!("once")]).await;
    let popped = http.pop(&q, "").await;
    assert_eq!((data(&popped), &popped[0]["deliveryAttempt"]), (vec![&json!("once")], &json!(1)));
}

// The only pop that may run at a time is held up; behind it wait some whose clients leave.
#[tokio::test]
async fn a_pop_that_does_not_wait_asks_whether_its_client_is_there_before_it_claims() {
    let http: Sidecar = sidecar_with(&[("QUEEN_POOL_SIZE", "4")]).await;
    let sql = http.sql().await;
    let item = |n: i32| json!({"queue": "q", "partition": format!("p{n}"), "payload": n});
    http.post("/api/v1/push", &json!({"items": [item(0), item(1)]})).await.expect(201);
    sql.batch_execute("BEGIN; LOCK TABLE queen.cursor IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    let pop = "/api/v1/pop/queue/q/partition/p0?autoAck=true";
    let held_up = http.get(pop);
    let others_leave = async {
        tokio::time::sleep(PARKING).await;
        let pop = raw::get("/api/v1/pop/queue/q/partition/p1?autoAck=true");
        let gone: Vec<_> = (0..3).map(|_| raw::send(&http, &(pop.clone() + "GET"))).collect();
        tokio::time::sleep(PARKING).await;
        drop(gone);
        tokio::time::sleep(PARKING).await;
        sql.batch_execute("COMMIT").await.expect("no lock");
    };
    let (first, ()) = tokio::join!(held_up, others_leave);
    assert_eq!(data(first.expect(200)["messages"].as_array().unwrap()), [0]);
    let second = http.get("/api/v1/pop/queue/q/partition/p1?autoAck=true").await.expect(200);
    assert_eq!(data(second["messages"].as_array().unwrap()), [1]);
}

#[tokio::test]
async fn what_was_claimed_for_one_that_left_unread_bytes_meanwhile_is_given_back() {
    let http = sidecar_with(&[]).await;
    let sql = http.sql().await;
    for (n, wait) in ["", "&wait=true&timeout=60000"].into_iter().enumerate() {
        http.push("q", &[json!(n)]).await;
        sql.batch_execute("BEGIN; LOCK TABLE queen.cursor IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
        let pop = raw::get(&format!("/api/v1/pop/queue/q?leaseSeconds=600{wait}"));
        let gone = raw::send(&http, &(pop + "GET"));
        tokio::time::sleep(PARKING).await;
        drop(gone);
        tokio::time::sleep(PARKING).await;
        sql.batch_execute("COMMIT").await.expect("no lock");
        let popped = http.pop("q", "wait=true&timeout=20000").await;
        assert_eq!(data(&popped), [n], "{wait}");
        http.ack(&popped[0], "completed").await;
    }
}

// Requests that are sent at once go on being answered in order, whatever stands behind a pop that waits.
#[tokio::test]
async fn a_request_behind_a_waiting_pop_does_not_end_it() {
    let (http, q) = (shared(), queue());
    let poll = raw::get(&format!("/api/v1/pop/queue/{q}?wait=true&timeout=20000&autoAck=true"));
    let last = raw::get("/status").replace("host:", "connection: close\r\nhost:");
    let mut stream = raw::send(http, &(poll + &last));
    tokio::time::sleep(PARKING).await;
    http.push(&q, &[json!("served")]).await;
    let read = tokio::task::spawn_blocking(move || raw::until_closed(&mut stream)).await.unwrap().expect("answers");
    assert!(read.matches("HTTP/1.1 200 ").count() == 2 && read.contains("\"data\":\"served\"}"), "{read}");
}
