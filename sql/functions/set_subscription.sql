-- queen.set_subscription: change where a consumer group starts.
--
-- Matters for partitions that the group has no cursor for yet; cursors stay where they are (see seek).
--
-- Arguments:
--   consumer_group  Name of the consumer group.
--   start_at        It starts with the first segment stored at or after this; an old one means the beginning.
-- Result: In how many queues the group had a record to change.
-- Errors: QN001 (bad name); 22023 (start_at is NULL).
-- Tables: queen.queue (read); queen.subscription, queen.ready (written).
-- Locks: Creation and removal of groups in these queues, until the transaction ends.
CREATE FUNCTION queen.set_subscription(consumer_group text, start_at timestamptz)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_set_subscription';

COMMENT ON FUNCTION queen.set_subscription(text, timestamptz) IS
'Changes where a consumer group starts in partitions that it has not read from yet; returns in how many queues it is known.
Example: SELECT queen.set_subscription(''billing'', now() - interval ''1 day'');';
REVOKE ALL ON FUNCTION queen.set_subscription(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.set_subscription(text, timestamptz) TO queen_admin, queen_sidecar;
