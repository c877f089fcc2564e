-- queen.dlq_event_refuse: what is in the audit stays as it is. Internal: the trigger of queen.dlq_event.
--
-- It fires whoever asks, the extension's owner and its functions too, and also while session_replication_role is
-- replica. A superuser can drop the trigger; nobody else can.
--
-- Errors: 42501, always.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.dlq_event_refuse()
    RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    RAISE EXCEPTION 'the audit of dead letters is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;

COMMENT ON FUNCTION queen.dlq_event_refuse() IS
'Part of table dlq_event: refuses to change or delete what is in the audit.
Example: DELETE FROM queen.dlq_event;  -- is refused';
REVOKE ALL ON FUNCTION queen.dlq_event_refuse() FROM PUBLIC;

CREATE TRIGGER dlq_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON queen.dlq_event
    FOR EACH STATEMENT EXECUTE FUNCTION queen.dlq_event_refuse();
ALTER TABLE queen.dlq_event ENABLE ALWAYS TRIGGER dlq_event_append_only;
