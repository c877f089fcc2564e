-- queen.dlq_stats: figures of the dead letters, by queue and consumer group.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   window_minutes  What rates are over: so many full minutes and the running one; 1 to 60.
-- Result: A row for each queue and group that has records, or had some made in that time.
-- Errors: 22023 (window_minutes out of range).
-- Tables: queen.dlq_tally (read; folded when it is long), queen.dead_letter_record, queen.queue (read).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_stats(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    window_minutes int DEFAULT 10
)
    RETURNS SETOF queen.dlq_stat
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'queen_dlq_stats';

COMMENT ON FUNCTION queen.dlq_stats(text, text, int) IS
'Figures of the dead letters by queue and consumer group: how many, how old, how fast they come, which failures.
Example: SELECT queue, consumer_group, pending, net_per_minute, owner FROM queen.dlq_stats(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_stats(text, text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_stats(text, text, int) TO queen_viewer, queen_sidecar;
