//! The families about dead letters, by queue and consumer group.

use super::exposition::{Exposition, Kind};
use crate::depths::{Answer, DeadLetters};
use std::collections::BTreeMap;

/// Gauges of a group, each with its help.
type Gauge = (&'static str, &'static str, fn(&DeadLetters) -> Option<f64>);

const GAUGES: [Gauge; 10] = [
    ("queen_dlq_pending", "Dead letters that nobody has decided about.", |g| Some(g.pending as f64)),
    ("queen_dlq_approved", "Dead letters approved for a replay.", |g| Some(g.approved as f64)),
    ("queen_dlq_replayed", "Records kept of dead letters that were replayed.", |g| Some(g.replayed as f64)),
    ("queen_dlq_discarded", "Records kept of dead letters that were discarded.", |g| Some(g.discarded as f64)),
    (
        "queen_dlq_oldest_pending_age_seconds",
        "Age of the oldest pending or approved dead letter, 0 without one.",
        |g| Some(g.oldest_pending_seconds),
    ),
    ("queen_dlq_arrivals_per_minute", "New dead letters a minute, over ten minutes.", |g| Some(g.arrivals_per_minute)),
    (
        "queen_dlq_net_growth_per_minute",
        "By how much pending and approved ones grew a minute, over ten minutes.",
        |g| Some(g.net_per_minute),
    ),
    ("queen_dlq_exhaustion_rate", "Share of new dead letters whose retries were spent, over ten minutes.", |g| {
        g.exhaustion_rate
    }),
    ("queen_dlq_replays_ok", "Replayed messages that have not failed for good again.", |g| {
        g.replays_ok.map(|n| n as f64)
    }),
    ("queen_dlq_replays_failed_again", "Dead letters ever made of messages that had been replayed before.", |g| {
        g.replays_failed_again.map(|n| n as f64)
    }),
];

/// Writes them all. A family without values is there too: who looks for it finds it.
pub fn families(answer: &Answer, text: &mut Exposition) {
    for (name, help, value) in GAUGES {
        let mut family = text.family(name, Kind::Gauge, help);
        for group in &answer.groups {
            let Some(value) = value(group) else { continue };
            family.value(&[("queue", &group.queue), ("group", &group.consumer_group)], value);
        }
    }
    let help =
        "Pending and approved dead letters with the same failure, of the five most frequent failures of a group.";
    let mut family = text.family("queen_dlq_fingerprint", Kind::Gauge, help);
    for group in &answer.groups {
        for f in &group.top_fingerprints {
            let labels = [
                ("queue", group.queue.as_str()),
                ("group", &group.consumer_group),
                ("fingerprint", &f.fingerprint),
                ("class", &f.class),
                ("code", &f.code),
            ];
            family.value(&labels, f.count as f64);
        }
    }
    let replays = &answer.replays;
    let results = [
        ("moved", replays.moved),
        ("duplicate", replays.duplicate),
        ("failed", replays.failed),
        ("gone", replays.gone),
        ("refused", replays.refused),
    ];
    let mut family = text.family(
        "queen_dlq_replays_total",
        Kind::Counter,
        "Records that replay plans came to, by what came of them.",
    );
    for (result, count) in results {
        family.value(&[("result", result)], count as f64);
    }
    let help = "Of the newest hundred open dead letters of a queue with deadLetterPayload redact or encrypt, those kept less \
                protected than that.";
    let mut family = text.family("queen_dlq_unprotected", Kind::Gauge, help);
    for queue in &answer.protected {
        family.value(&[("queue", &queue.queue)], queue.unprotected as f64);
    }
    info(&answer.groups, text);
}

/// One value a queue: what joins the others with who is to be called.
fn info(groups: &[DeadLetters], text: &mut Exposition) {
    let help = "Always 1: the options owner, runbook and severity of queues with dead letters.";
    let mut family = text.family("queen_dlq_queue_info", Kind::Gauge, help);
    let queues: BTreeMap<&str, &DeadLetters> = groups.iter().map(|group| (group.queue.as_str(), group)).collect();
    for (queue, of) in queues {
        let labels = [("queue", queue), ("owner", &of.owner), ("runbook", &of.runbook), ("severity", &of.severity)];
        family.value(&labels, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn exposed() -> String {
        let groups = r#"[
            {"queue":"q","consumer_group":"g","pending":3,"approved":1,"replayed":2,"discarded":4,
             "oldest_pending_at":"2026-01-01T00:00:00Z","oldest_pending_seconds":7.5,"arrivals_per_minute":0.5,
             "net_per_minute":-0.25,"exhaustion_rate":null,"replays_ok":1,"replays_failed_again":1,
             "top_fingerprints":[{"fingerprint":"f","class":"poison","code":"E","count":3}],
             "owner":"shop","runbook":"https://r/","severity":"high"},
            {"queue":"q","consumer_group":"h","pending":0,"approved":0,"replayed":0,"discarded":1,
             "oldest_pending_seconds":0,"arrivals_per_minute":0,"net_per_minute":0,"exhaustion_rate":0.5,
             "top_fingerprints":[],"owner":"shop","runbook":"https://r/","severity":"high"}]"#;
        let answer = Answer { groups: serde_json::from_str(groups).unwrap(), ..Answer::default() };
        let mut text = Exposition::default();
        families(&answer, &mut text);
        text.finish()
    }

    #[test]
    fn every_group_has_its_values_and_a_queue_one_info() {
        let text = exposed();
        for line in [
            r#"queen_dlq_pending{queue="q",group="g"} 3"#,
            r#"queen_dlq_oldest_pending_age_seconds{queue="q",group="g"} 7.5"#,
            r#"queen_dlq_net_growth_per_minute{queue="q",group="g"} -0.25"#,
            r#"queen_dlq_fingerprint{queue="q",group="g",fingerprint="f",class="poison",code="E"} 3"#,
            r#"queen_dlq_exhaustion_rate{queue="q",group="h"} 0.5"#,
            r#"queen_dlq_replays_failed_again{queue="q",group="g"} 1"#,
            r#"queen_dlq_replays_total{result="duplicate"} 0"#,
            r#"queen_dlq_queue_info{queue="q",owner="shop",runbook="https://r/",severity="high"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("queen_dlq_queue_info{").count(), 1);
        assert!(!text.contains(r#"queen_dlq_exhaustion_rate{queue="q",group="g"}"#), "no arrivals, no share");
    }

    /// Words of a text that are names of our series.
    fn series(text: &str) -> BTreeSet<String> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("queen_"))
            .map(str::to_owned)
            .collect()
    }

    fn shipped(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../monitoring").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// All expressions of a dashboard.
    fn expressions(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("expr").and_then(Value::as_str).map(str::to_owned));
                found.extend(map.get("query").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|v| expressions(v, found));
            }
            Value::Array(list) => list.iter().for_each(|v| expressions(v, found)),
            _ => {}
        }
    }

    #[test]
    fn every_series_of_the_shipped_alerts_and_dashboard_exists() {
        // Families as they are declared: the help of one, too, could name another.
        let exposed = exposed();
        let declared: BTreeSet<&str> =
            exposed.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let dashboard: Value = serde_json::from_str(&shipped("grafana-dashboard.json")).unwrap();
        let mut wanted = Vec::new();
        expressions(&dashboard, &mut wanted);
        assert!(wanted.len() > 5, "{wanted:?}");
        wanted.push(shipped("alerts.yml"));
        let names = series(&wanted.join("\n"));
        assert!(names.len() > 5, "{names:?}");
        // Those that are not about dead letters are declared there.
        let others = include_str!("../routes/metrics.rs");
        for name in names {
            let is_declared = declared.contains(name.as_str()) || others.contains(&format!("\"{name}\""));
            assert!(is_declared, "{name} is used and not exposed");
        }
    }

    #[test]
    fn every_alert_has_an_expression_a_severity_and_says_what_to_do() {
        let alerts = shipped("alerts.yml");
        let rules: Vec<&str> = alerts.split("- alert:").skip(1).collect();
        assert!(rules.len() >= 7, "no database, no figures, age, growth, repetition, failing again, redaction");
        for rule in rules {
            assert!(!rule.contains("increase(queen_dlq_replays_failed_again"), "a gauge has no increase");
            // Each server tells the same figures: without the maximum there is an alert for each of them.
            if rule.contains("$labels.queue") {
                assert!(rule.contains("max by (queue"), "an alert for each server:{rule}");
                assert!(rule.contains("$labels.owner"), "whom to call:{rule}");
            }
            for key in ["expr:", "severity:", "summary:", "description:"] {
                assert!(rule.contains(key), "{key} is missing in{rule}");
            }
        }
    }
}
