-- GET /api/v1/dlq/plans. $1 state or NULL, $2 limit.
SELECT json_build_object('plans', coalesce(json_agg(json_build_object(
           'planId', p.plan_id, 'state', p.state, 'phase', p.phase, 'planned', p.planned, 'moved', p.moved,
           'duplicate', p.duplicate, 'failed', p.failed, 'gone', p.gone, 'refused', p.refused,
           'remaining', p.remaining, 'rate', p.rate, 'canary', p.canary, 'needsApproval', p.needs_approval,
           'reason', p.reason, 'remediation', p.remediation, 'selection', p.selection, 'toQueue', p.to_queue,
           'toPartition', p.to_partition, 'plannedBy', p.planned_by, 'plannedAt', p.planned_at,
           'approvedBy', p.approved_by, 'approvedAt', p.approved_at, 'startedBy', p.started_by,
           'startedAt', p.started_at, 'endedAt', p.ended_at, 'expiresAt', p.expires_at)
           ORDER BY p.planned_at DESC, p.plan_id), '[]'))::text
  FROM (SELECT * FROM queen.replay_plans
         WHERE $1::text IS NULL OR state = $1::text
         ORDER BY planned_at DESC, plan_id
         LIMIT $2::int) p
