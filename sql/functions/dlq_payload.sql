-- queen.dlq_payload: the payload of a record in plain text. Internal, granted to nobody.
--
-- Arguments:
--   payload       As stored.
--   is_encrypted  Whether it is stored sealed.
-- Result: payload_text: the text, as stored if it cannot be opened; payload_json: the same as jsonb, NULL where jsonb
--         cannot hold it or it cannot be opened.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.dlq_payload(payload bytea, is_encrypted boolean, OUT payload_text text, OUT payload_json jsonb)
    LANGUAGE c STABLE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'queen_dlq_payload';

COMMENT ON FUNCTION queen.dlq_payload(bytea, boolean) IS
'Part of other functions: the payload of a dead letter in plain text.
Example: SELECT (queen.dlq_payload(payload, is_encrypted)).payload_json FROM queen.dead_letter_record;';
REVOKE ALL ON FUNCTION queen.dlq_payload(bytea, boolean) FROM PUBLIC;
