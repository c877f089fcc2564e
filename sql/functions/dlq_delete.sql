-- queen.dlq_delete: delete the dead letters of one message.
--
-- All of them: several consumer groups can have one each. To delete one, use dlq_delete_row.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
-- Result: How many records were deleted.
-- Tables: queen.dead_letter_record (deleted from).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.dlq_delete(partition_id uuid, transaction_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_dlq_delete';

COMMENT ON FUNCTION queen.dlq_delete(uuid, text) IS
'Deletes the dead letters of one message, those of all consumer groups; returns how many.
Example: SELECT queen.dlq_delete(partition_id, transaction_id) FROM queen.dlq(''orders'') WHERE error = ''test'';';
REVOKE ALL ON FUNCTION queen.dlq_delete(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_delete(uuid, text) TO queen_operator, queen_sidecar;
