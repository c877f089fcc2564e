-- queen.ack_lease: complete everything that a lease holds.
--
-- The short way to settle a batch that went well: in all its partitions, the cursor moves to the end of the lease and
-- the lease ends.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
-- Result: How many messages were completed; 0 if the lease is not live.
-- Tables: queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.ack_lease(lease_id uuid)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_ack_lease';

COMMENT ON FUNCTION queen.ack_lease(uuid) IS
'Completes every message that a lease holds and ends it; returns how many, 0 if the lease is not live.
Example: SELECT queen.ack_lease(lease_id) FROM (SELECT DISTINCT lease_id FROM queen.pop(''orders'', ''billing'', batch => 10)) p;';
REVOKE ALL ON FUNCTION queen.ack_lease(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_lease(uuid) TO queen_consumer;
