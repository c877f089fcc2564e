-- queen.dlq_repair: replay a dead letter with an edited payload.
--
-- The edited message is a new one, with an id of its own, the transaction id repair:<uuid>, and headers that name the
-- original. The record is not edited: it stays as evidence, with status replayed.
--
-- Arguments:
--   dlq_id        The record, not decided on yet. If its queue has requireApproval, it must be in a plan that somebody else
--                 has approved and that was made for this payload (argument repair of dlq_plan) and destination. The plan is
--                 done with it.
--   payload       The payload instead of the stored one; any JSON.
--   reason        Why; not blank.
--   to_queue      Queue, created if missing; by default its own.
--   to_partition  Partition, created if missing; by default its own.
-- Result: As dlq_move_v1, with partitionId; result is repaired.
-- Errors: QN027 (no such record), QN022 (this payload is not approved), 22023 (reason blank), QN002 (no payload, or one with "[REDACTED]"
--         in it), QN003 (payload too large), QN001 (bad name); QN009, QN010 (encrypted destination, no usable key).
-- Tables: As dlq_move_v1; queen.dead_letter_record, queen.replay_plan, queen.replay_item (updated), queen.dlq_event (written).
-- Locks: The plan, if there is one; then as dlq_move_v1.
CREATE FUNCTION queen.dlq_repair(
    dlq_id uuid,
    payload json,
    reason text,
    to_queue text DEFAULT NULL,
    to_partition text DEFAULT NULL
)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    me      constant uuid := queen.current_tenant();
    new     constant text := queen.repair_hash(payload);
    old     text;
    plan    uuid;
    verdict jsonb;
BEGIN
    IF btrim(coalesce(reason, '')) = '' THEN
        RAISE EXCEPTION 'reason must not be blank' USING ERRCODE = '22023';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'payload must not be NULL' USING ERRCODE = 'QN002';
    END IF;
    -- What an operator sees of a redacted record, sent back, would be taken for data.
    IF position('[REDACTED]' IN payload::text) > 0 THEN
        RAISE EXCEPTION 'the payload has redacted values'
              USING ERRCODE = 'QN002', HINT = 'Take what stands for "[REDACTED]" from its source.';
    END IF;
    -- Plans before records, as everywhere.
    SELECT p.plan_id INTO plan
      FROM queen.dead_letter_record r
      JOIN queen.replay_item i ON i.dlq_id = r.id
      JOIN queen.replay_plan p ON p.plan_id = i.plan_id
     WHERE r.id = dlq_repair.dlq_id AND p.tenant = me AND p.repair_hash = new
       AND p.state = 'approved' AND p.expires_at > clock_timestamp()
       AND coalesce(p.to_queue, r.queue) = coalesce(btrim(dlq_repair.to_queue), r.queue)
       AND coalesce(p.to_partition, r.partition) = coalesce(btrim(dlq_repair.to_partition), r.partition)
     ORDER BY p.planned_at LIMIT 1
       FOR UPDATE OF p;
    IF FOUND THEN
        -- As it was approved.
        PERFORM queen.replay_plan_lock(plan, ARRAY['approved'], 'carried out', true);
    END IF;
    -- Of what was pushed; where that could not be opened, of what is stored.
    SELECT coalesce(r.payload_hash, encode(sha256(r.payload), 'hex')) INTO old FROM queen.dead_letter_record r
     WHERE r.id = dlq_repair.dlq_id AND r.tenant = me AND r.status IN ('pending', 'approved')
       FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no dead letter % to repair', dlq_repair.dlq_id USING ERRCODE = 'QN027';
    END IF;
    verdict := queen.dlq_replay_row(dlq_repair.dlq_id, to_queue, to_partition, payload);
    PERFORM queen.dlq_audit('repaired', dlq_repair.dlq_id, plan, NULL, (verdict -> 'detail') || jsonb_build_object(
        'reason', reason,
        'originalPayloadHash', old,
        'payloadHash', new));
    IF plan IS NOT NULL THEN
        UPDATE queen.replay_item i
           SET state = 'moved', message_id = (verdict ->> 'messageId')::uuid,
               to_partition_id = (verdict ->> 'partitionId')::uuid, at_offset = (verdict ->> 'offset')::bigint,
               done_at = clock_timestamp()
         WHERE i.plan_id = plan AND i.dlq_id = dlq_repair.dlq_id;
        UPDATE queen.replay_plan p
           SET next_n = p.planned, moved = 1, started_by = queen.actor(), started_at = clock_timestamp()
         WHERE p.plan_id = plan;
        PERFORM queen.replay_plan_end(plan, 'done', queen.actor());
    END IF;
    RETURN (verdict - 'detail') || '{"result": "repaired"}';
END
$$;

COMMENT ON FUNCTION queen.dlq_repair(uuid, json, text, text, text) IS
'Replays a dead letter with an edited payload, as a new message; the record stays as it is.
Example: SELECT queen.dlq_repair(id, ''{"id": 7, "total": 12}'', ''total was text'') FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_repair(uuid, json, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_repair(uuid, json, text, text, text) TO queen_operator, queen_sidecar;
