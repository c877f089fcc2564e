-- GET /api/v1/dlq/stats, and which of the groups are paused, also those without dead letters. $1 queue or NULL, $2 consumer group or NULL, $3 minutes that rates are over, or NULL.
SELECT json_build_object(
       'paused', (SELECT coalesce(json_agg(json_build_object(
                             'queue', c.queue, 'consumerGroup', c.consumer_group, 'pausedAt', c.paused_at,
                             'reason', c.pause_reason) ORDER BY c.paused_at, c.queue, c.consumer_group), '[]')
                    FROM queen.consumer_groups c
                   WHERE c.paused_at IS NOT NULL
                     AND ($1::text IS NULL OR c.queue = $1::text)
                     AND ($2::text IS NULL OR c.consumer_group = $2::text)),
       'groups', coalesce(json_agg(json_build_object(
           'queue', s.queue,
           'consumerGroup', s.consumer_group,
           'pending', s.pending,
           'approved', s.approved,
           'replayed', s.replayed,
           'discarded', s.discarded,
           'oldestPendingAt', s.oldest_pending_at,
           'oldestPendingSeconds', s.oldest_pending_seconds,
           'arrivalsPerMinute', s.arrivals_per_minute,
           'netPerMinute', s.net_per_minute,
           'exhaustionRate', s.exhaustion_rate,
           'topFingerprints', s.top_fingerprints,
           'replaysOk', s.replays_ok,
           'replaysFailedAgain', s.replays_failed_again,
           'owner', s.owner,
           'runbook', s.runbook,
           'severity', s.severity) ORDER BY s.pending DESC, s.queue, s.consumer_group), '[]'))::text
  FROM queen.dlq_stats($1::text, $2::text, coalesce($3::int, 10)) s
