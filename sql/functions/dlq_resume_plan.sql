-- queen.dlq_resume_plan: resume a paused replay plan.
--
-- At its rate from now on: what it has missed is not made up for.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired), QN024 (not what was planned or approved), QN025 (over its
--         limit).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_resume_plan(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_resume_plan.plan_id, ARRAY['paused'], 'resumed', true);
    UPDATE queen.replay_plan r
       SET state = 'running',
           -- Not before the next message is due: whoever stops and goes on does not go faster.
           due_at = greatest(r.due_at, clock_timestamp()), next_at = greatest(r.next_at, clock_timestamp())
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_resumed', NULL, p.plan_id, NULL, NULL);
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_resume_plan(uuid) IS
'Resumes a paused replay plan.
Example: SELECT queen.dlq_resume_plan(plan_id) FROM queen.replay_plans WHERE state = ''paused'';';
REVOKE ALL ON FUNCTION queen.dlq_resume_plan(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_resume_plan(uuid) TO queen_operator, queen_sidecar;
