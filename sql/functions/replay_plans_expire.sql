-- queen.replay_plans_expire: end the plans whose time is over. Internal, granted to nobody.
--
-- Arguments:
--   of_tenant  Only this tenant's; NULL: all.
-- Tables: As replay_plan_end.
-- Locks: The plans; those that another session works on are left to it.
CREATE FUNCTION queen.replay_plans_expire(of_tenant uuid)
    RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    ended uuid;
BEGIN
    FOR ended IN SELECT p.plan_id FROM queen.replay_plan p
               WHERE p.state IN ('planned', 'approved', 'running', 'paused', 'canary_done')
                 AND p.expires_at <= clock_timestamp() AND (of_tenant IS NULL OR p.tenant = of_tenant)
                 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM queen.replay_plan_end(ended, 'expired', queen.actor());
    END LOOP;
END
$$;

COMMENT ON FUNCTION queen.replay_plans_expire(uuid) IS
'Part of other functions: ends plans whose time is over.
Example: SELECT queen.replay_plans_expire(NULL);';
REVOKE ALL ON FUNCTION queen.replay_plans_expire(uuid) FROM PUBLIC;
