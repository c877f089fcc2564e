-- queen.replay_canary: what became of the first messages of a plan. Internal, granted to nobody.
--
-- Of exactly those messages, in the consumer group that had given up on them. One that failed again stays so, whatever
-- becomes of the record of that: deleted, purged, moved, discarded or replayed.
--
-- Arguments:
--   id    The plan.
--   size  How many.
-- Result: {"size", "replayed", "duplicate", "failed", "gone", "refused", "remaining", "failedAgain", "settled",
--         "stillPending"}; replayed and duplicate together are failedAgain, settled or stillPending.
-- Tables: queen.replay_item, queen.dead_letter_record, queen.partition, queen.cursor and others (read).
-- Locks: None.
CREATE FUNCTION queen.replay_canary(id uuid, size int)
    RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
    AS $$
    WITH item AS MATERIALIZED (
        SELECT i.* FROM queen.replay_item i WHERE i.plan_id = $1 AND i.n < $2),
    place AS MATERIALIZED (
        SELECT p.partition_id, g.consumer_group, g.settled
          FROM (SELECT DISTINCT to_partition_id FROM item) t
          JOIN queen.partition p ON p.partition_id = t.to_partition_id
         CROSS JOIN LATERAL (SELECT * FROM queen.group_position w WHERE w.pid = p.pid AND w.gid IS NOT NULL) g),
    seen AS (
        SELECT i.state,
               i.state IN ('moved', 'duplicate') AS there,
               i.failed_again OR
               EXISTS (SELECT FROM queen.dead_letter_record r
                        WHERE r.partition_id = i.to_partition_id AND r.consumer_group = i.consumer_group
                          AND r.at_offset = i.at_offset) AS again,
               coalesce(p.settled >= i.at_offset, false) AS settled
          FROM item i
          LEFT JOIN place p ON p.partition_id = i.to_partition_id AND p.consumer_group = i.consumer_group)
    SELECT jsonb_build_object(
        'size', count(*),
        'replayed', count(*) FILTER (WHERE state = 'moved'),
        'duplicate', count(*) FILTER (WHERE state = 'duplicate'),
        'failed', count(*) FILTER (WHERE state = 'failed'),
        'gone', count(*) FILTER (WHERE state = 'gone'),
        'refused', count(*) FILTER (WHERE state = 'refused'),
        'remaining', count(*) FILTER (WHERE state = 'planned'),
        'failedAgain', count(*) FILTER (WHERE there AND again),
        'settled', count(*) FILTER (WHERE there AND NOT again AND settled),
        'stillPending', count(*) FILTER (WHERE there AND NOT again AND NOT settled))
      FROM seen
$$;

COMMENT ON FUNCTION queen.replay_canary(uuid, int) IS
'Part of other functions: what became of the first messages of a plan.
Example: SELECT queen.replay_canary(plan_id, canary) FROM queen.replay_plan;';
REVOKE ALL ON FUNCTION queen.replay_canary(uuid, int) FROM PUBLIC;
