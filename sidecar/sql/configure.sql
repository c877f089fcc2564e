SELECT json_build_object(
         'configured', true, 'queueId', q.id, 'partitionId', NULL, 'queue', $1::text,
         'namespace', o.options ->> 'namespace', 'task', o.options ->> 'task', 'storage', 'segments',
         'options', o.options - 'namespace' - 'task')::text
  FROM (SELECT queen.configure($1, $2::jsonb, $3) AS options OFFSET 0) o
  LEFT JOIN LATERAL (SELECT id FROM queen.queues WHERE queue = $1 AND o.options IS NOT NULL) q ON true
