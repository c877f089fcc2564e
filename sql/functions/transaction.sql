-- queen.transaction: push and acknowledge, all or nothing.
--
-- For consumers that speak JSON: take from one queue, pass on to another, exactly once. In SQL, a transaction with
-- pop, push and ack does the same.
--
-- What cannot be done undoes all effects of the call and is answered, not raised; the caller's transaction goes on. A
-- pushed transaction id that is already in its partition is such a case.
--
-- The caller needs the right to push and the right to ack: granted to producers and consumers, and the function
-- refuses whoever is not both.
--
-- Arguments:
--   operations  The wire's body {"operations": [...], "requiredLeases": [...]}, or the bare array. An operation is
--               {"type": "push", "items": [...]} or {"type": "ack", "transactionId", "partitionId", "status",
--               "consumerGroup", "leaseId", "error"}.
-- Result: {"transactionId", "success", "results": [...]}; on failure success is false, with reason and error,
--         and results is empty.
-- Errors: QN008 (not an array or object of operations; kv or timers that are not empty); 42501 (not both producer and consumer).
-- Tables: As push_batch and ack.
-- Locks: First the cursors, then the partitions pushed to, both ascending, until the transaction ends.
CREATE FUNCTION queen.transaction(operations json)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_transaction';

COMMENT ON FUNCTION queen.transaction(json) IS
'Pushes and acknowledges in one call, all or nothing; failure is answered as success false.
For roles that are both queen_producer and queen_consumer.
Example: SELECT queen.transaction(''[{"type": "push", "items": [{"queue": "invoices", "payload": {"order": 1}}]}]'');';
REVOKE ALL ON FUNCTION queen.transaction(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.transaction(json) TO queen_producer, queen_consumer;
