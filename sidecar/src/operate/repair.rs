use super::outcome::{Failure, Outcome};
use super::session::{Session, id, parsed, print};
use super::table::cell;
use crate::dead_letters::REPAIR;
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};
use uuid::Uuid;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  queen dlq show 8f1c… --payload --json | jq .record.data > payload.json
  $EDITOR payload.json
  queen dlq repair 8f1c… --payload-file payload.json --reason 'total was text'
  queen dlq plan --id 8f1c… --repair-file payload.json --reason … --remediation …
                                       where the queue wants an approval: first somebody else approves this payload
  jq '.total = 12' payload.json | queen dlq repair 8f1c… --payload-file - --reason 'total was text'")]
pub struct Repair {
    /// Id of the record
    #[arg(value_parser = id)]
    id: Uuid,
    /// The edited payload, JSON; - reads standard input
    #[arg(long, value_name = "FILE")]
    payload_file: PathBuf,
    /// Why
    #[arg(long)]
    reason: String,
    /// Where to; by default its own queue
    #[arg(long, value_name = "QUEUE")]
    to_queue: Option<String>,
    /// By default its own partition
    #[arg(long, value_name = "PARTITION")]
    to_partition: Option<String>,
}

impl Repair {
    pub async fn run(self, db: &Session) -> Outcome {
        let payload = read(&self.payload_file)?;
        let answer = db.text(REPAIR, &[&self.id, &payload, &self.reason, &self.to_queue, &self.to_partition]).await?;
        if db.json {
            return print(&answer);
        }
        let answer = parsed(&answer)?;
        let [queue, partition, message] = ["queue", "partition", "messageId"].map(|key| cell(&answer[key]));
        print(&format!("repaired: message {message} in {queue}, partition {partition}"))
    }
}

/// A payload from a file, without the line end that editors add: what is approved and what is sent have one hash.
pub fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    Ok(text.trim().to_owned())
}
