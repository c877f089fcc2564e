-- queen.flush: append the pushes of this transaction that wait for its commit, now.
--
-- Makes their duplicates known to the transaction itself and shortens the commit. The price is that of push_batch: the
-- partitions stay locked until the transaction ends. Nothing to append is no error.
--
-- Result: How many messages were appended; duplicates do not count.
-- Errors: QN009, QN010 (encrypted queue, no usable key).
-- Tables: As push_batch.
-- Locks: As push_batch.
CREATE FUNCTION queen.flush()
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_flush';

COMMENT ON FUNCTION queen.flush() IS
'Appends the pending pushes of this transaction now instead of at commit; returns how many messages that were.
Keeps their partitions locked until the transaction ends.
Example: SELECT queen.flush();';
REVOKE ALL ON FUNCTION queen.flush() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.flush() TO queen_producer;
