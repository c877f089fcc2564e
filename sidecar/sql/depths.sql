-- GET /metrics/prometheus: depths of the first thousand queues by name, and all dead letters.
SELECT json_build_object(
           'queues', (SELECT coalesce(json_agg(row_to_json(q)), '[]')
                        FROM (SELECT queue, pending, processing, dead_letters
                                FROM queen.queues
                               ORDER BY queue
                               LIMIT 1000) q),
           'dead_letters', (SELECT coalesce(sum(dead_letters), 0)::bigint FROM queen.dlq_depth))::text
