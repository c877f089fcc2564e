-- queen.maintain: do the housekeeping.
--
-- Applies retention, forgets deduplication ids out of their window, folds counters. Idempotent, safe to run anywhere
-- and any time, from cron or by hand; what another session is at is left to it. It takes no lock that a push, pop or
-- ack waits for, even if its transaction stays open. Not running it costs space and nothing else.
--
-- Result: What was done, as counts.
-- Tables: queen.segment, queen.trimmed, queen.transaction_id, queen.cursor, queen.ready,
--         queen.dropped_duplicate (deleted from, written).
-- Locks: None that traffic waits for.
CREATE FUNCTION queen.maintain()
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000
    AS 'MODULE_PATHNAME', 'queen_maintain';

COMMENT ON FUNCTION queen.maintain() IS
'Applies retention and does the housekeeping; safe at any time. Returns what was done.
Example: SELECT queen.maintain();';
REVOKE ALL ON FUNCTION queen.maintain() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.maintain() TO queen_admin, queen_sidecar;
