-- queen.dlq_plan_status: how far a replay plan is.
--
-- While it runs too: each batch shows as it is committed.
--
-- Arguments:
--   plan_id  The plan.
-- Result: {"planId", "state", "phase", "planned", "moved", "duplicate", "failed", "gone", "refused", "remaining", "rate",
--         "canary": {"size", "replayed", "duplicate", "failed", "gone", "refused", "remaining", "failedAgain", "settled",
--         "stillPending"} of exactly the canary's messages, "autoWiden", "needsApproval", "reason", "remediation",
--         "selection", "toQueue", "toPartition", "maxRecords", "digest", "repairHash", "plannedBy", "plannedAt", "approvedBy",
--         "approvedAt", "approvalNote", "startedBy", "startedAt", "endedAt", "expiresAt", "errors": up to 5 of failed
--         and refused records [{"dlqId", "state", "error"}]}.
--         state: planned, approved, running, paused, canary_done (stopped until dlq_widen), done, cancelled, expired.
--         planned = moved + duplicate + failed + gone + refused + remaining, at any time.
-- Errors: QN020 (no such plan).
-- Tables: queen.replay_plan, queen.replay_item, queen.dead_letter_record, queen.cursor and others (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_plan_status(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p      queen.replay_plan;
    errors jsonb;
BEGIN
    SELECT r.* INTO p FROM queen.replay_plan r
     WHERE r.plan_id = dlq_plan_status.plan_id AND r.tenant = queen.current_tenant();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no replay plan %', dlq_plan_status.plan_id USING ERRCODE = 'QN020';
    END IF;
    IF p.failed + p.refused > 0 THEN
        SELECT jsonb_agg(jsonb_build_object('dlqId', i.dlq_id, 'state', i.state, 'error', i.error) ORDER BY i.n) INTO errors
          FROM (SELECT * FROM queen.replay_item w
                 WHERE w.plan_id = p.plan_id AND w.state IN ('failed', 'refused') ORDER BY w.n LIMIT 5) i;
    END IF;
    RETURN jsonb_build_object(
        'planId', p.plan_id,
        'state', CASE WHEN p.ended_at IS NULL AND p.expires_at <= clock_timestamp() THEN 'expired' ELSE p.state END,
        'phase', p.phase, 'planned', p.planned, 'moved', p.moved, 'duplicate', p.duplicate, 'failed', p.failed,
        'gone', p.gone, 'refused', p.refused, 'remaining', p.planned - p.next_n, 'rate', p.rate,
        'canary', queen.replay_canary(p.plan_id, p.canary), 'autoWiden', p.auto_widen,
        'needsApproval', p.needs_approval, 'reason', p.reason, 'remediation', p.remediation, 'selection', p.selection)
        || jsonb_build_object(
        'toQueue', p.to_queue, 'toPartition', p.to_partition, 'maxRecords', p.max_records, 'digest', p.digest,
        'repairHash', p.repair_hash,
        'plannedBy', p.planned_by, 'plannedAt', p.planned_at, 'approvedBy', p.approved_by, 'approvedAt', p.approved_at,
        'approvalNote', p.approval_note, 'startedBy', p.started_by, 'startedAt', p.started_at, 'endedAt', p.ended_at,
        'expiresAt', p.expires_at, 'errors', coalesce(errors, '[]'));
END
$$;

COMMENT ON FUNCTION queen.dlq_plan_status(uuid) IS
'How far a replay plan is, with what became of its canary.
Example: SELECT queen.dlq_plan_status(plan_id) FROM queen.replay_plans;';
REVOKE ALL ON FUNCTION queen.dlq_plan_status(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_plan_status(uuid) TO queen_viewer, queen_sidecar;
