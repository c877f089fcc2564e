-- queen.transaction_json: transaction for the HTTP server: text in, text out.
--
-- See transaction. Whoever may call this serves producers and consumers, and has authenticated them: it needs no other
-- right, and says who pushes.
--
-- Arguments:
--   operations  The wire's body {"operations": [...], "requiredLeases": [...]}, or the bare array. A push has its fields
--               itself or a list items; its payload is payload, else data, else {}; a traceId that is no UUID is dropped.
--               kv and timers must be absent, null or empty.
--   producer    Stored as who pushed the messages; NULL: nobody in particular.
-- Result: As transaction, as JSON text.
-- Errors: QN008 (operations that the wire refuses, in its words; producer with control characters).
-- Tables: As transaction.
-- Locks: As transaction.
CREATE FUNCTION queen.transaction_json(operations text, producer text DEFAULT NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_transaction_json';

COMMENT ON FUNCTION queen.transaction_json(text, text) IS
'transaction with text in and out, and the name of who pushes, for the HTTP server.
Example: SELECT queen.transaction_json(''[{"type": "push", "queue": "invoices", "payload": {"order": 1}}]'', ''ada'');';
REVOKE ALL ON FUNCTION queen.transaction_json(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.transaction_json(text, text) TO queen_sidecar;
