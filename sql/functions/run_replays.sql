-- queen.run_replays: run the replay plans that are started.
--
-- A procedure, as it commits after each batch. Call it from anywhere, again and again, also from several sessions at
-- once: a plan's rate is the plan's. Nothing is lost and nothing moves twice, wherever it is interrupted. Not needed where
-- a background worker runs (setting queen.worker_databases).
--
-- Arguments:
--   max_ms  Come back after so many milliseconds, or when no plan of the tenant is running.
--   result  Result; what is passed in does not matter.
-- Result: result: {"handled": records, whatever came of them, "running": whether there is more to do}.
-- Errors: 25001 (inside a transaction block, or called by a function); 22023 (max_ms below 0).
-- Tables: As replay_batch.
-- Locks: As replay_batch, batch by batch.
CREATE PROCEDURE queen.run_replays(max_ms int DEFAULT 1000, INOUT result jsonb DEFAULT NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_run_replays';

COMMENT ON PROCEDURE queen.run_replays(int, jsonb) IS
'Runs the replay plans that are started, for so many milliseconds. Not inside a transaction block.
Example: CALL queen.run_replays(1000);';
REVOKE ALL ON PROCEDURE queen.run_replays(int, jsonb) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.run_replays(int, jsonb) TO queen_operator, queen_sidecar;
