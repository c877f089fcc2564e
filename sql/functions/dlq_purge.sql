-- queen.dlq_purge: delete all dead letters of a queue.
--
-- Wants an exact queue name: there is no way to purge everything at once.
--
-- Arguments:
--   queue           Queue name.
--   consumer_group  Only those of this consumer group.
-- Result: How many records were deleted.
-- Errors: QN001 (bad name).
-- Tables: queen.dead_letter_record (deleted from).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.dlq_purge(queue text, consumer_group text DEFAULT NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_dlq_purge';

COMMENT ON FUNCTION queen.dlq_purge(text, text) IS
'Deletes all dead letters of a queue, or of one of its consumer groups; returns how many.
Example: SELECT queen.dlq_purge(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.dlq_purge(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_purge(text, text) TO queen_admin, queen_sidecar;
