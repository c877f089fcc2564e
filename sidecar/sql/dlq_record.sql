-- GET /api/v1/dlq/{id}. $1 the record, $2 whether a payload kept encrypted is shown redacted.
SELECT json_build_object(
           'record', r.json,
           'events', (SELECT coalesce(json_agg(json_build_object(
                                 'seq', e.seq, 'at', e.at, 'actor', e.actor, 'action', e.action, 'planId', e.plan_id,
                                 'detail', e.detail) ORDER BY e.seq), '[]')
                        FROM queen.dlq_events(dlq_id => $1::uuid, max_rows => 1000) e),
           'ancestry', (SELECT coalesce(json_agg(json_build_object(
                                   'hops', a.hops, 'messageId', a.message_id, 'transactionId', a.transaction_id,
                                   'parentId', a.parent_id, 'dlqId', a.dlq_id, 'consumerGroup', a.consumer_group,
                                   'queue', a.queue, 'partition', a.partition, 'action', a.action, 'actor', a.actor,
                                   'planId', a.plan_id, 'at', a.at) ORDER BY a.hops, a.at), '[]')
                          FROM queen.dlq_ancestry((r.json ->> 'messageId')::uuid) a))::text
  FROM (SELECT queen.dlq_record_json($1::uuid, $2::bool)::json AS json) r
 WHERE r.json IS NOT NULL
