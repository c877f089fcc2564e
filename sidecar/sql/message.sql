-- GET /api/v1/messages/:partitionId/:transactionId. $1 partition id, $2 transaction id. No row: there is no such message.
-- A dead letter outlives its message.
WITH dead AS MATERIALIZED (
    SELECT d.*
      FROM queen.dlq(max_rows => 1000, partition_id => $1::uuid, transaction_id => $2::text) d),
live AS MATERIALIZED (
    SELECT m.queue, m.partition, m."offset", m.message_id, m.transaction_id, m.payload_text, m.trace_id, m.producer,
           m.created_at, m.status, m.is_encrypted
      FROM queen.message($1::uuid, $2::text) m
     WHERE m.message_id IS NOT NULL),
found AS MATERIALIZED (
    SELECT l.*, d.error, coalesce(d.retry_count, 0) AS retry_count
      FROM live l
      LEFT JOIN LATERAL (SELECT d.error, d.retry_count FROM dead d
                          WHERE d."offset" = l."offset" ORDER BY d.failed_at DESC, d.id DESC LIMIT 1) d ON true
    UNION ALL
    (SELECT d.queue, d.partition, d."offset", d.message_id, d.transaction_id, d.payload_text, d.trace_id, d.producer,
            d.enqueued_at, 'dead_letter', d.is_encrypted, d.error, d.retry_count
       FROM dead d
      WHERE NOT EXISTS (SELECT FROM live)
      ORDER BY d.failed_at DESC, d.id DESC
      LIMIT 1)),
groups AS (
    SELECT coalesce(json_agg(json_build_object(
               'name', g.consumer_group,
               'group', g.consumer_group,
               'consumed', g.settled >= f."offset",
               'leaseExpiresAt', to_char(g.lease_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ORDER BY g.consumer_group COLLATE "C"), '[]') AS list,
           coalesce(bool_or(g.consumer_group = '__QUEUE_MODE__'), false) AS queue_mode,
           count(*) FILTER (WHERE g.consumer_group <> '__QUEUE_MODE__') AS named,
           max(g.lease_expires_at) FILTER (WHERE g.consumer_group = '__QUEUE_MODE__') AS lease_expires_at
      FROM found f
     CROSS JOIN queen.group_partitions g
     WHERE g.partition_id = $1::uuid)
SELECT json_build_object(
           'id', f.message_id,
           'transactionId', f.transaction_id,
           'data', d.data,
           'payload', d.data,
           'traceId', f.trace_id,
           'producerSub', f.producer,
           'createdAt', to_char(f.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'partitionId', $1::uuid,
           'partition', f.partition,
           'isEncrypted', f.is_encrypted,
           'queue', f.queue,
           'queuePath', f.queue || '/' || f.partition,
           'namespace', coalesce(nullif(q.namespace, ''),
                                 CASE WHEN f.queue LIKE '%.%' THEN split_part(f.queue, '.', 1) ELSE q.namespace END),
           'task', coalesce(nullif(q.task, ''),
                            CASE WHEN f.queue LIKE '%.%' THEN split_part(f.queue, '.', 2) ELSE q.task END),
           'status', f.status,
           'errorMessage', f.error,
           'retryCount', f.retry_count,
           'leaseExpiresAt', to_char(g.lease_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'queueConfig', q.options,
           'consumerGroups', g.list,
           'mode', json_build_object(
               'hasQueueMode', g.queue_mode,
               'busGroupsCount', g.named,
               'type', CASE WHEN g.named > 0 THEN 'bus' ELSE 'queue' END))::text
  FROM found f
 CROSS JOIN groups g
 CROSS JOIN LATERAL (SELECT coalesce(nullif(f.payload_text, ''), 'null')::json AS data) d
  LEFT JOIN LATERAL (SELECT q.namespace, q.task, q.options FROM queen.queues q WHERE q.queue = f.queue) q ON true
