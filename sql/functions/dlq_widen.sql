-- queen.dlq_widen: go on after the canary.
--
-- The rest follows, at the same rate.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired), QN024 (not what was planned or approved), QN025 (over its
--         limit).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_widen(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_widen.plan_id, ARRAY['canary_done'], 'widened', true);
    UPDATE queen.replay_plan r
       SET state = 'running', phase = 'rest',
           -- Not before the next message is due: whoever stops and goes on does not go faster.
           due_at = greatest(r.due_at, clock_timestamp()), next_at = greatest(r.next_at, clock_timestamp())
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_widened', NULL, p.plan_id, NULL, jsonb_build_object('canary', queen.replay_canary(p.plan_id, p.canary)));
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_widen(uuid) IS
'Lets a replay plan go on after its canary.
Example: SELECT queen.dlq_widen(plan_id) FROM queen.replay_plans WHERE state = ''canary_done'';';
REVOKE ALL ON FUNCTION queen.dlq_widen(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_widen(uuid) TO queen_operator, queen_sidecar;
