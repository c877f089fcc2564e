-- GET /api/v1/analytics/workload: the first thousand queues by name, as they are now. Bytes are not counted: they would
-- visit every segment.
SELECT coalesce(json_agg(row_to_json(w)), '[]')::text
  FROM (SELECT q.queue, q.namespace, q.task, q.partitions, q.pending, q.processing, q.dead_letters,
               (SELECT count(*) FROM queen.consumer_groups g WHERE g.queue = q.queue) AS groups
          FROM queen.queues q
         ORDER BY q.queue
         LIMIT 1000) w
