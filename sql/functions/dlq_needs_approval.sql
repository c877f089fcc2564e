-- queen.dlq_needs_approval: whether a queue wants a second person before its dead letters are replayed. Internal.
--
-- Arguments:
--   of_tenant   Tenant of the queue.
--   queue_name  Queue name; one that is gone wants nothing.
-- Result: The queue's option requireApproval.
-- Tables: queen.queue (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_needs_approval(of_tenant uuid, queue_name text)
    RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT coalesce((SELECT q.options::jsonb ->> 'requireApproval' = 'true'
                       FROM queen.queue q WHERE q.tenant = $1 AND q.name = $2), false)
$$;

COMMENT ON FUNCTION queen.dlq_needs_approval(uuid, text) IS
'Part of other functions: the option requireApproval of a queue.
Example: SELECT queen.dlq_needs_approval(queen.current_tenant(), ''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_needs_approval(uuid, text) FROM PUBLIC;
