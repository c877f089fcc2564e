-- queen.verify: check what is stored.
--
-- Opens every segment, and looks for gaps or overlaps of offsets and for cursors that point outside of the log. Reads
-- everything, changes nothing, runs beside traffic.
--
-- Arguments:
--   queue  Only this queue.
-- Result: One row for each problem found; no row is good news. base_offset is the first offset of the segment
--         concerned, NULL if it is not about a segment.
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.subscription, queen.cursor (read).
-- Locks: None.
CREATE FUNCTION queen.verify(queue text DEFAULT NULL)
    RETURNS TABLE (partition_id uuid, base_offset bigint, problem text)
    LANGUAGE c STABLE PARALLEL UNSAFE COST 10000 ROWS 10
    AS 'MODULE_PATHNAME', 'queen_verify';

COMMENT ON FUNCTION queen.verify(text) IS
'Checks checksums, offsets and cursors; one row for each problem, none if all is well.
Example: SELECT * FROM queen.verify(''orders'');';
REVOKE ALL ON FUNCTION queen.verify(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.verify(text) TO queen_viewer;
