-- queen.actor: in whose name this session acts on dead letters.
--
-- The setting queen.actor, which superusers and queen_sidecar may set, else the login (not the role that it has taken on
-- with SET ROLE). A function of the library, as queen.current_tenant.
--
-- Result: The name that the audit gets.
-- Errors: 42501 (the session set queen.actor without the right to).
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.actor()
    RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'queen_actor';

COMMENT ON FUNCTION queen.actor() IS
'In whose name this session acts: the setting queen.actor, else the login.
Example: SELECT queen.actor();';
REVOKE ALL ON FUNCTION queen.actor() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.actor() TO queen_viewer, queen_sidecar;
