-- GET /api/v1/consumer-groups/lagging. $1 seconds: groups whose oldest unsettled message of a partition is that old.
SELECT coalesce(json_agg(json_build_object(
           'consumer_group', g.consumer_group,
           'queue_name', g.queue,
           'partition_name', g.partition,
           'partition_id', g.partition_id,
           'worker_id', g.lease_id,
           'offset_lag', g.pending + g.processing,
           'time_lag_seconds', floor(g.lag_seconds),
           'lag_hours', round((g.lag_seconds / 3600)::numeric, 2),
           'oldest_unconsumed_at', to_char(g.oldest_unsettled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'last_consumed_at', NULL)
           ORDER BY g.lag_seconds DESC, g.consumer_group COLLATE "C", g.queue COLLATE "C", g.partition COLLATE "C"), '[]')::text
  FROM queen.group_partitions g
 WHERE g.lag_seconds >= $1::float8 AND g.pending + g.processing > 0
