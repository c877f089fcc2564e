-- queen.dlq_list: list dead letters by page and filter.
--
-- Newest failure first, in a stable order. A page costs the same wherever it is and however many records there are.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   failure_class   Only this class.
--   error_code      Only this code; empty for records without one.
--   fingerprint     Only this failure.
--   status          Only this status; all for every one; NULL for pending and approved.
--   from            Failed at this time or later.
--   to              Failed before this time.
--   after           page_cursor of the last record of the page before.
--   max_rows        At most so many rows.
--   redacted        Show payloads that are kept encrypted as queen_viewer sees them, whoever asks.
-- Result: The records. A payload kept encrypted (deadLetterPayload encrypt) is shown in full to who may run dlq_move_v1,
--   redacted to everybody else.
-- Errors: 22023 (a class, status or cursor that does not exist, max_rows below 0).
-- Tables: queen.dlq_tally (read; folded when it is long), queen.dead_letter_record (read).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_list(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    failure_class text DEFAULT NULL,
    error_code text DEFAULT NULL,
    fingerprint text DEFAULT NULL,
    status text DEFAULT NULL,
    "from" timestamptz DEFAULT NULL,
    "to" timestamptz DEFAULT NULL,
    after text DEFAULT NULL,
    max_rows int DEFAULT 100,
    redacted boolean DEFAULT false
)
    RETURNS SETOF queen.dead_letter
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_dlq_list';

COMMENT ON FUNCTION queen.dlq_list(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) IS
'Lists dead letters that pass a filter, newest failure first, page by page.
Example: SELECT queue, failure_class, error_code, error, page_cursor FROM queen.dlq_list(''orders'', failure_class => ''poison'');';
REVOKE ALL ON FUNCTION queen.dlq_list(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_list(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) TO queen_viewer, queen_sidecar;
