-- queen.message: look one message up.
--
-- The newest with that transaction id, as messages shows it.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
-- Result: The message; NULL if there is none.
-- Errors: QN011, QN012 (segment damaged or unknown).
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.transaction_id,
--         queen.subscription, queen.cursor, queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.message(partition_id uuid, transaction_id text)
    RETURNS queen.stored_message
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_message';

COMMENT ON FUNCTION queen.message(uuid, text) IS
'Looks one stored message up; NULL if there is none.
Example: SELECT (queen.message(partition_id, ''order-1'')).* FROM queen.partitions WHERE queue = ''orders'';';
REVOKE ALL ON FUNCTION queen.message(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.message(uuid, text) TO queen_viewer, queen_sidecar;
