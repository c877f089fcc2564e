-- queen.nack: report that a message of a lease failed.
--
-- As ack with status failed, addressed by lease instead of partition and group. Messages before it in its partition
-- count as completed; the lease on the partition ends.
--
-- Arguments:
--   lease_id        The lease, as pop gave it.
--   transaction_id  Transaction id of the message that failed.
--   error           What went wrong; kept with the dead letter, cut at 4 KiB.
--   status          failed, retry or dlq, as in ack.
--   reason          A word for why, kept with the dead letter.
-- Result: One row; on a lease that is not live, success is false.
-- Errors: QN017 (the lease holds this id in several partitions: use ack);
--         QN011, QN012 (segment damaged or unknown).
-- Tables: queen.partition, queen.segment, queen.transaction_id (read); queen.cursor, queen.ready,
--         queen.dead_letter_record (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.nack(
    lease_id uuid,
    transaction_id text,
    error text DEFAULT NULL,
    status text DEFAULT 'failed',
    reason text DEFAULT NULL
)
    RETURNS queen.ack_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_nack';

COMMENT ON FUNCTION queen.nack(uuid, text, text, text, text) IS
'Reports that a message failed: it is delivered again until retryLimit is used up, then it becomes a dead letter.
Example: SELECT queen.nack(m.lease_id, m.transaction_id, ''no such customer'') FROM queen.pop(''orders'', ''billing'') m;';
REVOKE ALL ON FUNCTION queen.nack(uuid, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.nack(uuid, text, text, text, text) TO queen_consumer;
