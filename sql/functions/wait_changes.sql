-- queen.wait_changes: sleep until a commit has touched any queue.
--
-- One session that calls it again and again with the position of the answer before hears of every commit by which a
-- group may newly find something: messages, leases given back, seeks. It is for the HTTP server, which parks its long
-- polls meanwhile. A procedure, so that it holds no snapshot while it sleeps. What time alone brings (a lease that runs
-- out, a delay) is no commit: due_json says when. COMMIT PREPARED is not heard of.
--
-- The server keeps the last 8192 changes in shared memory, and so needs the library in shared_preload_libraries.
-- Without, a call sleeps at most 50 ms, and answers that anything may have happened.
--
-- Arguments:
--   since       Position of an earlier answer; NULL or anything else: the answer comes at once, for a position.
--   timeout_ms  At most so many milliseconds; 0 only looks.
--   changes     Result; what is passed in does not matter.
-- Result: changes: a JSON object: position, for the next call, and either all: true, when it cannot tell what happened
--         (since is no position of this start of the server, or lies too far behind), or queues: tenant and queue of
--         each that was touched after since, each once, of all tenants, at most 1000 (the next call brings the others);
--         none after the timeout. all as well when a queue was dropped.
-- Errors: 25001 (inside a transaction block, or called by a function); 22023 (timeout_ms below 0).
-- Tables: queen.queue (read).
-- Locks: None.
CREATE PROCEDURE queen.wait_changes(
    since text,
    timeout_ms int,
    INOUT changes text DEFAULT NULL
)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_wait_changes';

COMMENT ON PROCEDURE queen.wait_changes(text, int, text) IS
'Sleeps until a commit after position since has touched any queue, or timeout_ms milliseconds have passed.
Not inside a transaction block.
Example: CALL queen.wait_changes(NULL, 5000);';
REVOKE ALL ON PROCEDURE queen.wait_changes(text, int, text) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.wait_changes(text, int, text) TO queen_sidecar;
