-- GET /api/v1/dlq. $1 queue or NULL, $2 consumer group or NULL, $3 limit, $4 offset.
-- isEncrypted is there only when the payload could not be decrypted.
SELECT json_build_object(
           'messages', coalesce(json_agg(
               CASE WHEN d.is_encrypted THEN (left(i.json::text, -1) || ', "isEncrypted" : true}')::json ELSE i.json END
               ORDER BY d.failed_at DESC, d.id DESC), '[]'),
           'pagination', json_build_object('limit', $3::int, 'offset', $4::int),
           'total', count(*))::text
  FROM queen.dlq($1::text, $2::text, $3::int, $4::int) d
 CROSS JOIN LATERAL (SELECT json_build_object(
           'id', d.id,
           'transactionId', d.transaction_id,
           'partitionId', d.partition_id,
           'queue', d.queue,
           'partition', d.partition,
           'consumerGroup', d.consumer_group,
           'errorMessage', d.error,
           'retryCount', d.retry_count,
           'data', coalesce(nullif(d.payload_text, ''), 'null')::json,
           'producerSub', NULL,
           'createdAt', to_char(d.failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'failedAt', to_char(d.failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) AS json) i
