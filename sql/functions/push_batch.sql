-- queen.push_batch: append messages given as JSON, now.
--
-- For producers that speak JSON and commit at once, such as the HTTP server. Payloads are kept byte for byte. Other
-- than push, this appends right away: offsets are known, and the partitions stay locked until the transaction ends. So
-- do little after it. One call locks in one global order, so that two such calls never deadlock.
--
-- An item with the transaction id of a message that is already there, or of an earlier item, is a duplicate.
--
-- Arguments:
--   items  A JSON array of objects {queue, partition, payload, transactionId, traceId, headers}; queue and payload are
--          required, unknown keys are ignored.
-- Result: One row for each item, in order, with partition_id and offset; a duplicate answers those of the
--         message that is there.
-- Errors: QN001 (bad name); QN002 (not JSON, or missing); QN003 (payload larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN009, QN010 (encrypted queue, no usable key). Nothing is
--         stored then. QN008 (items have the wrong shape); 22P02 (traceId is not a UUID).
-- Tables: queen.queue, queen.partition, queen.segment, queen.transaction_id, queen.subscription, queen.ready.
-- Locks: The rows of the partitions, ascending, until the transaction ends.
CREATE FUNCTION queen.push_batch(items json)
    RETURNS SETOF queen.push_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_push_batch';

COMMENT ON FUNCTION queen.push_batch(json) IS
'Appends messages given as a JSON array, at once; payloads are kept byte for byte.
Keeps the partitions locked until the transaction ends: meant for autocommit. Inside a business transaction use push.
Example: SELECT * FROM queen.push_batch(''[{"queue": "orders", "payload": {"id": 1}}]'');';
REVOKE ALL ON FUNCTION queen.push_batch(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push_batch(json) TO queen_producer;
