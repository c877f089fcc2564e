-- queen.replay_batch: move what the running plans' rates allow now. Internal, granted to nobody.
--
-- One batch of the plan that is due first, at most a tenth of a second of messages, in the caller's transaction: a message
-- and what the plan says of it are committed together, so a crash loses or repeats nothing. A plan that another session
-- works on is left to it, so two runners do not double its rate. Records are locked first and by id, then partitions in
-- the global order: a batch deadlocks with no other call of the broker.
--
-- The pace. Message n is due at start + n / rate. A runner that comes late finds several due; what it is behind is made
-- up for, at 6 % above the rate at most, counted over every second (over ten messages' time where that is longer). More
-- than 10 seconds are not made up for: a plan that was down for an hour goes on at its rate.
--
-- A record that cannot be moved is rolled back to a savepoint, counted as failed, and the rest goes on. Errors of the
-- moment (a deadlock, a full disk) undo the batch instead: it is tried again.
--
-- Arguments:
--   of_tenant  Only this tenant's plans; NULL: all.
-- Result: handled: records, whatever came of them; wait_ms: when to call again, NULL if no plan is running.
-- Tables: queen.replay_plan, queen.replay_item, queen.dead_letter_record (updated), queen.dlq_event (written), and as
--         push_batch.
-- Locks: The plan, then the records, then the partitions pushed to, until the transaction ends.
CREATE FUNCTION queen.replay_batch(of_tenant uuid, OUT handled int, OUT wait_ms int)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    tick    constant interval := '20 ms';       -- fewer commits than messages
    slot    constant float := 0.1;              -- seconds of messages in one batch, at most
    above   constant numeric := 1.06;           -- of the rate, while making up for time lost
    forget  constant interval := '10 s';
    p       queen.replay_plan;
    item    record;
    t       timestamptz;
    span    interval;      -- the span over which the rate is kept
    kept    int[];         -- which of the recent batches are within it
    used    int;
    upto    int;           -- the phase ends before this record
    many    int;           -- records of this batch
    next    timestamptz;
    verdict jsonb;
    outcome text;
    message text;
    code    text;
    clean   jsonb;
BEGIN
    handled := 0;
    PERFORM queen.replay_plans_expire(of_tenant);
    FOR p IN SELECT r.* FROM queen.replay_plan r
              WHERE r.state IN ('planned', 'approved', 'running', 'paused', 'canary_done')
                AND (r.state = 'running' OR r.state = 'canary_done' AND r.auto_widen)
                AND (of_tenant IS NULL OR r.tenant = of_tenant)
              ORDER BY r.next_at
                FOR UPDATE SKIP LOCKED
    LOOP
        t := clock_timestamp();
        IF p.state = 'canary_done' THEN
            IF p.next_at > t THEN
                wait_ms := least(wait_ms, 1 + extract(epoch FROM p.next_at - t) * 1000);
                CONTINUE;
            END IF;
            clean := queen.replay_canary(p.plan_id, p.canary);
            IF clean @> '{"failed": 0, "refused": 0, "remaining": 0, "failedAgain": 0, "stillPending": 0}' THEN
                UPDATE queen.replay_plan r
                   SET state = 'running', phase = 'rest', due_at = greatest(r.due_at, t), next_at = t
                 WHERE r.plan_id = p.plan_id;
                INSERT INTO queen.dlq_event (tenant, actor, action, plan_id, detail)
                VALUES (p.tenant, p.started_by, 'plan_widened', p.plan_id,
                        jsonb_build_object('automatic', true, 'canary', clean));
                wait_ms := 1;
            ELSE
                -- Nothing is sure to change soon; looking is not free.
                UPDATE queen.replay_plan r SET next_at = t + '1 s' WHERE r.plan_id = p.plan_id;
                wait_ms := least(wait_ms, 1000);
            END IF;
            CONTINUE;
        END IF;

        upto := CASE p.phase WHEN 'canary' THEN p.canary ELSE p.planned END;
        span := make_interval(secs => greatest(1, 10 / p.rate)::float);
        SELECT coalesce(array_agg(i ORDER BY i), '{}'), coalesce(sum(p.recent_n[i]), 0) INTO kept, used
          FROM generate_subscripts(p.recent_at, 1) i WHERE p.recent_at[i] > t - span;
        p.due_at := greatest(p.due_at, t - forget);
        many := CASE WHEN p.due_at > t OR p.next_at > t THEN 0
                  ELSE least(floor(extract(epoch FROM t - p.due_at) * p.rate)::int + 1,
                             ceil(p.rate * slot)::int,
                             floor(above * p.rate * extract(epoch FROM span))::int - used) END;
        many := greatest(0, least(many, upto - p.next_n));

        PERFORM FROM queen.dead_letter_record r
          WHERE r.id IN (SELECT i.dlq_id FROM queen.replay_item i
                          WHERE i.plan_id = p.plan_id AND i.n >= p.next_n AND i.n < p.next_n + many)
          ORDER BY r.id FOR UPDATE;
        FOR item IN SELECT i.n, i.dlq_id, i.consumer_group, r.queue
                      FROM queen.replay_item i LEFT JOIN queen.dead_letter_record r ON r.id = i.dlq_id
                     WHERE i.plan_id = p.plan_id AND i.n >= p.next_n AND i.n < p.next_n + many
                     ORDER BY coalesce(p.to_queue, r.queue), coalesce(p.to_partition, r.partition), i.n
        LOOP
            verdict := NULL;
            BEGIN
                verdict := queen.dlq_replay_row(item.dlq_id, p.to_queue, p.to_partition);
                outcome := verdict ->> 'result';
                message := NULL;
            EXCEPTION WHEN OTHERS THEN
                code := SQLSTATE;
                IF code ~ '^(40|53|55|57|58)' THEN
                    RAISE;
                END IF;
                outcome := CASE WHEN code = 'QN022' THEN 'refused' ELSE 'failed' END;
                message := left(code || ' ' || SQLERRM, 500);
            END;
            UPDATE queen.replay_item i
               SET state = outcome, message_id = (verdict ->> 'messageId')::uuid,
                   to_partition_id = (verdict ->> 'partitionId')::uuid, at_offset = (verdict ->> 'offset')::bigint,
                   error = coalesce(message, verdict ->> 'error'), done_at = t
             WHERE i.plan_id = p.plan_id AND i.n = item.n;
            INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
            SELECT p.tenant, p.started_by, 'replay_' || outcome, item.dlq_id, p.plan_id,
                   item.queue, item.consumer_group,
                   jsonb_strip_nulls(jsonb_build_object('error', coalesce(message, verdict ->> 'error')))
                       || coalesce(verdict -> 'detail', '{}');
            CASE outcome
                WHEN 'moved' THEN p.moved := p.moved + 1;
                WHEN 'duplicate' THEN p.duplicate := p.duplicate + 1;
                WHEN 'gone' THEN p.gone := p.gone + 1;
                WHEN 'refused' THEN p.refused := p.refused + 1;
                ELSE p.failed := p.failed + 1;
            END CASE;
        END LOOP;

        IF many > 0 THEN
            p.next_n := p.next_n + many;
            p.due_at := p.due_at + make_interval(secs => (many / p.rate)::float);
            -- Where messages are further apart than a slot, so are batches, also while making up for time.
            p.next_at := t + greatest(tick, make_interval(secs => (many / (above * p.rate))::float - slot));
            -- When it ended: by then all of it has moved, and a second that begins meanwhile counts it.
            p.recent_at := ARRAY(SELECT p.recent_at[i] FROM unnest(kept) i) || clock_timestamp();
            p.recent_n := ARRAY(SELECT p.recent_n[i] FROM unnest(kept) i) || many;
            handled := handled + many;
        END IF;
        IF many > 0 OR p.next_n >= upto THEN
            UPDATE queen.replay_plan r
               SET next_n = p.next_n, moved = p.moved, duplicate = p.duplicate, failed = p.failed, gone = p.gone,
                   refused = p.refused, due_at = p.due_at, next_at = p.next_at, recent_at = p.recent_at,
                   recent_n = p.recent_n, state = CASE WHEN p.next_n >= upto AND upto < p.planned THEN 'canary_done'
                                                       ELSE r.state END
             WHERE r.plan_id = p.plan_id;
        END IF;
        IF p.next_n >= p.planned THEN
            PERFORM queen.replay_plan_end(p.plan_id, 'done', p.started_by);
        ELSIF p.next_n >= upto THEN
            INSERT INTO queen.dlq_event (tenant, actor, action, plan_id, detail)
            VALUES (p.tenant, p.started_by, 'plan_canary_done', p.plan_id, jsonb_build_object('records', upto));
            wait_ms := least(wait_ms, CASE WHEN p.auto_widen THEN 20 END);
        ELSE
            next := greatest(p.due_at, p.next_at, t + tick);
            wait_ms := least(wait_ms, greatest(1, ceil(extract(epoch FROM next - clock_timestamp()) * 1000)));
        END IF;
        IF many > 0 THEN
            -- Others have their turn in a transaction of their own.
            wait_ms := CASE WHEN EXISTS (
                SELECT FROM queen.replay_plan r
                 WHERE r.state = 'running' AND r.plan_id <> p.plan_id AND r.next_at <= t
                   AND (of_tenant IS NULL OR r.tenant = of_tenant)) THEN 1 ELSE wait_ms END;
            EXIT;
        END IF;
    END LOOP;
    IF wait_ms IS NULL AND EXISTS (
           SELECT FROM queen.replay_plan r
            WHERE r.state IN ('planned', 'approved', 'running', 'paused', 'canary_done')
              AND (r.state = 'running' OR r.state = 'canary_done' AND r.auto_widen)
              AND (of_tenant IS NULL OR r.tenant = of_tenant)) THEN
        wait_ms := 20;
    END IF;
END
$$;

COMMENT ON FUNCTION queen.replay_batch(uuid) IS
'Part of run_replays: moves what the running plans'' rates allow now.
Example: SELECT * FROM queen.replay_batch(NULL);';
REVOKE ALL ON FUNCTION queen.replay_batch(uuid) FROM PUBLIC;
