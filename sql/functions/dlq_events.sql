-- queen.dlq_events: read the audit of dead letters.
--
-- Oldest first. To follow it, give the highest seq read so far; rows are numbered when they are written, so one of a
-- transaction that commits late may come to light behind a later number.
--
-- Arguments:
--   queue      Only this queue's.
--   plan_id    Only this plan's.
--   dlq_id     Only this record's.
--   after_seq  Only rows with a higher number.
--   max_rows   At most so many rows.
-- Result: Who did what, when.
-- Errors: 22023 (max_rows below 0).
-- Tables: queen.dlq_event (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_events(
    queue text DEFAULT NULL,
    plan_id uuid DEFAULT NULL,
    dlq_id uuid DEFAULT NULL,
    after_seq bigint DEFAULT 0,
    max_rows int DEFAULT 100
)
    RETURNS SETOF queen.dlq_audit_event
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF max_rows < 0 THEN
        RAISE EXCEPTION 'max_rows must not be below 0' USING ERRCODE = '22023';
    END IF;
    RETURN QUERY EXECUTE
        'SELECT e.seq, e.at, e.actor, e.action, e.dlq_id, e.plan_id, e.queue, e.consumer_group, e.detail
           FROM queen.dlq_event e
          WHERE e.tenant = $1 AND e.seq > $2'
        || CASE WHEN queue IS NULL THEN '' ELSE ' AND e.queue = $3' END
        || CASE WHEN plan_id IS NULL THEN '' ELSE ' AND e.plan_id = $4' END
        || CASE WHEN dlq_id IS NULL THEN '' ELSE ' AND e.dlq_id = $5' END
        || ' ORDER BY e.seq LIMIT $6'
        USING queen.current_tenant(), coalesce(after_seq, 0), queue, plan_id, dlq_id, coalesce(max_rows, 100);
END
$$;

COMMENT ON FUNCTION queen.dlq_events(text, uuid, uuid, bigint, int) IS
'Reads the audit of dead letters, oldest first: who did what, when, why.
Example: SELECT at, actor, action, detail FROM queen.dlq_events(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_events(text, uuid, uuid, bigint, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_events(text, uuid, uuid, bigint, int) TO queen_viewer, queen_sidecar;
