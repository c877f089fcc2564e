-- queen.messages: list stored messages.
--
-- Everything that retention has kept, consumed or not, decoded from the segments: payloads can be filtered in SQL.
-- Newest first. Costs what it decodes: name the queue and a time range on a large store.
--
-- Arguments:
--   queue      Only this queue.
--   partition  Only partitions of this name.
--   "from"     Only messages stored at or after this.
--   "to"       Only messages stored before this.
--   status     Only pending, processing, completed or dead_letter. A message is completed when all named groups are
--              past it; __QUEUE_MODE__ counts only if there is no named group.
--   max_rows   At most so many rows.
--   skip       Leave out so many rows first.
-- Result: The messages.
-- Errors: 22023 (unknown status, max_rows or skip below 0); QN011, QN012 (segment damaged or unknown).
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.subscription, queen.cursor,
--         queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.messages(
    queue text DEFAULT NULL,
    partition text DEFAULT NULL,
    "from" timestamptz DEFAULT NULL,
    "to" timestamptz DEFAULT NULL,
    status text DEFAULT NULL,
    max_rows int DEFAULT 200,
    skip int DEFAULT 0
)
    RETURNS SETOF queen.stored_message
    LANGUAGE c STABLE PARALLEL UNSAFE COST 1000 ROWS 200
    AS 'MODULE_PATHNAME', 'queen_messages';

COMMENT ON FUNCTION queen.messages(text, text, timestamptz, timestamptz, text, int, int) IS
'Lists stored messages, newest first, payload included.
Example: SELECT * FROM queen.messages(''orders'', "from" => now() - interval ''1 hour'') WHERE payload @> ''{"id": 1}'';';
REVOKE ALL ON FUNCTION queen.messages(text, text, timestamptz, timestamptz, text, int, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.messages(text, text, timestamptz, timestamptz, text, int, int) TO queen_viewer, queen_sidecar;
