-- queen.ack_batch_json: ack_batch for the HTTP server: the result as JSON text.
--
-- See ack_batch.
--
-- Arguments:
--   acknowledgments  A JSON array of objects {transactionId, partitionId, status, leaseId, error, reason}; status as
--                    in ack.
--   consumer_group   Name of the consumer group.
-- Result: The wire's array, one object for each acknowledgment; conflated, the number of superseded messages, on the one
--         that settled a conflating group's lease.
-- Errors: As ack_batch.
-- Tables: As ack_batch.
-- Locks: As ack_batch.
CREATE FUNCTION queen.ack_batch_json(acknowledgments text, consumer_group text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_ack_batch_json';

COMMENT ON FUNCTION queen.ack_batch_json(text, text) IS
'ack_batch with the result as JSON text, for the HTTP server.
Example: SELECT queen.ack_batch_json(''[]'', ''billing'');';
REVOKE ALL ON FUNCTION queen.ack_batch_json(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_batch_json(text, text) TO queen_sidecar;
