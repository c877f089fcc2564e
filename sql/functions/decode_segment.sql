-- queen.decode_segment: open one stored segment.
--
-- The codec itself, for inspection and repair; segments are stored in queen.segment. Checks magic, version, tables and
-- checksum before anything is returned.
--
-- Arguments:
--   segment  The stored bytes.
-- Result: The messages in it, in order; none for NULL.
-- Errors: QN011 (damaged; says where), QN012 (version or codec unknown).
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.decode_segment(segment bytea)
    RETURNS SETOF queen.frame
    LANGUAGE c IMMUTABLE STRICT PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_decode_segment';

COMMENT ON FUNCTION queen.decode_segment(bytea) IS
'Decodes the bytes of one stored segment; a damaged one raises an error that says where.
Example: SELECT f.* FROM queen.segment s, queen.decode_segment(s.data) f LIMIT 10;  -- as the owner of the tables';
REVOKE ALL ON FUNCTION queen.decode_segment(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.decode_segment(bytea) TO queen_viewer;
