-- queen.dlq: list dead letters.
--
-- Pending and approved ones. Newest failure first; the order is stable, so that skip pages through it. For more of them than
-- one looks through, and for other filters, see dlq_list.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   max_rows        At most so many rows.
--   skip            Leave out so many rows first.
--   partition_id    Only this partition.
--   transaction_id  Only this message; found by index when the partition is given too.
-- Result: The records. A payload that cannot be decrypted is returned as stored, with is_encrypted true.
-- Errors: 22023 (max_rows or skip below 0).
-- Tables: queen.dlq_tally (read; folded when it is long), queen.dead_letter_record (read).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    max_rows int DEFAULT 100,
    skip int DEFAULT 0,
    partition_id uuid DEFAULT NULL,
    transaction_id text DEFAULT NULL
)
    RETURNS SETOF queen.dead_letter
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_dlq';

COMMENT ON FUNCTION queen.dlq(text, text, int, int, uuid, text) IS
'Lists dead letters that are pending or approved, newest failure first.
Example: SELECT queue, consumer_group, transaction_id, error, retry_count, payload FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq(text, text, int, int, uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq(text, text, int, int, uuid, text) TO queen_viewer, queen_sidecar;
