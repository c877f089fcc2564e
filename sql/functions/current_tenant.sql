-- queen.current_tenant: the tenant that this session sees.
--
-- Every name is looked up within one tenant. A function of the library and not current_setting(): calling it loads the
-- library, and only then does the server refuse a value of queen.tenant that the session had no right to set.
--
-- Result: The setting queen.tenant; 00000000-0000-0000-0000-000000000001 when it is empty.
-- Errors: 22P02 (the setting is not a UUID).
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.current_tenant()
    RETURNS uuid
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'queen_current_tenant';

COMMENT ON FUNCTION queen.current_tenant() IS
'The tenant that this session sees: the setting queen.tenant.
Example: SELECT queen.current_tenant();';
REVOKE ALL ON FUNCTION queen.current_tenant() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.current_tenant() TO queen_producer, queen_consumer, queen_viewer, queen_sidecar;
