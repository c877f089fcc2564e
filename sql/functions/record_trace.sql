-- queen.record_trace: note something about a message.
--
-- Notes are kept beside the log, with the names of queue and partition: they outlive both. Whether the partition has
-- such a message is not looked at.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
--   data            What to note; any JSON, kept byte for byte.
--   consumer_group  The group that notes it.
--   event_type      Kind of the event, a word of the caller's; same rules as a name.
--   trace_names     Names to find it by, with notes on other messages; same rules as a name. Each counts once.
-- Result: Id of the note.
-- Errors: QN001 (bad group, event type or trace name); QN003 (data larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN014 (no such partition); 22023 (an argument is NULL).
-- Tables: queen.partition, queen.queue (read); queen.trace, queen.trace_name (written).
-- Locks: None that another call waits for.
CREATE FUNCTION queen.record_trace(
    partition_id uuid,
    transaction_id text,
    data json,
    consumer_group text DEFAULT '__QUEUE_MODE__',
    event_type text DEFAULT 'info',
    trace_names text[] DEFAULT NULL
)
    RETURNS uuid
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_record_trace';

COMMENT ON FUNCTION queen.record_trace(uuid, text, json, text, text, text[]) IS
'Notes something about a message; returns the id of the note.
Example: SELECT queen.record_trace(partition_id, transaction_id, ''{"step": "paid"}'', trace_names => ARRAY[''order-1'']) FROM queen.pop(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.record_trace(uuid, text, json, text, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.record_trace(uuid, text, json, text, text, text[]) TO queen_consumer, queen_sidecar;
