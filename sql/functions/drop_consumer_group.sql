-- queen.drop_consumer_group: make a consumer group be forgotten.
--
-- Removes its cursors and leases; with delete_metadata also its subscription, so that its next pop subscribes it anew.
-- Without, it starts again where its subscription says. Its dead letters stay.
--
-- Arguments:
--   consumer_group   Name of the consumer group.
--   queue            Only in this queue; by default, in all queues of the tenant.
--   delete_metadata  Whether the subscription goes too.
-- Result: How many cursors were removed.
-- Errors: QN001 (bad name).
-- Tables: queen.subscription, queen.cursor, queen.ready (deleted from).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.drop_consumer_group(
    consumer_group text,
    queue text DEFAULT NULL,
    delete_metadata boolean DEFAULT true
)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_drop_consumer_group';

COMMENT ON FUNCTION queen.drop_consumer_group(text, text, boolean) IS
'Removes the cursors and leases of a consumer group, and its subscription; returns how many cursors.
Example: SELECT queen.drop_consumer_group(''billing'', ''orders'');';
REVOKE ALL ON FUNCTION queen.drop_consumer_group(text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.drop_consumer_group(text, text, boolean) TO queen_admin, queen_sidecar;
