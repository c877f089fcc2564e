-- queen.dlq_plan: plan a replay of dead letters.
--
-- The set is fixed now: records that are filed later, also those that fail again, are not in it. Nothing moves until
-- dlq_run, and if a queue among them has requireApproval, not before somebody else has called dlq_approve.
--
-- Arguments:
--   reason        Why; not blank.
--   remediation   What was done about the cause: a change, a ticket; not blank.
--   ids           Exactly these records; those that are gone or decided on are left out.
--   filter        Or those that match all of: queue, consumerGroup, class, code, fingerprint, from and to (of failed_at;
--                 to is excluded), payload (a jsonpath: its first result is neither missing nor false nor null).
--   to_queue      Where to; by default each to its own queue.
--   to_partition  By default each to its own partition.
--   rate          Messages a second, 0.0001 to 100000.
--   canary        So many go first, and then it stops.
--   auto_widen    It goes on by itself when the whole canary is settled and nothing of it failed.
--   expires_in    After this time it is not approved, started or continued any more; at most 30 days.
--   max_records   Refused if it selects more; at most 1000000.
--   dry_run       Only say what it would be: nothing is written.
--   repair        For one record, given by ids: the payload that dlq_repair is to send instead. Only its hash is kept. Such
--                 a plan is approved, and carried out by dlq_repair with this payload; it cannot be run.
-- Result: {"planId", "planned", "heldElsewhere", "queues": [{"queue", "records", "needsApproval"}], "needsApproval",
--         "digest", "expiresAt", "repairHash": hex SHA-256 or null, "sample": up to 5 records}; planId is null for a dry
--         run. heldElsewhere: how many of these another plan that has not ended is to move too; whichever comes second
--         counts them as gone.
-- Errors: 22023 (bad argument), QN001 (bad name), QN025 (more than max_records), QN002 (repair with "[REDACTED]" in it).
-- Tables: queen.dead_letter_record, queen.queue (read); queen.replay_plan, queen.replay_item, queen.dlq_event (written).
-- Locks: None that another call waits for.
CREATE FUNCTION queen.dlq_plan(
    reason text,
    remediation text,
    ids uuid[] DEFAULT NULL,
    filter jsonb DEFAULT NULL,
    to_queue text DEFAULT NULL,
    to_partition text DEFAULT NULL,
    rate numeric DEFAULT 10,
    canary int DEFAULT 10,
    auto_widen boolean DEFAULT false,
    expires_in interval DEFAULT '24 hours',
    max_records int DEFAULT 100000,
    dry_run boolean DEFAULT false,
    repair json DEFAULT NULL
)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    me      constant uuid := queen.current_tenant();
    plan    queen.replay_plan;
    bad     text;
    chosen  uuid[];
    groups  text[];
    path    jsonpath;
    sample  jsonb;
    queues  jsonb;
    held    bigint;
BEGIN
    IF btrim(coalesce(dlq_plan.reason, '')) = '' OR btrim(coalesce(dlq_plan.remediation, '')) = '' THEN
        RAISE EXCEPTION 'reason and remediation must not be blank' USING ERRCODE = '22023';
    END IF;
    IF (ids IS NULL) = (filter IS NULL) THEN
        RAISE EXCEPTION 'give either ids or filter' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(filter) <> 'object' OR filter = '{}' THEN
        RAISE EXCEPTION 'filter must be an object with at least one key' USING ERRCODE = '22023';
    END IF;
    SELECT k.key INTO bad FROM jsonb_each(filter) k
     WHERE k.key NOT IN ('queue', 'consumerGroup', 'class', 'code', 'fingerprint', 'from', 'to', 'payload')
        OR jsonb_typeof(k.value) <> 'string';
    IF FOUND THEN
        RAISE EXCEPTION 'filter has the key "%", or a value of it that is no text', left(bad, 64)
              USING ERRCODE = '22023',
                    HINT = 'Known are queue, consumerGroup, class, code, fingerprint, from, to and payload.';
    END IF;
    -- Below, the time of the next message would be one that no timestamp holds, and stop the runner.
    IF NOT coalesce(dlq_plan.rate BETWEEN 0.0001 AND 100000, false) THEN
        RAISE EXCEPTION 'rate must be 0.0001 to 100000 messages a second' USING ERRCODE = '22023';
    END IF;
    IF NOT coalesce(dlq_plan.canary >= 0, false) THEN
        RAISE EXCEPTION 'canary must not be below 0' USING ERRCODE = '22023';
    END IF;
    IF NOT coalesce(dlq_plan.max_records BETWEEN 1 AND 1000000, false) THEN
        RAISE EXCEPTION 'max_records must be 1 to 1000000' USING ERRCODE = '22023';
    END IF;
    IF NOT coalesce(expires_in > '0' AND expires_in <= '30 days', false) THEN
        RAISE EXCEPTION 'expires_in must be above 0 and at most 30 days' USING ERRCODE = '22023';
    END IF;
    IF repair IS NOT NULL AND cardinality(ids) IS DISTINCT FROM 1 THEN
        RAISE EXCEPTION 'a repair is of one record' USING ERRCODE = '22023', HINT = 'Give its id, alone, in ids.';
    END IF;
    IF position('[REDACTED]' IN repair::text) > 0 THEN
        RAISE EXCEPTION 'the payload has redacted values'
              USING ERRCODE = 'QN002', HINT = 'Take what stands for "[REDACTED]" from its source.';
    END IF;
    FOREACH bad IN ARRAY ARRAY[dlq_plan.to_queue, dlq_plan.to_partition] LOOP
        IF btrim(bad) = '' OR length(bad) > 255 OR bad ~ '[[:cntrl:]]' THEN
            RAISE EXCEPTION 'the destination has a name that is not allowed' USING ERRCODE = 'QN001';
        END IF;
    END LOOP;

    path := (filter ->> 'payload')::jsonpath;
    SELECT array_agg(s.id ORDER BY s.enqueued_at, s.partition_id, s.at_offset, s.id),
           array_agg(s.consumer_group ORDER BY s.enqueued_at, s.partition_id, s.at_offset, s.id)
      INTO chosen, groups
      FROM (SELECT r.id, r.enqueued_at, r.partition_id, r.at_offset, r.consumer_group
              FROM queen.dead_letter_record r
             WHERE r.tenant = me AND r.status = 'pending'
               AND (ids IS NULL OR r.id = ANY (ids))
               AND (filter ->> 'queue' IS NULL OR r.queue = filter ->> 'queue')
               AND (filter ->> 'consumerGroup' IS NULL OR r.consumer_group = filter ->> 'consumerGroup')
               AND (filter ->> 'class' IS NULL OR r.failure_class = filter ->> 'class')
               AND (filter ->> 'code' IS NULL OR r.error_code = filter ->> 'code')
               AND (filter ->> 'fingerprint' IS NULL OR r.fingerprint = filter ->> 'fingerprint')
               AND (filter ->> 'from' IS NULL OR r.failed_at >= (filter ->> 'from')::timestamptz)
               AND (filter ->> 'to' IS NULL OR r.failed_at < (filter ->> 'to')::timestamptz)
               -- Last, and only where all else holds: it opens the payload.
               AND CASE WHEN path IS NULL THEN true
                        ELSE coalesce(jsonb_path_query_first(
                                          (queen.dlq_payload(r.payload, r.is_encrypted)).payload_json, path, silent => true)
                                      NOT IN ('false', 'null'), false) END
             LIMIT dlq_plan.max_records + 1) s;
    IF cardinality(chosen) > dlq_plan.max_records THEN
        RAISE EXCEPTION 'the plan selects more than % records', dlq_plan.max_records
              USING ERRCODE = 'QN025', HINT = 'Narrow the filter, or raise max_records.';
    END IF;
    chosen := coalesce(chosen, '{}');

    SELECT coalesce(jsonb_agg(jsonb_build_object('queue', q.queue, 'records', q.n, 'needsApproval', q.needs)
                              ORDER BY q.queue), '[]'), coalesce(bool_or(q.needs), false)
      INTO queues, plan.needs_approval
      FROM (SELECT r.queue, count(*) AS n, queen.dlq_needs_approval(me, r.queue) AS needs
              FROM unnest(chosen) c JOIN queen.dead_letter_record r ON r.id = c GROUP BY r.queue) q;
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'dlqId', r.id, 'queue', r.queue, 'partition', r.partition, 'consumerGroup', r.consumer_group,
               'messageId', r.message_id, 'transactionId', r.transaction_id, 'failureClass', r.failure_class,
               'errorCode', r.error_code, 'error', r.error, 'failedAt', r.failed_at, 'redaction', r.redaction,
               -- What was worth encrypting is not shown in passing; nor is what would fill the screen.
               'payload', CASE WHEN NOT r.is_encrypted AND octet_length(r.payload) <= 8192
                               THEN (queen.dlq_payload(r.payload, false)).payload_json END) ORDER BY c.n), '[]')
      INTO sample
      FROM unnest(chosen[1:5]) WITH ORDINALITY c(id, n) JOIN queen.dead_letter_record r ON r.id = c.id;

    SELECT count(DISTINCT i.dlq_id) INTO held
      FROM queen.replay_plan p JOIN queen.replay_item i ON i.plan_id = p.plan_id AND i.state = 'planned'
     WHERE p.tenant = me AND p.state IN ('planned', 'approved', 'running', 'paused', 'canary_done')
       AND p.expires_at > clock_timestamp() AND i.dlq_id IN (SELECT unnest(chosen));

    plan.plan_id := gen_random_uuid();
    plan.tenant := me;
    plan.state := 'planned';
    plan.reason := dlq_plan.reason;
    plan.remediation := dlq_plan.remediation;
    plan.selection := coalesce(filter, jsonb_build_object('ids', cardinality(ids)));
    plan.to_queue := btrim(dlq_plan.to_queue);
    plan.to_partition := btrim(dlq_plan.to_partition);
    plan.rate := dlq_plan.rate;
    plan.canary := least(dlq_plan.canary, cardinality(chosen));
    plan.phase := CASE WHEN plan.canary > 0 THEN 'canary' ELSE 'rest' END;
    plan.auto_widen := coalesce(dlq_plan.auto_widen, false);
    plan.max_records := dlq_plan.max_records;
    plan.expires_at := clock_timestamp() + expires_in;
    plan.planned := cardinality(chosen);
    plan.repair_hash := queen.repair_hash(repair);
    plan.planned_by := queen.actor();
    plan.planned_at := clock_timestamp();
    plan.digest := queen.replay_digest(plan, chosen);
    plan.next_n := 0; plan.moved := 0; plan.duplicate := 0; plan.failed := 0; plan.gone := 0; plan.refused := 0;
    plan.recent_at := '{}'; plan.recent_n := '{}';
    IF NOT coalesce(dry_run, false) THEN
        PERFORM queen.replay_plans_expire(me);
        INSERT INTO queen.replay_plan SELECT (plan).*;
        INSERT INTO queen.replay_item (plan_id, n, dlq_id, consumer_group)
        SELECT plan.plan_id, c.n - 1, c.id, c.consumer_group
          FROM ROWS FROM (unnest(chosen), unnest(groups)) WITH ORDINALITY c(id, consumer_group, n);
        PERFORM queen.dlq_audit('plan_created', NULL, plan.plan_id, filter ->> 'queue', jsonb_build_object(
            'reason', plan.reason, 'remediation', plan.remediation, 'selection', plan.selection, 'planned', plan.planned,
            'toQueue', plan.to_queue, 'toPartition', plan.to_partition, 'rate', plan.rate, 'canary', plan.canary,
            'autoWiden', plan.auto_widen, 'expiresAt', plan.expires_at, 'needsApproval', plan.needs_approval,
            'digest', plan.digest, 'repairHash', plan.repair_hash, 'heldElsewhere', held));
    END IF;
    RETURN jsonb_build_object(
        'planId', CASE WHEN NOT coalesce(dry_run, false) THEN plan.plan_id END, 'planned', plan.planned,
        'heldElsewhere', held, 'queues', queues,
        'needsApproval', plan.needs_approval, 'digest', plan.digest, 'expiresAt', plan.expires_at,
        'repairHash', plan.repair_hash, 'sample', sample);
END
$$;

COMMENT ON FUNCTION queen.dlq_plan(text, text, uuid[], jsonb, text, text, numeric, int, boolean, interval, int, boolean, json) IS
'Plans a replay of dead letters: which, where to, how fast. Nothing moves before dlq_run.
Example: SELECT queen.dlq_plan(''warehouse was down'', ''change 4711'', filter => ''{"queue": "orders", "class": "transient"}'', dry_run => true);';
REVOKE ALL ON FUNCTION queen.dlq_plan(text, text, uuid[], jsonb, text, text, numeric, int, boolean, interval, int, boolean, json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_plan(text, text, uuid[], jsonb, text, text, numeric, int, boolean, interval, int, boolean, json) TO queen_operator, queen_sidecar;
