//! How many dead letters there are of each kind: rows that say what was added and taken away, folded now and then.

use crate::pg::creation_lock::{Creation, lock};
use crate::pg::relation::Tables;
use crate::pg::value::Value;
use crate::pg::{commit, spi};
use crate::rows::dead_letter::{OPEN, Record};
use pgrx::datum::{TimestampWithTimeZone, Uuid};

const MINUTE: i64 = 60_000_000;
/// Rows that a reader may meet beyond those that must be there before it folds them.
const LOOSE_ROWS: i64 = 5_000;

/// Which dead letters; None: whatever there is.
#[derive(Default)]
pub struct Filter<'a> {
    pub queue: Option<&'a str>,
    pub group: Option<&'a str>,
    pub class: Option<&'a str>,
    pub code: Option<&'a str>,
    pub fingerprint: Option<&'a str>,
    /// None: those that are open; `all`: every one.
    pub status: Option<&'a str>,
}

/// Every status that a record can have.
pub const STATUSES: [&str; 4] = ["pending", "approved", "replayed", "discarded"];

impl Filter<'_> {
    /// The statuses that pass.
    pub fn statuses(&self) -> Vec<String> {
        let one;
        let words: &[&str] = match self.status {
            None => &OPEN,
            Some("all") => &STATUSES,
            Some(word) => {
                one = [word];
                &one
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}

/// Records of one kind and status.
pub struct Kind {
    pub kind: u128,
    pub status: String,
    pub count: i64,
}

/// What the tally knows.
pub struct Kinds {
    /// Those that pass the filter.
    pub found: Vec<Kind>,
    /// Records of the tenant, whatever they are.
    pub total: i64,
}

/// Counts a record that was just filed.
pub fn count_filed(tables: &Tables, r: &Record, kind: u128) {
    tables.dlq_tally_filed().borrow_mut().insert(&[
        Value::Uuid(r.tenant),
        Value::Text(&r.queue),
        Value::Text(&r.group),
        Value::Text(&r.class),
        Value::Text(&r.code),
        Value::Text(&r.fingerprint),
        Value::Text(&r.status),
        Value::Uuid(kind),
        Value::Time(r.failed_at - r.failed_at.rem_euclid(MINUTE)),
        Value::Int8(1),
        Value::Int8(i64::from(r.reason == "retries_exhausted")),
        Value::Int8(1),
        Value::Int8(i64::from(r.hops > 0)),
    ]);
}

/// The kinds that pass a filter and have records.
pub fn kinds(tenant: u128, filter: &Filter<'_>) -> Kinds {
    let mut kinds = Kinds { found: Vec::new(), total: 0 };
    let (mut rows, mut groups) = (0, 0);
    spi::read_as_owner(|client| {
        let found = client.select(
            "SELECT t.kind, t.status, sum(t.n)::bigint, count(*), \
                    ($2 IS NULL OR t.queue = $2) AND ($3 IS NULL OR t.consumer_group = $3) \
                    AND ($4 IS NULL OR t.failure_class = $4) AND ($5 IS NULL OR t.error_code = $5) \
                    AND ($6 IS NULL OR t.fingerprint = $6) AND t.status = ANY ($7) \
               FROM queen.dlq_tally t WHERE t.tenant = $1 \
              GROUP BY t.kind, t.status, t.queue, t.consumer_group, t.failure_class, t.error_code, t.fingerprint",
            None,
            &[
                spi::uuid(tenant).into(),
                filter.queue.into(),
                filter.group.into(),
                filter.class.into(),
                filter.code.into(),
                filter.fingerprint.into(),
                filter.statuses().into(),
            ],
        )?;
        for row in found {
            let count: i64 = row[3].value()?.unwrap_or_default();
            rows += row[4].value::<i64>()?.unwrap_or_default();
            groups += 1;
            kinds.total += count;
            if count > 0 && row[5].value()?.unwrap_or(false) {
                let kind = row[1].value::<Uuid>()?.map_or(0, |u| u128::from_be_bytes(*u.as_bytes()));
                kinds.found.push(Kind { kind, status: row[2].value()?.unwrap_or_default(), count });
            }
        }
        Ok::<_, pgrx::spi::Error>(())
    })
    .unwrap_or_else(|e| pgrx::error!("reading the tally of dead letters: {e}"));
    fold_if_loose(rows, groups);
    kinds
}

/// Folds after a reader has met more rows than it needed to: of its tenant, or of whatever tenant among those that filing
/// has added, which have no index.
fn fold_if_loose(rows: i64, groups: i64) {
    if commit::may_tidy() && (rows > 2 * groups + LOOSE_ROWS || many_filed()) {
        fold();
    }
}

fn many_filed() -> bool {
    spi::read_as_owner(|client| {
        client
            .select("SELECT FROM queen.dlq_tally_filed OFFSET $1 LIMIT 1", None, &[LOOSE_ROWS.into()])
            .map(|rows| !rows.is_empty())
    })
    .unwrap_or_else(|e| pgrx::error!("reading the tally of dead letters: {e}"))
}

/// Folds the rows of each kind, status and minute into one; minutes older than an hour into one without. One at a time:
/// whoever comes second has nothing to do. The sums stay what they are for everybody.
pub fn fold() {
    if !lock(Creation::Tally, false) {
        return;
    }
    spi::as_owner(|client| {
        client
            .update(
                "WITH gone AS (DELETE FROM queen.dlq_tally RETURNING *) \
                 INSERT INTO queen.dlq_tally \
                 SELECT g.tenant, g.queue, g.consumer_group, g.failure_class, g.error_code, g.fingerprint, g.status, g.kind, \
                        m.minute, sum(g.filed), sum(g.exhausted), sum(g.n), sum(g.again) \
                   FROM gone g \
                  CROSS JOIN LATERAL (SELECT CASE WHEN g.minute > clock_timestamp() - interval '61 minutes' THEN g.minute \
                                                  ELSE '-infinity' END AS minute) m \
                  GROUP BY g.tenant, g.queue, g.consumer_group, g.failure_class, g.error_code, g.fingerprint, g.status, \
                           g.kind, m.minute \
                 HAVING sum(g.n) <> 0 OR sum(g.again) <> 0 OR m.minute <> '-infinity' AND sum(g.filed) <> 0",
                None,
                &[],
            )
            .map(|_| ())
    })
    .unwrap_or_else(|e| pgrx::error!("folding the tally of dead letters: {e}"));
}

/// What is known of one consumer group's dead letters.
pub struct Stat {
    pub queue: String,
    pub group: String,
    pub pending: i64,
    pub approved: i64,
    pub replayed: i64,
    pub discarded: i64,
    /// Records ever made of messages that had been replayed before.
    pub again: i64,
    pub oldest: Option<i64>,
    pub oldest_seconds: f64,
    pub arrivals: f64,
    pub net: f64,
    pub exhaustion: Option<f64>,
    /// JSON.
    pub top: String,
    pub owner: String,
    pub runbook: String,
    pub severity: String,
}

const STATS: &str = r#"
    WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now, date_trunc('minute', clock_timestamp()) - make_interval(mins => $4) AS since),
    kinds AS MATERIALIZED (
        SELECT t.queue, t.consumer_group, t.failure_class, t.error_code, t.fingerprint, t.kind, t.status, sum(t.n)::bigint AS n,
               coalesce(sum(t.filed) FILTER (WHERE t.minute >= c.since), 0)::bigint AS filed,
               coalesce(sum(t.exhausted) FILTER (WHERE t.minute >= c.since), 0)::bigint AS exhausted,
               coalesce(sum(t.n) FILTER (WHERE t.minute >= c.since AND t.status IN ('pending', 'approved')), 0)::bigint AS net,
               sum(t.again)::bigint AS again, count(*) AS rows
          FROM queen.dlq_tally t CROSS JOIN clock c
         WHERE t.tenant = $1 AND ($2 IS NULL OR t.queue = $2) AND ($3 IS NULL OR t.consumer_group = $3)
         GROUP BY t.queue, t.consumer_group, t.failure_class, t.error_code, t.fingerprint, t.kind, t.status),
    ranked AS (
        SELECT f.*, row_number() OVER (PARTITION BY f.queue, f.consumer_group ORDER BY f.n DESC, f.fingerprint, f.failure_class, f.error_code) AS rank
          FROM (SELECT k.queue, k.consumer_group, k.fingerprint, k.failure_class, k.error_code, sum(k.n)::bigint AS n
                  FROM kinds k WHERE k.status IN ('pending', 'approved')
                 GROUP BY k.queue, k.consumer_group, k.fingerprint, k.failure_class, k.error_code) f
         WHERE f.n > 0),
    top AS (
        SELECT r.queue, r.consumer_group,
               json_agg(json_build_object('fingerprint', r.fingerprint, 'class', r.failure_class, 'code', r.error_code, 'count', r.n)
                        ORDER BY r.rank)::text AS list
          FROM ranked r WHERE r.rank <= 5 GROUP BY r.queue, r.consumer_group),
    oldest AS (
        SELECT k.queue, k.consumer_group, min(o.failed_at) AS at
          FROM kinds k
         CROSS JOIN LATERAL (SELECT r.failed_at FROM queen.dead_letter_record r WHERE r.kind = k.kind AND r.status = k.status
                              ORDER BY r.failed_at, r.id LIMIT 1) o
         WHERE k.n > 0 AND k.status IN ('pending', 'approved')
         GROUP BY k.queue, k.consumer_group),
    groups AS (
        SELECT k.queue, k.consumer_group,
               coalesce(sum(k.n) FILTER (WHERE k.status = 'pending'), 0)::bigint AS pending,
               coalesce(sum(k.n) FILTER (WHERE k.status = 'approved'), 0)::bigint AS approved,
               coalesce(sum(k.n) FILTER (WHERE k.status = 'replayed'), 0)::bigint AS replayed,
               coalesce(sum(k.n) FILTER (WHERE k.status = 'discarded'), 0)::bigint AS discarded,
               sum(k.filed) AS filed, sum(k.exhausted) AS exhausted, sum(k.net) AS net, sum(k.rows)::bigint AS rows, count(*) AS kinds,
               sum(k.again)::bigint AS again
          FROM kinds k GROUP BY k.queue, k.consumer_group)
    SELECT g.queue, g.consumer_group, g.pending, g.approved, g.replayed, g.discarded, o.at,
           coalesce(extract(epoch FROM c.now - o.at), 0)::double precision,
           (g.filed / w.minutes)::double precision, (g.net / w.minutes)::double precision,
           (g.exhausted::numeric / nullif(g.filed, 0))::double precision, coalesce(t.list, '[]'),
           coalesce(q.options::json ->> 'owner', ''), coalesce(q.options::json ->> 'runbook', ''),
           coalesce(q.options::json ->> 'severity', ''), g.rows, g.kinds, g.again
      FROM groups g
     CROSS JOIN clock c
     CROSS JOIN LATERAL (SELECT extract(epoch FROM c.now - c.since) / 60 AS minutes) w
      LEFT JOIN top t ON t.queue = g.queue AND t.consumer_group = g.consumer_group
      LEFT JOIN oldest o ON o.queue = g.queue AND o.consumer_group = g.consumer_group
      LEFT JOIN queen.queue q ON q.tenant = $1 AND q.name = g.queue
     WHERE g.pending + g.approved + g.replayed + g.discarded > 0 OR g.filed > 0
     ORDER BY g.queue, g.consumer_group"#;

/// Figures by queue and group, over the last `minutes` full minutes and the running one.
pub fn stats(tenant: u128, queue: Option<&str>, group: Option<&str>, minutes: i32) -> Vec<Stat> {
    let (mut rows, mut groups) = (0, 0);
    let stats = spi::read_as_owner(|client| {
        let tenant = spi::uuid(tenant);
        client
            .select(STATS, None, &[tenant.into(), queue.into(), group.into(), minutes.into()])?
            .map(|row| {
                rows += row[16].value::<i64>()?.unwrap_or_default();
                groups += row[17].value::<i64>()?.unwrap_or_default();
                Ok(Stat {
                    queue: row[1].value()?.unwrap_or_default(),
                    group: row[2].value()?.unwrap_or_default(),
                    pending: row[3].value()?.unwrap_or_default(),
                    approved: row[4].value()?.unwrap_or_default(),
                    replayed: row[5].value()?.unwrap_or_default(),
                    discarded: row[6].value()?.unwrap_or_default(),
                    again: row[18].value()?.unwrap_or_default(),
                    oldest: row[7].value::<TimestampWithTimeZone>()?.map(i64::from),
                    oldest_seconds: row[8].value()?.unwrap_or_default(),
                    arrivals: row[9].value()?.unwrap_or_default(),
                    net: row[10].value()?.unwrap_or_default(),
                    exhaustion: row[11].value()?,
                    top: row[12].value()?.unwrap_or_default(),
                    owner: row[13].value()?.unwrap_or_default(),
                    runbook: row[14].value()?.unwrap_or_default(),
                    severity: row[15].value()?.unwrap_or_default(),
                })
            })
            .collect::<Result<Vec<_>, pgrx::spi::Error>>()
    })
    .unwrap_or_else(|e| pgrx::error!("reading figures of dead letters: {e}"));
    fold_if_loose(rows, groups);
    stats
}
