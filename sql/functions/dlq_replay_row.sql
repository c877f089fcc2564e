-- queen.dlq_replay_row: put one dead letter back into a queue, and keep the record. Internal, granted to nobody.
--
-- Arguments:
--   dlq_id        Id of the record, of whatever tenant: callers have looked.
--   to_queue      Queue, created if missing; by default its own.
--   to_partition  Partition, created if missing; by default its own.
--   payload       An edited payload: the message is a repair, with an id of its own.
-- Result: As dlq_move_v1, with partitionId, and detail for the audit.
-- Errors: As dlq_move_v1; QN022 (the queue wants an approval that the record has not).
-- Tables: queen.dead_letter_record (updated), and as push_batch.
-- Locks: The record, then the partition pushed to, until the transaction ends.
CREATE FUNCTION queen.dlq_replay_row(dlq_id uuid, to_queue text, to_partition text, payload json DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_replay_row';

COMMENT ON FUNCTION queen.dlq_replay_row(uuid, text, text, json) IS
'Part of other functions: puts a dead letter back into a queue and keeps the record.
Example: SELECT queen.dlq_replay_row(id, NULL, NULL) FROM queen.dead_letter_record;';
REVOKE ALL ON FUNCTION queen.dlq_replay_row(uuid, text, text, json) FROM PUBLIC;
