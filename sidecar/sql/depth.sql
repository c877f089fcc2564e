-- GET /api/v1/resources/queues/:queue/depth. $1 queue, $2 consumer group or NULL: the one furthest behind.
-- No row: there is no such queue. To a group that nobody has used yet, everything is pending.
WITH lane AS (
    SELECT p.partition, p.pending + p.processing AS pending, p.processing
      FROM queen.partitions p
     WHERE p.queue = $1::text AND $2::text IS NULL
    UNION ALL
    SELECT b.partition,
           CASE WHEN k.known THEN coalesce(sum(b.pending), 0)::bigint ELSE sum(b.retained)::bigint END,
           coalesce(sum(b.processing), 0)::bigint
      FROM (SELECT EXISTS (SELECT FROM queen.consumer_groups c
                            WHERE c.queue = $1::text AND c.consumer_group = $2::text) AS known) k
     -- Added up, not joined: how many rows either side has is beyond the planner.
     CROSS JOIN (
           SELECT p.partition, p.last_offset - p.log_start + 1 AS retained, NULL::bigint AS pending, NULL::bigint AS processing
             FROM queen.partitions p
            WHERE p.queue = $1::text AND $2::text IS NOT NULL
           UNION ALL
           SELECT g.partition, 0, g.pending + g.processing, g.processing
             FROM queen.group_partitions g
            WHERE g.queue = $1::text AND g.consumer_group = $2::text) b
     GROUP BY b.partition, k.known)
SELECT json_build_object(
           'queue', q.queue,
           'group', $2::text,
           'pending', d.pending,
           'processing', d.processing,
           'ready', d.pending - d.processing,
           'partitionsPending', d.partitions_pending,
           'partitionsReady', d.partitions_ready,
           'conflation', false,
           'effectivePending', d.pending,
           'effectiveReady', d.pending - d.processing,
           'partitions', d.list)::text
  FROM queen.queues q
 CROSS JOIN (
       SELECT coalesce(sum(l.pending), 0)::bigint AS pending,
              coalesce(sum(l.processing), 0)::bigint AS processing,
              count(*) FILTER (WHERE l.pending > 0) AS partitions_pending,
              count(*) FILTER (WHERE l.pending > l.processing) AS partitions_ready,
              coalesce(json_agg(json_build_object(
                  'partition', l.partition,
                  'pending', l.pending,
                  'processing', l.processing,
                  'ready', l.pending - l.processing) ORDER BY l.partition COLLATE "C"), '[]') AS list
         FROM lane l) d
 WHERE q.queue = $1::text
