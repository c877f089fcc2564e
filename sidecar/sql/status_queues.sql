-- GET /api/v1/status/queues. $1 limit, $2 offset. Only the queues of the page are counted.
WITH page AS MATERIALIZED (
    SELECT q.queue FROM queen.queues q ORDER BY q.created_at DESC, q.id DESC LIMIT $1::bigint OFFSET $2::bigint)
SELECT json_build_object(
           'queues', coalesce(json_agg(json_build_object(
               'id', q.id,
               'name', q.queue,
               'namespace', q.namespace,
               'task', q.task,
               'createdAt', to_char(q.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'partitions', q.partitions,
               'messages', json_build_object(
                   'total', q.messages,
                   'pending', q.pending + q.processing,
                   'processing', q.processing,
                   'completed', greatest(0, q.messages - q.pending - q.processing - q.dead_letters),
                   'deadLetter', q.dead_letters)) ORDER BY q.created_at DESC, q.id DESC), '[]'),
           'pagination', json_build_object(
               'limit', $1::bigint,
               'offset', $2::bigint,
               'total', (SELECT count(*) FROM queen.queues)))::text
  FROM page p
 CROSS JOIN LATERAL (
       SELECT q.id, q.queue, q.namespace, q.task, q.created_at, q.partitions, q.messages, q.pending, q.processing,
              q.dead_letters
         FROM queen.queues q
        WHERE q.queue = p.queue) q
