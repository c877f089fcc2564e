-- queen.dlq_pause_plan: pause a running replay plan.
--
-- The batch at work, a tenth of a second of messages at most, is still done.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_pause_plan(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_pause_plan.plan_id, ARRAY['running'], 'paused', false);
    UPDATE queen.replay_plan r
       SET state = 'paused'
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_paused', NULL, p.plan_id, NULL, NULL);
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_pause_plan(uuid) IS
'Pauses a running replay plan.
Example: SELECT queen.dlq_pause_plan(plan_id) FROM queen.replay_plans WHERE state = ''running'';';
REVOKE ALL ON FUNCTION queen.dlq_pause_plan(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_pause_plan(uuid) TO queen_operator, queen_sidecar;
