-- queen.ack_many_json: several ack batches in one call, for the HTTP server.
--
-- So that one commit serves the acknowledgments of many clients. Each request is settled as a call of ack_batch_json of
-- its own would be, in the order given: a failure holds back successes of its own request only, and a later request
-- meets what an earlier one left. An error undoes all of them: the caller then sends each alone.
--
-- Arguments:
--   requests  A JSON array of objects {consumerGroup, acknowledgments}; acknowledgments as in ack_batch_json. Absent,
--             null or empty, consumerGroup is __QUEUE_MODE__ and acknowledgments are none.
-- Result: A JSON array with one array for each request, in order: what ack_batch_json would answer.
-- Errors: As ack_batch, with the number of the request, from 0, in front of the message.
-- Tables: As ack_batch.
-- Locks: First the cursors of all groups and partitions that the requests name, by group name (its bytes), then by
--        partition in order of creation: the order of everybody who takes several. All until the transaction ends.
CREATE FUNCTION queen.ack_many_json(requests text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_ack_many_json';

COMMENT ON FUNCTION queen.ack_many_json(text) IS
'Several ack batches in one call, each settled by itself, for the HTTP server.
Example: SELECT queen.ack_many_json(''[{"consumerGroup": "billing", "acknowledgments": []}]'');';
REVOKE ALL ON FUNCTION queen.ack_many_json(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_many_json(text) TO queen_sidecar;
