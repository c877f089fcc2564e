-- queen.pop: take messages of a queue for a consumer group.
--
-- Hands out messages in the order of their offsets, from the first that the group has not settled, and leases them:
-- until the lease ends nobody else of the group gets messages of that partition. Settle with ack, ack_batch, ack_lease
-- or nack; what is not settled in time is delivered again. All messages of one call share one lease id.
--
-- The first call of a group on a queue subscribes it, for good. A group that starts with new skips what is stored
-- already, and says so in a NOTICE; partitions created later are read from their start in any mode. __QUEUE_MODE__
-- always starts at the beginning. A call for any partition of an unknown queue creates the queue; one for a named
-- partition creates nothing.
--
-- If the transaction rolls back, the lease is gone with it.
--
-- Arguments:
--   queue              Queue name: 1 to 255 characters, not blank, no control characters.
--   consumer_group     Name of the consumer group; each group gets every message. The default, __QUEUE_MODE__, is the
--                      group of those who name none.
--   batch              At most so many messages, over all partitions; 1 or more.
--   partition          Only this partition; by default, any that has something.
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
-- Result: The messages, partition by partition, in order; no row if there is nothing.
-- Errors: QN001 (bad name); 22023 (batch below 1, lease_seconds out of range, unknown subscription_mode, conflation
--         without a named group or with auto_ack); 22007 (subscription_from cannot be read); QN011, QN012 (segment
--         damaged or unknown, in the partition that is named: otherwise such a partition is passed over for a minute,
--         with a WARNING); QN010 (keys cannot be read).
-- Tables: queen.queue, queen.partition, queen.segment (read); queen.subscription, queen.cursor, queen.ready
--         (written).
-- Locks: The cursor of the group in each partition it takes, until the transaction ends; a cursor locked by
--        somebody else is skipped, not waited for. A first contact also locks the creation of groups of the queue.
CREATE FUNCTION queen.pop(
    queue text,
    consumer_group text DEFAULT '__QUEUE_MODE__',
    batch int DEFAULT 1,
    partition text DEFAULT NULL,
    max_partitions int DEFAULT 1,
    lease_seconds int DEFAULT NULL,
    auto_ack boolean DEFAULT false,
    subscription_mode text DEFAULT NULL,
    subscription_from text DEFAULT NULL,
    jsonb_payload boolean DEFAULT true,
    conflation boolean DEFAULT NULL
)
    RETURNS SETOF queen.message
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_pop';

COMMENT ON FUNCTION queen.pop(text, text, int, text, int, int, boolean, text, text, boolean, boolean) IS
'Takes messages of a queue under a lease, in order, for a consumer group; settle them with ack, ack_lease or nack.
A new named group starts with what comes after it, unless subscription_mode => ''all''.
Example: SELECT * FROM queen.pop(''orders'', ''billing'', batch => 10, subscription_mode => ''all'');';
REVOKE ALL ON FUNCTION queen.pop(text, text, int, text, int, int, boolean, text, text, boolean, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.pop(text, text, int, text, int, int, boolean, text, text, boolean, boolean) TO queen_consumer;
