-- GET /api/v1/resources/tasks. No parameters.
SELECT json_build_object('tasks', coalesce(json_agg(json_build_object(
           'task', g.task,
           'queues', g.queues,
           'partitions', g.partitions,
           'messages', json_build_object('total', g.total, 'pending', g.pending)) ORDER BY g.task COLLATE "C"), '[]'))::text
  FROM (SELECT q.task,
               count(*) AS queues,
               sum(q.partitions)::bigint AS partitions,
               sum(q.messages)::bigint AS total,
               sum(q.pending + q.processing)::bigint AS pending
          FROM queen.queues q
         WHERE q.task <> ''
         GROUP BY q.task) g
