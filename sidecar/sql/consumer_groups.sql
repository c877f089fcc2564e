-- GET /api/v1/consumer-groups. No parameters.
SELECT coalesce(json_agg(json_build_object(
           'name', c.consumer_group,
           'topics', json_build_array(c.queue),
           'queueName', c.queue,
           'members', c.active_leases,
           'partitionCursors', c.partitions,
           'partitionsWithLag', c.partitions_with_lag,
           'totalLag', c.total_lag,
           'maxTimeLag', floor(c.max_time_lag_seconds),
           'state', CASE WHEN c.max_time_lag_seconds > 300 THEN 'Lagging'
                         WHEN c.settled > 0 THEN 'Stable'
                         ELSE 'Dead' END,
           'storage', 'segments',
           'subscriptionMode', c.subscription_mode,
           'subscriptionTimestamp', to_char(c.subscription_timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'subscriptionCreatedAt', to_char(c.subscription_created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'conflation', false) ORDER BY c.consumer_group COLLATE "C", c.queue COLLATE "C"), '[]')::text
  FROM queen.consumer_groups c
