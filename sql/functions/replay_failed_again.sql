-- queen.replay_failed_again: a plan keeps what it was told by a dead letter that is deleted. Internal: a trigger of
-- queen.dead_letter_record.
--
-- That a replayed message has failed again shows by its new dead letter. When that is deleted, purged or moved, the plans
-- that had replayed the message note it, so that a canary does not become clean by being swept up. Which plans: the audit
-- knows, which nobody changes.
--
-- Tables: queen.dlq_event (read), queen.replay_item (updated).
-- Locks: The items of the plans, until the transaction ends.
CREATE FUNCTION queen.replay_failed_again()
    RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET jit = off
    AS $$
BEGIN
    -- Most dead letters are of messages that nobody had replayed: those are not looked up.
    UPDATE queen.replay_item i SET failed_again = true
      FROM before b
      JOIN queen.dlq_event e ON e.detail ->> 'messageId' = b.message_id::text AND e.detail ? 'messageId'
     WHERE (b.hops > 0 OR b.transaction_id LIKE 'dlq:%' OR b.transaction_id LIKE 'repair:%')
       AND i.plan_id = e.plan_id AND i.dlq_id = e.dlq_id AND i.message_id = b.message_id
       AND i.consumer_group = b.consumer_group AND NOT i.failed_again;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION queen.replay_failed_again() IS
'Part of queen.dead_letter_record: plans remember what failed again when its record goes. A trigger, which nobody calls.
Example: SELECT failed_again FROM queen.replay_item;';
REVOKE ALL ON FUNCTION queen.replay_failed_again() FROM PUBLIC;

CREATE TRIGGER replay_failed_again_delete AFTER DELETE ON queen.dead_letter_record
    REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION queen.replay_failed_again();
