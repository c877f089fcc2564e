-- queen.renew_lease: hold a lease for longer.
--
-- It ends no sooner than seconds from now, in all its partitions. Never shortens it.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
--   seconds   Seconds from now, 1 to 604800.
-- Result: When the lease ends now (the earliest of its partitions); NULL if it is not live.
-- Errors: 22023 (seconds out of range).
-- Tables: queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.renew_lease(lease_id uuid, seconds int DEFAULT 60)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_renew_lease';

COMMENT ON FUNCTION queen.renew_lease(uuid, int) IS
'Makes a lease last at least so many seconds from now; returns its end, NULL if it is not live.
Example: SELECT queen.renew_lease(lease_id, 300) FROM queen.pop(''orders'', ''billing'') LIMIT 1;';
REVOKE ALL ON FUNCTION queen.renew_lease(uuid, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.renew_lease(uuid, int) TO queen_consumer, queen_sidecar;
