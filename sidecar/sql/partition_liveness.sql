-- GET /api/v1/analytics/partition-liveness. $1 queue or NULL, $2 limit: the partitions that were written to last.
SELECT json_build_object(
           'queue', $1::text,
           'partitions', coalesce(json_agg(json_build_object(
               'queue', p.queue,
               'partition', p.partition,
               'partitionId', p.partition_id,
               'messages', p.last_offset - p.log_start + 1,
               'lastOffset', p.last_offset,
               'lastWriteAt', to_char(p.last_write_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'idleSeconds', floor(extract(epoch FROM now() - p.last_write_at))::bigint)
               ORDER BY p.last_write_at DESC NULLS LAST, p.queue, p.partition), '[]'))::text
  FROM (SELECT *
          FROM queen.partitions
         WHERE $1::text IS NULL OR queue = $1::text
         ORDER BY last_write_at DESC NULLS LAST, queue, partition
         LIMIT $2::bigint) p
