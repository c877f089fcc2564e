-- GET /api/v1/status/queues/:queue. $1 queue. No row: there is no such queue.
WITH lane AS (
    SELECT p.partition, p.partition_id, p.created_at, p.oldest_message_at, p.last_write_at, p.last_offset,
           p.last_offset - p.log_start + 1 AS total, p.pending + p.processing AS pending, p.processing, p.dead_letters
      FROM queen.partitions p
     WHERE p.queue = $1::text),
counted AS (
    SELECT l.*, json_build_object(
               'total', l.total,
               'pending', l.pending,
               'processing', l.processing,
               'completed', greatest(0, l.total - l.pending - l.dead_letters),
               'failed', NULL,
               'deadLetter', l.dead_letters) AS counts
      FROM lane l),
lanes AS (
    SELECT coalesce(json_agg(json_build_object(
               'id', l.partition_id,
               'name', l.partition,
               'createdAt', to_char(l.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'messages', l.counts,
               'stats', l.counts,
               'cursor', json_build_object('totalConsumed', l.last_offset + 1 - l.pending, 'batchesConsumed', 0),
               'lastActivity', to_char(l.last_write_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'oldestMessage', to_char(l.oldest_message_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'newestMessage', to_char(l.last_write_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ORDER BY l.partition COLLATE "C"), '[]') AS list,
           json_build_object(
               'total', coalesce(sum(l.total), 0)::bigint,
               'pending', coalesce(sum(l.pending), 0)::bigint,
               'processing', coalesce(sum(l.processing), 0)::bigint,
               'completed', coalesce(sum(greatest(0, l.total - l.pending - l.dead_letters)), 0)::bigint,
               'failed', NULL,
               'deadLetter', coalesce(sum(l.dead_letters), 0)::bigint) AS totals
      FROM counted l)
SELECT json_build_object(
           'queue', json_build_object(
               'id', q.id,
               'name', q.queue,
               'namespace', q.namespace,
               'task', q.task,
               'priority', q.options -> 'priority',
               'createdAt', to_char(q.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'config', json_build_object(
                   'leaseTime', q.options -> 'leaseTime',
                   'retryLimit', q.options -> 'retryLimit',
                   'retryDelay', q.options -> 'retryDelay',
                   'ttl', q.options -> 'ttl',
                   'maxQueueSize', q.options -> 'maxSize',
                   'deadLetterQueue', q.options -> 'deadLetterQueue')),
           'partitions', l.list,
           'totals', json_build_object('messages', l.totals))::text
  FROM queen.queues q
 CROSS JOIN lanes l
 WHERE q.queue = $1::text
