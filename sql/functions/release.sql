-- queen.release: give a lease back.
--
-- What it holds unsettled can be delivered again at once. Nothing is charged: for a consumer that stops.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
-- Result: How many partitions were released; 0 if the lease is not live.
-- Tables: queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.release(lease_id uuid)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_release';

COMMENT ON FUNCTION queen.release(uuid) IS
'Gives a lease back without charge; its messages are delivered again. Returns the number of partitions, 0 if the lease is not live.
Example: SELECT queen.release(lease_id) FROM queen.pop(''orders'', ''billing'') LIMIT 1;';
REVOKE ALL ON FUNCTION queen.release(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.release(uuid) TO queen_consumer, queen_sidecar;
