//! The queen extension at SQL level, for the side-by-side harness. `run.sh` copies this file among the
//! harness's adapters; it is not part of the workspace.
//!
//! | adapter | differs from `queen` in |
//! | --- | --- |
//! | `queen` | one message: `push` and `pop`; a batch: the JSON twins `push_batch_json` and `pop_json`, as the sidecar calls them; `ack_lease` |
//! | `queen-sql` | batches as rows: `push_batch`, `pop` with `jsonb_payload => false` |
//! | `queen-jsonb` | as `queen-sql`, and every payload converted to jsonb |
//! | `queen-txid` | every message carries a transaction id of the caller's, so the dedup window is really probed |
//! | `queen-nodedup` | the queue has `dedupWindowSeconds` 0 |
//! | `queen-many` | a batch goes through `push_many` (a jsonb array) and lands at commit |
//! | `queen-ackid` | acknowledges by id: `ack` for one message, `ack_batch` for more |
//!
//! A pop claims one partition, or with more than 64 partitions as many as messages are asked for;
//! BENCH_QUEEN_MAX_PARTITIONS overrides both. `w9` creates its partitions inside the measured window, because
//! a partition comes into being with its first push.
use crate::{adapter::*, payload::ts_of};
use anyhow::{ensure, Result};
use async_trait::async_trait;
use std::fmt::Write;
use std::sync::Arc;
use tokio_postgres::types::{private::BytesMut, to_sql_checked, FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

type Boxed = Box<dyn std::error::Error + Sync + Send>;

pub struct Queen {
    pub name: &'static str,
    /// Transaction ids of the driver's own instead of minted ones.
    txid: bool,
    dedup: bool,
    /// `push_many` instead of `push_batch`.
    many: bool,
    /// `ack` and `ack_batch` instead of `ack_lease`.
    ack_by_id: bool,
    /// Batches through the JSON twins.
    json: bool,
    /// Payloads as jsonb too.
    jsonb: bool,
}

impl Queen {
    const PLAIN: Queen = Queen { name: "queen", txid: false, dedup: true, many: false, ack_by_id: false, json: true, jsonb: false };
    const ROWS: Queen = Queen { name: "queen-sql", json: false, ..Queen::PLAIN };

    pub fn variants() -> Vec<Box<dyn Adapter>> {
        vec![
            Box::new(Queen::PLAIN),
            Box::new(Queen::ROWS),
            Box::new(Queen { name: "queen-jsonb", jsonb: true, ..Queen::ROWS }),
            Box::new(Queen { name: "queen-txid", txid: true, ..Queen::PLAIN }),
            Box::new(Queen { name: "queen-nodedup", dedup: false, ..Queen::PLAIN }),
            Box::new(Queen { name: "queen-many", many: true, ..Queen::ROWS }),
            Box::new(Queen { name: "queen-ackid", ack_by_id: true, ..Queen::ROWS }),
        ]
    }
}

fn partition(p: usize) -> String {
    format!("p{p}")
}

#[async_trait]
impl Adapter for Queen {
    fn name(&self) -> &'static str {
        self.name
    }
    fn caps(&self) -> Caps {
        Caps { pop_one: true, pop_sized: true, parallel_consumers: true, groups: true, keyed: true, consume: true }
    }
    async fn install(&self, db: &Client) -> Result<Option<String>> {
        if db.query_opt("SELECT 1 FROM pg_available_extensions WHERE name = 'queen'", &[]).await?.is_none() {
            return Ok(Some("extension queen is not installed (make install)".into()));
        }
        db.batch_execute("CREATE EXTENSION queen").await?;
        Ok(None)
    }
    async fn version(&self, db: &Client) -> String {
        db.query_one("SELECT extversion FROM pg_extension WHERE extname = 'queen'", &[]).await
            .map(|r| r.get(0)).unwrap_or_default()
    }
    async fn prepare(&self, db: &Client, ctx: &Ctx) -> Result<()> {
        let options = if self.dedup { "{}" } else { r#"{"dedupWindowSeconds":0}"# };
        db.execute("SELECT queen.configure('q', $1::text::jsonb)", &[&options]).await?;
        // The first contact subscribes a group; partitions that come later are read from their start.
        for g in &ctx.groups {
            let rows = db.query("SELECT 1 FROM queen.pop('q', $1, subscription_mode => 'all')", &[g]).await?;
            ensure!(rows.is_empty(), "a new queue delivered {} messages", rows.len());
        }
        Ok(())
    }
    async fn producer(&self, c: Client, ctx: Arc<Ctx>, idx: usize) -> Result<Box<dyn Producer>> {
        let one = c.prepare(if self.txid {
            "SELECT (queen.push('q', $1::text::jsonb, $2, $3)).message_id"
        } else {
            "SELECT (queen.push('q', $1::text::jsonb, $2)).message_id"
        }).await?;
        let batch = c.prepare(if self.json {
            "SELECT queen.push_batch_json($1)"
        } else {
            "SELECT * FROM queen.push_batch($1::text::json)"
        }).await?;
        let many = c.prepare(if self.txid {
            "SELECT * FROM queen.push_many('q', $1::text[]::jsonb[], $2, $3)"
        } else {
            "SELECT * FROM queen.push_many('q', $1::text[]::jsonb[], $2)"
        }).await?;
        Ok(Box::new(P {
            c, one, batch, many, use_many: self.many, json: self.json, part: idx % ctx.partitions, parts: ctx.partitions,
            txid: self.txid.then_some((idx as u64) << 40), items: String::new(),
        }))
    }
    async fn consumer(&self, c: Client, ctx: Arc<Ctx>, group: usize, _idx: usize, _n: usize) -> Result<Box<dyn Consumer>> {
        let g = &ctx.groups[group];
        let pop = c.prepare(&format!(
            "SELECT partition_id, transaction_id, lease_id, payload_text
             FROM queen.pop('q', '{g}', batch => $1, max_partitions => $2, lease_seconds => 60, jsonb_payload => {})", self.jsonb)).await?;
        let pop_json = c.prepare(&format!(
            "SELECT queen.pop_json('q', '{g}', batch => $1, max_partitions => $2, lease_seconds => 60)")).await?;
        let ack_lease = c.prepare("SELECT queen.ack_lease($1)").await?;
        let ack = c.prepare(&format!("SELECT success, error FROM queen.ack($1, $2, 'completed', '{g}', $3)")).await?;
        let ack_batch = c.prepare(&format!("SELECT success, error FROM queen.ack_batch($1::text::json, '{g}')")).await?;
        let max_partitions = std::env::var("BENCH_QUEEN_MAX_PARTITIONS").ok().and_then(|s| s.parse().ok());
        Ok(Box::new(C {
            c, pop, pop_json, json: self.json, ack_lease, ack, ack_batch, by_id: self.ack_by_id, max_partitions, keyed: ctx.partitions > 64,
            lease: Id::default(), ids: vec![], n: 0,
        }))
    }
}

struct P {
    c: Client,
    one: Statement,
    batch: Statement,
    many: Statement,
    use_many: bool,
    json: bool,
    part: usize,
    parts: usize,
    /// The last transaction id given, when the driver gives them.
    txid: Option<u64>,
    items: String,
}

impl P {
    fn next_txid(&mut self) -> Option<String> {
        let n = self.txid.as_mut()?;
        *n += 1;
        Some(format!("tx-{n:016x}"))
    }
    /// Appends a wire item; payloads are JSON already and the names need no escaping.
    fn item(&mut self, part: usize, payload: &str) -> Result<()> {
        let sep = if self.items.is_empty() { '[' } else { ',' };
        write!(self.items, r#"{sep}{{"queue":"q","partition":"p{part}","payload":{payload}"#)?;
        if let Some(id) = self.next_txid() {
            write!(self.items, r#","transactionId":"{id}""#)?;
        }
        self.items.push('}');
        Ok(())
    }
    async fn send_items(&mut self, want: usize) -> Result<()> {
        self.items.push(']');
        let rows = self.c.query(&self.batch, &[&self.items]).await?;
        self.items.clear();
        if self.json {
            let answered = rows[0].get::<_, &str>(0).matches("\"messageId\"").count();
            ensure!(answered == want, "push_batch_json answered {answered} for {want} items");
            return Ok(());
        }
        ensure!(rows.len() == want, "push_batch answered {} rows for {want} items", rows.len());
        Ok(())
    }
}

#[async_trait]
impl Producer for P {
    async fn push(&mut self, msgs: &[String]) -> Result<()> {
        let part = self.part;
        self.part = (self.part + 1) % self.parts;
        if let [msg] = msgs {
            match self.next_txid() {
                Some(id) => self.c.query_one(&self.one, &[msg, &partition(part), &id]).await?,
                None => self.c.query_one(&self.one, &[msg, &partition(part)]).await?,
            };
        } else if self.use_many {
            let rows = if self.txid.is_some() {
                let ids: Vec<_> = (0..msgs.len()).filter_map(|_| self.next_txid()).collect();
                self.c.query(&self.many, &[&msgs, &partition(part), &ids]).await?
            } else {
                self.c.query(&self.many, &[&msgs, &partition(part)]).await?
            };
            ensure!(rows.len() == msgs.len(), "push_many answered {} rows for {} messages", rows.len(), msgs.len());
        } else {
            for m in msgs {
                self.item(part, m)?;
            }
            self.send_items(msgs.len()).await?;
        }
        Ok(())
    }
    async fn push_keyed(&mut self, msgs: &[(usize, String)]) -> Result<()> {
        for (k, m) in msgs {
            self.item(*k, m)?;
        }
        self.send_items(msgs.len()).await
    }
}

struct C {
    c: Client,
    pop: Statement,
    pop_json: Statement,
    json: bool,
    ack_lease: Statement,
    ack: Statement,
    ack_batch: Statement,
    by_id: bool,
    max_partitions: Option<i32>,
    keyed: bool,
    lease: Id,
    /// (partition id, transaction id) of the last pop; kept only to acknowledge by id.
    ids: Vec<(Id, String)>,
    n: usize,
}

#[async_trait]
impl Consumer for C {
    async fn pop(&mut self, max: usize, ts: &mut Vec<u64>) -> Result<usize> {
        let batch = max as i32;
        let parts = self.max_partitions.unwrap_or(if self.keyed { batch } else { 1 });
        if self.json && max > 1 {
            let row = self.c.query_one(&self.pop_json, &[&batch, &parts]).await?;
            let text: &str = row.get(0);
            let data = "\"data\":";
            let mut rest = text;
            self.n = 0;
            while let Some(at) = rest.find(data) {
                rest = &rest[at + data.len()..];
                ts.push(ts_of(&rest.as_bytes()[..rest.len().min(64)]));
                self.n += 1;
            }
            if self.n > 0 {
                self.lease = Id::parse(&text[12..48])?;
            }
            return Ok(self.n);
        }
        let rows = self.c.query(&self.pop, &[&batch, &parts]).await?;
        self.ids.clear();
        self.n = rows.len();
        for r in &rows {
            ts.push(ts_of(r.get::<_, &str>(3).as_bytes()));
            if self.by_id {
                self.ids.push((r.get(0), r.get(1)));
            }
        }
        if let Some(r) = rows.first() {
            self.lease = r.get(2);
        }
        Ok(self.n)
    }
    async fn ack(&mut self) -> Result<()> {
        if !self.by_id {
            let done: i64 = self.c.query_one(&self.ack_lease, &[&self.lease]).await?.get(0);
            ensure!(done == self.n as i64, "ack_lease completed {done} of {} messages", self.n);
            return Ok(());
        }
        if let [(part, txid)] = &self.ids[..] {
            return accepted(&self.c.query_one(&self.ack, &[part, txid, &self.lease]).await?);
        }
        let mut items = String::new();
        for (part, txid) in &self.ids {
            let sep = if items.is_empty() { '[' } else { ',' };
            // a transaction id here is either the driver's own or a minted uuid: no escaping needed
            write!(items, r#"{sep}{{"partitionId":"{part}","transactionId":"{txid}","leaseId":"{}","status":"completed"}}"#, self.lease)?;
        }
        items.push(']');
        self.c.query(&self.ack_batch, &[&items]).await?.iter().try_for_each(accepted)
    }
}

fn accepted(r: &Row) -> Result<()> {
    ensure!(r.get::<_, bool>(0), "ack refused: {}", r.get::<_, Option<&str>>(1).unwrap_or("no reason given"));
    Ok(())
}

/// A uuid as Postgres sends it; the harness's driver is built without a uuid type.
#[derive(Clone, Copy, Debug, Default)]
struct Id([u8; 16]);

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = u128::from_be_bytes(self.0);
        write!(f, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96, (n >> 80) & 0xffff, (n >> 64) & 0xffff, (n >> 48) & 0xffff, n & 0xffff_ffff_ffff)
    }
}
impl Id {
    fn parse(text: &str) -> Result<Id> {
        Ok(Id(u128::from_str_radix(&text.replace('-', ""), 16)?.to_be_bytes()))
    }
}
impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(Id(raw.try_into()?))
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}
impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
    to_sql_checked!();
}
