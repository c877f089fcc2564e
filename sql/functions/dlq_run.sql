-- queen.dlq_run: start a replay plan.
--
-- Messages move when queen.run_replays or the background worker gets to it: the canary first.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state, or for a repair), QN023 (expired), QN024 (not what was planned or approved), QN025 (over its
--         limit), QN022 (not approved).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_run(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_run.plan_id, ARRAY['planned', 'approved'], 'started', true);
    IF p.repair_hash IS NOT NULL THEN
        RAISE EXCEPTION 'replay plan % is for a repair: it cannot be started', p.plan_id
              USING ERRCODE = 'QN021', HINT = 'Call queen.dlq_repair, with the payload that the plan was made with.';
    END IF;
    -- As the queues are now: an option that was set after the plan was made counts.
    IF p.approved_at IS NULL AND (p.needs_approval OR EXISTS (
           SELECT FROM (SELECT DISTINCT r.queue FROM queen.replay_item i
                          JOIN queen.dead_letter_record r ON r.id = i.dlq_id WHERE i.plan_id = p.plan_id) q
            WHERE queen.dlq_needs_approval(p.tenant, q.queue))) THEN
        RAISE EXCEPTION 'replay plan % is not approved', p.plan_id
              USING ERRCODE = 'QN022', HINT = 'Somebody else than its maker has to call queen.dlq_approve.';
    END IF;
    UPDATE queen.replay_plan r
       SET state = 'running', started_by = queen.actor(), started_at = clock_timestamp(),
           due_at = clock_timestamp(), next_at = clock_timestamp(), recent_at = '{}', recent_n = '{}'
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_started', NULL, p.plan_id, NULL, jsonb_build_object('digest', p.digest));
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_run(uuid) IS
'Starts a replay plan: its canary first.
Example: SELECT queen.dlq_run(plan_id) FROM queen.replay_plans WHERE state = ''approved'';';
REVOKE ALL ON FUNCTION queen.dlq_run(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_run(uuid) TO queen_operator, queen_sidecar;
