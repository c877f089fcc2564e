-- GET /api/v1/dlq/events. $1 queue, $2 plan, $3 record, each or NULL; $4 only rows with a higher number, $5 limit.
SELECT json_build_object(
           'events', coalesce(json_agg(json_build_object(
               'seq', e.seq, 'at', e.at, 'actor', e.actor, 'action', e.action, 'dlqId', e.dlq_id, 'planId', e.plan_id,
               'queue', e.queue, 'consumerGroup', e.consumer_group, 'detail', e.detail) ORDER BY e.seq), '[]'),
           'last', coalesce(max(e.seq), $4::bigint))::text
  FROM queen.dlq_events($1::text, $2::uuid, $3::uuid, $4::bigint, $5::int) e
