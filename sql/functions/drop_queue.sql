-- queen.drop_queue: remove a queue and all that belongs to it.
--
-- Messages, partitions, consumer groups, leases and dead letters go. Nobody is asked, nothing can be brought back
-- after commit. A push that is waiting for its commit meanwhile creates the queue again, as any first push does.
--
-- Arguments:
--   queue  Queue name.
-- Result: true if there was such a queue.
-- Errors: QN001 (bad name).
-- Tables: All of schema queen (deleted from); queen.dlq_event (written).
-- Locks: The queue, then its cursors, then its partitions, both ascending, until the transaction ends; waits for pops,
--        acks, pushes and housekeeping under way, and they for it.
CREATE FUNCTION queen.drop_queue(queue text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_drop_queue';

COMMENT ON FUNCTION queen.drop_queue(text) IS
'Removes a queue with its messages, consumer groups and dead letters; false if there is none of that name.
Example: SELECT queen.drop_queue(''orders'');';
REVOKE ALL ON FUNCTION queen.drop_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.drop_queue(text) TO queen_admin, queen_sidecar;
