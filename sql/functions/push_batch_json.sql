-- queen.push_batch_json: push_batch for the HTTP server: the result as JSON text.
--
-- For producers that speak JSON and commit at once, such as the HTTP server. Payloads are kept byte for byte. Other
-- than push, this appends right away: offsets are known, and the partitions stay locked until the transaction ends. So
-- do little after it. One call locks in one global order, so that two such calls never deadlock.
--
-- Arguments:
--   items  A JSON array of objects {queue, partition, payload, transactionId, traceId, headers, producer}; queue and
--          payload are required, unknown keys are ignored. producer, a string or null, is stored as who pushed the
--          message: whoever may call this has authenticated them. push_batch ignores that key.
-- Result: A JSON array with one object for each item: messageId, offset, and duplicate if it is one.
-- Errors: As push_batch; QN008 for a producer that is no string or has control characters, too.
-- Tables: As push_batch.
-- Locks: As push_batch.
CREATE FUNCTION queen.push_batch_json(items text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_push_batch_json';

COMMENT ON FUNCTION queen.push_batch_json(text) IS
'push_batch with the result as JSON text, for the HTTP server.
Example: SELECT queen.push_batch_json(''[{"queue": "orders", "payload": {"id": 1}}]'');';
REVOKE ALL ON FUNCTION queen.push_batch_json(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push_batch_json(text) TO queen_sidecar;
