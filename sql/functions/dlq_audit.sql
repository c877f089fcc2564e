-- queen.dlq_audit: note in the audit that somebody did something to a dead letter, a plan or a group.
--
-- For the functions of the broker, which run statements as its owner: granted to nobody.
--
-- Arguments:
--   action   What was done, one word.
--   dlq_id   The dead letter, if it was about one.
--   plan_id  The replay plan, if it was about one.
--   queue    Queue name.
--   detail   Whatever else is worth knowing; the key consumerGroup becomes the row's consumer_group.
-- Result: Nothing.
-- Errors: None.
-- Tables: queen.dlq_event (written).
-- Locks: None.
CREATE FUNCTION queen.dlq_audit(action text, dlq_id uuid, plan_id uuid, queue text, detail jsonb)
    RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
        INSERT INTO queen.dlq_event (at, tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
        VALUES (pg_catalog.clock_timestamp(), queen.current_tenant(), queen.actor(), $1, $2, $3, $4,
                $5 OPERATOR(pg_catalog.->>) 'consumerGroup', $5)
    $$;

COMMENT ON FUNCTION queen.dlq_audit(text, uuid, uuid, text, jsonb) IS
'Part of other functions: notes in the audit what was done, and by whom.
Example: SELECT queen.dlq_audit(''pause_group'', NULL, NULL, ''orders'', ''{"consumerGroup": "billing"}'');';
REVOKE ALL ON FUNCTION queen.dlq_audit(text, uuid, uuid, text, jsonb) FROM PUBLIC;
