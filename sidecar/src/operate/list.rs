use super::outcome::Outcome;
use super::session::{Session, parsed, print};
use super::table::{Table, cell};
use crate::database::Param;
use crate::dead_letters::LIST;
use clap::Args;
use serde_json::Value;

/// Which records.
#[derive(Args, Debug, Default)]
pub struct Filter {
    /// Only of this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only of this consumer group
    #[arg(long)]
    pub group: Option<String>,
    /// Only of this class: transient, permanent, poison, malformed, expired, policy, unknown
    #[arg(long)]
    pub class: Option<String>,
    /// Only with this error code
    #[arg(long)]
    pub code: Option<String>,
    /// Only this failure
    #[arg(long)]
    pub fingerprint: Option<String>,
    /// Failed at this time or later
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Failed before this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq list --queue orders
  queen dlq list --class poison --from '2026-01-31 12:00' --limit 20
  queen dlq list --queue orders --status all --json | jq -r '.records[].id'
  queen dlq list --queue orders --after CURSOR     the next page: the cursor is printed below a full one")]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    /// pending, approved, replayed, discarded or all; by default pending and approved
    #[arg(long)]
    status: Option<String>,
    /// Rows at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    limit: i32,
    /// Go on behind this page
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Show payloads
    #[arg(long)]
    payload: bool,
}

impl List {
    pub async fn run(self, db: &Session) -> Outcome {
        let f = &self.filter;
        let params: [Param<'_>; 11] = [
            &f.queue,
            &f.group,
            &f.class,
            &f.code,
            &f.fingerprint,
            &self.status,
            &f.from,
            &f.to,
            &self.after,
            &self.limit,
            // What is not shown need not be opened.
            &!self.payload,
        ];
        let mut page = parsed(&db.text(LIST, &params).await?)?;
        if !self.payload {
            page["records"].as_array_mut().into_iter().flatten().for_each(without_payload);
        }
        if db.json {
            return print(&page.to_string());
        }
        let mut head = vec!["ID", "QUEUE", "GROUP", "STATUS", "CLASS", "CODE", "ATTEMPTS ", "FAILED AT", "ERROR"];
        head.extend(self.payload.then_some("PAYLOAD"));
        let mut table = Table::new(&head);
        for record in page["records"].as_array().into_iter().flatten() {
            let keys = [
                "id",
                "queue",
                "consumerGroup",
                "status",
                "failureClass",
                "errorCode",
                "attempts",
                "failedAt",
                "error",
            ];
            let mut row: Vec<String> = keys.iter().map(|key| cell(&record[*key])).collect();
            row.extend(self.payload.then(|| record["data"].to_string()));
            table.row(row);
        }
        let next = page["next"].as_str().map_or_else(String::new, |next| format!("\n\nmore: --after {next}"));
        print(&format!("{}{next}", table.text()))
    }
}

/// Payloads are shown when asked for, and not by the way.
pub fn without_payload(record: &mut Value) {
    if let Some(record) = record.as_object_mut() {
        record.remove("data");
        record.remove("headers");
        record.remove("payload");
    }
}
