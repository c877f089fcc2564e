use super::outcome::Outcome;
use super::session::{Session, parsed, print};
use super::table::{Table, age, cell, rounded, shown};
use crate::dead_letters::STATS;
use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq stats
  queen dlq stats --queue orders --minutes 60
  queen dlq stats --json | jq '.groups[] | select(.netPerMinute > 0)'")]
pub struct Stats {
    /// Only of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only of this consumer group
    #[arg(long)]
    group: Option<String>,
    /// What rates are over, at most 60
    #[arg(long, default_value_t = 10)]
    minutes: i32,
}

impl Stats {
    pub async fn run(self, db: &Session) -> Outcome {
        let stats = db.text(STATS, &[&self.queue, &self.group, &self.minutes]).await?;
        if db.json {
            return print(&stats);
        }
        let stats = parsed(&stats)?;
        let mut table = Table::new(&[
            "QUEUE",
            "GROUP",
            "PENDING ",
            "APPROVED ",
            "OLDEST ",
            "NEW/MIN ",
            "NET/MIN ",
            "FAILED AGAIN ",
            "SEVERITY",
            "OWNER",
            "TOP FAILURE",
        ]);
        for group in stats["groups"].as_array().into_iter().flatten() {
            let top = &group["topFingerprints"][0];
            let failure = if top.is_object() {
                format!(
                    "{} {} ×{} {}",
                    cell(&top["class"]),
                    cell(&top["code"]),
                    top["count"],
                    cell(&top["fingerprint"])
                )
            } else {
                String::new()
            };
            table.row(vec![
                cell(&group["queue"]),
                cell(&group["consumerGroup"]),
                cell(&group["pending"]),
                cell(&group["approved"]),
                age(group["oldestPendingSeconds"].as_f64().unwrap_or(0.0)),
                rounded(&group["arrivalsPerMinute"]),
                rounded(&group["netPerMinute"]),
                cell(&group["replaysFailedAgain"]),
                cell(&group["severity"]),
                cell(&group["owner"]),
                failure,
            ]);
        }
        let mut text = table.text();
        for paused in stats["paused"].as_array().into_iter().flatten() {
            let of = |key: &str| shown(&cell(&paused[key]));
            let (queue, group, since, why) = (of("queue"), of("consumerGroup"), of("pausedAt"), of("reason"));
            text.push_str(&format!("\npaused: {group} on {queue}, since {since}: {why}"));
        }
        print(&text)
    }
}
