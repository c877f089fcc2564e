-- queen.dlq_approve: approve a replay plan that somebody else has made.
--
-- Its records go from pending to approved, and back when the plan ends without having replayed them.
--
-- Arguments:
--   plan_id  The plan, in state planned.
--   note     For the audit.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN026 (the caller made the plan, by whatever spelling of the name), QN021 (not planned), QN023 (expired), QN025 (over its
--         limit), QN024 (not what was planned).
-- Tables: queen.replay_plan, queen.dead_letter_record (updated), queen.dlq_event (written).
-- Locks: The plan, then its records, until the transaction ends.
CREATE FUNCTION queen.dlq_approve(plan_id uuid, note text DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p   queen.replay_plan;
    who constant text := queen.actor();
BEGIN
    IF EXISTS (SELECT FROM queen.replay_plan r
                WHERE r.plan_id = dlq_approve.plan_id AND r.tenant = queen.current_tenant() AND queen.same_person(r.planned_by, who)) THEN
        RAISE EXCEPTION 'replay plan % was made by the same person', dlq_approve.plan_id
              USING ERRCODE = 'QN026', HINT = 'Somebody else has to approve it.';
    END IF;
    p := queen.replay_plan_lock(dlq_approve.plan_id, ARRAY['planned'], 'approved', true);
    UPDATE queen.replay_plan r
       SET state = 'approved', approved_by = who, approved_at = clock_timestamp(), approval_note = note,
           approved_digest = r.digest
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_approved', NULL, p.plan_id, NULL, jsonb_build_object('note', note, 'digest', p.digest));
    PERFORM FROM queen.dead_letter_record r
      WHERE r.id IN (SELECT i.dlq_id FROM queen.replay_item i WHERE i.plan_id = p.plan_id) ORDER BY r.id FOR UPDATE;
    WITH approved AS (
        UPDATE queen.dead_letter_record r SET status = 'approved'
          FROM queen.replay_item i
         WHERE i.plan_id = p.plan_id AND r.id = i.dlq_id AND r.status = 'pending'
        RETURNING r.id, r.queue, r.consumer_group)
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
    SELECT p.tenant, who, 'approved', a.id, p.plan_id, a.queue, a.consumer_group, '{}' FROM approved a;
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_approve(uuid, text) IS
'Approves a replay plan that somebody else has made.
Example: SELECT queen.dlq_approve(plan_id, ''looked at change 4711'') FROM queen.replay_plans WHERE state = ''planned'';';
REVOKE ALL ON FUNCTION queen.dlq_approve(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_approve(uuid, text) TO queen_operator, queen_sidecar;
