-- GET /api/v1/analytics/dlq-signatures. $1 queue, $2 consumer group or NULL. Of the newest thousand dead letters: those
-- whose errors are the same but for the numbers in them.
WITH letter AS (
    SELECT left(regexp_replace(coalesce(d.error, d.reason, ''), '[0-9]+', '#', 'g'), 200) AS signature, d.failed_at,
           d.consumer_group
      FROM queen.dlq($1::text, $2::text, max_rows => 1000) d),
signature AS (
    SELECT signature, count(*) AS count, min(failed_at) AS first, max(failed_at) AS last,
           count(DISTINCT consumer_group) AS groups
      FROM letter
     GROUP BY signature
     ORDER BY count(*) DESC, signature
     LIMIT 50)
SELECT json_build_object(
           'queue', $1::text,
           'sampled', (SELECT count(*) FROM letter),
           'signatures', coalesce(json_agg(json_build_object(
               'signature', s.signature,
               'count', s.count,
               'consumerGroups', s.groups,
               'firstSeen', to_char(s.first AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'lastSeen', to_char(s.last AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
               ORDER BY s.count DESC, s.signature), '[]'))::text
  FROM signature s
