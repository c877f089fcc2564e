-- queen.pause_group: stop a consumer group in one queue.
--
-- Its pops bring nothing and charge nothing until queen.resume_group, and whoever waits for messages waits on. Leases
-- under way may still be settled, renewed and released; what fails meanwhile is charged as ever.
--
-- Arguments:
--   queue           Name of the queue.
--   consumer_group  Name of the group; __QUEUE_MODE__ for consumers who name none.
--   reason          Why, shown in queen.consumer_groups; cut at 500 bytes.
-- Result: Whether that changed anything: false for a group that is paused already, or that has never popped from the
--         queue. The reason of the first pause stays.
-- Errors: QN001 (bad name), QN013 (no such queue).
-- Tables: queen.subscription (replaced), queen.dlq_event (written).
-- Locks: The groups of the queue, then the group's row, until the transaction ends. Waits for no pop and no ack, but for
--        one that is just pausing the group by itself.
CREATE FUNCTION queen.pause_group(
    queue text,
    consumer_group text,
    reason text DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_pause_group';

COMMENT ON FUNCTION queen.pause_group(text, text, text) IS
'Lets the pops of a consumer group in a queue bring nothing until resume_group; returns whether it was not paused before.
Example: SELECT queen.pause_group(''orders'', ''billing'', ''the payment provider is down'');';
REVOKE ALL ON FUNCTION queen.pause_group(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.pause_group(text, text, text) TO queen_operator, queen_sidecar;
