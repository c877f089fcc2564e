-- queen.due_json: when pops may find something, for many groups at once.
--
-- For the HTTP server: what wait_changes cannot tell, because no commit brings it. It takes nothing: pop next, and
-- expect that there is nothing after all.
--
-- Arguments:
--   watches  JSON array of [queue, consumer_group] or [queue, consumer_group, partition]; a consumer_group that is null
--            is __QUEUE_MODE__, a partition that is null is any. Names are compared as they are.
-- Result: A JSON array with one element a watch, in order: 0: now; n: not before n milliseconds have passed (the end of
--         a lease, of delayedProcessing or of windowBuffer; or, where far ones are dear to find, when to ask again);
--         null: nothing is known that time alone would bring. 0 also where it is unsure, and for a group that
--         has not subscribed or a queue that does not exist: the pop would see to that. null for a partition that does not
--         exist.
-- Errors: 22023 (watches is NULL or not such an array).
-- Tables: queen.queue, queen.subscription, queen.ready, queen.partition, queen.cursor, queen.segment, queen.trimmed
--         (read).
-- Locks: None.
CREATE FUNCTION queen.due_json(watches text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_due_json';

COMMENT ON FUNCTION queen.due_json(text) IS
'For each [queue, consumer_group] or [queue, consumer_group, partition], in how many milliseconds a pop may find something.
Example: SELECT queen.due_json(''[["orders", "billing"], ["orders", "billing", "eu"]]'');';
REVOKE ALL ON FUNCTION queen.due_json(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.due_json(text) TO queen_sidecar;
