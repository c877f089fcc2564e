-- queen.ack: settle one message.
--
-- A completed message completes all before it in its partition: the cursor moves, nothing is deleted. A failed one
-- ends the lease; what comes before it counts as completed, it and what comes after is delivered again. When the
-- failures charged to it have used up the queue's retryLimit, it becomes a dead letter, or is dropped when dead-
-- lettering is off, and the group goes on after it. Dead letters are filed in the same transaction.
--
-- Without lease_id a message can be completed, but nothing is charged, released, filed or dropped under a live lease
-- of somebody else.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
--   status          completed (also success, acked, ok, NULL), retry (again, not charged), dlq (dead letter, now);
--                   anything else is failed (again, charged to retryLimit; then dead letter).
--   consumer_group  Name of the consumer group; each group gets every message. The default, __QUEUE_MODE__, is the
--                   group of those who name none.
--   lease_id        The lease the message came with. Give it: it makes sure that the message is still yours.
--   error           What went wrong; kept with the dead letter, cut at 4 KiB.
--   reason          A word for why, kept with the dead letter.
-- Result: One row; success says whether it was accepted, error why not. A refused acknowledgment is a result,
--         not an error.
-- Errors: QN001 (bad name); QN011, QN012 (segment damaged or unknown).
-- Tables: queen.partition, queen.segment, queen.transaction_id (read); queen.cursor, queen.ready,
--         queen.dead_letter_record (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.ack(
    partition_id uuid,
    transaction_id text,
    status text DEFAULT 'completed',
    consumer_group text DEFAULT '__QUEUE_MODE__',
    lease_id uuid DEFAULT NULL,
    error text DEFAULT NULL,
    reason text DEFAULT NULL
)
    RETURNS queen.ack_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_ack';

COMMENT ON FUNCTION queen.ack(uuid, text, text, text, uuid, text, text) IS
'Settles one message: completed, failed, retry or dlq. Look at success in the result.
Completing a message completes those before it in its partition.
Example: SELECT queen.ack(m.partition_id, m.transaction_id, ''completed'', ''billing'', m.lease_id) FROM queen.pop(''orders'', ''billing'') m;';
REVOKE ALL ON FUNCTION queen.ack(uuid, text, text, text, uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack(uuid, text, text, text, uuid, text, text) TO queen_consumer;
