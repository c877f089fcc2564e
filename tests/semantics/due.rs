//! When a pop may find something: `due_json`.

use crate::support::{Db, lit};

/// What the answer says of each watch: `now`, `later`, or `-` for nothing known; exact times are the tests' own.
async fn due(db: &Db, watches: &str) -> String {
    let words: Vec<&str> = answers(db, watches)
        .await
        .into_iter()
        .map(|due| match due {
            None => "-",
            Some(0) => "now",
            Some(_) => "later",
        })
        .collect();
    words.join(" ")
}

async fn answers(db: &Db, watches: &str) -> Vec<Option<i64>> {
    let text = db.rows(&format!("SELECT queen.due_json({})", lit(watches))).await;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// A group of queue `q` and its partition `Default`, as pairs and triples say it.
const BOTH: &str = r#"[["q", "g"], ["q", "g", "Default"]]"#;

async fn subscribed() -> Db {
    let db = Db::new().await;
    db.push("q", "first").await;
    db.pop("'q', 'g', auto_ack => true, subscription_mode => 'all'").await;
    db
}

#[tokio::test]
async fn a_message_is_due_now_and_nothing_is_known_once_it_is_settled() {
    let db = subscribed().await;
    assert_eq!(due(&db, BOTH).await, "- -");
    db.push("q", "a").await;
    assert_eq!(due(&db, BOTH).await, "now now");
    db.pop("'q', 'g', auto_ack => true").await;
    assert_eq!(due(&db, BOTH).await, "- -");
}

#[tokio::test]
async fn what_is_leased_is_due_when_the_lease_ends_and_at_once_when_it_is_given_up() {
    let db = subscribed().await;
    db.push("q", "a").await;
    let batch = db.pop("'q', 'g', lease_seconds => 1000").await;
    for due in answers(&db, BOTH).await {
        assert!((1..=1_000_000).contains(&due.expect("a time")), "{due:?}");
    }
    db.run(&format!("SELECT queen.renew_lease('{}', 5000)", batch.lease)).await;
    for due in answers(&db, BOTH).await {
        assert!((1_000_001..=5_000_000).contains(&due.expect("a time")), "{due:?}");
    }
    db.run(&format!("SELECT queen.release('{}')", batch.lease)).await;
    assert_eq!(due(&db, BOTH).await, "now now");
    db.pop("'q', 'g', lease_seconds => 1000").await;
    db.expire().await;
    assert_eq!(due(&db, BOTH).await, "now now");
}

#[tokio::test]
async fn the_time_of_the_earliest_lease_counts() {
    let db = subscribed().await;
    for (partition, seconds) in [("long", 9000), ("short", 1000), ("longer", 9500)] {
        db.push_to("q", partition, "a").await;
        db.pop(&format!("'q', 'g', lease_seconds => {seconds}")).await;
    }
    let due = answers(&db, r#"[["q", "g"], ["q", "g", "long"]]"#).await;
    assert!((1..=1_000_000).contains(&due[0].expect("a time")), "{due:?}");
    assert!((8_000_000..=9_000_000).contains(&due[1].expect("a time")), "{due:?}");
}

#[tokio::test]
async fn a_delayed_message_is_due_at_the_end_of_its_delay() {
    let db = subscribed().await;
    db.configure("q", r#"{"delayedProcessing": 1000}"#).await;
    db.push("q", "a").await;
    for due in answers(&db, BOTH).await {
        assert!((1..=1_000_000).contains(&due.expect("a time")), "{due:?}");
    }
    db.configure("q", r#"{"delayedProcessing": 0}"#).await;
    assert_eq!(due(&db, BOTH).await, "now now");
}

#[tokio::test]
async fn a_window_is_due_when_it_closes_or_is_full() {
    let db = subscribed().await;
    db.configure("q", r#"{"windowBuffer": 1000}"#).await;
    db.push("q", "a").await;
    for due in answers(&db, BOTH).await {
        assert!((1..=1_000_000).contains(&due.expect("a time")), "{due:?}");
    }
    let more: Vec<String> = (0..99).map(|n| format!("m{n}")).collect();
    db.push("q", &more.join(" ")).await;
    assert_eq!(due(&db, BOTH).await, "now now");
    assert_eq!(db.pop("'q', 'g', 100").await.ids.split(' ').count(), 100, "so says pop");
}

// It is promised what comes after its first contact: whoever waits for it has to make that contact.
#[tokio::test]
async fn a_group_that_has_not_subscribed_is_due_at_once_and_in_a_partition_when_there_is_any_message() {
    let db = Db::new().await;
    db.configure("q", "{}").await;
    let watches = r#"[["q", "new"], ["q", "new", "p"], ["q", null], ["q", null, "p"], ["q", "new", null]]"#;
    assert_eq!(due(&db, watches).await, "now - now - now");
    db.push_to("q", "p", "a").await;
    assert_eq!(due(&db, watches).await, "now now now now now");
    // Its first pop says that it begins after that.
    assert_eq!(db.pop("'q', 'new', partition => 'p'").await.ids, "");
    assert_eq!(due(&db, r#"[["q", "new", "p"], ["q", null, "p"]]"#).await, "- now");
    assert_eq!(db.pop("'q', 'new'").await.ids, "");
    assert_eq!(due(&db, watches).await, "- - now now -");
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_due_at_once_as_its_pop_would_make_it() {
    let db = Db::new().await;
    assert_eq!(due(&db, r#"[["q", "g"], ["q", "g", "p"]]"#).await, "now -");
    assert_eq!(db.pop("'q', 'g'").await.ids, "");
    assert_eq!(due(&db, r#"[["q", "g"], ["q", "g", "p"]]"#).await, "- -");
}

#[tokio::test]
async fn what_retention_removed_is_not_due() {
    let db = subscribed().await;
    db.push("q", "a").await;
    db.configure("q", r#"{"maxWaitTimeSeconds": 1}"#).await;
    db.age("q", 100).await;
    db.run("SELECT queen.maintain()").await;
    assert_eq!(due(&db, r#"[["q", "g", "Default"]]"#).await, "-");
}

#[tokio::test]
async fn answers_come_in_order_of_the_watches_and_nothing_is_known_of_what_there_is_not() {
    let db = subscribed().await;
    db.push("q", "a").await;
    let watches = r#"[["q", "g", "nowhere"], ["q", "g"], ["nowhere", "g"], ["", ""], ["q", "g"],
                      ["nowhere", "g", "Default"], ["'; --", "\"", "\u00e9"]]"#;
    assert_eq!(due(&db, watches).await, "- now now - now - -");
    assert_eq!(answers(&db, "[]").await, []);
}

#[tokio::test]
async fn queues_of_another_tenant_are_not_there() {
    let db = subscribed().await;
    db.push("q", "a").await;
    db.run("SET queen.tenant = '00000000-0000-0000-0000-000000000002'").await;
    assert_eq!(due(&db, BOTH).await, "now -");
}

#[tokio::test]
async fn nothing_is_taken_by_looking() {
    let db = subscribed().await;
    db.push("q", "a").await;
    db.run("BEGIN READ ONLY").await;
    assert_eq!(due(&db, BOTH).await, "now now");
    db.run("COMMIT").await;
    assert_eq!(db.pop("'q', 'g'").await.ids, "a");
}

#[tokio::test]
async fn watches_that_are_none_are_refused() {
    let db = Db::new().await;
    for bad in [
        "",
        "null",
        "{}",
        "1",
        "[1]",
        "[[]]",
        r#"[["q"]]"#,
        r#"[["q","g","p","x"]]"#,
        r#"[[null,"g"]]"#,
        r#"[["q",1]]"#,
        r#"["q","g"]"#,
        r#"[["q","g"]"#,
    ] {
        let (state, message) = db.error(&format!("SELECT queen.due_json({})", lit(bad))).await;
        assert_eq!(state, "22023", "{bad}");
        assert!(message.starts_with("watches must be a JSON array"), "{message}");
    }
    assert_eq!(db.state("SELECT queen.due_json(NULL)").await, "22023");
}
