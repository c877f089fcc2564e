-- queen.push: put one message into a queue, as part of the caller's transaction.
--
-- The message appears when the transaction commits and never if it does not, savepoints included. It is collected in
-- the session until then: a transaction that has pushed and then waits holds no lock that another push, pop or ack
-- needs. All pushes of a transaction to one partition are stored together and in order.
--
-- A message with the transaction id of an earlier one, within the queue's dedupWindowSeconds, is a duplicate and is
-- not stored. A duplicate that comes to light only at commit is dropped in silence and counted: the id is in the queue
-- exactly once. Queue and partition are created by the first push.
--
-- Arguments:
--   queue           Queue name: 1 to 255 characters, not blank, no control characters.
--   payload         The message, any JSON; SQL NULL is refused, JSON null is a payload. To keep the text byte for
--                   byte, use push_batch.
--   partition       The lane: order holds within a partition, a consumer group works on as many partitions at once as
--                   there are.
--   transaction_id  Deduplication id, up to 65535 bytes; by default the message id.
--   trace_id        Handed to the consumer as it is.
--   headers         A JSON object, handed to the consumer as it is.
-- Result: One row. partition_id and offset are NULL: they are given at commit. A duplicate answers those of
--         the message that is there.
-- Errors: QN001 (bad name); QN002 (not JSON, or missing); QN003 (payload larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN009, QN010 (encrypted queue, no usable key). Nothing is
--         stored then.
-- Tables: queen.queue, queen.partition, queen.segment, queen.transaction_id, queen.subscription, queen.ready
--         (all at commit).
-- Locks: None before commit; then the rows of the partitions, ascending, for as long as the commit takes.
CREATE FUNCTION queen.push(
    queue text,
    payload jsonb,
    partition text DEFAULT 'Default',
    transaction_id text DEFAULT NULL,
    trace_id uuid DEFAULT NULL,
    headers jsonb DEFAULT NULL
)
    RETURNS queen.push_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10
    AS 'MODULE_PATHNAME', 'queen_push';

COMMENT ON FUNCTION queen.push(text, jsonb, text, text, uuid, jsonb) IS
'Puts a message into a queue; it lands when the transaction commits, and only then.
Needs no setup: queue and partition are created by the first push.
Example: SELECT queen.push(''orders'', ''{"id": 1}'', partition => ''customer-7'', transaction_id => ''order-1'');';
REVOKE ALL ON FUNCTION queen.push(text, jsonb, text, text, uuid, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push(text, jsonb, text, text, uuid, jsonb) TO queen_producer;
