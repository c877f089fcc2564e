-- queen.traces_by_name: what was noted under one name, whatever the message.
--
-- Newest first; the order is stable, so that skip pages through it.
--
-- Arguments:
--   name      The name; by bytes.
--   max_rows  At most so many rows.
--   skip      Leave out so many rows first.
-- Result: The notes.
-- Errors: 22023 (name is NULL, max_rows or skip below 0).
-- Tables: queen.trace, queen.trace_name (read).
-- Locks: None.
CREATE FUNCTION queen.traces_by_name(name text, max_rows int DEFAULT 100, skip int DEFAULT 0)
    RETURNS SETOF queen.trace_event
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_traces_by_name';

COMMENT ON FUNCTION queen.traces_by_name(text, int, int) IS
'What was noted under one name, newest first.
Example: SELECT created_at, queue, transaction_id, event_type, data FROM queen.traces_by_name(''order-1'');';
REVOKE ALL ON FUNCTION queen.traces_by_name(text, int, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.traces_by_name(text, int, int) TO queen_viewer, queen_sidecar;
