-- GET /api/v1/resources/queues/:queue. $1 queue. No row: there is no such queue.
WITH lane AS (
    SELECT p.partition, p.partition_id, p.created_at, p.oldest_message_at, p.last_write_at,
           p.last_offset - p.log_start + 1 AS total, p.pending + p.processing AS pending, p.processing, p.dead_letters
      FROM queen.partitions p
     WHERE p.queue = $1::text),
lanes AS (
    SELECT coalesce(json_agg(json_build_object(
               'id', l.partition_id,
               'name', l.partition,
               'createdAt', to_char(l.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'stats', json_build_object(
                   'total', l.total,
                   'pending', l.pending,
                   'processing', l.processing,
                   'completed', greatest(0, l.total - l.pending - l.dead_letters),
                   'failed', NULL,
                   'deadLetter', l.dead_letters),
               'oldestMessage', to_char(l.oldest_message_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'newestMessage', to_char(l.last_write_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
               ORDER BY l.partition COLLATE "C"), '[]') AS list,
           coalesce(sum(l.total), 0)::bigint AS total,
           coalesce(sum(l.pending), 0)::bigint AS pending,
           coalesce(sum(l.processing), 0)::bigint AS processing,
           coalesce(sum(l.dead_letters), 0)::bigint AS dead_letters,
           coalesce(sum(greatest(0, l.total - l.pending - l.dead_letters)), 0)::bigint AS completed
      FROM lane l)
SELECT json_build_object(
           'id', q.id,
           'name', q.queue,
           'namespace', q.namespace,
           'task', q.task,
           'createdAt', to_char(q.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'options', q.options,
           'partitions', l.list,
           'totals', json_build_object(
               'total', l.total,
               'pending', l.pending,
               'processing', l.processing,
               'completed', l.completed,
               'failed', NULL,
               'deadLetter', l.dead_letters),
           'retainedBytes', q.retained_bytes,
           'segments', json_build_object('segments', q.segments, 'messages', l.total))::text
  FROM queen.queues q
 CROSS JOIN lanes l
 WHERE q.queue = $1::text
