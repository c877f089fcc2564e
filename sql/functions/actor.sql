-- queen.actor: who is acting, for the audit.
--
-- Arguments: None.
-- Result: The login of the session.
-- Errors: None.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.actor()
    RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT session_user::pg_catalog.text';

COMMENT ON FUNCTION queen.actor() IS
'Answers who is acting, as the audit names them.
Example: SELECT queen.actor();';
REVOKE ALL ON FUNCTION queen.actor() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.actor() TO queen_viewer, queen_sidecar;
