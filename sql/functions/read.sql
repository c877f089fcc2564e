-- queen.read: read a partition from an offset on.
--
-- Takes no lease and moves no cursor: for replay, audit, export. Starts at the first message still stored if retention
-- has removed the one asked for.
--
-- Arguments:
--   partition_id  The partition.
--   from_offset   First offset wanted; 0 is the beginning.
--   max_rows      At most so many rows.
-- Result: The messages in the order of their offsets; none if there is no such partition.
-- Errors: 22023 (from_offset or max_rows below 0); QN011, QN012 (segment damaged or unknown).
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.subscription, queen.cursor,
--         queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.read(partition_id uuid, from_offset bigint, max_rows int DEFAULT 100)
    RETURNS SETOF queen.stored_message
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_read';

COMMENT ON FUNCTION queen.read(uuid, bigint, int) IS
'Reads the messages of a partition from an offset on, in order; no lease, no cursor.
Example: SELECT r.* FROM queen.partitions p, queen.read(p.partition_id, 0) r WHERE p.queue = ''orders'';';
REVOKE ALL ON FUNCTION queen.read(uuid, bigint, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.read(uuid, bigint, int) TO queen_viewer;
