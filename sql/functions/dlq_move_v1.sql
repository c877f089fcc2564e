-- queen.dlq_move_v1: move a dead letter back into a queue.
--
-- Pushes the message to the end of its own partition, or another, with the transaction id dlq:<id> and a fresh retry
-- budget, and deletes the record, in one. Encryption follows the destination queue. Of two callers at once, one moves
-- and the other is told gone. If a message with that transaction id is already there, the record stays.
--
-- The name carries a version: if the verdict ever changes its shape, there will be a v2 beside it.
--
-- Arguments:
--   dlq_id        Id of the record.
--   to_queue      Queue to move it to, created if missing; by default its own.
--   to_partition  Partition to move it to, created if missing; by default its own.
-- Result: {"result", "queue", "partition", "consumerGroup", "dlqId", "originalTransactionId", "messageId",
--         "transactionId", "offset"}; result is moved, duplicate (record kept), gone (no such record, or decided on) or
--         redacted (record kept: its payload is redacted and the log has lost the message).
-- Errors: QN001 (bad name); QN009, QN010 (encrypted destination, no usable key; the record is untouched); QN022 (the
--         queue has requireApproval, and the record is not approved).
-- Tables: queen.dead_letter_record (deleted from), queen.dlq_event (written), and as push_batch.
-- Locks: The record, then the partition pushed to, until the transaction ends.
CREATE FUNCTION queen.dlq_move_v1(dlq_id uuid, to_queue text DEFAULT NULL, to_partition text DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_move_v1';

COMMENT ON FUNCTION queen.dlq_move_v1(uuid, text, text) IS
'Moves a dead letter to the end of its queue, or another; the verdict is moved, duplicate, gone or redacted.
Example: SELECT queen.dlq_move_v1(id) FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_move_v1(uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_move_v1(uuid, text, text) TO queen_operator, queen_sidecar;
