-- GET /metrics/prometheus: depths of the first thousand queues by name, all dead letters, and figures of the thousand
-- consumer groups with the most of them. Of queues that want their evidence protected, the newest records are looked at:
-- kept as they are though they should be redacted or encrypted, or redacted though they should be encrypted.
WITH queues AS MATERIALIZED (
    SELECT queue, pending, processing, dead_letters, options ->> 'deadLetterPayload' AS mode
      FROM queen.queues
     ORDER BY queue
     LIMIT 1000)
SELECT json_build_object(
           'queues', (SELECT coalesce(json_agg(json_build_object(
                                 'queue', queue, 'pending', pending, 'processing', processing,
                                 'dead_letters', dead_letters)), '[]')
                        FROM queues),
           'dead_letters', (SELECT coalesce(sum(dead_letters), 0)::bigint FROM queen.dlq_depth),
           'groups', (SELECT coalesce(json_agg(row_to_json(s)), '[]')
                        FROM (SELECT *
                                FROM queen.dlq_stats()
                               ORDER BY pending + approved DESC, queue, consumer_group
                               LIMIT 1000) s),
           'replays', (SELECT json_build_object(
                                  'moved', coalesce(sum(moved), 0), 'duplicate', coalesce(sum(duplicate), 0),
                                  'failed', coalesce(sum(failed), 0), 'gone', coalesce(sum(gone), 0),
                                  'refused', coalesce(sum(refused), 0))
                         FROM queen.replay_plans),
           'protected', (SELECT coalesce(json_agg(json_build_object('queue', q.queue, 'unprotected', d.n)), '[]')
                           FROM (SELECT queue, mode
                                   FROM queues
                                  WHERE mode IN ('redact', 'encrypt') AND dead_letters > 0
                                  LIMIT 100) q
                          CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE l.redaction = 'none'
                                                            OR q.mode = 'encrypt' AND l.redaction = 'redacted') AS n
                                                FROM queen.dlq_list(q.queue, max_rows => 100, redacted => true) l) d))::text
