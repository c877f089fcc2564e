-- GET /api/v1/resources/queues. No parameters.
SELECT json_build_object('queues', coalesce(json_agg(json_build_object(
           'id', q.id,
           'name', q.queue,
           'namespace', q.namespace,
           'task', q.task,
           'createdAt', to_char(q.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'partitions', q.partitions,
           'retainedBytes', q.retained_bytes,
           'segments', json_build_object('segments', q.segments, 'messages', q.messages),
           'messages', json_build_object('total', q.messages, 'pending', q.pending, 'processing', q.processing))
           ORDER BY q.created_at DESC, q.id DESC), '[]'))::text
  FROM queen.queues q
