-- queen.process_once: whether a consumer sees this message for the first time.
--
-- Part of the caller's transaction: if that is rolled back, the message counts as never seen. Of two callers at once, the
-- second waits for the first; it is told false when that commits, and true when it rolls back. In a REPEATABLE READ or
-- SERIALIZABLE transaction the second may get a serialization failure instead, and tries again.
--
-- Arguments:
--   consumer    Who: the same message is new to each consumer once. Same rules as a name.
--   message_id  Any id that stays the same when the message comes again: of a replayed message, its x-causation-id.
-- Result: true the first time, false ever after (maintain() forgets after queen.processed_message_days).
-- Errors: QN001 (bad consumer), 22023 (message_id is NULL).
-- Tables: queen.processed_message (inserted into).
-- Locks: The pair, until the transaction ends.
CREATE FUNCTION queen.process_once(consumer text, message_id uuid)
    RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_variable
BEGIN
    IF btrim(coalesce(consumer, '')) = '' OR length(consumer) > 255 OR consumer ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'the name of the consumer is blank, too long, or has control characters' USING ERRCODE = 'QN001';
    END IF;
    IF message_id IS NULL THEN
        RAISE EXCEPTION 'message_id must not be NULL' USING ERRCODE = '22023';
    END IF;
    INSERT INTO queen.processed_message AS m (tenant, consumer, message_id)
    VALUES (queen.current_tenant(), consumer, message_id)
        ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION queen.process_once(text, uuid) IS
'Whether a consumer sees this message for the first time, within the caller''s transaction.
Example: SELECT queen.process_once(''billing'', message_id) FROM queen.pop(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.process_once(text, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.process_once(text, uuid) TO queen_consumer, queen_sidecar;
