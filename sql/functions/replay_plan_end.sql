-- queen.replay_plan_end: end a plan. Internal, granted to nobody.
--
-- Records that it had approved and not replayed are pending again, unless another approved plan waits for them.
--
-- Arguments:
--   of_plan    The plan, locked by the caller.
--   new_state  done, cancelled or expired.
--   who        In whose name.
--   detail     For the audit.
-- Tables: queen.replay_plan, queen.dead_letter_record (updated), queen.replay_item (read), queen.dlq_event (written).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.replay_plan_end(of_plan uuid, new_state text, who text, detail jsonb DEFAULT '{}')
    RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    plan queen.replay_plan;
BEGIN
    UPDATE queen.replay_plan p SET state = new_state, ended_at = clock_timestamp() WHERE p.plan_id = of_plan
    RETURNING p.* INTO plan;
    INSERT INTO queen.dlq_event (tenant, actor, action, plan_id, detail)
    VALUES (plan.tenant, who, 'plan_' || new_state, of_plan,
            jsonb_build_object('moved', plan.moved, 'duplicate', plan.duplicate, 'failed', plan.failed, 'gone', plan.gone,
                               'refused', plan.refused, 'remaining', plan.planned - plan.next_n) || detail);
    IF plan.approved_at IS NULL THEN
        RETURN;
    END IF;
    WITH back AS (
        UPDATE queen.dead_letter_record r SET status = 'pending'
          FROM queen.replay_item i
         WHERE i.plan_id = of_plan AND i.state IN ('planned', 'duplicate', 'failed', 'refused')
           AND r.id = i.dlq_id AND r.status = 'approved'
           AND NOT EXISTS (SELECT FROM queen.replay_item o JOIN queen.replay_plan p ON p.plan_id = o.plan_id
                            WHERE o.dlq_id = i.dlq_id AND o.plan_id <> of_plan AND o.state = 'planned'
                              AND p.approved_at IS NOT NULL
                              AND p.state IN ('approved', 'running', 'paused', 'canary_done'))
        RETURNING r.id, r.queue, r.consumer_group)
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
    SELECT plan.tenant, who, 'approval_ended', b.id, of_plan, b.queue, b.consumer_group, '{}' FROM back b;
END
$$;

COMMENT ON FUNCTION queen.replay_plan_end(uuid, text, text, jsonb) IS
'Part of other functions: ends a plan.
Example: SELECT queen.replay_plan_end(plan_id, ''cancelled'', ''ada'') FROM queen.replay_plan;';
REVOKE ALL ON FUNCTION queen.replay_plan_end(uuid, text, text, jsonb) FROM PUBLIC;
