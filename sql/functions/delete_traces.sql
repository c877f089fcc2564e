-- queen.delete_traces: delete old notes.
--
-- Nothing else deletes them, not even drop_queue: call it from cron where notes are made.
--
-- Arguments:
--   older_than  Those made longer ago than this.
-- Result: How many were deleted.
-- Errors: 22023 (older_than is NULL).
-- Tables: queen.trace, queen.trace_name (deleted from).
-- Locks: The notes, until the transaction ends.
CREATE FUNCTION queen.delete_traces(older_than interval)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_delete_traces';

COMMENT ON FUNCTION queen.delete_traces(interval) IS
'Deletes the notes of record_trace that are older than this; returns how many.
Example: SELECT queen.delete_traces(interval ''30 days'');';
REVOKE ALL ON FUNCTION queen.delete_traces(interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.delete_traces(interval) TO queen_admin;
