-- queen.run_replays: run the replay plans that are started.
--
-- A procedure, as it commits after each batch. Call it from anywhere, again and again, also from several sessions at
-- once: a plan's rate is the plan's. Nothing is lost and nothing moves twice, wherever it is interrupted. Not needed where
-- a background worker runs (setting queen.worker_databases).
--
-- Arguments:
--   max_ms       Come back after so many milliseconds, or when no plan is running.
--   all_tenants  Plans of every tenant, as the background worker does, and not of the session's alone. For who may set
--                queen.tenant, and so could see to each in turn.
--   result       Result; what is passed in does not matter.
-- Result: result: {"handled": records, whatever came of them, "running": whether there is more to do}.
-- Errors: 25001 (inside a transaction block, or called by a function); 22023 (max_ms below 0); 42501 (all
--         tenants, without the right to set queen.tenant).
-- Tables: As replay_batch.
-- Locks: As replay_batch, batch by batch.
CREATE PROCEDURE queen.run_replays(max_ms int DEFAULT 1000, all_tenants boolean DEFAULT false, INOUT result jsonb DEFAULT NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_run_replays';

COMMENT ON PROCEDURE queen.run_replays(int, boolean, jsonb) IS
'Runs the replay plans that are started, for so many milliseconds. Not inside a transaction block.
Example: CALL queen.run_replays(1000);';
REVOKE ALL ON PROCEDURE queen.run_replays(int, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.run_replays(int, boolean, jsonb) TO queen_operator, queen_sidecar;
