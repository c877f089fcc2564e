-- What an operator looks at. The views read the tables with their owner's rights and show the current tenant only;
-- as security barriers, so that no condition of a query is tried on a row of another tenant.
--
-- Exact, and cheap at 100,000 partitions: per partition, and per group and partition, they probe the ends of an index
-- (last segment, highest trimmed offset, newest cursor) and never walk segments or history. What costs more, or is not
-- always wanted, is a subquery of its own, which the planner leaves out when its column is not selected.

-- Building block: where the log of each partition begins and ends. Granted to nobody.
CREATE VIEW queen.partition_extent AS
SELECT p.qid,
       p.pid,
       p.name,
       p.partition_id,
       p.created_at,
       coalesce(t.upto + 1, 0)                               AS log_start,
       greatest(s.base + s.frames - 1, coalesce(t.upto, -1)) AS last_offset,   -- greatest() passes over NULL
       s.created_at                                          AS last_write_at
  FROM queen.partition p
  LEFT JOIN LATERAL (SELECT base, frames, created_at FROM queen.segment
                      WHERE pid = p.pid ORDER BY base DESC LIMIT 1) s ON true
  LEFT JOIN LATERAL (SELECT upto FROM queen.trimmed
                      WHERE pid = p.pid ORDER BY upto DESC LIMIT 1) t ON true;
COMMENT ON VIEW queen.partition_extent IS 'Part of the other views: where the log of each partition begins and ends.';

-- Building block: how far each group is in each partition that it reads; a partition that no group reads has one row
-- without a group. Granted to nobody.
--
-- Everything up to `settled` is done (or gone), (settled, held] is under a live lease, (held, last_offset] is pending.
-- A registered group reads every partition of its queue; one that only ever named partitions reads those.
CREATE VIEW queen.group_position AS
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT e.qid,
       e.pid,
       e.log_start,
       e.last_offset,
       g.gid,
       g.name AS consumer_group,
       x.settled,
       CASE WHEN g.expires_at > clock.now THEN greatest(x.settled, g.batch_end) ELSE x.settled END AS held,
       CASE WHEN g.expires_at > clock.now THEN g.lease_id END   AS lease_id,
       CASE WHEN g.expires_at > clock.now THEN g.expires_at END AS lease_expires_at,
       coalesce(g.retries, 0) AS retries,
       clock.now
  FROM clock
 CROSS JOIN queen.partition_extent e
  LEFT JOIN LATERAL (SELECT r.gid, r.name, r.start_at, c.committed, c.batch_end, c.lease_id, c.expires_at, c.retries
                       FROM queen.subscription r
                       LEFT JOIN LATERAL (SELECT committed, batch_end, lease_id, expires_at, retries FROM queen.cursor
                                           WHERE gid = r.gid AND pid = e.pid ORDER BY seq DESC LIMIT 1) c ON true
                      WHERE r.qid = e.qid AND (r.registered OR c.committed IS NOT NULL)) g ON true
 CROSS JOIN LATERAL (
       SELECT greatest(e.log_start - 1,
              CASE WHEN g.gid IS NULL THEN -1
                   WHEN g.committed IS NOT NULL THEN g.committed
                   -- No cursor yet: the group starts where its subscription says.
                   WHEN e.created_at > g.start_at THEN -1
                   WHEN coalesce(e.last_write_at < g.start_at, true) THEN e.last_offset
                   ELSE (
                       -- The offset before the first segment at or after start_at. created_at rises with base, so
                       -- halve: offset `low` lies in an older segment (or before the log), offset `high` does not.
                       WITH RECURSIVE halve(low, high) AS (
                           SELECT e.log_start - 1, e.last_offset
                           UNION ALL
                           SELECT CASE WHEN m.created_at < g.start_at THEN m.base + m.frames - 1 ELSE h.low END,
                                  CASE WHEN m.created_at < g.start_at THEN h.high ELSE m.base END
                             FROM halve h
                            CROSS JOIN LATERAL (SELECT base, frames, created_at FROM queen.segment
                                                 WHERE pid = e.pid AND base <= h.low + (h.high - h.low) / 2
                                                 ORDER BY base DESC LIMIT 1) m
                            WHERE h.high - h.low > 1)
                       SELECT max(low) FROM halve)
              END) AS settled
       OFFSET 0) x;   -- a fence: computed once, however often the columns above and the outer query name it
COMMENT ON VIEW queen.group_position IS 'Part of the other views: how far each consumer group is in each partition that it reads.';

-- pending and processing are those of the named group that is furthest behind, partition by partition; of
-- __QUEUE_MODE__ where no named group reads; where nobody does, everything is pending.
CREATE VIEW queen.queues WITH (security_barrier) AS
SELECT q.name                                   AS queue,
       q.options::jsonb ->> 'namespace'         AS namespace,
       q.options::jsonb ->> 'task'              AS task,
       (SELECT count(*) FROM queen.partition p WHERE p.qid = q.qid) AS partitions,
       (SELECT coalesce(sum(e.last_offset - e.log_start + 1), 0)::bigint
          FROM queen.partition_extent e WHERE e.qid = q.qid) AS messages,
       coalesce(d.pending, 0)::bigint           AS pending,
       coalesce(d.processing, 0)::bigint        AS processing,
       coalesce(f.dead_letters, 0)::bigint      AS dead_letters,
       (SELECT coalesce(sum(b.bytes), 0)::bigint
          FROM queen.partition p
         CROSS JOIN LATERAL (SELECT sum(octet_length(s.data)) AS bytes FROM queen.segment s WHERE s.pid = p.pid) b
         WHERE p.qid = q.qid)                   AS retained_bytes,
       d.oldest_pending_at,
       q.options::jsonb                         AS options,
       (SELECT coalesce(sum(c.pushes), 0)::bigint FROM queen.dropped_duplicate c
         WHERE c.qid = q.qid)                   AS duplicates_dropped,
       lpad(to_hex(q.qid), 32, '0')::uuid       AS id,
       q.created_at,
       (SELECT count(*) FROM queen.partition p JOIN queen.segment s ON s.pid = p.pid
         WHERE p.qid = q.qid)                   AS segments
  FROM queen.queue q
  LEFT JOIN LATERAL (
       SELECT sum(w.last_offset - w.held)  AS pending,
              sum(w.held - w.settled)      AS processing,
              min(CASE WHEN w.held < w.last_offset THEN
                  (SELECT s.created_at FROM queen.segment s
                    WHERE s.pid = w.pid AND s.base <= w.held + 1 ORDER BY s.base DESC LIMIT 1) END) AS oldest_pending_at
         FROM (SELECT DISTINCT ON (g.pid) g.pid, g.last_offset, g.settled, g.held
                 FROM queen.group_position g
                WHERE g.qid = q.qid
                ORDER BY g.pid, g.consumer_group = '__QUEUE_MODE__', g.settled, g.held) w) d ON true
  LEFT JOIN (SELECT t.tenant, t.queue, sum(t.n) AS dead_letters FROM queen.dlq_tally t
              WHERE t.status IN ('pending', 'approved') GROUP BY t.tenant, t.queue) f ON f.tenant = q.tenant AND f.queue = q.name
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.queues IS 'Queues of the current tenant, with depth. Select only the columns that you need: the costly ones are computed only then.';
COMMENT ON COLUMN queen.queues.queue IS 'Queue name.';
COMMENT ON COLUMN queen.queues.namespace IS 'Option namespace, for pop_matching.';
COMMENT ON COLUMN queen.queues.task IS 'Option task, for pop_matching.';
COMMENT ON COLUMN queen.queues.partitions IS 'Number of partitions.';
COMMENT ON COLUMN queen.queues.messages IS 'Messages stored, consumed or not.';
COMMENT ON COLUMN queen.queues.pending IS 'Messages that wait for delivery; those in processing do not count. In each partition, as the named group sees it that is furthest behind; __QUEUE_MODE__ if no named group reads it; all, if nobody does.';
COMMENT ON COLUMN queen.queues.processing IS 'Messages under a live lease of that same group.';
COMMENT ON COLUMN queen.queues.dead_letters IS 'Dead letters, of all groups, that are pending or approved.';
COMMENT ON COLUMN queen.queues.retained_bytes IS 'Bytes of the stored segments, compressed. Visits the row of every segment of the queue (not its data): the one column whose cost grows with what is stored.';
COMMENT ON COLUMN queen.queues.oldest_pending_at IS 'When the oldest pending message was stored; NULL if none is pending.';
COMMENT ON COLUMN queen.queues.options IS 'All effective options.';
COMMENT ON COLUMN queen.queues.duplicates_dropped IS 'Pushes that were answered as queued and found to be duplicates at their commit: dropped in silence, and counted.';
COMMENT ON COLUMN queen.queues.id IS 'Id of the queue: a name for it that a queue of the same name made later does not get.';
COMMENT ON COLUMN queen.queues.created_at IS 'When the queue was created.';
COMMENT ON COLUMN queen.queues.segments IS 'Segments stored. Visits the index entry of every one.';
GRANT SELECT ON queen.queues TO queen_viewer, queen_sidecar;

CREATE VIEW queen.partitions WITH (security_barrier) AS
SELECT q.name AS queue,
       e.name AS partition,
       e.partition_id,
       e.log_start,
       e.last_offset,
       e.created_at,
       e.last_write_at,
       d.pending,
       d.processing,
       coalesce(f.dead_letters, 0)::bigint AS dead_letters,
       (SELECT s.created_at FROM queen.segment s
         WHERE s.pid = e.pid AND s.base >= e.log_start ORDER BY s.base LIMIT 1) AS oldest_message_at
  FROM queen.queue q
  JOIN queen.partition_extent e ON e.qid = q.qid
  LEFT JOIN LATERAL (
       SELECT g.last_offset - g.held AS pending,
              g.held - g.settled     AS processing
         FROM queen.group_position g
        WHERE g.pid = e.pid
        ORDER BY g.consumer_group = '__QUEUE_MODE__', g.settled, g.held
        LIMIT 1) d ON true
  -- Counted once and joined, not partition by partition: with many records of few, that would read them all each time.
  LEFT JOIN (SELECT r.partition_id, count(*) AS dead_letters FROM queen.dead_letter_record r
              WHERE r.status IN ('pending', 'approved') GROUP BY r.partition_id) f ON f.partition_id = e.partition_id
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.partitions IS 'Partitions of the current tenant.';
COMMENT ON COLUMN queen.partitions.queue IS 'Queue name.';
COMMENT ON COLUMN queen.partitions.partition IS 'Partition name.';
COMMENT ON COLUMN queen.partitions.partition_id IS 'Id of the partition, as in messages.';
COMMENT ON COLUMN queen.partitions.log_start IS 'Lowest offset still stored; one above last_offset if nothing is.';
COMMENT ON COLUMN queen.partitions.last_offset IS 'Highest offset ever given; -1 before the first message.';
COMMENT ON COLUMN queen.partitions.created_at IS 'When the partition was created.';
COMMENT ON COLUMN queen.partitions.last_write_at IS 'When the last message was stored; NULL if retention has removed it.';
COMMENT ON COLUMN queen.partitions.pending IS 'Messages that wait for delivery, as in queues: to the named group that is furthest behind.';
COMMENT ON COLUMN queen.partitions.processing IS 'Messages under a live lease of that same group.';
COMMENT ON COLUMN queen.partitions.dead_letters IS 'Dead letters, of all groups, that are pending or approved.';
COMMENT ON COLUMN queen.partitions.oldest_message_at IS 'When the oldest message still stored was stored; NULL if there is none.';
GRANT SELECT ON queen.partitions TO queen_viewer, queen_sidecar;

CREATE VIEW queen.consumer_groups WITH (security_barrier) AS
SELECT g.name AS consumer_group,
       q.name AS queue,
       d.partitions,
       coalesce(d.pending, 0)::bigint    AS pending,
       coalesce(d.processing, 0)::bigint AS processing,
       d.oldest_pending_at,
       CASE WHEN g.registered THEN g.mode END AS subscription_mode,
       CASE WHEN g.registered THEN nullif(g.start_at, '-infinity') END AS subscription_timestamp,
       CASE WHEN g.registered THEN g.created_at END AS subscription_created_at,
       d.partitions_with_lag,
       coalesce(d.total_lag, 0)::bigint             AS total_lag,
       coalesce(d.max_time_lag_seconds, 0)          AS max_time_lag_seconds,
       d.active_leases,
       coalesce(d.settled, 0)::bigint               AS settled,
       g.conflation,
       g.paused_at,
       g.pause_reason
  FROM queen.queue q
  JOIN queen.subscription g ON g.qid = q.qid
  LEFT JOIN LATERAL (
       SELECT count(*)                     AS partitions,
              sum(w.last_offset - w.held)  AS pending,
              sum(w.held - w.settled)      AS processing,
              min(CASE WHEN w.held < w.last_offset THEN
                  (SELECT s.created_at FROM queen.segment s
                    WHERE s.pid = w.pid AND s.base <= w.held + 1 ORDER BY s.base DESC LIMIT 1) END) AS oldest_pending_at,
              count(*) FILTER (WHERE w.settled < w.last_offset) AS partitions_with_lag,
              sum(w.last_offset - w.settled)                    AS total_lag,
              max(CASE WHEN w.settled < w.last_offset THEN
                  (SELECT extract(epoch FROM w.now - s.created_at)::double precision FROM queen.segment s
                    WHERE s.pid = w.pid AND s.base <= w.settled + 1 ORDER BY s.base DESC LIMIT 1) END) AS max_time_lag_seconds,
              count(DISTINCT w.lease_id)                        AS active_leases,
              sum(w.settled + 1)                                AS settled
         FROM queen.group_position w
        WHERE w.qid = g.qid AND w.gid = g.gid) d ON true
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.consumer_groups IS 'Consumer groups of the current tenant, one row for each queue that they read.';
COMMENT ON COLUMN queen.consumer_groups.consumer_group IS 'Name of the group; __QUEUE_MODE__ is that of consumers who name none.';
COMMENT ON COLUMN queen.consumer_groups.queue IS 'Queue name.';
COMMENT ON COLUMN queen.consumer_groups.partitions IS 'Partitions of the queue that the group reads: all, or those it has named if it never popped from any.';
COMMENT ON COLUMN queen.consumer_groups.pending IS 'Messages that wait for delivery to the group; those in processing do not count.';
COMMENT ON COLUMN queen.consumer_groups.processing IS 'Messages under a live lease of the group.';
COMMENT ON COLUMN queen.consumer_groups.oldest_pending_at IS 'When the oldest pending message was stored; NULL if none is pending.';
COMMENT ON COLUMN queen.consumer_groups.subscription_mode IS 'Where the group started: all, new or timestamp; NULL for a group that only ever named partitions.';
COMMENT ON COLUMN queen.consumer_groups.subscription_timestamp IS 'It started with messages stored from then on; NULL for the beginning.';
COMMENT ON COLUMN queen.consumer_groups.subscription_created_at IS 'When the group subscribed, or came to pop from any partition; NULL for a group that only ever named partitions.';
COMMENT ON COLUMN queen.consumer_groups.partitions_with_lag IS 'Partitions with a message that the group has not settled.';
COMMENT ON COLUMN queen.consumer_groups.total_lag IS 'Messages that the group has not settled: pending and processing.';
COMMENT ON COLUMN queen.consumer_groups.max_time_lag_seconds IS 'Age of the oldest message that the group has not settled; 0 if there is none.';
COMMENT ON COLUMN queen.consumer_groups.active_leases IS 'Live leases of the group; one may hold several partitions.';
COMMENT ON COLUMN queen.consumer_groups.settled IS 'Messages that the group is done with: settled, passed over by its start, or removed by retention.';
COMMENT ON COLUMN queen.consumer_groups.conflation IS 'Whether the group gets only the newest message of each partition; those behind it count as pending until it is settled.';
COMMENT ON COLUMN queen.consumer_groups.paused_at IS 'Since when the pops of the group bring nothing; NULL if it is not paused.';
COMMENT ON COLUMN queen.consumer_groups.pause_reason IS 'Why, as whoever paused it has said; a group that has paused itself names the fingerprint.';
GRANT SELECT ON queen.consumer_groups TO queen_viewer, queen_sidecar;

CREATE VIEW queen.group_partitions WITH (security_barrier) AS
SELECT q.name         AS queue,
       w.consumer_group,
       p.name         AS partition,
       p.partition_id,
       w.settled,
       w.last_offset,
       w.last_offset - w.held AS pending,
       w.held - w.settled     AS processing,
       w.lease_id,
       w.lease_expires_at,
       w.retries,
       CASE WHEN w.held < w.last_offset THEN
           (SELECT s.created_at FROM queen.segment s
             WHERE s.pid = w.pid AND s.base <= w.held + 1 ORDER BY s.base DESC LIMIT 1) END AS oldest_pending_at,
       o.created_at AS oldest_unsettled_at,
       coalesce(extract(epoch FROM w.now - o.created_at), 0)::double precision AS lag_seconds
  FROM queen.queue q
  JOIN queen.partition p ON p.qid = q.qid
 -- A fence (OFFSET 0): one partition at a time, so that looking at one of them does not compute them all.
 CROSS JOIN LATERAL (SELECT * FROM queen.group_position g WHERE g.pid = p.pid AND g.gid IS NOT NULL OFFSET 0) w
  LEFT JOIN LATERAL (SELECT s.created_at FROM queen.segment s
                      WHERE s.pid = w.pid AND s.base <= w.settled + 1 AND w.settled < w.last_offset
                      ORDER BY s.base DESC LIMIT 1) o ON true
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.group_partitions IS 'How far each consumer group of the current tenant is in each partition that it reads.';
COMMENT ON COLUMN queen.group_partitions.queue IS 'Queue name.';
COMMENT ON COLUMN queen.group_partitions.consumer_group IS 'Name of the group; __QUEUE_MODE__ is that of consumers who name none.';
COMMENT ON COLUMN queen.group_partitions.partition IS 'Partition name.';
COMMENT ON COLUMN queen.group_partitions.partition_id IS 'Id of the partition.';
COMMENT ON COLUMN queen.group_partitions.settled IS 'Highest offset that the group is done with, retention included; -1 before the first.';
COMMENT ON COLUMN queen.group_partitions.last_offset IS 'Highest offset of the partition ever given; -1 before the first message.';
COMMENT ON COLUMN queen.group_partitions.pending IS 'Messages that wait for delivery to the group; those in processing do not count.';
COMMENT ON COLUMN queen.group_partitions.processing IS 'Messages under a live lease of the group.';
COMMENT ON COLUMN queen.group_partitions.lease_id IS 'The live lease; NULL if there is none.';
COMMENT ON COLUMN queen.group_partitions.lease_expires_at IS 'When it ends.';
COMMENT ON COLUMN queen.group_partitions.retries IS 'Failures charged to the messages that are next.';
COMMENT ON COLUMN queen.group_partitions.oldest_pending_at IS 'When the oldest pending message was stored; NULL if none is pending.';
COMMENT ON COLUMN queen.group_partitions.oldest_unsettled_at IS 'When the oldest message was stored that the group is not done with; NULL if it is done with all.';
COMMENT ON COLUMN queen.group_partitions.lag_seconds IS 'Age of that message; 0 if there is none.';
GRANT SELECT ON queen.group_partitions TO queen_viewer, queen_sidecar;

-- Counted by the tally; when, by both ends of each kind in the index.
CREATE VIEW queen.dlq_depth WITH (security_barrier) AS
WITH kinds AS (
    -- The tenant is asked for first, also where nothing is counted: a session that may not say its tenant is refused.
    SELECT one.*
      FROM (SELECT queen.current_tenant() AS tenant OFFSET 0) me
     CROSS JOIN LATERAL (SELECT t.queue, t.consumer_group, t.kind, t.status, sum(t.n) AS n
                           FROM queen.dlq_tally t
                          WHERE t.tenant = me.tenant
                          GROUP BY t.queue, t.consumer_group, t.kind, t.status HAVING sum(t.n) > 0) one)
SELECT k.queue,
       k.consumer_group,
       coalesce(sum(k.n) FILTER (WHERE k.status IN ('pending', 'approved')), 0)::bigint AS dead_letters,
       min(o.failed_at) AS oldest_failed_at,
       max(w.failed_at) AS newest_failed_at,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'pending'), 0)::bigint   AS pending,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'approved'), 0)::bigint  AS approved,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'replayed'), 0)::bigint  AS replayed,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'discarded'), 0)::bigint AS discarded
  FROM kinds k
  LEFT JOIN LATERAL (SELECT r.failed_at FROM queen.dead_letter_record r
                      WHERE r.kind = k.kind AND r.status = k.status AND k.status IN ('pending', 'approved')
                      ORDER BY r.failed_at, r.id LIMIT 1) o ON true
  LEFT JOIN LATERAL (SELECT r.failed_at FROM queen.dead_letter_record r
                      WHERE r.kind = k.kind AND r.status = k.status AND k.status IN ('pending', 'approved')
                      ORDER BY r.failed_at DESC, r.id DESC LIMIT 1) w ON true
 GROUP BY k.queue, k.consumer_group;
COMMENT ON VIEW queen.dlq_depth IS 'Dead letters of the current tenant, counted by queue and consumer group.';
COMMENT ON COLUMN queen.dlq_depth.queue IS 'Queue name.';
COMMENT ON COLUMN queen.dlq_depth.consumer_group IS 'The group that gave up.';
COMMENT ON COLUMN queen.dlq_depth.dead_letters IS 'Number of records that are pending or approved.';
COMMENT ON COLUMN queen.dlq_depth.oldest_failed_at IS 'When the oldest of them was made.';
COMMENT ON COLUMN queen.dlq_depth.newest_failed_at IS 'When the newest of them was made.';
COMMENT ON COLUMN queen.dlq_depth.pending IS 'Records that nobody has decided about.';
COMMENT ON COLUMN queen.dlq_depth.approved IS 'Records approved for a replay.';
COMMENT ON COLUMN queen.dlq_depth.replayed IS 'Records kept of messages that were replayed.';
COMMENT ON COLUMN queen.dlq_depth.discarded IS 'Records kept of messages that were discarded.';
GRANT SELECT ON queen.dlq_depth TO queen_viewer, queen_sidecar;

CREATE VIEW queen.replay_plans WITH (security_barrier) AS
SELECT p.plan_id,
       CASE WHEN p.ended_at IS NULL AND p.expires_at <= clock_timestamp() THEN 'expired' ELSE p.state END AS state,
       p.phase,
       p.planned,
       p.moved,
       p.duplicate,
       p.failed,
       p.gone,
       p.refused,
       p.planned - p.next_n AS remaining,
       p.rate,
       p.canary,
       p.needs_approval,
       p.reason,
       p.remediation,
       p.selection,
       p.to_queue,
       p.to_partition,
       p.planned_by,
       p.planned_at,
       p.approved_by,
       p.approved_at,
       p.started_by,
       p.started_at,
       p.ended_at,
       p.expires_at
  FROM queen.replay_plan p
 WHERE p.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.replay_plans IS 'Replay plans of the current tenant, and how far they are; dlq_plan_status says more of one.';
COMMENT ON COLUMN queen.replay_plans.plan_id IS 'Id of the plan.';
COMMENT ON COLUMN queen.replay_plans.state IS 'planned, approved, running, paused, canary_done, done, cancelled or expired.';
COMMENT ON COLUMN queen.replay_plans.phase IS 'canary, or rest once the canary is behind it.';
COMMENT ON COLUMN queen.replay_plans.planned IS 'Records that it selected.';
COMMENT ON COLUMN queen.replay_plans.moved IS 'Records whose message is in a queue again.';
COMMENT ON COLUMN queen.replay_plans.duplicate IS 'Records whose message was there already.';
COMMENT ON COLUMN queen.replay_plans.failed IS 'Records that could not be moved.';
COMMENT ON COLUMN queen.replay_plans.gone IS 'Records that were deleted, replayed or discarded meanwhile.';
COMMENT ON COLUMN queen.replay_plans.refused IS 'Records that may not be replayed.';
COMMENT ON COLUMN queen.replay_plans.remaining IS 'Records that it has not come to yet.';
COMMENT ON COLUMN queen.replay_plans.rate IS 'Messages a second.';
COMMENT ON COLUMN queen.replay_plans.canary IS 'Records that go first.';
COMMENT ON COLUMN queen.replay_plans.needs_approval IS 'Whether somebody else has to approve it.';
COMMENT ON COLUMN queen.replay_plans.reason IS 'Why.';
COMMENT ON COLUMN queen.replay_plans.remediation IS 'What was done about the cause.';
COMMENT ON COLUMN queen.replay_plans.selection IS 'The filter, or how many ids were given.';
COMMENT ON COLUMN queen.replay_plans.to_queue IS 'Where to; NULL: each to its own queue.';
COMMENT ON COLUMN queen.replay_plans.to_partition IS 'NULL: each to its own partition.';
COMMENT ON COLUMN queen.replay_plans.planned_by IS 'Who made it.';
COMMENT ON COLUMN queen.replay_plans.planned_at IS 'When.';
COMMENT ON COLUMN queen.replay_plans.approved_by IS 'Who approved it, or NULL.';
COMMENT ON COLUMN queen.replay_plans.approved_at IS 'When.';
COMMENT ON COLUMN queen.replay_plans.started_by IS 'Who started it, or NULL.';
COMMENT ON COLUMN queen.replay_plans.started_at IS 'When.';
COMMENT ON COLUMN queen.replay_plans.ended_at IS 'When it was done, cancelled or expired; NULL while it is not.';
COMMENT ON COLUMN queen.replay_plans.expires_at IS 'Until when it may be approved, started and run.';
GRANT SELECT ON queen.replay_plans TO queen_viewer, queen_sidecar;
