-- queen.configure: create a queue, or change its options.
--
-- Options not named keep their value with mode merge and go back to their default with mode replace; an option set to
-- null goes back to its default with either. A queue need not be configured: the first push creates it, with a lease
-- time of 60 seconds instead of 300 and the rest as here.
--
-- Encryption without a key is accepted with a WARNING; pushes are then refused until there is a key.
--
-- Arguments:
--   queue    Queue name: 1 to 255 characters, not blank, no control characters.
--   options  The options to set, a flat object with camelCase names: leaseTime, retryLimit, deadLetterQueue,
--            dedupWindowSeconds, ... docs/sql.md lists all with units.
--   mode     merge or replace.
-- Result: All effective options, one flat object.
-- Errors: QN001 (bad name); QN006 (value of the wrong type or out of range); QN007 (unknown option); 22023
--         (unknown mode).
-- Tables: queen.queue (written); queen.dlq_event (written, when an option changes that says who decides about dead
--         letters, or what is kept of them).
-- Locks: The name of the queue, until the transaction ends. Pushes and pops do not wait for it.
CREATE FUNCTION queen.configure(queue text, options jsonb DEFAULT '{}', mode text DEFAULT 'merge')
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_configure';

COMMENT ON FUNCTION queen.configure(text, jsonb, text) IS
'Creates a queue or changes its options; returns all effective ones.
merge keeps what is not named, replace sets it back to its default; null is the default.
Example: SELECT queen.configure(''orders'', ''{"leaseTime": 120, "retryLimit": 5}'');';
REVOKE ALL ON FUNCTION queen.configure(text, jsonb, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.configure(text, jsonb, text) TO queen_admin, queen_sidecar;
