-- queen.pop_matching_json: pop_matching for the HTTP server: the result as JSON text.
--
-- See pop_matching.
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
--   conflation         What a group that this call subscribes is to be, for good: true, it conflates: of a partition it
--                      gets only the newest message, and settling that settles all before it. Not for __QUEUE_MODE__,
--                      nor with auto_ack. Of a group that is subscribed already, its own policy counts.
--   max_bytes          The messages have at most so many bytes together, 1 or more; but the first comes in any case. Counted
--                      are payloads as they are stored, headers, transaction ids and producers, and 64 to 100 for each message.
--                      What does not fit comes with the next pop. By default 64 MiB, and then not to the byte.
-- Result: A JSON object: leaseId, and batches, one a partition: queue, partition, partitionId, consumerGroup,
--         deliveryAttempt, and segments: createdAt, offset (of its first message, the others follow), and messages: id,
--         data byte for byte, and transactionId (if it is not the id), traceId, producerSub, headers, isEncrypted where
--         there are any. conflation true if the group conflates, or would; conflationConflict true if the argument says
--         otherwise than the group's policy.
-- Errors: As pop_matching.
-- Tables: As pop_matching.
-- Locks: As pop_matching.
CREATE FUNCTION queen.pop_matching_json(
    namespace text DEFAULT NULL,
    task text DEFAULT NULL,
    consumer_group text DEFAULT '__QUEUE_MODE__',
    batch int DEFAULT 1,
    max_partitions int DEFAULT 1,
    lease_seconds int DEFAULT NULL,
    auto_ack boolean DEFAULT false,
    subscription_mode text DEFAULT NULL,
    subscription_from text DEFAULT NULL,
    conflation boolean DEFAULT NULL,
    max_bytes int DEFAULT NULL
)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_pop_matching_json';

COMMENT ON FUNCTION queen.pop_matching_json(text, text, text, int, int, int, boolean, text, text, boolean, int) IS
'pop_matching with the result as JSON text, for the HTTP server.
Example: SELECT queen.pop_matching_json(namespace => ''shop'', batch => 10);';
REVOKE ALL ON FUNCTION queen.pop_matching_json(text, text, text, int, int, int, boolean, text, text, boolean, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.pop_matching_json(text, text, text, int, int, int, boolean, text, text, boolean, int)
   TO queen_sidecar;
