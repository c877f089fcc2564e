//! A running plan, watched and run until it stops.

use super::outcome::{Failure, Outcome};
use super::session::{Session, parsed, print};
use super::table::{cell, shown};
use crate::dead_letters::{PLAN, unproven};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use uuid::Uuid;

/// Runs what is running, so that a plan moves also where nothing else runs plans: its rate stays its rate.
const RUN: &str = "CALL queen.run_replays(250)";

/// Prints a plan's status as it is.
pub fn print_status(db: &Session, status: &str) -> Outcome {
    if db.json { print(status) } else { print(&summary(&parsed(status)?)) }
}

/// Until the plan is not running any more. Ends well when it is done, or stopped behind its canary as it should, and all
/// records that it came to could be replayed.
pub async fn until_it_stops(db: &Session, plan: Uuid, status: &str) -> Outcome {
    let mut status = parsed(status)?;
    let bar = bar(&status);
    while status["state"] == "running" {
        db.run(RUN).await?;
        status = parsed(&db.text(PLAN, &[&plan]).await?)?;
        let count = |key: &str| status[key].as_u64().unwrap_or(0);
        bar.set_position(count("planned").saturating_sub(count("remaining")));
        bar.set_message(counts(&status));
    }
    bar.finish_and_clear();
    let printed = if db.json { print(&status.to_string()) } else { print(&summary(&status)) }?;
    let count = |key: &str| status[key].as_u64().unwrap_or(0);
    match status["state"].as_str() {
        Some("done" | "canary_done") if count("failed") + count("refused") == 0 => Ok(printed),
        Some("done" | "canary_done") => Err(Failure::failed(format!(
            "not all could be replayed: {} failed, {} refused; they are dead letters as before",
            count("failed"),
            count("refused")
        ))),
        _ => Err(Failure::failed(format!("the plan is {}", cell(&status["state"])))),
    }
}

/// Drawn on standard error, on a terminal only.
fn bar(status: &Value) -> ProgressBar {
    let bar = ProgressBar::new(status["planned"].as_u64().unwrap_or(0));
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn counts(status: &Value) -> String {
    let known = ["moved", "duplicate", "failed", "gone", "refused"];
    let counts = known.iter().filter(|key| status[**key].as_u64().is_some_and(|n| n > 0));
    counts.map(|key| format!("{} {key}", status[*key])).collect::<Vec<_>>().join(", ")
}

/// A plan for people.
pub fn summary(status: &Value) -> String {
    let of = |key: &str| shown(&cell(&status[key]));
    let mut lines = vec![
        format!("plan {}: {}", of("planId"), of("state")),
        format!("{} planned, {} remaining; {}", of("planned"), of("remaining"), counts(status)),
        format!("reason: {}; remediation: {}", of("reason"), of("remediation")),
        format!("by {} at {}, {} a second, expires {}", of("plannedBy"), of("plannedAt"), of("rate"), of("expiresAt")),
    ];
    if status["approvedBy"].is_string() {
        lines.push(format!("approved by {} at {} {}", of("approvedBy"), of("approvedAt"), of("approvalNote")));
    } else if status["needsApproval"] == true {
        lines.push("not approved yet: somebody else has to".to_owned());
    }
    if status["repairHash"].is_string() {
        lines.push(format!("a repair: sends a payload whose SHA-256 is {}", of("repairHash")));
    }
    let canary = &status["canary"];
    if canary["size"].as_u64().is_some_and(|size| size > 0) {
        let of = |key: &str| cell(&canary[key]);
        lines.push(format!(
            "canary of {}: {} replayed, {} settled, {} failed again, {} still pending",
            of("size"),
            of("replayed"),
            of("settled"),
            of("failedAgain"),
            of("stillPending")
        ));
    }
    for error in status["errors"].as_array().into_iter().flatten() {
        lines.push(format!("{} {}: {}", cell(&error["state"]), cell(&error["dlqId"]), shown(&cell(&error["error"]))));
    }
    if status["state"] == "canary_done" {
        lines.push(format!("stopped behind the canary; {}", next_step(status)));
    }
    lines.join("\n").replace("; \n", "\n")
}

/// What the state of the canary calls for.
fn next_step(status: &Value) -> String {
    let plan = cell(&status["planId"]);
    let Some(why) = unproven(status) else { return format!("go on: queen dlq widen {plan}") };
    if status["canary"]["failedAgain"].as_u64().unwrap_or(0) == 0 {
        return format!("{why}, look again: queen dlq plan --status {plan}");
    }
    let queue = status["toQueue"].as_str().or(status["selection"]["queue"].as_str());
    let queue = queue.map_or_else(String::new, |queue| format!(" --queue {}", quoted(queue)));
    format!("{why}: look (queen dlq list{queue}), then end it: queen dlq cancel {plan}")
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = shown(name);
    if !name.is_empty() && name.chars().all(plain) { name } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn behind_the_canary_the_next_step_is_what_its_state_calls_for() {
        let step = |again: u64, pending: u64| {
            next_step(&json!({
                "planId": "P", "selection": {"queue": "it's q"}, "canary": {"failedAgain": again, "stillPending": pending},
            }))
        };
        assert_eq!(step(0, 0), "go on: queen dlq widen P");
        assert_eq!(step(0, 3), "3 still pending, look again: queen dlq plan --status P");
        assert_eq!(
            step(2, 1),
            r"2 failed again, 1 still pending: look (queen dlq list --queue 'it'\''s q'), then end it: queen dlq cancel P"
        );
    }
}
