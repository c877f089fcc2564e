-- queen.dlq_audit: add a row to the audit. Internal, granted to nobody.
--
-- Arguments:
--   action   What was done, one word.
--   dlq_id   To which record; its consumer group is noted too.
--   plan_id  Under which plan.
--   queue    In which queue; by default the record's.
--   detail   What else is worth knowing; no payloads.
-- Tables: queen.dlq_event (inserted into), queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_audit(action text, dlq_id uuid, plan_id uuid, queue text, detail jsonb)
    RETURNS void
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
    SELECT queen.current_tenant(), queen.actor(), $1, $2, $3, coalesce($4, r.queue),
           coalesce($5 ->> 'consumerGroup', r.consumer_group), coalesce($5, '{}')
      FROM (SELECT) one LEFT JOIN queen.dead_letter_record r ON r.id = $2
$$;

COMMENT ON FUNCTION queen.dlq_audit(text, uuid, uuid, text, jsonb) IS
'Part of other functions: adds a row to the audit.
Example: SELECT queen.dlq_audit(''noted'', NULL, NULL, ''orders'', ''{}'');';
REVOKE ALL ON FUNCTION queen.dlq_audit(text, uuid, uuid, text, jsonb) FROM PUBLIC;
