-- GET /api/v1/messages. $1 queue, $2 partition, $3 namespace, $4 task, $5 status, $6 from, $7 to (ISO texts): NULL means
-- not given; $8 limit, $9 offset.
WITH chosen AS MATERIALIZED (
    SELECT $1::text AS queue WHERE $3::text IS NULL AND $4::text IS NULL
    UNION ALL
    SELECT q.queue
      FROM queen.queues q
     WHERE ($3::text IS NOT NULL OR $4::text IS NOT NULL)
       AND ($1::text IS NULL OR q.queue = $1::text)
       AND ($3::text IS NULL OR q.namespace = $3::text)
       AND ($4::text IS NULL OR q.task = $4::text)),
page AS MATERIALIZED (
    SELECT m.queue, m.partition, m.partition_id, m."offset", m.message_id, m.transaction_id, m.payload_text, m.trace_id,
           m.producer, m.created_at, m.status, m.is_encrypted, m.segment_offset
      FROM chosen c
     CROSS JOIN LATERAL queen.messages(
           c.queue,
           $2::text,
           coalesce($6::text::timestamptz, clock_timestamp() - interval '1 hour'),
           date_trunc('minute', coalesce($7::text::timestamptz, clock_timestamp())) + interval '1 minute',
           $5::text,
           least($8::bigint + $9::bigint, 2147483647)::int) m
     ORDER BY m.created_at DESC, m."offset" DESC
     LIMIT $8::bigint OFFSET $9::bigint),
progress AS MATERIALIZED (
    SELECT g.partition_id, g.consumer_group, g.settled, g.settled + g.processing AS held, g.lease_expires_at
      FROM queen.group_partitions g
     WHERE g.partition_id = ANY ((SELECT array_agg(DISTINCT p.partition_id) FROM page p)::uuid[])),
settings AS MATERIALIZED (
    SELECT q.queue, q.namespace, q.task, q.options -> 'priority' AS priority
      FROM queen.queues q
     WHERE q.queue = ANY ((SELECT array_agg(DISTINCT p.queue) FROM page p)::text[])),
groups AS (
    SELECT coalesce(bool_or(c.consumer_group = '__QUEUE_MODE__'), false) AS queue_mode,
           count(DISTINCT c.consumer_group) FILTER (WHERE c.consumer_group <> '__QUEUE_MODE__') AS named
      FROM queen.consumer_groups c
     WHERE EXISTS (SELECT FROM chosen h WHERE h.queue IS NULL OR h.queue = c.queue)),
item AS (
    SELECT p.created_at, p."offset", json_build_object(
               'id', p.message_id,
               'transactionId', p.transaction_id,
               'txnHash', lpad(to_hex(hashtextextended(p.transaction_id, 0)), 16, '0'),
               'partitionId', p.partition_id,
               'queuePath', p.queue || '/' || p.partition,
               'queue', p.queue,
               'partition', p.partition,
               'namespace', s.namespace,
               'task', s.task,
               'status', p.status,
               'queueStatus', p.status,
               'busStatus', json_build_object('consumedBy', b.consumed_by, 'totalGroups', b.total_groups),
               'traceId', p.trace_id,
               'producerSub', p.producer,
               'queuePriority', s.priority,
               'payloadAvailable', true,
               'segment', json_build_object('seq', p.segment_offset, 'frameIdx', p."offset" - p.segment_offset),
               'createdAt', to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'leaseExpiresAt', to_char(b.lease_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'data', d.data,
               'payload', d.data,
               'isEncrypted', p.is_encrypted) AS json
      FROM page p
      LEFT JOIN settings s ON s.queue = p.queue
     CROSS JOIN LATERAL (SELECT coalesce(nullif(p.payload_text, ''), 'null')::json AS data) d
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE g.consumer_group <> '__QUEUE_MODE__' AND g.settled >= p."offset") AS consumed_by,
                  count(*) FILTER (WHERE g.consumer_group <> '__QUEUE_MODE__') AS total_groups,
                  max(g.lease_expires_at) FILTER (WHERE p."offset" > g.settled AND p."offset" <= g.held) AS lease_expires_at
             FROM progress g
            WHERE g.partition_id = p.partition_id) b)
SELECT json_build_object(
           'messages', (SELECT coalesce(json_agg(i.json ORDER BY i.created_at DESC, i."offset" DESC), '[]') FROM item i),
           'mode', json_build_object(
               'hasQueueMode', g.queue_mode,
               'busGroupsCount', g.named,
               'type', CASE WHEN g.queue_mode AND g.named > 0 THEN 'hybrid'
                            WHEN g.named > 0 THEN 'bus'
                            WHEN g.queue_mode THEN 'queue'
                            ELSE 'none' END),
           'total', (SELECT count(*) FROM page))::text
  FROM groups g
