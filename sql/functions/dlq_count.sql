-- queen.dlq_count: count dead letters by filter.
--
-- Exact, from the tally: what it costs depends on how many kinds of failures there are, not on how many records.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   failure_class   Only this class.
--   error_code      Only this code; empty for records without one.
--   fingerprint     Only this failure.
--   status          Only this status; all for every one; NULL for pending and approved.
-- Result: How many records pass.
-- Errors: 22023 (a class or status that does not exist).
-- Tables: queen.dlq_tally (read; folded when it is long).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_count(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    failure_class text DEFAULT NULL,
    error_code text DEFAULT NULL,
    fingerprint text DEFAULT NULL,
    status text DEFAULT NULL
)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_count';

COMMENT ON FUNCTION queen.dlq_count(text, text, text, text, text, text) IS
'Counts the dead letters that pass a filter.
Example: SELECT queen.dlq_count(''orders'', failure_class => ''transient'');';
REVOKE ALL ON FUNCTION queen.dlq_count(text, text, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_count(text, text, text, text, text, text) TO queen_viewer, queen_sidecar;
