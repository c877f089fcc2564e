-- queen.pop_matching: take messages of all queues of a namespace or task for a consumer group.
--
-- As pop, over every queue of the tenant whose options namespace and task are as given. Queues that come later are
-- found too.
--
-- Arguments:
--   namespace          Only queues with this option namespace, exactly.
--   task               Only queues with this option task, exactly. At least one of the two is required.
--   consumer_group     Name of the consumer group; each group gets every message. The default, __QUEUE_MODE__, is the
--                      group of those who name none.
--   batch              At most so many messages, over all partitions; 1 or more.
--   max_partitions     At most so many partitions; less than 1: no cap.
--   lease_seconds      How long the messages stay with the caller, 1 to 604800 seconds; by default the queue's
--                      leaseTime.
--   auto_ack           true: settled as delivered, no lease. What the caller loses is lost.
--   subscription_mode  Where a new group starts: all or new. By default queen.default_subscription_mode, which is new.
--   subscription_from  Where a new group starts: now, or a timestamp; overrides the mode.
--   jsonb_payload      false: payload stays NULL, payload_text has it all the same; saves the conversion to jsonb, about
--                      half the cost of a large pop.
--   conflation         What a group that this call subscribes is to be, for good: true, it conflates: of a partition it
--                      gets only the newest message, and settling that settles all before it. Not for __QUEUE_MODE__,
--                      nor with auto_ack. Of a group that is subscribed already, its own policy counts.
-- Result: As pop.
-- Errors: 22023 (neither namespace nor task); 22023 (batch below 1, lease_seconds out of range, unknown
--         subscription_mode, conflation without a named group or with auto_ack); 22007 (subscription_from cannot be
--         read); QN010 (keys cannot be read). A partition with a damaged segment is passed over for a minute, with a
--         WARNING.
-- Tables: queen.queue, queen.partition, queen.segment (read); queen.subscription, queen.cursor, queen.ready
--         (written).
-- Locks: The cursor of the group in each partition it takes, until the transaction ends; a cursor locked by
--        somebody else is skipped, not waited for. A first contact also locks the creation of groups of the queue.
CREATE FUNCTION queen.pop_matching(
    namespace text DEFAULT NULL,
    task text DEFAULT NULL,
    consumer_group text DEFAULT '__QUEUE_MODE__',
    batch int DEFAULT 1,
    max_partitions int DEFAULT 1,
    lease_seconds int DEFAULT NULL,
    auto_ack boolean DEFAULT false,
    subscription_mode text DEFAULT NULL,
    subscription_from text DEFAULT NULL,
    jsonb_payload boolean DEFAULT true,
    conflation boolean DEFAULT NULL
)
    RETURNS SETOF queen.message
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_pop_matching';

COMMENT ON FUNCTION queen.pop_matching(text, text, text, int, int, int, boolean, text, text, boolean, boolean) IS
'pop over all queues whose options namespace and task are as given; at least one of the two is required.
Example: SELECT * FROM queen.pop_matching(namespace => ''shop'', consumer_group => ''audit'', batch => 10);';
REVOKE ALL ON FUNCTION queen.pop_matching(text, text, text, int, int, int, boolean, text, text, boolean, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.pop_matching(text, text, text, int, int, int, boolean, text, text, boolean, boolean) TO queen_consumer;
