-- queen.dlq_is_approved: whether a dead letter may be replayed to a place, as somebody has approved. Internal.
--
-- Arguments:
--   of_record     The record.
--   to_queue      Queue it is about to go to.
--   to_partition  Partition.
--   repair        Payload instead of the one that was filed; NULL: none.
-- Result: Whether it is in an approved plan, for that place and that payload, that has neither ended nor expired.
-- Tables: queen.dead_letter_record, queen.replay_item, queen.replay_plan (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_is_approved(of_record uuid, to_queue text, to_partition text, repair json)
    RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT EXISTS (
        SELECT FROM queen.dead_letter_record r
          JOIN queen.replay_item i ON i.dlq_id = r.id
          JOIN queen.replay_plan p ON p.plan_id = i.plan_id
         WHERE r.id = $1 AND r.status = 'approved' AND p.approved_at IS NOT NULL
           AND p.state IN ('approved', 'running', 'paused', 'canary_done') AND p.expires_at > clock_timestamp()
           AND coalesce(p.to_queue, r.queue) = $2 AND coalesce(p.to_partition, r.partition) = $3
           AND p.repair_hash IS NOT DISTINCT FROM queen.repair_hash($4))
$$;
COMMENT ON FUNCTION queen.dlq_is_approved(uuid, text, text, json) IS
'Part of other functions: whether an approved plan that goes on has this dead letter, for this destination and payload.
Example: SELECT queen.dlq_is_approved(id, queue, partition, NULL) FROM queen.dead_letter_record;';
REVOKE ALL ON FUNCTION queen.dlq_is_approved(uuid, text, text, json) FROM PUBLIC;
