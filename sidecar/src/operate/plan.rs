use super::list::{Filter, without_payload};
use super::outcome::{Failure, Outcome};
use super::repair;
use super::session::{Session, id, parsed, print};
use super::table::{Table, cell, shown};
use super::watch;
use crate::database::Param;
use crate::dead_letters::{HAS_QUEUE, MAKE_PLAN, PLAN, PLANS};
use clap::Args;
use serde_json::{Map, Value};
use std::path::PathBuf;
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq plan --queue orders --class transient --reason 'warehouse was down' \\
      --remediation 'change 4711' --dry-run          what it would be; nothing is written
  queen dlq plan --id 8f1c… --id 03aa… --reason 'fixed' --remediation 'release 7.2' --rate 100
  queen dlq plan --queue orders --match '$ ? (@.total > 100)' --reason … --remediation …
  queen dlq plan --list                              the plans, newest first
  queen dlq plan --status PLAN                       how far one is")]
pub struct Plan {
    #[command(flatten)]
    filter: Filter,
    /// Only records whose payload this JSON path finds something in
    #[arg(long = "match", value_name = "JSONPATH")]
    payload: Option<String>,
    /// Exactly this record; may be given several times, and not with a filter
    #[arg(long = "id", value_parser = id)]
    ids: Vec<Uuid>,
    /// Why
    #[arg(long, required_unless_present_any = ["list", "status"])]
    reason: Option<String>,
    /// What was done about the cause: a change, a ticket
    #[arg(long, required_unless_present_any = ["list", "status"])]
    remediation: Option<String>,
    /// Where to; by default each to its own queue
    #[arg(long, value_name = "QUEUE")]
    to_queue: Option<String>,
    /// By default each to its own partition
    #[arg(long, value_name = "PARTITION")]
    to_partition: Option<String>,
    /// Messages a second
    #[arg(long, default_value = "10")]
    rate: String,
    /// So many go first, and then it stops
    #[arg(long, default_value_t = 10)]
    canary: i32,
    /// Goes on by itself when the whole canary is settled and none of it failed
    #[arg(long)]
    auto_widen: bool,
    /// Not approved, started or continued after this time
    #[arg(long, default_value = "24 hours", value_name = "INTERVAL")]
    expires_in: String,
    /// Refused if it selects more
    #[arg(long, default_value_t = 100_000)]
    max_records: i32,
    /// The payload that `queen dlq repair` is to send, JSON, of the one record given by --id: what somebody else approves;
    /// - reads standard input
    #[arg(long, value_name = "FILE")]
    repair_file: Option<PathBuf>,
    /// Only say what it would be
    #[arg(long)]
    dry_run: bool,
    /// Show payloads of the sample
    #[arg(long = "payload")]
    show_payload: bool,
    /// Show the plans instead
    #[arg(long, conflicts_with_all = ["status", "reason"])]
    list: bool,
    /// Show how far this plan is instead
    #[arg(long, value_name = "PLAN", value_parser = id, conflicts_with = "reason")]
    status: Option<Uuid>,
}

impl Plan {
    pub async fn run(self, db: &Session) -> Outcome {
        if self.list {
            return list(db).await;
        }
        if let Some(plan) = self.status {
            let status = db.text(PLAN, &[&plan]).await?;
            return if db.json { print(&status) } else { print(&watch::summary(&parsed(&status)?)) };
        }
        let filter = self.filter();
        if filter.is_some() != self.ids.is_empty() {
            return Err(Failure::usage("give either a filter, such as --queue, or --id"));
        }
        let repair = self.repair_file.as_deref().map(repair::read).transpose()?;
        let mut plan = self.make(db, &filter, &repair, true).await?;
        if plan["planned"] == 0 {
            return Err(Failure::not_found("no pending dead letter is selected: no plan was made"));
        }
        if !self.dry_run {
            plan = self.make(db, &filter, &repair, false).await?;
        }
        let destination = self.destination(db).await?;
        if !self.show_payload {
            plan["sample"].as_array_mut().into_iter().flatten().for_each(without_payload);
        }
        if db.json { print(&plan.to_string()) } else { print(&self.described(&plan, &destination)) }
    }

    async fn make(
        &self,
        db: &Session,
        filter: &Option<String>,
        repair: &Option<String>,
        dry_run: bool,
    ) -> Result<Value, Failure> {
        let ids = (!self.ids.is_empty()).then_some(&self.ids);
        let params: [Param<'_>; 13] = [
            &self.reason,
            &self.remediation,
            &ids,
            filter,
            &self.to_queue,
            &self.to_partition,
            &self.rate,
            &self.canary,
            &self.auto_widen,
            &self.expires_in,
            &self.max_records,
            &dry_run,
            repair,
        ];
        parsed(&db.text(MAKE_PLAN, &params).await?)
    }

    /// Where to, for people.
    async fn destination(&self, db: &Session) -> Result<String, Failure> {
        let queue = match &self.to_queue {
            None => "its own queue".to_owned(),
            Some(queue) if db.text(HAS_QUEUE, &[queue]).await? == "true" => format!("queue {}", shown(queue)),
            Some(queue) => format!("queue {}, which does not exist: the replay will make it", shown(queue)),
        };
        let partition =
            self.to_partition.as_deref().map_or_else(String::new, |p| format!("partition {} of ", shown(p)));
        Ok(format!("each to {partition}{queue}"))
    }

    /// As `dlq_plan` wants it; None: nothing was said.
    fn filter(&self) -> Option<String> {
        let f = &self.filter;
        let keys = [
            ("queue", &f.queue),
            ("consumerGroup", &f.group),
            ("class", &f.class),
            ("code", &f.code),
            ("fingerprint", &f.fingerprint),
            ("from", &f.from),
            ("to", &f.to),
            ("payload", &self.payload),
        ];
        let given = keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), Value::from(value.clone()?))));
        let filter: Map<String, Value> = given.collect();
        (!filter.is_empty()).then(|| Value::Object(filter).to_string())
    }
}

impl Plan {
    /// A new plan, or a dry run.
    fn described(&self, plan: &Value, destination: &str) -> String {
        let payloads = self.show_payload;
        let mut text = match plan["planId"].as_str() {
            Some(id) => format!("plan {id}\n"),
            None => "dry run: nothing was written\n".to_owned(),
        };
        text.push_str(&format!("{} records; expires {}\n", plan["planned"], cell(&plan["expiresAt"])));
        text.push_str(&format!("{} a second, canary of {}, {destination}\n\n", shown(&self.rate), self.canary));
        if let Some(held) = plan["heldElsewhere"].as_u64().filter(|held| *held > 0) {
            text.truncate(text.len() - 1);
            text.push_str(&format!("{held} of them are in another plan as well: queen dlq plan --list\n\n"));
        }
        if let Some(hash) = plan["repairHash"].as_str() {
            text.truncate(text.len() - 1);
            text.push_str(&format!("a repair: sends a payload whose SHA-256 is {hash}\n\n"));
        }
        let mut queues = Table::new(&["QUEUE", "RECORDS ", "APPROVAL"]);
        for queue in plan["queues"].as_array().into_iter().flatten() {
            let needs = if queue["needsApproval"] == true { "needed" } else { "" };
            queues.row(vec![cell(&queue["queue"]), cell(&queue["records"]), needs.to_owned()]);
        }
        let mut head = vec!["SAMPLE", "QUEUE", "GROUP", "CLASS", "CODE", "ERROR"];
        head.extend(payloads.then_some("PAYLOAD"));
        let mut sample = Table::new(&head);
        for record in plan["sample"].as_array().into_iter().flatten() {
            let keys = ["dlqId", "queue", "consumerGroup", "failureClass", "errorCode", "error"];
            let mut row: Vec<String> = keys.iter().map(|key| cell(&record[*key])).collect();
            row.extend(payloads.then(|| record["payload"].to_string()));
            sample.row(row);
        }
        text.push_str(&format!("{}\n\n{}\n", queues.text(), sample.text()));
        if let Some(id) = plan["planId"].as_str() {
            let next = match (plan["needsApproval"] == true, plan["repairHash"].is_string()) {
                (true, _) => format!("approve (somebody else): queen dlq approve {id}"),
                (false, false) => format!("run: queen dlq run {id}"),
                (false, true) => "repair: queen dlq repair, with the same payload".to_owned(),
            };
            text.push_str(&format!("\nnext, {next}\n"));
        }
        text
    }
}

async fn list(db: &Session) -> Outcome {
    let plans = db.text(PLANS, &[&None::<String>, &100_i32]).await?;
    if db.json {
        return print(&plans);
    }
    let mut table =
        Table::new(&["PLAN", "STATE", "PLANNED ", "MOVED ", "REMAINING ", "RATE ", "BY", "APPROVED BY", "REASON"]);
    for plan in parsed(&plans)?["plans"].as_array().into_iter().flatten() {
        let keys = ["planId", "state", "planned", "moved", "remaining", "rate", "plannedBy", "approvedBy", "reason"];
        table.row(keys.map(|key| cell(&plan[key])).into());
    }
    print(&table.text())
}
