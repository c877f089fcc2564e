-- GET /api/v1/traces/:partitionId/:transactionId. $1 partition id, $2 transaction id.
SELECT json_build_object('traces', coalesce(json_agg(json_build_object(
           'id', t.id,
           'event_type', t.event_type,
           'data', t.data,
           'consumer_group', t.consumer_group,
           'worker_id', 'seg-rust',
           'created_at', to_char(t.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'trace_names', t.trace_names) ORDER BY t.created_at, t.id), '[]'))::text
  FROM queen.traces($1::uuid, $2::text) t
