-- queen.dlq_list_json: dlq_list as one JSON text.
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
-- Result: {"records": [...], "next": page cursor, or null on the last page}. The payload is data, exactly as it is stored.
-- Errors: As dlq_list.
-- Tables: As dlq_list.
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_list_json(
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
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_list_json';

COMMENT ON FUNCTION queen.dlq_list_json(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) IS
'The records of dlq_list and the cursor of the next page, as JSON.
Example: SELECT queen.dlq_list_json(''orders'', max_rows => 10)::json -> ''next'';';
REVOKE ALL ON FUNCTION queen.dlq_list_json(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_list_json(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) TO queen_viewer, queen_sidecar;
