-- queen.ack_batch: settle several messages.
--
-- All acknowledgments of one partition and lease are settled together: the lowest failure decides, and a success above
-- it moves nothing (the message is delivered again). See ack.
--
-- Arguments:
--   acknowledgments  A JSON array of objects {transactionId, partitionId, status, leaseId, error, reason}; status as
--                    in ack.
--   consumer_group   Name of the consumer group; each group gets every message. The default, __QUEUE_MODE__, is the
--                    group of those who name none.
-- Result: One row for each acknowledgment, in order. A malformed id is a result with success false, not an
--         error.
-- Errors: QN001 (bad name); QN008 (acknowledgments have the wrong shape); QN011, QN012 (segment damaged or
--         unknown).
-- Tables: queen.partition, queen.segment, queen.transaction_id (read); queen.cursor, queen.ready,
--         queen.dead_letter_record (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.ack_batch(acknowledgments json, consumer_group text DEFAULT '__QUEUE_MODE__')
    RETURNS SETOF queen.ack_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_ack_batch';

COMMENT ON FUNCTION queen.ack_batch(json, text) IS
'Settles several messages, given as a JSON array of {transactionId, partitionId, status, leaseId, error}.
Example: SELECT * FROM queen.ack_batch(''[{"transactionId": "order-1", "partitionId": "00000000-0000-0000-0000-000000000000"}]'', ''billing'');';
REVOKE ALL ON FUNCTION queen.ack_batch(json, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_batch(json, text) TO queen_consumer;
