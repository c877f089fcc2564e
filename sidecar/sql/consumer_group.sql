-- GET /api/v1/consumer-groups/:group. $1 consumer group. Nobody knows it: {}.
SELECT coalesce(json_object_agg(c.queue, json_build_object('conflation', false, 'partitions', p.list)
                                ORDER BY c.queue COLLATE "C"), '{}')::text
  FROM queen.consumer_groups c
 CROSS JOIN LATERAL (
       SELECT coalesce(json_agg(json_build_object(
                  'partition', g.partition,
                  'workerId', g.lease_id,
                  'lastConsumedAt', NULL,
                  'totalConsumed', g.settled + 1,
                  'offsetLag', g.pending + g.processing,
                  'timeLagSeconds', floor(g.lag_seconds),
                  'leaseActive', g.lease_id IS NOT NULL) ORDER BY g.partition COLLATE "C"), '[]') AS list
         FROM queen.group_partitions g
        WHERE g.queue = c.queue AND g.consumer_group = c.consumer_group) p
 WHERE c.consumer_group = $1::text
