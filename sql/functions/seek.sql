-- queen.seek: set where a consumer group goes on.
--
-- Forward skips, backward delivers again. Ends the leases of the group there and resets its retries. Wants exactly one
-- target: to_end => true, or a timestamp. A timestamp means the first segment stored at or after it; an old one means
-- the beginning.
--
-- Arguments:
--   queue           Queue name.
--   consumer_group  Name of the consumer group; need not exist yet.
--   to_end          true: after the last message.
--   to_timestamp    The first message stored at or after this.
--   partition       Only this partition; by default, all.
-- Result: How many cursors were set.
-- Errors: QN001 (bad name); QN013 (no such queue); QN014 (no such partition); QN015 (no target, or two).
-- Tables: queen.partition, queen.segment (read); queen.subscription, queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.seek(
    queue text,
    consumer_group text,
    to_end boolean DEFAULT NULL,
    to_timestamp timestamptz DEFAULT NULL,
    partition text DEFAULT NULL
)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_seek';

COMMENT ON FUNCTION queen.seek(text, text, boolean, timestamptz, text) IS
'Moves a consumer group to the end or to a point in time, in one partition or all; returns how many cursors were set.
Example: SELECT queen.seek(''orders'', ''billing'', to_timestamp => now() - interval ''1 day'');';
REVOKE ALL ON FUNCTION queen.seek(text, text, boolean, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.seek(text, text, boolean, timestamptz, text) TO queen_admin, queen_sidecar;
