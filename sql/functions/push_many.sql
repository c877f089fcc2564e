-- queen.push_many: put several messages into one partition, as part of the caller's transaction.
--
-- As push for each payload in turn, in one call.
--
-- Arguments:
--   queue            Queue name: 1 to 255 characters, not blank, no control characters.
--   payloads         The messages, in order; one dimension, no NULL element.
--   partition        The lane of all of them.
--   transaction_ids  Deduplication ids, one for each payload; a NULL element means the message id.
-- Result: One row for each payload, in order; as push.
-- Errors: QN001 (bad name); QN002 (not JSON, or missing); QN003 (payload larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN009, QN010 (encrypted queue, no usable key). Nothing is
--         stored then. 22023 (arrays of different length).
-- Tables: As push.
-- Locks: As push.
CREATE FUNCTION queen.push_many(
    queue text,
    payloads jsonb[],
    partition text DEFAULT 'Default',
    transaction_ids text[] DEFAULT NULL
)
    RETURNS SETOF queen.push_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_push_many';

COMMENT ON FUNCTION queen.push_many(text, jsonb[], text, text[]) IS
'Puts several messages into one partition; they land when the transaction commits, and only then.
Example: SELECT * FROM queen.push_many(''orders'', ARRAY[''{"id": 1}'', ''{"id": 2}'']::jsonb[]);';
REVOKE ALL ON FUNCTION queen.push_many(text, jsonb[], text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push_many(text, jsonb[], text, text[]) TO queen_producer;
