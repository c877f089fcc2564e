-- queen.dlq_ancestry: the chain of a message that was replayed.
--
-- From the original to all that came of it, whatever has become of the records in between: the audit tells.
--
-- Arguments:
--   message_id  Id of any message of the chain.
-- Result: The messages of the chain, the original first; none if this message was never replayed nor is a replay.
-- Tables: queen.dlq_event (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_ancestry(message_id uuid)
    RETURNS SETOF queen.replay_ancestor
    LANGUAGE sql STABLE SECURITY DEFINER ROWS 10
    SET search_path = pg_catalog, pg_temp
    AS $$
    WITH RECURSIVE up(id, seq) AS (
        SELECT $1, NULL::bigint
        UNION
        SELECT (e.detail ->> 'originalMessageId')::uuid, e.seq
          FROM up JOIN queen.dlq_event e ON e.detail ->> 'messageId' = up.id::text
         WHERE e.detail ? 'messageId' AND e.tenant = queen.current_tenant()
           AND e.action IN ('replay_moved', 'moved', 'repaired')),
    root AS (
        SELECT up.id FROM up
         WHERE NOT EXISTS (SELECT FROM queen.dlq_event e
                            WHERE e.detail ->> 'messageId' = up.id::text AND e.detail ? 'messageId'
                              AND e.tenant = queen.current_tenant() AND e.action IN ('replay_moved', 'moved', 'repaired'))
         LIMIT 1),
    down(hops, seq, id) AS (
        SELECT 0, NULL::bigint, root.id FROM root
        UNION ALL
        SELECT d.hops + 1, e.seq, (e.detail ->> 'messageId')::uuid
          FROM down d JOIN queen.dlq_event e ON e.detail ->> 'originalMessageId' = d.id::text
         WHERE e.detail ? 'messageId' AND e.tenant = queen.current_tenant()
           AND e.action IN ('replay_moved', 'moved', 'repaired'))
    SELECT d.hops, d.id,
           CASE WHEN e.seq IS NULL THEN (SELECT f.detail ->> 'originalTransactionId' FROM queen.dlq_event f
                                          WHERE f.detail ->> 'originalMessageId' = d.id::text AND f.detail ? 'messageId' LIMIT 1)
                ELSE e.detail ->> 'transactionId' END,
           (e.detail ->> 'originalMessageId')::uuid, e.dlq_id, e.consumer_group,
           e.detail ->> 'toQueue', e.detail ->> 'toPartition', e.action, e.actor, e.plan_id, e.at
      FROM down d LEFT JOIN queen.dlq_event e ON e.seq = d.seq
     WHERE (SELECT count(*) FROM down) > 1
     ORDER BY d.hops, d.seq
$$;

COMMENT ON FUNCTION queen.dlq_ancestry(uuid) IS
'The chain of a message that was replayed, the original first.
Example: SELECT hops, transaction_id, action, actor FROM queen.messages(''orders'') m, queen.dlq_ancestry(m.message_id);';
REVOKE ALL ON FUNCTION queen.dlq_ancestry(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_ancestry(uuid) TO queen_viewer, queen_sidecar;
