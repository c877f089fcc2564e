-- GET /api/v1/traces/by-name/:traceName. $1 name, $2 limit, $3 offset.
SELECT json_build_object(
           'traces', (
               SELECT coalesce(json_agg(json_build_object(
                  'id', t.id,
                  'event_type', t.event_type,
                  'data', t.data,
                  'consumer_group', t.consumer_group,
                  'worker_id', 'seg-rust',
                  'created_at', to_char(t.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                  'trace_names', t.trace_names,
                  'transaction_id', t.transaction_id,
                  'partition_id', t.partition_id,
                  'queue_name', t.queue,
                  'partition_name', t.partition,
                  'message_payload', NULL) ORDER BY t.created_at DESC, t.id DESC), '[]')
                 FROM queen.traces_by_name($1::text, $2::int, $3::int) t),
           'total', coalesce((SELECT n.trace_count FROM queen.trace_names(1, 0, $1::text) n), 0),
           'pagination', json_build_object('limit', $2::int, 'offset', $3::int))::text
