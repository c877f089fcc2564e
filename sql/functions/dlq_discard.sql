-- queen.dlq_discard: decide that dead letters will not be replayed.
--
-- The records stay, with status discarded.
--
-- Arguments:
--   ids    The records; those that are gone or decided on are left out.
--   cause  obsolete, superseded, test, malformed, satisfied or unlawful.
--   note   Evidence, in words; not blank.
-- Result: How many were discarded.
-- Errors: 22023 (cause not one of these, note blank, ids NULL).
-- Tables: queen.dead_letter_record (updated), queen.dlq_event (written).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.dlq_discard(ids uuid[], cause text, note text)
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    done bigint;
BEGIN
    IF ids IS NULL THEN
        RAISE EXCEPTION 'ids must not be NULL' USING ERRCODE = '22023';
    END IF;
    IF NOT coalesce(cause = ANY (ARRAY['obsolete', 'superseded', 'test', 'malformed', 'satisfied', 'unlawful']), false) THEN
        RAISE EXCEPTION 'cause must be obsolete, superseded, test, malformed, satisfied or unlawful'
              USING ERRCODE = '22023';
    END IF;
    IF btrim(coalesce(note, '')) = '' THEN
        RAISE EXCEPTION 'note must not be blank' USING ERRCODE = '22023';
    END IF;
    PERFORM FROM queen.dead_letter_record r
      WHERE r.id = ANY (ids) AND r.tenant = queen.current_tenant() ORDER BY r.id FOR UPDATE;
    WITH discarded AS (
        UPDATE queen.dead_letter_record r SET status = 'discarded'
         WHERE r.id = ANY (ids) AND r.tenant = queen.current_tenant() AND r.status IN ('pending', 'approved')
        RETURNING r.tenant, r.id, r.queue, r.consumer_group, r.message_id)
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, queue, consumer_group, detail)
    SELECT d.tenant, queen.actor(), 'discarded', d.id, d.queue, d.consumer_group,
           jsonb_build_object('cause', cause, 'note', note, 'originalMessageId', d.message_id)
      FROM discarded d;
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END
$$;

COMMENT ON FUNCTION queen.dlq_discard(uuid[], text, text) IS
'Decides that dead letters will not be replayed; they stay on record. Returns how many.
Example: SELECT queen.dlq_discard(ARRAY[id], ''test'', ''sent by the load test'') FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_discard(uuid[], text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_discard(uuid[], text, text) TO queen_operator, queen_sidecar;
