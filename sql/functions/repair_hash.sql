-- queen.repair_hash: what stands for the payload of a repair in plans, approvals and the audit. Internal, granted to nobody.
--
-- Arguments:
--   payload  The payload.
-- Result: SHA-256 of its text, byte for byte, in hex; NULL for NULL.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.repair_hash(payload json)
    RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT encode(sha256(convert_to($1::text, 'UTF8')), 'hex')
$$;

COMMENT ON FUNCTION queen.repair_hash(json) IS
'Part of other functions: the hash that an approval of a repair is for.
Example: SELECT queen.repair_hash(''{"id": 7}'');';
REVOKE ALL ON FUNCTION queen.repair_hash(json) FROM PUBLIC;
