-- queen.dlq_delete_row: delete one dead letter.
--
-- The message itself stays in the log for as long as retention keeps it.
--
-- Arguments:
--   dlq_id  Id of the record.
-- Result: 1, or 0 if there is no such record.
-- Tables: queen.dead_letter_record (deleted from).
-- Locks: The record, until the transaction ends.
CREATE FUNCTION queen.dlq_delete_row(dlq_id uuid)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_dlq_delete_row';

COMMENT ON FUNCTION queen.dlq_delete_row(uuid) IS
'Deletes one dead letter; returns 1, or 0 if there is none of that id.
Example: SELECT queen.dlq_delete_row(id) FROM queen.dlq(''orders'', max_rows => 1);';
REVOKE ALL ON FUNCTION queen.dlq_delete_row(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_delete_row(uuid) TO queen_operator, queen_sidecar;
