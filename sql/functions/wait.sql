-- queen.wait: sleep until a group may find something in a queue.
--
-- A procedure, so that it holds no snapshot while it sleeps: it can wait for hours and vacuum goes on. It takes
-- nothing; call pop next, and expect that another consumer was faster. With the library in shared_preload_libraries it
-- is woken by the commit that stores a message; without, it looks from time to time.
--
-- Arguments:
--   queue           Queue name.
--   consumer_group  Name of the consumer group.
--   timeout_ms      At most so many milliseconds; 0 looks once.
--   ready           Result; what is passed in does not matter.
-- Result: ready: true if there is something to pop, false after the timeout.
-- Errors: QN001 (bad name); 25001 (inside a transaction block, or called by a function); 22023 (timeout_ms
--         below 0).
-- Tables: queen.queue, queen.subscription, queen.ready, queen.cursor, queen.segment (read).
-- Locks: None.
CREATE PROCEDURE queen.wait(
    queue text,
    consumer_group text,
    timeout_ms int,
    INOUT ready boolean DEFAULT NULL
)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_wait';

COMMENT ON PROCEDURE queen.wait(text, text, int, boolean) IS
'Sleeps until the group may find something in the queue, or timeout_ms milliseconds have passed.
Not inside a transaction block.
Example: CALL queen.wait(''orders'', ''billing'', 5000);';
REVOKE ALL ON PROCEDURE queen.wait(text, text, int, boolean) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.wait(text, text, int, boolean) TO queen_consumer, queen_sidecar;
