-- GET /api/v1/resources/overview. $1 messages ingested a second, $2 messages settled a second: what the server counts
-- itself. Lag is taken over consumer groups and queues; everything is live, so statsAge is 0.
SELECT json_build_object(
           'queues', q.queues,
           'partitions', q.partitions,
           'namespaces', q.namespaces,
           'tasks', q.tasks,
           'messages', json_build_object(
               'total', q.total,
               'pending', q.pending,
               'processing', q.processing,
               'completed', greatest(0, q.total - q.pending - q.dead_letters),
               'failed', NULL,
               'deadLetter', q.dead_letters),
           'lag', json_build_object('time', g.time_lag, 'offset', g.offset_lag),
           'throughput', json_build_object(
               'ingestedPerSecond', coalesce($1::float8, 0),
               'processedPerSecond', coalesce($2::float8, 0)),
           'timestamp', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'statsAge', 0)::text
  FROM (SELECT count(*) AS queues,
               coalesce(sum(partitions), 0)::bigint AS partitions,
               count(DISTINCT nullif(namespace, '')) AS namespaces,
               count(DISTINCT nullif(task, '')) AS tasks,
               coalesce(sum(messages), 0)::bigint AS total,
               coalesce(sum(pending + processing), 0)::bigint AS pending,
               coalesce(sum(processing), 0)::bigint AS processing,
               coalesce(sum(dead_letters), 0)::bigint AS dead_letters
          FROM queen.queues) q
 CROSS JOIN (
       SELECT json_build_object(
                  'avg', coalesce(round(avg(max_time_lag_seconds)), 0),
                  'median', coalesce(round(percentile_cont(0.5) WITHIN GROUP (ORDER BY max_time_lag_seconds)), 0),
                  'min', coalesce(round(min(max_time_lag_seconds)), 0),
                  'max', coalesce(round(max(max_time_lag_seconds)), 0)) AS time_lag,
              json_build_object(
                  'avg', coalesce(round(avg(total_lag)), 0),
                  'median', coalesce(round(percentile_cont(0.5) WITHIN GROUP (ORDER BY total_lag)), 0),
                  'min', coalesce(min(total_lag), 0),
                  'max', coalesce(max(total_lag), 0)) AS offset_lag
         FROM queen.consumer_groups) g
