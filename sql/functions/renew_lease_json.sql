-- queen.renew_lease_json: renew_lease for the HTTP server: the result as JSON text.
--
-- See renew_lease.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
--   seconds   Seconds from now, 1 to 604800.
-- Result: A JSON object: success, renewed (of how many partitions), and newExpiresAt, expiresAt and lease_expires_at,
--         which are the same: the earliest end of its partitions, null if the lease is not live.
-- Errors: As renew_lease.
-- Tables: As renew_lease.
-- Locks: As renew_lease.
CREATE FUNCTION queen.renew_lease_json(lease_id uuid, seconds int DEFAULT 60)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_renew_lease_json';

COMMENT ON FUNCTION queen.renew_lease_json(uuid, int) IS
'renew_lease with the result as JSON text, for the HTTP server.
Example: SELECT queen.renew_lease_json(gen_random_uuid());';
REVOKE ALL ON FUNCTION queen.renew_lease_json(uuid, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.renew_lease_json(uuid, int) TO queen_sidecar;
