-- queen.replay_plan_lock: a plan of the tenant, locked and as it was made. Internal, granted to nobody.
--
-- Arguments:
--   of_plan The plan.
--   states  States that allow the step.
--   step    The step, for the message.
--   fresh   Whether the step is one of deciding or starting: then the plan must not be expired, over its limit or altered.
-- Result: The plan.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired), QN025 (over its limit), QN024 (altered).
-- Tables: queen.replay_plan (locked), queen.replay_item (read).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.replay_plan_lock(of_plan uuid, states text[], step text, fresh boolean)
    RETURNS queen.replay_plan
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    plan queen.replay_plan;
    ids  uuid[];
BEGIN
    SELECT p.* INTO plan FROM queen.replay_plan p WHERE p.plan_id = of_plan AND p.tenant = queen.current_tenant() FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no replay plan %', of_plan USING ERRCODE = 'QN020';
    END IF;
    IF plan.state = 'expired' OR (fresh AND plan.state = ANY (states) AND plan.expires_at <= clock_timestamp()) THEN
        RAISE EXCEPTION 'replay plan % has expired: it cannot be %', of_plan, step
              USING ERRCODE = 'QN023', HINT = 'Make a new plan.';
    END IF;
    IF NOT plan.state = ANY (states) THEN
        RAISE EXCEPTION 'replay plan % is %: it cannot be %', of_plan, plan.state, step USING ERRCODE = 'QN021';
    END IF;
    IF fresh THEN
        SELECT array_agg(i.dlq_id ORDER BY i.n) INTO ids FROM queen.replay_item i WHERE i.plan_id = of_plan;
        IF coalesce(cardinality(ids), 0) > plan.max_records THEN
            RAISE EXCEPTION 'replay plan % has % records, its limit is %', of_plan, cardinality(ids), plan.max_records
                  USING ERRCODE = 'QN025';
        END IF;
        IF plan.planned <> coalesce(cardinality(ids), 0)
           OR plan.digest <> queen.replay_digest(plan, coalesce(ids, '{}'))
           OR plan.approved_digest <> plan.digest THEN
            RAISE EXCEPTION 'replay plan % is not what was planned', of_plan
                  USING ERRCODE = 'QN024', HINT = 'Make a new plan.';
        END IF;
    END IF;
    RETURN plan;
END
$$;

COMMENT ON FUNCTION queen.replay_plan_lock(uuid, text[], text, boolean) IS
'Part of other functions: locks a plan and checks that a step is allowed.
Example: SELECT queen.replay_plan_lock(plan_id, ARRAY[''planned''], ''approved'', true) FROM queen.replay_plan;';
REVOKE ALL ON FUNCTION queen.replay_plan_lock(uuid, text[], text, boolean) FROM PUBLIC;
