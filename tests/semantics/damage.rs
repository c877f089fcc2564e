//! Damaged segments: who meets one is told, and others get what is whole.

use crate::support::Db;
use xxhash_rust::xxh3::xxh3_128;

/// Damages the segment at this offset: one byte of it is another one.
async fn damage(db: &Db, partition: &str, offset: i64) {
    let hit = db
        .rows(&format!(
            "UPDATE queen.segment s SET data = set_byte(data, 60, get_byte(data, 60) # 1)
               FROM queen.partition p WHERE p.pid = s.pid AND p.name = '{partition}' AND s.base = {offset} RETURNING 1"
        ))
        .await;
    assert_eq!(hit, "1");
}

async fn repair(db: &Db, partition: &str, offset: i64) {
    damage(db, partition, offset).await;
}

/// Time passes for the hints of all groups.
async fn a_minute_later(db: &Db) {
    db.run(
        "UPDATE queen.ready SET due_at = clock_timestamp()
          WHERE due_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '60 seconds'",
    )
    .await;
}

/// One message each in partitions a, b and c, of which a is damaged.
async fn damaged() -> Db {
    let db = Db::new().await;
    for partition in ["a", "b", "c"] {
        db.push_to("q", partition, partition).await;
    }
    damage(&db, "a", 0).await;
    db
}

// Its hint is the oldest, so that every pop began with it, and failed.
#[tokio::test]
async fn a_damaged_segment_does_not_keep_a_pop_of_any_partition_from_the_others() {
    for ack in ["true", "false"] {
        // Known by hints, and by the sweep of a group that begins.
        for subscribed in [true, false] {
            let db = damaged().await;
            if subscribed {
                assert_eq!(db.pop("'q', 'g', subscription_mode => 'all', partition => 'none'").await.ids, "");
                db.run("SELECT queen.seek('q', 'g', to_timestamp => '-infinity')").await;
            }
            let pop = format!("'q', 'g', auto_ack => {ack}, subscription_mode => 'all'");
            let mut got = vec![];
            for _ in 0..3 {
                got.push(db.pop(&pop).await.ids);
            }
            assert_eq!(got, ["b", "c", ""], "auto_ack {ack}, subscribed {subscribed}");
        }
    }
}

#[tokio::test]
async fn what_is_passed_over_is_said_in_a_warning_with_partition_and_offset_and_is_due_again_in_a_minute() {
    let db = damaged().await;
    let pop = "SELECT payload FROM queen.pop('q', 'g', 9, max_partitions => 0, subscription_mode => 'all')";
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let psql = |sql: &str| said(queen_tests::shared_cluster().try_psql(&db.name, sql));
    let warning = psql(pop);
    assert!(warning.contains("WARNING"), "{warning}");
    assert!(warning.contains("partition \"a\" of queue \"q\" is passed over"), "{warning}");
    assert!(warning.contains("segment at offset 0"), "{warning}");
    assert_eq!(psql(pop), "", "not again at once");
    assert_eq!(db.rows("CALL queen.wait('q', 'g', 0)").await, "f", "nothing is ready");
    a_minute_later(&db).await;
    assert!(psql(pop).contains("is passed over"), "again");
    repair(&db, "a", 0).await;
    a_minute_later(&db).await;
    assert_eq!(db.pop("'q', 'g', 9").await.ids, "a", "it was repaired");
}

#[tokio::test]
async fn a_pop_of_the_damaged_partition_raises_the_error_and_leaves_no_lease() {
    let db = damaged().await;
    let pop = "SELECT * FROM queen.pop('q', 'g', 9, 'a', subscription_mode => 'all')";
    let (state, message) = db.error(pop).await;
    assert_eq!(state, "QN011");
    assert!(message.contains("segment at offset 0"), "{message}");
    repair(&db, "a", 0).await;
    let batch = db.pop("'q', 'g', 9, 'a', subscription_mode => 'all'").await;
    assert_eq!((batch.ids.as_str(), batch.attempt), ("a", 1), "nothing was leased before");
}

#[tokio::test]
async fn messages_before_the_damage_are_delivered() {
    for pop in ["'q', 'g', 9", "'q', 'g', 9, 'Default'"] {
        let db = Db::new().await;
        for id in ["a", "b", "c"] {
            db.push("q", id).await;
        }
        damage(&db, "Default", 1).await;
        let batch = db.pop(&format!("{pop}, subscription_mode => 'all'")).await;
        assert_eq!(batch.ids, "a", "{pop}");
        assert_eq!(db.ack(&batch, "a", "completed").await, "ok released", "{pop}");
    }
}

#[tokio::test]
async fn seek_passes_the_damage_and_what_comes_after_is_found_at_once() {
    let db = damaged().await;
    let pop = "'q', 'g', 9, max_partitions => 0, auto_ack => true";
    assert_eq!(db.pop(&format!("{pop}, subscription_mode => 'all'")).await.ids, "b c");
    db.run("SELECT queen.seek('q', 'g', to_end => true, partition => 'a')").await;
    db.push_to("q", "a", "next").await;
    assert_eq!(db.pop(pop).await.ids, "next");
}

#[tokio::test]
async fn verify_finds_a_hash_table_that_is_not_that_of_its_frames() {
    let db = Db::new().await;
    db.push("q", "a").await;
    db.verify().await;
    // After the header, one entry of the frame table, and one of the block table. The checksum is made to fit.
    let data: Vec<u8> = db.client.query_one("SELECT data FROM queen.segment", &[]).await.unwrap().get(0);
    let mut forged = data.clone();
    forged[68] ^= 1;
    let sum = xxh3_128(&[&forged[..40], &forged[56..]].concat());
    forged[40..56].copy_from_slice(&sum.to_le_bytes());
    db.client.execute("UPDATE queen.segment SET data = $1", &[&forged]).await.unwrap();
    let problems = db.rows("SELECT base_offset, problem FROM queen.verify()").await;
    assert!(problems.starts_with("0|") && problems.contains("hash table"), "{problems}");
}
