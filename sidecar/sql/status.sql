-- GET /api/v1/status: the keys queues, messages, leases and deadLetterQueue of the answer, as an object; the others are
-- what the server counts itself. $1 queue, $2 namespace, $3 task: NULL means not given. The error texts are those of the
-- newest hundred dead letters.
WITH chosen AS MATERIALIZED (
    SELECT q.id, q.queue, q.namespace, q.task, q.created_at, q.partitions, q.messages, q.pending + q.processing AS pending,
           q.processing, q.dead_letters
      FROM queen.queues q
     WHERE ($1::text IS NULL OR q.queue = $1::text)
       AND ($2::text IS NULL OR q.namespace = $2::text)
       AND ($3::text IS NULL OR q.task = $3::text)),
list AS (
    SELECT coalesce(json_agg(json_build_object(
               'id', c.id,
               'name', c.queue,
               'namespace', c.namespace,
               'task', c.task,
               'partitions', c.partitions,
               'totalConsumed', c.messages - c.pending) ORDER BY c.created_at DESC, c.id DESC), '[]') AS queues,
           coalesce(sum(c.messages), 0)::bigint AS total,
           coalesce(sum(c.pending), 0)::bigint AS pending,
           coalesce(sum(c.processing), 0)::bigint AS processing,
           coalesce(sum(c.dead_letters), 0)::bigint AS dead_letters
      FROM chosen c),
lease AS (
    SELECT count(*) AS active, count(DISTINCT g.partition_id) AS partitions, coalesce(sum(g.processing), 0)::bigint AS held
      FROM queen.group_partitions g
     WHERE g.lease_id IS NOT NULL AND g.queue = ANY ((SELECT array_agg(c.queue) FROM chosen c)::text[])),
error AS (
    SELECT coalesce(d.error, d.reason) AS error, count(*) AS count
      FROM queen.dlq($1::text, max_rows => 100) d
     WHERE d.queue IN (SELECT c.queue FROM chosen c)
     GROUP BY 1
     ORDER BY 2 DESC, 1
     LIMIT 10)
SELECT json_build_object(
           'queues', l.queues,
           'messages', json_build_object(
               'total', l.total,
               'pending', l.pending,
               'processing', l.processing,
               'completed', greatest(0, l.total - l.pending - l.dead_letters),
               'failed', NULL,
               'deadLetter', l.dead_letters),
           'leases', json_build_object(
               'active', h.active,
               'partitionsWithLeases', h.partitions,
               'totalBatchSize', h.held,
               'totalAcked', 0),
           'deadLetterQueue', json_build_object(
               'totalMessages', l.dead_letters,
               'currentMessages', l.dead_letters,
               'affectedPartitions', CASE WHEN l.dead_letters = 0 THEN 0 ELSE (
                   SELECT count(*) FROM queen.partitions p
                    WHERE p.dead_letters > 0 AND p.queue = ANY ((SELECT array_agg(c.queue) FROM chosen c)::text[])) END,
               'topErrors', (SELECT coalesce(json_agg(json_build_object('error', e.error, 'count', e.count)
                                                      ORDER BY e.count DESC, e.error), '[]') FROM error e)))::text
  FROM list l
 CROSS JOIN lease h
