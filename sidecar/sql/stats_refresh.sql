-- POST /api/v1/stats/refresh: there is nothing to refresh, so what there is.
SELECT json_build_object(
           'engine', 'queen-postgres',
           'queuesUpdated', count(*),
           'segPartitions', coalesce(sum(partitions), 0)::bigint,
           'namespaces', json_build_object('namespacesUpdated', count(DISTINCT namespace)),
           'tasks', json_build_object('tasksUpdated', count(DISTINCT task)),
           'system', json_build_object('systemUpdated', 1),
           'refreshedAt', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))::text
  FROM queen.queues
