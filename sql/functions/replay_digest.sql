-- queen.replay_digest: what a plan is, in one hash. Internal, granted to nobody.
--
-- Arguments:
--   plan  The plan.
--   ids   Its records, in order.
-- Result: SHA-256 over what was decided and the records; it changes when any of it does.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.replay_digest(plan queen.replay_plan, ids uuid[])
    RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO'
    AS $$
    SELECT encode(sha256(convert_to(
        concat_ws(E'\n', jsonb_build_array(
            $1.plan_id, $1.tenant, $1.reason, $1.remediation, $1.selection, $1.to_queue, $1.to_partition, $1.rate,
            $1.canary, $1.auto_widen, $1.max_records, $1.expires_at, $1.planned_by, $1.needs_approval,
            $1.repair_hash),
            array_to_string($2, ',')), 'UTF8')), 'hex')
$$;

COMMENT ON FUNCTION queen.replay_digest(queen.replay_plan, uuid[]) IS
'Part of other functions: one hash over what a plan decides.
Example: SELECT queen.replay_digest(p, ARRAY[]::uuid[]) FROM queen.replay_plan p;';
REVOKE ALL ON FUNCTION queen.replay_digest(queen.replay_plan, uuid[]) FROM PUBLIC;
