//! `queen dlq`: commands as processes, against a real server; what they print and how they end.

use queen_tests::shared_cluster;
use queen_tests::sidecar::{Value, json, program};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A database with dead letters, and logins.
struct Place {
    database: String,
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    #[track_caller]
    fn expect(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        &self.out
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(self.expect(0)).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}

fn login(roles: &[&str]) -> String {
    static LOGINS: AtomicU32 = AtomicU32::new(0);
    let login = format!("person_{}", LOGINS.fetch_add(1, Relaxed));
    shared_cluster().create_login(&login, roles);
    login
}

impl Place {
    /// Files this many dead letters of queue `q`, with these options.
    async fn with(count: usize, options: Value) -> Place {
        let database = shared_cluster().fresh_database().await;
        let sql = shared_cluster().client(&database).await;
        sql.query_one("SELECT queen.configure('q', $1::text::jsonb)::text", &[&options.to_string()]).await.unwrap();
        let push = format!(
            "SELECT count(queen.push('q', jsonb_build_object('secret', n))) FROM generate_series(1, {count}) n"
        );
        sql.query_one(&push, &[]).await.unwrap();
        for _ in 0..count {
            let give_up = "WITH m AS MATERIALIZED (SELECT * FROM queen.pop('q', 'g', subscription_mode => 'all')) \
                 SELECT (queen.ack(m.partition_id, m.transaction_id, 'dlq', 'g', m.lease_id, E'boom\\x1b[31m')).success FROM m";
            let filed: bool = sql.query_one(give_up, &[]).await.unwrap().get(0);
            assert!(filed);
        }
        Place { database }
    }

    fn queen(&self, login: &str, arguments: &[&str]) -> Ended {
        self.queen_with(login, arguments, "")
    }

    fn queen_with(&self, login: &str, arguments: &[&str], input: &str) -> Ended {
        let cluster = shared_cluster();
        let url = format!(
            "host={} port={} user={login} dbname={}",
            cluster.socket_dir().display(),
            cluster.port(),
            self.database
        );
        let mut child = Command::new(program())
            .arg("dlq")
            .args(arguments)
            .env_clear()
            .env("DATABASE_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read it may have ended.
        _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

const WHY: [&str; 4] = ["--reason", "down", "--remediation", "change 1"];

#[tokio::test]
async fn a_replay_from_the_list_to_its_end() {
    let place = Place::with(7, json!({"requireApproval": true, "owner": "shop"})).await;
    let (ada, bob) = (login(&["queen_operator"]), login(&["queen_operator"]));
    let listed = place.queen(&ada, &["list", "--queue", "q"]);
    let listed = listed.expect(0);
    assert_eq!(listed.lines().count(), 8, "{listed}");
    assert!(!listed.contains('\u{1b}'), "neither colours, as this is no terminal, nor what a consumer wrote");
    let plan = [&["plan", "--queue", "q", "--canary", "2", "--rate", "1000"], &WHY[..]].concat();
    let dry = place.queen(&ada, &[&plan[..], &["--dry-run"]].concat());
    assert!(dry.expect(0).contains("dry run: nothing was written\n7 records"), "{dry:?}");
    let planned = place.queen(&ada, &[&plan[..], &["--json"]].concat()).json();
    let id = planned["planId"].as_str().unwrap();
    assert_eq!(planned["planned"], 7);

    place.queen(&ada, &["run", id]).expect(4);
    let own = place.queen(&ada, &["approve", id]);
    own.expect(4);
    assert!(own.err.contains("hint: Somebody else"), "{own:?}");
    place.queen(&bob, &["approve", id, "--note", "seen"]).expect(0);
    let ran = place.queen(&ada, &["run", id]);
    assert!(ran.expect(0).contains("canary of 2: 2 replayed"), "{ran:?}");
    assert!(ran.out.contains("2 still pending, look again: queen dlq plan --status"), "{ran:?}");
    assert_eq!(ran.err, "", "no progress is drawn where there is no terminal");
    place.queen(&ada, &["run", id]).expect(1);
    let early = place.queen(&ada, &["widen", id]);
    early.expect(1);
    assert!(early.err.contains("2 still pending") && early.err.contains("--force"), "{early:?}");
    let done = place.queen(&ada, &["widen", id, "--force", "--json"]).json();
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(7)));
    place.queen(&ada, &["cancel", id]).expect(1);

    let plans = place.queen(&ada, &["plan", "--list", "--json"]).json();
    assert_eq!((&plans["plans"][0]["plannedBy"], &plans["plans"][0]["approvedBy"]), (&json!(ada), &json!(bob)));
    assert!(place.queen(&ada, &["plan", "--status", id]).expect(0).contains(&format!("plan {id}: done")));
    let events = place.queen(&ada, &["events", "--plan", id, "--json"]).json();
    assert!(
        events["events"].as_array().unwrap().iter().any(|e| e["action"] == "plan_approved" && e["actor"] == json!(bob))
    );
    let stats = place.queen(&ada, &["stats"]);
    assert!(stats.expect(0).contains("shop"), "{stats:?}");
}

#[tokio::test]
async fn a_plan_can_be_started_elsewhere_paused_resumed_and_cancelled() {
    let place = Place::with(3, json!({})).await;
    let ada = login(&["queen_operator"]);
    let plan = [&["plan", "--queue", "q", "--canary", "0", "--rate", "0.001", "--json"], &WHY[..]].concat();
    let plan = place.queen(&ada, &plan).json()["planId"].as_str().unwrap().to_owned();
    for (command, state) in [
        (&["run", &plan, "--detach", "--json"][..], "running"),
        (&["pause", &plan, "--json"][..], "paused"),
        (&["resume", &plan, "--detach", "--json"][..], "running"),
        (&["cancel", &plan, "--note", "no", "--json"][..], "cancelled"),
    ] {
        assert_eq!(place.queen(&ada, command).json()["state"], state, "{command:?}");
    }
}

#[tokio::test]
async fn a_plan_that_runs_already_is_watched_by_another_run() {
    let place = Place::with(3, json!({})).await;
    let ada = login(&["queen_operator"]);
    let plan = [&["plan", "--queue", "q", "--canary", "0", "--rate", "1000", "--json"], &WHY[..]].concat();
    let plan = place.queen(&ada, &plan).json()["planId"].as_str().unwrap().to_owned();
    assert_eq!(place.queen(&ada, &["run", &plan, "--detach", "--json"]).json()["state"], "running");
    let done = place.queen(&ada, &["run", &plan, "--json"]).json();
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(3)));
    place.queen(&ada, &["run", &plan]).expect(1);
}

#[tokio::test]
async fn a_plan_whose_records_could_not_all_be_replayed_ends_as_failed() {
    let place = Place::with(2, json!({})).await;
    let ada = login(&["queen_operator"]);
    let plan = [&["plan", "--queue", "q", "--canary", "0", "--rate", "1000", "--json"], &WHY[..]].concat();
    let plan = place.queen(&ada, &plan).json()["planId"].as_str().unwrap().to_owned();
    // What needs an approval by now, the plan does not move.
    place.queen(&ada, &["run", &plan, "--detach"]).expect(0);
    let sql = shared_cluster().client(&place.database).await;
    sql.batch_execute("SELECT queen.configure('q', '{\"requireApproval\": true}')").await.unwrap();
    let ended = place.queen(&ada, &["run", &plan]);
    ended.expect(1);
    assert!(ended.err.contains("0 failed, 2 refused"), "{ended:?}");
    let events = place.queen(&ada, &["events", "--plan", &plan, "--json"]).json();
    let refused = events["events"].as_array().unwrap().iter().find(|e| e["action"] == "replay_refused").unwrap();
    assert!(refused["detail"]["error"].as_str().unwrap().starts_with("QN022"), "{refused}");
}

#[tokio::test]
async fn what_is_lacking_is_told_and_never_the_role_of_the_server() {
    let place = Place::with(1, json!({})).await;
    let (eve, nobody) = (login(&["queen_viewer"]), login(&[]));
    for (who, command) in [(&nobody, vec!["list"]), (&eve, [&["plan", "--queue", "q"], &WHY[..]].concat())] {
        let ended = place.queen(who, &command);
        ended.expect(1);
        assert!(ended.err.contains("GRANT queen_viewer (to look) or queen_operator (to act)"), "{ended:?}");
        assert!(!ended.err.contains("queen_sidecar"), "{ended:?}");
    }
    let sql = shared_cluster().client(&place.database).await;
    sql.batch_execute("ALTER FUNCTION queen.dlq_list_json RENAME TO away").await.unwrap();
    let old = place.queen(&eve, &["list"]);
    old.expect(1);
    assert!(old.err.contains("ALTER EXTENSION queen UPDATE"), "{old:?}");
    sql.batch_execute("DROP EXTENSION queen").await.unwrap();
    let none = place.queen(&eve, &["list"]);
    none.expect(1);
    assert!(none.err.contains("CREATE EXTENSION queen") || none.err.contains("ALTER EXTENSION"), "{none:?}");
    let gone = Place { database: "not_there".to_owned() }.queen(&eve, &["list"]);
    gone.expect(1);
    assert!(gone.err.contains("cannot connect to the database ") && gone.err.contains("not_there: "), "{gone:?}");
}

#[tokio::test]
async fn a_group_is_paused_and_resumed_by_name_and_one_that_is_not_there_is_told() {
    let place = Place::with(1, json!({})).await;
    let ada = login(&["queen_operator"]);
    for command in ["pause-group", "resume-group"] {
        let why = if command == "pause-group" { &["--reason", "r"][..] } else { &[] };
        for (queue, group) in [("q", "h"), ("r", "g")] {
            let ended = place.queen(&ada, &[&[command, queue, group], why].concat());
            ended.expect(3);
            assert!(ended.err.contains(&format!("queue {queue} has no consumer group {group}")), "{ended:?}");
        }
    }
    let pause = ["pause-group", "q", "g", "--reason", "no sku"];
    assert_eq!(place.queen(&ada, &pause).expect(0), "group g on queue q paused\n");
    assert_eq!(place.queen(&ada, &pause).expect(0), "group g on queue q was paused already\n");
    let stats = place.queen(&ada, &["stats"]);
    assert!(stats.expect(0).contains("paused: g on q, since ") && stats.out.contains(": no sku"), "{stats:?}");
    assert_eq!(place.queen(&ada, &["resume-group", "q", "g", "--json"]).json()["changed"], true);
    assert!(!place.queen(&ada, &["stats"]).expect(0).contains("paused:"));
    place.queen(&ada, &["pause-group", "q", "g"]).expect(2);
}

#[tokio::test]
async fn a_plan_says_how_fast_and_where_to_and_one_of_nothing_is_not_made() {
    let place = Place::with(2, json!({})).await;
    let ada = login(&["queen_operator"]);
    let nothing = [&["plan", "--queue", "q", "--class", "poison"], &WHY[..]].concat();
    for command in [nothing.clone(), [&nothing[..], &["--dry-run"]].concat()] {
        let ended = place.queen(&ada, &command);
        ended.expect(3);
        assert!(ended.err.contains("no plan was made"), "{ended:?}");
    }
    assert_eq!(place.queen(&ada, &["plan", "--list", "--json"]).json()["plans"], json!([]));
    let plan = [&["plan", "--queue", "q", "--rate", "7", "--canary", "1"], &WHY[..]].concat();
    let own = place.queen(&ada, &plan);
    assert!(own.expect(0).contains("7 a second, canary of 1, each to its own queue\n"), "{own:?}");
    let there = place.queen(&ada, &[&plan[..], &["--to-queue", "q", "--dry-run"]].concat());
    assert!(there.expect(0).contains("each to queue q\n"), "{there:?}");
    let none = place.queen(&ada, &[&plan[..], &["--to-queue", "r", "--dry-run"]].concat());
    assert!(none.expect(0).contains("queue r, which does not exist: the replay will make it"), "{none:?}");
}

#[tokio::test]
async fn payloads_are_shown_when_asked_for() {
    let place = Place::with(1, json!({})).await;
    let eve = login(&["queen_viewer"]);
    let listed = place.queen(&eve, &["list", "--json"]);
    assert!(!listed.expect(0).contains("secret"));
    let id = listed.json()["records"][0]["id"].as_str().unwrap().to_owned();
    assert!(!place.queen(&eve, &["show", &id]).expect(0).contains("WHO"), "no heads of what is empty");
    for command in [&["list"][..], &["list", "--json"], &["show", &id], &["show", &id, "--json"]] {
        let without = place.queen(&eve, command);
        assert!(!without.expect(0).contains("secret"), "{without:?}");
        assert!(!without.out.contains('\u{1b}') || command.contains(&"--json"), "{without:?}");
        let with = place.queen(&eve, &[command, &["--payload"]].concat());
        assert!(with.expect(0).contains("secret"), "{with:?}");
    }
}

#[tokio::test]
async fn records_are_repaired_and_discarded() {
    let place = Place::with(2, json!({})).await;
    let ada = login(&["queen_operator"]);
    let listed = place.queen(&ada, &["list", "--json"]).json();
    let id = |n: usize| listed["records"][n]["id"].as_str().unwrap().to_owned();
    let repair = |id: &str, input: &str| {
        place.queen_with(&ada, &["repair", id, "--payload-file", "-", "--reason", "typo", "--json"], input)
    };
    repair(&id(0), "{").expect(2);
    assert_eq!(repair(&id(0), r#"{"fixed": true}"#).json()["result"], "repaired");
    repair(&id(0), "1").expect(3);
    let discard = |ids: &[&str], cause: &str| {
        place.queen(&ada, &[&["discard", "--cause", cause, "--note", "n", "--json"], ids].concat())
    };
    discard(&[&id(1)], "bored").expect(2);
    assert_eq!(discard(&[&id(0), &id(1)], "test").json(), json!({"discarded": 1, "given": 2}));
    discard(&[&id(1)], "test").expect(3);
    assert_eq!(place.queen(&ada, &["list", "--json"]).json()["records"], json!([]));
}

#[tokio::test]
async fn a_repair_is_planned_with_its_payload_and_approved_by_somebody_else() {
    let place = Place::with(1, json!({"requireApproval": true})).await;
    let (ada, bob) = (login(&["queen_operator"]), login(&["queen_operator"]));
    let listed = place.queen(&ada, &["list", "--json"]).json();
    let id = listed["records"][0]["id"].as_str().unwrap();
    let plan = ["plan", "--id", id, "--repair-file", "-", "--reason", "r", "--remediation", "c", "--json"];
    let plan = place.queen_with(&ada, &plan, "{\"n\": 1}\n").json();
    let plan = plan["planId"].as_str().unwrap();
    let approved = place.queen(&bob, &["approve", plan]);
    assert!(approved.expect(0).contains("a repair: sends a payload whose SHA-256 is "), "{approved:?}");
    let repair = ["repair", id, "--payload-file", "-", "--reason", "r"];
    place.queen_with(&ada, &repair, "{\"n\": 2}").expect(4);
    // As one editor and another end a file.
    place.queen_with(&ada, &repair, "{\"n\": 1}").expect(0);
    assert_eq!(place.queen(&ada, &["plan", "--status", plan, "--json"]).json()["state"], "done");
}

#[tokio::test]
async fn the_exit_status_says_what_was_wrong() {
    let place = Place::with(1, json!({})).await;
    let (ada, eve) = (login(&["queen_operator"]), login(&["queen_viewer"]));
    let none = "00000000-0000-0000-0000-0000000000aa";
    for (who, command, code) in [
        (&ada, &["show", none][..], 3),
        (&ada, &["run", none][..], 3),
        (&ada, &["plan", "--status", none][..], 3),
        (&ada, &["show", "x"][..], 2),
        (&ada, &["list", "--class", "silly"][..], 2),
        (&ada, &["list", "--from", "never"][..], 2),
        (&ada, &["plan", "--queue", "q"][..], 2),
        (&ada, &["plan", "--reason", "r", "--remediation", "c"][..], 2),
        (&ada, &["plan", "--reason", " ", "--remediation", "c", "--queue", "q"][..], 2),
        (&ada, &["frobnicate"][..], 2),
        (&eve, &["plan", "--reason", "r", "--remediation", "c", "--queue", "q"][..], 1),
        (&eve, &["list"][..], 0),
        (&"nobody_at_all".to_owned(), &["list"][..], 1),
    ] {
        let ended = place.queen(who, command);
        ended.expect(code);
        assert_eq!(ended.err.is_empty(), code == 0, "{command:?}: {ended:?}");
    }
    assert!(place.queen(&ada, &["--help"]).expect(0).contains("Exit status:"));
    assert!(place.queen(&ada, &["plan", "--help"]).expect(0).contains("Examples:"));
}
