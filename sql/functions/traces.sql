-- queen.traces: what was noted about one message.
--
-- Oldest first.
--
-- Arguments:
--   partition_id    Partition of the message; may be gone.
--   transaction_id  Transaction id of the message.
-- Result: The notes.
-- Errors: 22023 (an argument is NULL).
-- Tables: queen.trace (read).
-- Locks: None.
CREATE FUNCTION queen.traces(partition_id uuid, transaction_id text)
    RETURNS SETOF queen.trace_event
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'queen_traces';

COMMENT ON FUNCTION queen.traces(uuid, text) IS
'What was noted about one message, oldest first.
Example: SELECT t.* FROM queen.partitions p, queen.traces(p.partition_id, ''order-1'') t WHERE p.queue = ''orders'';';
REVOKE ALL ON FUNCTION queen.traces(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.traces(uuid, text) TO queen_viewer, queen_sidecar;
