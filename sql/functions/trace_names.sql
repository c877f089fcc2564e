-- queen.trace_names: list the names that notes were made under.
--
-- The name used last first. Finding them costs a few index probes a name; counting, the index entries of the names that
-- are returned.
--
-- Arguments:
--   max_rows  At most so many rows.
--   skip      Leave out so many rows first.
--   name      Only this name.
-- Result: One row a name: how many notes it has, on how many messages, when the last one was made; and, the same on each
--         row, how many names there are in all.
-- Errors: 22023 (max_rows or skip below 0).
-- Tables: queen.trace_name (read).
-- Locks: None.
CREATE FUNCTION queen.trace_names(max_rows int DEFAULT 50, skip int DEFAULT 0, name text DEFAULT NULL)
    RETURNS TABLE (trace_name text, trace_count bigint, message_count bigint, last_seen_at timestamptz, total bigint)
    LANGUAGE c STABLE PARALLEL UNSAFE COST 1000 ROWS 50
    AS 'MODULE_PATHNAME', 'queen_trace_names';

COMMENT ON FUNCTION queen.trace_names(int, int, text) IS
'Lists the names that notes were made under, the one used last first, with counts.
Example: SELECT trace_name, trace_count, message_count FROM queen.trace_names();';
REVOKE ALL ON FUNCTION queen.trace_names(int, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.trace_names(int, int, text) TO queen_viewer, queen_sidecar;
