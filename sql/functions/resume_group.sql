-- queen.resume_group: let a paused consumer group go on in one queue.
--
-- Whoever waits for its messages is woken. A group that had paused itself counts causes anew from here on.
--
-- Arguments:
--   queue           Name of the queue.
--   consumer_group  Name of the group; __QUEUE_MODE__ for consumers who name none.
-- Result: Whether it was paused.
-- Errors: QN001 (bad name), QN013 (no such queue).
-- Tables: queen.subscription (replaced), queen.dlq_event (written).
-- Locks: As queen.pause_group.
CREATE FUNCTION queen.resume_group(queue text, consumer_group text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_resume_group';

COMMENT ON FUNCTION queen.resume_group(text, text) IS
'Lets a paused consumer group go on; returns whether it was paused.
Example: SELECT queen.resume_group(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.resume_group(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.resume_group(text, text) TO queen_operator, queen_sidecar;
