-- GET /api/v1/resources/namespaces. No parameters.
SELECT json_build_object('namespaces', coalesce(json_agg(json_build_object(
           'namespace', g.namespace,
           'queues', g.queues,
           'partitions', g.partitions,
           'messages', json_build_object('total', g.total, 'pending', g.pending)) ORDER BY g.namespace COLLATE "C"), '[]'))::text
  FROM (SELECT q.namespace,
               count(*) AS queues,
               sum(q.partitions)::bigint AS partitions,
               sum(q.messages)::bigint AS total,
               sum(q.pending + q.processing)::bigint AS pending
          FROM queen.queues q
         WHERE q.namespace <> ''
         GROUP BY q.namespace) g
