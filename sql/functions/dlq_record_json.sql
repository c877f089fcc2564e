-- queen.dlq_record_json: one dead letter with all its evidence.
--
-- Arguments:
--   dlq_id    Id of the record.
--   redacted  Show a payload that is kept encrypted as queen_viewer sees it, whoever asks.
-- Result: The record as an element of dlq_list_json's records, whatever its status; NULL: there is none.
-- Errors: 22023 (dlq_id NULL).
-- Tables: queen.dead_letter_record, queen.queue (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_record_json(dlq_id uuid, redacted boolean DEFAULT false)
    RETURNS text
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_record_json';

COMMENT ON FUNCTION queen.dlq_record_json(uuid, boolean) IS
'One dead letter with all its evidence, as JSON.
Example: SELECT queen.dlq_record_json(id)::json ->> ''error'' FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_record_json(uuid, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_record_json(uuid, boolean) TO queen_viewer, queen_sidecar;
