-- GET /api/v1/traces/names. $1 limit, $2 offset.
SELECT json_build_object(
           'trace_names', coalesce(json_agg(json_build_object(
               'trace_name', n.trace_name,
               'trace_count', n.trace_count,
               'message_count', n.message_count,
               'last_seen', to_char(n.last_seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ORDER BY n.last_seen_at DESC, n.trace_name COLLATE "C"), '[]'),
           'total', coalesce(max(n.total), 0),
           'pagination', json_build_object('limit', $1::int, 'offset', $2::int))::text
  FROM queen.trace_names($1::int, $2::int) n
