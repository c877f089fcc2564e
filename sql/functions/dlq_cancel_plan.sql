-- queen.dlq_cancel_plan: end a replay plan before it is done.
--
-- What it has moved stays moved; records that it had approved and not moved are pending again.
--
-- Arguments:
--   plan_id  The plan, not ended.
--   note     For the audit.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (ended already), QN023 (expired).
-- Tables: queen.replay_plan, queen.dead_letter_record (updated), queen.dlq_event (written).
-- Locks: The plan, then its records, until the transaction ends.
CREATE FUNCTION queen.dlq_cancel_plan(plan_id uuid, note text DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_cancel_plan.plan_id,
             ARRAY['planned', 'approved', 'running', 'paused', 'canary_done'], 'cancelled', false);
    PERFORM queen.replay_plan_end(p.plan_id, 'cancelled', queen.actor(), jsonb_build_object('note', note));
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_cancel_plan(uuid, text) IS
'Ends a replay plan before it is done.
Example: SELECT queen.dlq_cancel_plan(plan_id) FROM queen.replay_plans WHERE state = ''paused'';';
REVOKE ALL ON FUNCTION queen.dlq_cancel_plan(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_cancel_plan(uuid, text) TO queen_operator, queen_sidecar;
