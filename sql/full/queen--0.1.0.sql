\echo Use "CREATE EXTENSION queen" to load this file. \quit

-- 00-guard-and-roles.sql

-- What must be true before anything is created, and who there is.

-- CREATE EXTENSION uses the schema queen if it is already there. Whoever owns it could have put operators or types into
-- it that this script, and later every view, would pick up: so it has to be a superuser's, closed to others, and empty.
DO $guard$
DECLARE
    owner  text;
    holder boolean;
    other  text;
BEGIN
    SELECT r.rolname, r.rolsuper INTO STRICT owner, holder
      FROM pg_catalog.pg_namespace n
      JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
     WHERE n.nspname OPERATOR(pg_catalog.=) 'queen';
    IF NOT holder THEN
        RAISE EXCEPTION 'schema "queen" belongs to "%", who is not a superuser', owner
              USING ERRCODE = 'insufficient_privilege',
                    DETAIL = 'The extension trusts whatever its schema holds.',
                    HINT = 'Drop the schema, or give it away: ALTER SCHEMA queen OWNER TO CURRENT_USER.';
    END IF;

    SELECT coalesce(r.rolname, 'PUBLIC') INTO other
      FROM pg_catalog.pg_namespace n
     CROSS JOIN pg_catalog.aclexplode(n.nspacl) a
      LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.grantee
     WHERE n.nspname OPERATOR(pg_catalog.=) 'queen'
       AND a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
       AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner
     LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '"%" may create objects in schema "queen"', other
              USING ERRCODE = 'insufficient_privilege',
                    DETAIL = 'The extension trusts whatever its schema holds.',
                    HINT = pg_catalog.format('REVOKE CREATE ON SCHEMA queen FROM %s;', other);
    END IF;

    SELECT x.what INTO other
      FROM (SELECT pg_catalog.format('relation %s', c.relname) AS what FROM pg_catalog.pg_class c
             WHERE c.relnamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace
            UNION ALL
            SELECT pg_catalog.format('function %s', p.proname) FROM pg_catalog.pg_proc p
             WHERE p.pronamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace
            UNION ALL
            SELECT pg_catalog.format('type %s', t.typname) FROM pg_catalog.pg_type t
             WHERE t.typnamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace
            UNION ALL
            SELECT pg_catalog.format('operator %s', o.oprname) FROM pg_catalog.pg_operator o
             WHERE o.oprnamespace OPERATOR(pg_catalog.=) 'queen'::pg_catalog.regnamespace) x
     LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'schema "queen" is not empty: it holds the %', other
              USING ERRCODE = 'duplicate_object',
                    HINT = 'The extension wants its schema to itself. Move or drop what is there, then try again.';
    END IF;
END
$guard$;

-- Roles belong to the cluster: another database may have made them already, perhaps at this moment, and they stay
-- after DROP EXTENSION. None of them can log in; they are granted to the logins that need them.
--
--   queen_producer    push
--   queen_consumer    pop, wait, settle
--   queen_viewer      look: views, messages, dead letters
--   queen_operator    viewer, and decide on dead letters: move, delete, plan, approve, run, repair, discard
--   queen_admin       all of these, and queues, groups, purges, maintenance
--   queen_sidecar     the functions that answer JSON text and those that its other routes call, for the HTTP server's login
DO $roles$
DECLARE
    role_name text;
    link      text[];
BEGIN
    FOREACH role_name IN ARRAY ARRAY['queen_producer', 'queen_consumer', 'queen_viewer', 'queen_operator', 'queen_admin',
                                     'queen_sidecar']
    LOOP
        IF pg_catalog.to_regrole(role_name) IS NULL THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', role_name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;   -- somebody else was faster
            END;
        END IF;
    END LOOP;

    FOREACH link SLICE 1 IN ARRAY ARRAY[['queen_viewer', 'queen_operator'], ['queen_operator', 'queen_admin'],
                                        ['queen_producer', 'queen_admin'], ['queen_consumer', 'queen_admin']]
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members m
                        WHERE m.roleid OPERATOR(pg_catalog.=) pg_catalog.to_regrole(link[1])
                          AND m.member OPERATOR(pg_catalog.=) pg_catalog.to_regrole(link[2])) THEN
            BEGIN
                EXECUTE pg_catalog.format('GRANT %I TO %I', link[1], link[2]);
            EXCEPTION WHEN unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$roles$;

-- The HTTP server has authenticated the person that it acts for; the audit names that person.
DO $actor$
BEGIN
    IF NOT pg_catalog.has_parameter_privilege('queen_sidecar', 'queen.actor', 'SET') THEN
        GRANT SET ON PARAMETER queen.actor TO queen_sidecar;
    END IF;
EXCEPTION WHEN unique_violation OR internal_error THEN
    NULL;   -- another database did it at this moment
END
$actor$;

COMMENT ON SCHEMA queen IS
'queen, a message broker: queues with ordered partitions, consumer groups, leases, dead letters. \df+ queen.* tells what each function does.';
REVOKE ALL ON SCHEMA queen FROM PUBLIC;
GRANT USAGE ON SCHEMA queen
   TO queen_producer, queen_consumer, queen_viewer, queen_operator, queen_admin, queen_sidecar;

-- 10-types.sql

-- The row types of the functions. Column names and order are part of the contract: new columns go last.

CREATE TYPE queen.push_result AS (
    index          int,
    message_id     uuid,
    transaction_id text,
    queue          text,
    partition_id   uuid,
    status         text,
    "offset"       bigint
);
COMMENT ON TYPE queen.push_result IS 'What became of one pushed message, in the order of the call.';
COMMENT ON COLUMN queen.push_result.index IS 'Position in the call, from 0.';
COMMENT ON COLUMN queen.push_result.message_id IS 'Id of the message (UUIDv7); for a duplicate, the id of the message that is already there.';
COMMENT ON COLUMN queen.push_result.transaction_id IS 'The deduplication id: as given, else the message id.';
COMMENT ON COLUMN queen.push_result.queue IS 'Queue name.';
COMMENT ON COLUMN queen.push_result.partition_id IS 'Id of the partition; NULL for a push that lands at commit.';
COMMENT ON COLUMN queen.push_result.status IS 'queued: stored, or will be at commit. duplicate: an earlier message has this transaction id, nothing is stored.';
COMMENT ON COLUMN queen.push_result."offset" IS 'Offset in the partition, from 0; NULL for a push that lands at commit.';

CREATE TYPE queen.message AS (
    queue            text,
    partition        text,
    partition_id     uuid,
    "offset"         bigint,
    message_id       uuid,
    transaction_id   text,
    payload          jsonb,
    payload_text     text,
    headers          jsonb,
    trace_id         uuid,
    producer         text,
    created_at       timestamptz,
    lease_id         uuid,
    consumer_group   text,
    delivery_attempt int
);
COMMENT ON TYPE queen.message IS 'A message handed to a consumer.';
COMMENT ON COLUMN queen.message.queue IS 'Queue name.';
COMMENT ON COLUMN queen.message.partition IS 'Partition name.';
COMMENT ON COLUMN queen.message.partition_id IS 'Id of the partition: what ack wants.';
COMMENT ON COLUMN queen.message."offset" IS 'Offset in the partition, from 0.';
COMMENT ON COLUMN queen.message.message_id IS 'Id of the message (UUIDv7).';
COMMENT ON COLUMN queen.message.transaction_id IS 'The deduplication id: what ack wants.';
COMMENT ON COLUMN queen.message.payload IS 'The payload; NULL where jsonb cannot hold it (an escaped NUL character): see payload_text.';
COMMENT ON COLUMN queen.message.payload_text IS 'The payload exactly as pushed: key order, number spelling, white space.';
COMMENT ON COLUMN queen.message.headers IS 'The headers given by the producer, or NULL.';
COMMENT ON COLUMN queen.message.trace_id IS 'The trace id given by the producer, or NULL.';
COMMENT ON COLUMN queen.message.producer IS 'Authenticated subject of the producer, or NULL.';
COMMENT ON COLUMN queen.message.created_at IS 'When it was stored; messages stored together share it.';
COMMENT ON COLUMN queen.message.lease_id IS 'The lease it is held under; all messages of one pop share it. NULL with auto_ack.';
COMMENT ON COLUMN queen.message.consumer_group IS 'The group it was delivered to; __QUEUE_MODE__ if none was named.';
COMMENT ON COLUMN queen.message.delivery_attempt IS 'How often the first message of its batch has been delivered to the group, this time included.';

CREATE TYPE queen.ack_result AS (
    index          int,
    transaction_id text,
    success        boolean,
    error          text,
    lease_released boolean,
    dlq            boolean,
    dropped        boolean,
    noop           boolean
);
COMMENT ON TYPE queen.ack_result IS 'What became of one acknowledgment, in the order of the call.';
COMMENT ON COLUMN queen.ack_result.index IS 'Position in the call, from 0.';
COMMENT ON COLUMN queen.ack_result.transaction_id IS 'As given.';
COMMENT ON COLUMN queen.ack_result.success IS 'Whether it was accepted; the only signal to look at.';
COMMENT ON COLUMN queen.ack_result.error IS 'Why not; NULL on success.';
COMMENT ON COLUMN queen.ack_result.lease_released IS 'Whether this acknowledgment ended the lease.';
COMMENT ON COLUMN queen.ack_result.dlq IS 'Whether this acknowledgment made a dead letter.';
COMMENT ON COLUMN queen.ack_result.dropped IS 'Whether the message was given up without a dead letter: retries spent, dead-lettering off.';
COMMENT ON COLUMN queen.ack_result.noop IS 'Whether the cursor had already passed the message.';

CREATE TYPE queen.dead_letter AS (
    id              uuid,
    queue           text,
    partition       text,
    partition_id    uuid,
    consumer_group  text,
    "offset"        bigint,
    message_id      uuid,
    transaction_id  text,
    payload         jsonb,
    payload_text    text,
    headers         jsonb,
    trace_id        uuid,
    producer        text,
    error           text,
    reason          text,
    retry_count     int,
    enqueued_at     timestamptz,
    first_failed_at timestamptz,
    failed_at       timestamptz,
    is_encrypted    boolean,
    failure_class   text,
    error_code      text,
    fingerprint     text,
    payload_hash    text,
    attempts        int,
    retry_policy    jsonb,
    traceparent     text,
    redaction       text,
    status          text,
    hops            int,
    page_cursor     text
);
COMMENT ON TYPE queen.dead_letter IS 'A message that a consumer group gave up on: a snapshot, independent of retention.';
COMMENT ON COLUMN queen.dead_letter.id IS 'Id of this record: what dlq_move_v1 and dlq_delete_row want.';
COMMENT ON COLUMN queen.dead_letter.queue IS 'Queue name.';
COMMENT ON COLUMN queen.dead_letter.partition IS 'Partition name.';
COMMENT ON COLUMN queen.dead_letter.partition_id IS 'Id of the partition.';
COMMENT ON COLUMN queen.dead_letter.consumer_group IS 'The group that gave up.';
COMMENT ON COLUMN queen.dead_letter."offset" IS 'Offset of the message in its partition.';
COMMENT ON COLUMN queen.dead_letter.message_id IS 'Id of the message.';
COMMENT ON COLUMN queen.dead_letter.transaction_id IS 'Its deduplication id.';
COMMENT ON COLUMN queen.dead_letter.payload IS 'The payload; NULL where jsonb cannot hold it: see payload_text.';
COMMENT ON COLUMN queen.dead_letter.payload_text IS 'The payload exactly as pushed; as stored when it cannot be decrypted.';
COMMENT ON COLUMN queen.dead_letter.headers IS 'The headers given by the producer, or NULL.';
COMMENT ON COLUMN queen.dead_letter.trace_id IS 'The trace id given by the producer, or NULL.';
COMMENT ON COLUMN queen.dead_letter.producer IS 'Authenticated subject of the producer, or NULL.';
COMMENT ON COLUMN queen.dead_letter.error IS 'The error text of the last failure, cut at 4 KiB, or NULL.';
COMMENT ON COLUMN queen.dead_letter.reason IS 'Why it ended here, as given by the consumer, else the brokers word for it.';
COMMENT ON COLUMN queen.dead_letter.retry_count IS 'Failures charged before this one.';
COMMENT ON COLUMN queen.dead_letter.enqueued_at IS 'When the message was stored.';
COMMENT ON COLUMN queen.dead_letter.first_failed_at IS 'Its first failure known.';
COMMENT ON COLUMN queen.dead_letter.failed_at IS 'The failure that made the record.';
COMMENT ON COLUMN queen.dead_letter.is_encrypted IS 'Whether the payload is stored encrypted.';
COMMENT ON COLUMN queen.dead_letter.failure_class IS 'transient, permanent, poison, malformed, expired, policy or unknown: as the consumer said, or the reason, or the queues deadLetterRules.';
COMMENT ON COLUMN queen.dead_letter.error_code IS 'A stable code, from the same source as the class; empty for none.';
COMMENT ON COLUMN queen.dead_letter.fingerprint IS 'Hash of the error text, without numbers, ids and quoted text, and the code: the same for the same failure.';
COMMENT ON COLUMN queen.dead_letter.payload_hash IS 'SHA-256 of the payload as pushed; NULL if it could not be decrypted.';
COMMENT ON COLUMN queen.dead_letter.attempts IS 'How often the message was delivered to the group.';
COMMENT ON COLUMN queen.dead_letter.retry_policy IS 'The queues retry options at that time.';
COMMENT ON COLUMN queen.dead_letter.traceparent IS 'The header traceparent, or NULL.';
COMMENT ON COLUMN queen.dead_letter.redaction IS 'none: kept as pushed; redacted: values outside redactionAllow, credentials in error and headers are gone; encrypted: the payload is stored encrypted, error and headers as when redacted.';
COMMENT ON COLUMN queen.dead_letter.status IS 'pending, approved, replayed or discarded.';
COMMENT ON COLUMN queen.dead_letter.hops IS 'How often the message had been replayed before.';
COMMENT ON COLUMN queen.dead_letter.page_cursor IS 'Opaque: what dlq_list wants as after, to go on behind this record.';

CREATE TYPE queen.dlq_stat AS (
    queue                text,
    consumer_group       text,
    pending              bigint,
    approved             bigint,
    replayed             bigint,
    discarded            bigint,
    oldest_pending_at    timestamptz,
    oldest_pending_seconds double precision,
    arrivals_per_minute  double precision,
    net_per_minute       double precision,
    exhaustion_rate      double precision,
    top_fingerprints     jsonb,
    replays_ok           bigint,
    replays_failed_again bigint,
    owner                text,
    runbook              text,
    severity             text
);
COMMENT ON TYPE queen.dlq_stat IS 'The state of the dead letters of one consumer group of a queue.';
COMMENT ON COLUMN queen.dlq_stat.queue IS 'Queue name.';
COMMENT ON COLUMN queen.dlq_stat.consumer_group IS 'The group that gave up.';
COMMENT ON COLUMN queen.dlq_stat.pending IS 'Records that nobody has decided about.';
COMMENT ON COLUMN queen.dlq_stat.approved IS 'Records approved for a replay.';
COMMENT ON COLUMN queen.dlq_stat.replayed IS 'Records kept of messages that were replayed.';
COMMENT ON COLUMN queen.dlq_stat.discarded IS 'Records kept of messages that were discarded.';
COMMENT ON COLUMN queen.dlq_stat.oldest_pending_at IS 'When the oldest pending or approved record was made; NULL if there is none.';
COMMENT ON COLUMN queen.dlq_stat.oldest_pending_seconds IS 'Its age; 0 if there is none.';
COMMENT ON COLUMN queen.dlq_stat.arrivals_per_minute IS 'Records made, over the last window_minutes full minutes and the running one.';
COMMENT ON COLUMN queen.dlq_stat.net_per_minute IS 'By how much pending and approved records grew per minute in that time; negative when they shrank.';
COMMENT ON COLUMN queen.dlq_stat.exhaustion_rate IS 'Of the records made in that time, the share whose retries were spent; NULL if none was made.';
COMMENT ON COLUMN queen.dlq_stat.top_fingerprints IS 'The five most frequent failures of the pending and approved records: fingerprint, class, code, count.';
COMMENT ON COLUMN queen.dlq_stat.replays_ok IS 'Records kept of messages that were replayed, less replays_failed_again; not below 0.';
COMMENT ON COLUMN queen.dlq_stat.replays_failed_again IS 'Records ever made of messages that had been replayed before.';
COMMENT ON COLUMN queen.dlq_stat.owner IS 'Queue option owner.';
COMMENT ON COLUMN queen.dlq_stat.runbook IS 'Queue option runbook.';
COMMENT ON COLUMN queen.dlq_stat.severity IS 'Queue option severity.';

CREATE TYPE queen.stored_message AS (
    queue          text,
    partition      text,
    partition_id   uuid,
    "offset"       bigint,
    message_id     uuid,
    transaction_id text,
    payload        jsonb,
    payload_text   text,
    headers        jsonb,
    trace_id       uuid,
    producer       text,
    created_at     timestamptz,
    status         text,
    is_encrypted   boolean,
    segment_offset bigint
);
COMMENT ON TYPE queen.stored_message IS 'A message in the log, looked at without consuming it.';
COMMENT ON COLUMN queen.stored_message.queue IS 'Queue name.';
COMMENT ON COLUMN queen.stored_message.partition IS 'Partition name.';
COMMENT ON COLUMN queen.stored_message.partition_id IS 'Id of the partition.';
COMMENT ON COLUMN queen.stored_message."offset" IS 'Offset in the partition, from 0.';
COMMENT ON COLUMN queen.stored_message.message_id IS 'Id of the message (UUIDv7).';
COMMENT ON COLUMN queen.stored_message.transaction_id IS 'Its deduplication id.';
COMMENT ON COLUMN queen.stored_message.payload IS 'The payload; NULL where jsonb cannot hold it: see payload_text.';
COMMENT ON COLUMN queen.stored_message.payload_text IS 'The payload exactly as pushed; as stored when it cannot be decrypted.';
COMMENT ON COLUMN queen.stored_message.headers IS 'The headers given by the producer, or NULL.';
COMMENT ON COLUMN queen.stored_message.trace_id IS 'The trace id given by the producer, or NULL.';
COMMENT ON COLUMN queen.stored_message.producer IS 'Authenticated subject of the producer, or NULL.';
COMMENT ON COLUMN queen.stored_message.created_at IS 'When it was stored; messages stored together share it.';
COMMENT ON COLUMN queen.stored_message.status IS 'pending, processing, completed or dead_letter.';
COMMENT ON COLUMN queen.stored_message.is_encrypted IS 'Whether the payload is stored encrypted.';
COMMENT ON COLUMN queen.stored_message.segment_offset IS 'Offset of the first message of its segment: of those that were stored together.';

CREATE TYPE queen.trace_event AS (
    id             uuid,
    queue          text,
    partition      text,
    partition_id   uuid,
    transaction_id text,
    consumer_group text,
    event_type     text,
    data           json,
    trace_names    text[],
    created_at     timestamptz
);
COMMENT ON TYPE queen.trace_event IS 'What a consumer noted about a message.';
COMMENT ON COLUMN queen.trace_event.id IS 'Id of the note (UUIDv7).';
COMMENT ON COLUMN queen.trace_event.queue IS 'Queue of the message, which may be gone.';
COMMENT ON COLUMN queen.trace_event.partition IS 'Partition name.';
COMMENT ON COLUMN queen.trace_event.partition_id IS 'Id of the partition.';
COMMENT ON COLUMN queen.trace_event.transaction_id IS 'Transaction id of the message.';
COMMENT ON COLUMN queen.trace_event.consumer_group IS 'The group that noted it.';
COMMENT ON COLUMN queen.trace_event.event_type IS 'Kind of the event, the callers word.';
COMMENT ON COLUMN queen.trace_event.data IS 'What was noted, byte for byte.';
COMMENT ON COLUMN queen.trace_event.trace_names IS 'Names that it can be found by, with notes on other messages.';
COMMENT ON COLUMN queen.trace_event.created_at IS 'When it was noted.';

CREATE TYPE queen.dlq_audit_event AS (
    seq            bigint,
    at             timestamptz,
    actor          text,
    action         text,
    dlq_id         uuid,
    plan_id        uuid,
    queue          text,
    consumer_group text,
    detail         jsonb
);
COMMENT ON TYPE queen.dlq_audit_event IS 'What somebody did with dead letters.';
COMMENT ON COLUMN queen.dlq_audit_event.seq IS 'Number of the row, rising.';
COMMENT ON COLUMN queen.dlq_audit_event.at IS 'When.';
COMMENT ON COLUMN queen.dlq_audit_event.actor IS 'Who: see queen.actor().';
COMMENT ON COLUMN queen.dlq_audit_event.action IS 'What, one word.';
COMMENT ON COLUMN queen.dlq_audit_event.dlq_id IS 'To which record, or NULL.';
COMMENT ON COLUMN queen.dlq_audit_event.plan_id IS 'Under which replay plan, or NULL.';
COMMENT ON COLUMN queen.dlq_audit_event.queue IS 'Queue of the record, or NULL.';
COMMENT ON COLUMN queen.dlq_audit_event.consumer_group IS 'Consumer group of the record, or NULL.';
COMMENT ON COLUMN queen.dlq_audit_event.detail IS 'What else: reason, ids, counts; no payloads.';

CREATE TYPE queen.replay_ancestor AS (
    hops           int,
    message_id     uuid,
    transaction_id text,
    parent_id      uuid,
    dlq_id         uuid,
    consumer_group text,
    queue          text,
    partition      text,
    action         text,
    actor          text,
    plan_id        uuid,
    at             timestamptz
);
COMMENT ON TYPE queen.replay_ancestor IS 'A message in a chain of replays.';
COMMENT ON COLUMN queen.replay_ancestor.hops IS 'How many replays lie before it; 0: the original.';
COMMENT ON COLUMN queen.replay_ancestor.message_id IS 'Id of the message.';
COMMENT ON COLUMN queen.replay_ancestor.transaction_id IS 'Its transaction id.';
COMMENT ON COLUMN queen.replay_ancestor.parent_id IS 'Id of the message that it stands for; NULL for the original, as are the columns that follow.';
COMMENT ON COLUMN queen.replay_ancestor.dlq_id IS 'The dead letter that it was made from.';
COMMENT ON COLUMN queen.replay_ancestor.consumer_group IS 'The group that had given up.';
COMMENT ON COLUMN queen.replay_ancestor.queue IS 'Queue that it was put into.';
COMMENT ON COLUMN queen.replay_ancestor.partition IS 'Partition that it was put into.';
COMMENT ON COLUMN queen.replay_ancestor.action IS 'How: replay_moved, moved or repaired.';
COMMENT ON COLUMN queen.replay_ancestor.actor IS 'In whose name.';
COMMENT ON COLUMN queen.replay_ancestor.plan_id IS 'Under which replay plan, or NULL.';
COMMENT ON COLUMN queen.replay_ancestor.at IS 'When.';

CREATE TYPE queen.frame AS (
    frame_index    int,
    message_id     uuid,
    transaction_id text,
    payload        jsonb,
    payload_text   text,
    headers        jsonb,
    trace_id       uuid,
    producer       text,
    created_at     timestamptz,
    is_encrypted   boolean
);
COMMENT ON TYPE queen.frame IS 'One message inside a segment, as the codec sees it.';
COMMENT ON COLUMN queen.frame.frame_index IS 'Position in the segment, from 0.';
COMMENT ON COLUMN queen.frame.message_id IS 'Id of the message (UUIDv7).';
COMMENT ON COLUMN queen.frame.transaction_id IS 'Its deduplication id.';
COMMENT ON COLUMN queen.frame.payload IS 'The payload; NULL where jsonb cannot hold it: see payload_text.';
COMMENT ON COLUMN queen.frame.payload_text IS 'The payload exactly as pushed; as stored when it cannot be decrypted.';
COMMENT ON COLUMN queen.frame.headers IS 'The headers given by the producer, or NULL.';
COMMENT ON COLUMN queen.frame.trace_id IS 'The trace id given by the producer, or NULL.';
COMMENT ON COLUMN queen.frame.producer IS 'Authenticated subject of the producer, or NULL.';
COMMENT ON COLUMN queen.frame.created_at IS 'When it was enqueued, where the frame says so itself; else NULL: the segments time counts.';
COMMENT ON COLUMN queen.frame.is_encrypted IS 'Whether the payload is stored encrypted.';

-- 20-tables.sql

-- The broker's tables. They are reached through the functions only: no role but the owner has a grant on them.
--
--   queue ──< partition ──< segment            what was pushed, one row a segment
--     │           └───────< transaction_id     where an explicit transaction id is stored
--     └──< subscription ──< cursor             how far a consumer group is, and its lease
--                    └────< ready              which partitions a group should look at, and when
--   dead_letter_record, dlq_tally(_filed)      snapshots, and their count; depend on no other row
--   dlq_event                                  what people did with dead letters and groups; only ever added to
--   replay_plan ──< replay_item                which dead letters go back, and how far that is
--   processed_message                          what consumers have done for good
--   trace ──< trace_name                       what consumers noted about messages; outlives the queue
--
-- Rows that change with every message (segment, cursor, ready) are only ever inserted and deleted, never updated,
-- and the newest is found first by a backward index probe: so an old snapshot held by somebody makes nothing longer.
-- Names are data: compared by bytes (COLLATE "C"), never used as identifiers.

CREATE TABLE queen.queue (
    qid        bigint GENERATED BY DEFAULT AS IDENTITY CONSTRAINT queue_pkey PRIMARY KEY,
    tenant     uuid NOT NULL,
    name       text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    options    text NOT NULL,              -- every effective option, one flat JSON object
    CONSTRAINT queue_tenant_name_key UNIQUE (tenant, name)
) USING heap;

-- The stable row of a lane. An append locks it (without changing it) until its transaction ends.
CREATE TABLE queen.partition (
    pid          bigint GENERATED BY DEFAULT AS IDENTITY CONSTRAINT partition_pkey PRIMARY KEY,
    qid          bigint NOT NULL,
    name         text COLLATE "C" NOT NULL,
    partition_id uuid NOT NULL,
    created_at   timestamptz NOT NULL,
    CONSTRAINT partition_qid_name_key UNIQUE (qid, name),
    CONSTRAINT partition_partition_id_key UNIQUE (partition_id)
) USING heap;
CREATE INDEX partition_qid_pid_idx ON queen.partition (qid, pid);

-- Offsets [base, base + frames - 1] of one partition. created_at rises strictly with base.
CREATE TABLE queen.segment (
    pid        bigint NOT NULL,
    base       bigint NOT NULL,
    frames     integer NOT NULL,
    created_at timestamptz NOT NULL,
    data       bytea NOT NULL,             -- format: docs/design.md
    CONSTRAINT segment_pkey PRIMARY KEY (pid, base)
) USING heap;
ALTER TABLE queen.segment ALTER COLUMN data SET STORAGE EXTERNAL;

-- Highest offset that retention has removed, and the one before that; a partition without a row has lost none.
CREATE TABLE queen.trimmed (
    pid  bigint NOT NULL,
    upto bigint NOT NULL
) USING heap;
CREATE INDEX trimmed_pid_upto_idx ON queen.trimmed (pid, upto);

-- One row for each message whose transaction id cannot be found from its message id alone.
CREATE TABLE queen.transaction_id (
    pid       bigint NOT NULL,
    hash      bigint NOT NULL,             -- xxh3 of the transaction id; a hit is confirmed in the segment
    at_offset bigint NOT NULL
) USING heap;
CREATE INDEX transaction_id_pid_hash_idx ON queen.transaction_id (pid, hash);

-- A consumer group of a queue.
CREATE TABLE queen.subscription (
    gid        bigint GENERATED BY DEFAULT AS IDENTITY CONSTRAINT subscription_pkey PRIMARY KEY,
    qid        bigint NOT NULL,
    name       text COLLATE "C" NOT NULL,
    registered boolean NOT NULL,           -- true: pops of any partition; such groups have rows in ready
    mode       text NOT NULL,              -- all | new | timestamp
    start_at   timestamptz NOT NULL,       -- first delivery of a partition without cursor: first segment at or after
    created_at timestamptz NOT NULL,
    conflation boolean NOT NULL DEFAULT false,  -- true: of a partition, only the newest message is delivered
    paused_at    timestamptz,              -- since when its pops bring nothing
    pause_reason text,
    resumed_at   timestamptz,              -- end of the last pause: from then on causes are counted anew
    CONSTRAINT subscription_qid_name_key UNIQUE (qid, name)
) USING heap;

-- The newest row (highest seq) of a (group, partition) is its state.
CREATE TABLE queen.cursor (
    gid        bigint NOT NULL,
    pid        bigint NOT NULL,
    seq        bigint NOT NULL,
    committed  bigint NOT NULL,            -- last offset done
    retries    integer NOT NULL,           -- failures charged to the current batch
    lease_id   uuid,                       -- lease over (committed, batch_end] until expires_at
    batch_end  bigint,
    expires_at timestamptz,
    deliveries bytea,                      -- how often uncommitted messages were delivered (queen-core: Deliveries)
    failing_since timestamptz,             -- first failure charged to the current batch
    not_before timestamptz,                -- the pause after a failure; only without a lease
    CONSTRAINT cursor_pkey PRIMARY KEY (gid, pid, seq)
) USING heap;
CREATE INDEX cursor_lease_id_idx ON queen.cursor (lease_id) WHERE lease_id IS NOT NULL;

-- Hints, in order of due_at: "this group may find something in this partition from then on". A partition with work
-- for a registered group always has one; one too many costs a look. A negative pid is a sweep that goes on after -pid - 1.
CREATE TABLE queen.ready (
    gid    bigint NOT NULL,
    due_at timestamptz NOT NULL,
    pid    bigint NOT NULL
) USING heap;
CREATE INDEX ready_gid_due_at_pid_idx ON queen.ready (gid, due_at, pid);

CREATE TABLE queen.dead_letter_record (
    id              uuid CONSTRAINT dead_letter_record_pkey PRIMARY KEY,
    tenant          uuid NOT NULL,
    qid             bigint NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    partition       text COLLATE "C" NOT NULL,
    partition_id    uuid NOT NULL,
    consumer_group  text COLLATE "C" NOT NULL,
    at_offset       bigint NOT NULL,
    message_id      uuid NOT NULL,
    transaction_id  text COLLATE "C" NOT NULL,
    payload         bytea NOT NULL,        -- the stored bytes: sealed when is_encrypted
    headers         bytea,
    trace_id        uuid,
    producer        text,
    error           text,
    reason          text NOT NULL,
    retry_count     integer NOT NULL,
    enqueued_at     timestamptz NOT NULL,
    first_failed_at timestamptz NOT NULL,
    failed_at       timestamptz NOT NULL,
    is_encrypted    boolean NOT NULL,
    failure_class   text COLLATE "C" NOT NULL,
    error_code      text COLLATE "C" NOT NULL,         -- '' for none
    fingerprint     text COLLATE "C" NOT NULL,
    payload_hash    text,                  -- SHA-256 of the payload as pushed, where it is not stored like that and could be opened
    attempts        integer NOT NULL,
    retry_policy    text NOT NULL,         -- JSON array: retryLimit, retryBackoff, retryDelay, retryMaxDelay, retryJitter,
                                           -- maxElapsedSeconds, maxDeliveries
    traceparent     text,
    redaction       text NOT NULL,         -- none | redacted | encrypted: of payload, headers, error and reason
    status          text COLLATE "C" NOT NULL,         -- pending | approved | replayed | discarded
    hops            integer NOT NULL,
    transaction_hash bigint NOT NULL,      -- xxh3 of transaction_id, which may be longer than an index entry
    kind            uuid NOT NULL,         -- hash of tenant, queue, group, class, code, fingerprint: never changes
    -- One record for each message of a group. An offset has one transaction id, so that its hash adds nothing to the key;
    -- it makes the same index find all records of a message. What has a fixed width comes first: it is found sooner.
    CONSTRAINT dead_letter_record_message_key UNIQUE (partition_id, transaction_hash, at_offset, consumer_group)
) USING heap;
-- What is too long for its row is compressed while the ack waits: by the quicker method, where the server has it (from 14 on,
-- as it was built). The other one can take longer than all the rest of the ack.
DO $$
DECLARE c text;
BEGIN
  FOREACH c IN ARRAY ARRAY['payload', 'headers', 'error'] LOOP
    EXECUTE pg_catalog.format('ALTER TABLE queen.dead_letter_record ALTER COLUMN %I SET COMPRESSION lz4', c);
  END LOOP;
EXCEPTION WHEN syntax_error OR feature_not_supported THEN
  NULL;
END $$;
CREATE INDEX dead_letter_record_failed_at_idx ON queen.dead_letter_record (tenant, failed_at, id);
-- Every filter of a list names some kinds (dlq_tally knows which there are): each is read from its newest record on.
CREATE INDEX dead_letter_record_kind_idx ON queen.dead_letter_record (kind, status, failed_at, id);

-- How many dead letters there are of each kind and status: the sum of n. Every change adds a row; filing does it itself, a
-- trigger does it for updates and deletions. maintain(), and readers that meet many, fold them.
CREATE TABLE queen.dlq_tally (
    tenant         uuid NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    consumer_group text COLLATE "C" NOT NULL,
    failure_class  text COLLATE "C" NOT NULL,
    error_code     text COLLATE "C" NOT NULL,
    fingerprint    text COLLATE "C" NOT NULL,
    status         text COLLATE "C" NOT NULL,
    kind           uuid NOT NULL,
    minute         timestamptz NOT NULL,   -- of the change; -infinity once it is older than an hour
    filed          bigint NOT NULL,        -- of them, records made
    exhausted      bigint NOT NULL,        -- of those, because the retries were spent
    n              bigint NOT NULL,
    again          bigint NOT NULL DEFAULT 0 -- of the records made, those of messages that had been replayed before
) USING heap;
CREATE INDEX dlq_tally_queue_idx ON queen.dlq_tally (tenant, queue);
-- What filing adds, which who reads dlq_tally reads with it: an ack does not pay for an index of rows that are soon folded.
CREATE TABLE queen.dlq_tally_filed () INHERITS (queen.dlq_tally) USING heap;

CREATE FUNCTION queen.dlq_tally_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    INSERT INTO queen.dlq_tally
    SELECT o.tenant, o.queue, o.consumer_group, o.failure_class, o.error_code, o.fingerprint, o.status, o.kind,
           date_trunc('minute', clock_timestamp()), 0, 0, -count(*)
      FROM before o GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
  ELSE
    INSERT INTO queen.dlq_tally
    SELECT c.tenant, c.queue, c.consumer_group, c.failure_class, c.error_code, c.fingerprint, c.status, c.kind,
           date_trunc('minute', clock_timestamp()), 0, 0, sum(c.n)
      FROM (SELECT o.tenant, o.queue, o.consumer_group, o.failure_class, o.error_code, o.fingerprint, o.status, o.kind,
                   -1 AS n FROM before o
             UNION ALL
            SELECT a.tenant, a.queue, a.consumer_group, a.failure_class, a.error_code, a.fingerprint, a.status, a.kind,
                   1 FROM after a) c
     GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 HAVING sum(c.n) <> 0;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.dlq_tally_change() IS
'Part of queen.dead_letter_record: keeps dlq_tally in step. A trigger, which nobody calls.
Example: UPDATE queen.dead_letter_record SET status = ''approved'' WHERE false;';
REVOKE ALL ON FUNCTION queen.dlq_tally_change() FROM PUBLIC;
-- Inserts have no trigger: the broker files past the executor and counts for itself, and a restored dump brings both tables.
CREATE TRIGGER dlq_tally_update AFTER UPDATE ON queen.dead_letter_record
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION queen.dlq_tally_change();
CREATE TRIGGER dlq_tally_delete AFTER DELETE ON queen.dead_letter_record
    REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION queen.dlq_tally_change();

-- Who did what with dead letters and groups. A trigger refuses every change of a row, whoever asks (dlq_event_refuse.sql).
CREATE TABLE queen.dlq_event (
    seq            bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT dlq_event_pkey PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    tenant         uuid NOT NULL,
    actor          text NOT NULL,
    action         text NOT NULL,
    dlq_id         uuid,
    plan_id        uuid,
    queue          text COLLATE "C",
    consumer_group text COLLATE "C",
    detail         jsonb NOT NULL
) USING heap;
CREATE INDEX dlq_event_tenant_idx ON queen.dlq_event (tenant, seq);
CREATE INDEX dlq_event_queue_idx ON queen.dlq_event (tenant, queue, seq);
CREATE INDEX dlq_event_plan_id_idx ON queen.dlq_event (plan_id, seq) WHERE plan_id IS NOT NULL;
CREATE INDEX dlq_event_dlq_id_idx ON queen.dlq_event (dlq_id, seq) WHERE dlq_id IS NOT NULL;
-- The ancestry of a message, up and down.
CREATE INDEX dlq_event_message_id_idx ON queen.dlq_event ((detail ->> 'messageId'))
    WHERE detail ? 'messageId';
CREATE INDEX dlq_event_original_idx ON queen.dlq_event ((detail ->> 'originalMessageId'))
    WHERE detail ? 'messageId';

-- A decision to replay dead letters: what, where to, how fast, who says so. Locked by whoever moves for it.
CREATE TABLE queen.replay_plan (
    plan_id       uuid CONSTRAINT replay_plan_pkey PRIMARY KEY,
    tenant        uuid NOT NULL,
    state         text NOT NULL,           -- planned | approved | running | paused | canary_done | done | cancelled | expired
    phase         text NOT NULL,           -- canary | rest
    -- What was decided; the digest is over these and the ids of the items.
    reason        text NOT NULL,
    remediation   text NOT NULL,
    selection     jsonb NOT NULL,
    to_queue      text COLLATE "C",
    to_partition  text COLLATE "C",
    rate          numeric NOT NULL,        -- messages a second
    canary        integer NOT NULL,
    auto_widen    boolean NOT NULL,
    max_records   integer NOT NULL,
    expires_at    timestamptz NOT NULL,
    digest        text NOT NULL,
    needs_approval boolean NOT NULL,
    repair_hash   text,                    -- SHA-256 of the payload that dlq_repair may send; NULL: replays what was filed
    planned_by    text NOT NULL,
    planned_at    timestamptz NOT NULL,
    approved_by   text,
    approved_at   timestamptz,
    approval_note text,
    approved_digest text,
    started_by    text,
    started_at    timestamptz,
    ended_at      timestamptz,
    -- How far it is. planned = moved + duplicate + failed + gone + refused + (planned - next_n).
    planned       integer NOT NULL,
    next_n        integer NOT NULL DEFAULT 0,
    moved         integer NOT NULL DEFAULT 0,
    duplicate     integer NOT NULL DEFAULT 0,
    failed        integer NOT NULL DEFAULT 0,
    gone          integer NOT NULL DEFAULT 0,
    refused       integer NOT NULL DEFAULT 0,
    -- The pace: when the next message is due, when a batch may come, and the batches of the last second.
    due_at        timestamptz,
    next_at       timestamptz,
    recent_at     timestamptz[] NOT NULL DEFAULT '{}',
    recent_n      integer[] NOT NULL DEFAULT '{}'
) USING heap WITH (fillfactor = 50);
CREATE INDEX replay_plan_tenant_idx ON queen.replay_plan (tenant, planned_at);
CREATE INDEX replay_plan_live_idx ON queen.replay_plan (expires_at)
    WHERE state IN ('planned', 'approved', 'running', 'paused', 'canary_done');

-- The records of a plan, in the order in which they go.
CREATE TABLE queen.replay_item (
    plan_id         uuid NOT NULL,
    n               integer NOT NULL,      -- from 0; the first `canary` are the canary
    dlq_id          uuid NOT NULL,
    consumer_group  text COLLATE "C" NOT NULL,
    state           text NOT NULL DEFAULT 'planned',    -- planned | moved | duplicate | failed | gone | refused
    message_id      uuid,                  -- of the message it became, and where that is
    to_partition_id uuid,
    at_offset       bigint,
    error           text,
    done_at         timestamptz,
    failed_again    boolean NOT NULL DEFAULT false,     -- it was a dead letter again, and that record was deleted
    CONSTRAINT replay_item_pkey PRIMARY KEY (plan_id, n)
) USING heap WITH (fillfactor = 80);
CREATE INDEX replay_item_dlq_id_idx ON queen.replay_item (dlq_id);

-- What process_once has said yes to.
CREATE TABLE queen.processed_message (
    tenant     uuid NOT NULL,
    consumer   text COLLATE "C" NOT NULL,
    message_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT pg_catalog.now(),
    CONSTRAINT processed_message_pkey PRIMARY KEY (tenant, consumer, message_id)
) USING heap;
CREATE INDEX processed_message_at_idx ON queen.processed_message (at);

-- Duplicates found only at commit, counted; maintain() folds the rows of a queue into one.
CREATE TABLE queen.dropped_duplicate (
    qid    bigint NOT NULL,
    pushes bigint NOT NULL
) USING heap;
CREATE INDEX dropped_duplicate_qid_idx ON queen.dropped_duplicate (qid);

-- What a consumer noted about a message. Nothing else refers to it, and it refers to nothing that must be there.
CREATE TABLE queen.trace (
    id               uuid CONSTRAINT trace_pkey PRIMARY KEY,
    tenant           uuid NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    partition        text COLLATE "C" NOT NULL,
    partition_id     uuid NOT NULL,
    transaction_id   text COLLATE "C" NOT NULL,
    transaction_hash bigint NOT NULL,      -- hashtextextended of it: a transaction id may be longer than an index entry
    consumer_group   text COLLATE "C" NOT NULL,
    event_type       text COLLATE "C" NOT NULL,
    data             text NOT NULL,        -- JSON, byte for byte
    names            text[] COLLATE "C" NOT NULL,
    created_at       timestamptz NOT NULL
) USING heap;
CREATE INDEX trace_address_idx ON queen.trace (partition_id, transaction_hash, id);

-- One row for each name of a trace. The index has all that a list of names counts.
CREATE TABLE queen.trace_name (
    tenant           uuid NOT NULL,
    name             text COLLATE "C" NOT NULL,
    created_at       timestamptz NOT NULL,
    trace_id         uuid NOT NULL,
    partition_id     uuid NOT NULL,
    transaction_hash bigint NOT NULL
) USING heap;
CREATE INDEX trace_name_idx
    ON queen.trace_name (tenant, name, created_at, trace_id) INCLUDE (partition_id, transaction_hash);

-- Storage. Vacuum's truncation takes a lock that stops traffic: off everywhere. Rows come and go at the rate of the
-- traffic, so vacuum by count, not by share of the table.
ALTER TABLE queen.segment SET (vacuum_truncate = off, toast.vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE queen.transaction_id SET (vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000);
ALTER TABLE queen.cursor SET (vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);
ALTER TABLE queen.ready SET (vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);
ALTER TABLE queen.queue SET (vacuum_truncate = off);
ALTER TABLE queen.partition SET (vacuum_truncate = off);
ALTER TABLE queen.trimmed SET (vacuum_truncate = off);
ALTER TABLE queen.dropped_duplicate SET (vacuum_truncate = off);
ALTER TABLE queen.dlq_tally SET (vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE queen.dlq_tally_filed SET (vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE queen.dlq_event SET (vacuum_truncate = off);
ALTER TABLE queen.replay_plan SET (vacuum_truncate = off);
ALTER TABLE queen.replay_item SET (vacuum_truncate = off);
ALTER TABLE queen.processed_message SET (vacuum_truncate = off);
ALTER TABLE queen.trace SET (vacuum_truncate = off);
ALTER TABLE queen.trace_name SET (vacuum_truncate = off);

-- Without a primary key, DELETE would be refused where a publication is FOR ALL TABLES.
ALTER TABLE queen.trimmed REPLICA IDENTITY FULL;
ALTER TABLE queen.transaction_id REPLICA IDENTITY FULL;
ALTER TABLE queen.ready REPLICA IDENTITY FULL;
ALTER TABLE queen.dropped_duplicate REPLICA IDENTITY FULL;
ALTER TABLE queen.dlq_tally REPLICA IDENTITY FULL;
ALTER TABLE queen.dlq_tally_filed REPLICA IDENTITY FULL;
ALTER TABLE queen.trace_name REPLICA IDENTITY FULL;

-- pg_dump takes the data with it.
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['queue', 'partition', 'segment', 'trimmed', 'transaction_id', 'subscription', 'cursor',
                           'ready', 'dead_letter_record', 'dlq_tally', 'dlq_tally_filed', 'dropped_duplicate', 'trace',
                           'trace_name', 'dlq_event', 'replay_plan', 'replay_item', 'processed_message', 'dlq_event_seq_seq',
                           'queue_qid_seq', 'partition_pid_seq', 'subscription_gid_seq']
  LOOP
    PERFORM pg_catalog.pg_extension_config_dump(('queen.' || t)::pg_catalog.regclass, '');
  END LOOP;
END $$;

-- functions/ack.sql

-- queen.ack: settle one message.
--
-- A completed message completes all before it in its partition: the cursor moves, nothing is deleted. A failed one
-- ends the lease; what comes before it counts as completed, it and what comes after is delivered again. When the
-- failures charged to it have used up the queue's retryLimit, it becomes a dead letter, or is dropped when dead-
-- lettering is off, and the group goes on after it. Dead letters are filed in the same transaction.
--
-- Without lease_id a message can be completed, but nothing is charged, released, filed or dropped under a live lease
-- of somebody else.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
--   status          completed (also success, acked, ok, NULL), retry (again, not charged), dlq (dead letter, now);
--                   anything else is failed (again, charged to retryLimit; then dead letter).
--   consumer_group  Name of the consumer group; each group gets every message. The default, __QUEUE_MODE__, is the
--                   group of those who name none.
--   lease_id        The lease the message came with. Give it: it makes sure that the message is still yours.
--   error           What went wrong; kept with the dead letter, cut at 4 KiB.
--   reason          A word for why, kept with the dead letter.
-- Result: One row; success says whether it was accepted, error why not. A refused acknowledgment is a result,
--         not an error.
-- Errors: QN001 (bad name); QN011, QN012 (segment damaged or unknown).
-- Tables: queen.partition, queen.segment, queen.transaction_id (read); queen.cursor, queen.ready,
--         queen.dead_letter_record (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.ack(
    partition_id uuid,
    transaction_id text,
    status text DEFAULT 'completed',
    consumer_group text DEFAULT '__QUEUE_MODE__',
    lease_id uuid DEFAULT NULL,
    error text DEFAULT NULL,
    reason text DEFAULT NULL
)
    RETURNS queen.ack_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_ack';

COMMENT ON FUNCTION queen.ack(uuid, text, text, text, uuid, text, text) IS
'Settles one message: completed, failed, retry or dlq. Look at success in the result.
Completing a message completes those before it in its partition.
Example: SELECT queen.ack(m.partition_id, m.transaction_id, ''completed'', ''billing'', m.lease_id) FROM queen.pop(''orders'', ''billing'') m;';
REVOKE ALL ON FUNCTION queen.ack(uuid, text, text, text, uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack(uuid, text, text, text, uuid, text, text) TO queen_consumer;

-- functions/ack_batch.sql

-- queen.ack_batch: settle several messages.
--
-- All acknowledgments of one partition and lease are settled together: the lowest failure decides, and a success above
-- it moves nothing (the message is delivered again). See ack.
--
-- Arguments:
--   acknowledgments  A JSON array of objects {transactionId, partitionId, status, leaseId, error, reason}; status as
--                    in ack.
--   consumer_group   Name of the consumer group; each group gets every message. The default, __QUEUE_MODE__, is the
--                    group of those who name none.
-- Result: One row for each acknowledgment, in order. A malformed id is a result with success false, not an
--         error.
-- Errors: QN001 (bad name); QN008 (acknowledgments have the wrong shape); QN011, QN012 (segment damaged or
--         unknown).
-- Tables: queen.partition, queen.segment, queen.transaction_id (read); queen.cursor, queen.ready,
--         queen.dead_letter_record (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.ack_batch(acknowledgments json, consumer_group text DEFAULT '__QUEUE_MODE__')
    RETURNS SETOF queen.ack_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_ack_batch';

COMMENT ON FUNCTION queen.ack_batch(json, text) IS
'Settles several messages, given as a JSON array of {transactionId, partitionId, status, leaseId, error}.
Example: SELECT * FROM queen.ack_batch(''[{"transactionId": "order-1", "partitionId": "00000000-0000-0000-0000-000000000000"}]'', ''billing'');';
REVOKE ALL ON FUNCTION queen.ack_batch(json, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_batch(json, text) TO queen_consumer;

-- functions/ack_batch_json.sql

-- queen.ack_batch_json: ack_batch for the HTTP server: the result as JSON text.
--
-- See ack_batch.
--
-- Arguments:
--   acknowledgments  A JSON array of objects {transactionId, partitionId, status, leaseId, error, reason}; status as
--                    in ack.
--   consumer_group   Name of the consumer group.
-- Result: The wire's array, one object for each acknowledgment; conflated, the number of superseded messages, on the one
--         that settled a conflating group's lease.
-- Errors: As ack_batch.
-- Tables: As ack_batch.
-- Locks: As ack_batch.
CREATE FUNCTION queen.ack_batch_json(acknowledgments text, consumer_group text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_ack_batch_json';

COMMENT ON FUNCTION queen.ack_batch_json(text, text) IS
'ack_batch with the result as JSON text, for the HTTP server.
Example: SELECT queen.ack_batch_json(''[]'', ''billing'');';
REVOKE ALL ON FUNCTION queen.ack_batch_json(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_batch_json(text, text) TO queen_sidecar;

-- functions/ack_lease.sql

-- queen.ack_lease: complete everything that a lease holds.
--
-- The short way to settle a batch that went well: in all its partitions, the cursor moves to the end of the lease and
-- the lease ends.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
-- Result: How many messages were completed; 0 if the lease is not live.
-- Tables: queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.ack_lease(lease_id uuid)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_ack_lease';

COMMENT ON FUNCTION queen.ack_lease(uuid) IS
'Completes every message that a lease holds and ends it; returns how many, 0 if the lease is not live.
Example: SELECT queen.ack_lease(lease_id) FROM (SELECT DISTINCT lease_id FROM queen.pop(''orders'', ''billing'', batch => 10)) p;';
REVOKE ALL ON FUNCTION queen.ack_lease(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_lease(uuid) TO queen_consumer;

-- functions/ack_many_json.sql

-- queen.ack_many_json: several ack batches in one call, for the HTTP server.
--
-- So that one commit serves the acknowledgments of many clients. Each request is settled as a call of ack_batch_json of
-- its own would be, in the order given: a failure holds back successes of its own request only, and a later request
-- meets what an earlier one left. An error undoes all of them: the caller then sends each alone.
--
-- Arguments:
--   requests  A JSON array of objects {consumerGroup, acknowledgments}; acknowledgments as in ack_batch_json. Absent,
--             null or empty, consumerGroup is __QUEUE_MODE__ and acknowledgments are none.
-- Result: A JSON array with one array for each request, in order: what ack_batch_json would answer.
-- Errors: As ack_batch, with the number of the request, from 0, in front of the message.
-- Tables: As ack_batch.
-- Locks: First the cursors of all groups and partitions that the requests name, by group name (its bytes), then by
--        partition in order of creation: the order of everybody who takes several. All until the transaction ends.
CREATE FUNCTION queen.ack_many_json(requests text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_ack_many_json';

COMMENT ON FUNCTION queen.ack_many_json(text) IS
'Several ack batches in one call, each settled by itself, for the HTTP server.
Example: SELECT queen.ack_many_json(''[{"consumerGroup": "billing", "acknowledgments": []}]'');';
REVOKE ALL ON FUNCTION queen.ack_many_json(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.ack_many_json(text) TO queen_sidecar;

-- functions/actor.sql

-- queen.actor: in whose name this session acts on dead letters.
--
-- The setting queen.actor, which superusers and queen_sidecar may set, else the login (not the role that it has taken on
-- with SET ROLE). A function of the library, as queen.current_tenant.
--
-- Result: The name that the audit gets.
-- Errors: 42501 (the session set queen.actor without the right to).
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.actor()
    RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'queen_actor';

COMMENT ON FUNCTION queen.actor() IS
'In whose name this session acts: the setting queen.actor, else the login.
Example: SELECT queen.actor();';
REVOKE ALL ON FUNCTION queen.actor() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.actor() TO queen_viewer, queen_sidecar;

-- functions/configure.sql

-- queen.configure: create a queue, or change its options.
--
-- Options not named keep their value with mode merge and go back to their default with mode replace; an option set to
-- null goes back to its default with either. A queue need not be configured: the first push creates it, with a lease
-- time of 60 seconds instead of 300 and the rest as here.
--
-- Encryption without a key is accepted with a WARNING; pushes are then refused until there is a key.
--
-- Arguments:
--   queue    Queue name: 1 to 255 characters, not blank, no control characters.
--   options  The options to set, a flat object with camelCase names: leaseTime, retryLimit, deadLetterQueue,
--            dedupWindowSeconds, ... docs/sql.md lists all with units.
--   mode     merge or replace.
-- Result: All effective options, one flat object.
-- Errors: QN001 (bad name); QN006 (value of the wrong type or out of range); QN007 (unknown option); 22023
--         (unknown mode).
-- Tables: queen.queue (written); queen.dlq_event (written, when an option changes that says who decides about dead
--         letters, or what is kept of them).
-- Locks: The name of the queue, until the transaction ends. Pushes and pops do not wait for it.
CREATE FUNCTION queen.configure(queue text, options jsonb DEFAULT '{}', mode text DEFAULT 'merge')
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_configure';

COMMENT ON FUNCTION queen.configure(text, jsonb, text) IS
'Creates a queue or changes its options; returns all effective ones.
merge keeps what is not named, replace sets it back to its default; null is the default.
Example: SELECT queen.configure(''orders'', ''{"leaseTime": 120, "retryLimit": 5}'');';
REVOKE ALL ON FUNCTION queen.configure(text, jsonb, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.configure(text, jsonb, text) TO queen_admin, queen_sidecar;

-- functions/current_tenant.sql

-- queen.current_tenant: the tenant that this session sees.
--
-- Every name is looked up within one tenant. A function of the library and not current_setting(): calling it loads the
-- library, and only then does the server refuse a value of queen.tenant that the session had no right to set.
--
-- Result: The setting queen.tenant; 00000000-0000-0000-0000-000000000001 when it is empty.
-- Errors: 22P02 (the setting is not a UUID).
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.current_tenant()
    RETURNS uuid
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'queen_current_tenant';

COMMENT ON FUNCTION queen.current_tenant() IS
'The tenant that this session sees: the setting queen.tenant.
Example: SELECT queen.current_tenant();';
REVOKE ALL ON FUNCTION queen.current_tenant() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.current_tenant() TO queen_producer, queen_consumer, queen_viewer, queen_sidecar;

-- functions/decode_segment.sql

-- queen.decode_segment: open one stored segment.
--
-- The codec itself, for inspection and repair; segments are stored in queen.segment. Checks magic, version, tables and
-- checksum before anything is returned.
--
-- Arguments:
--   segment  The stored bytes.
-- Result: The messages in it, in order; none for NULL.
-- Errors: QN011 (damaged; says where), QN012 (version or codec unknown).
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.decode_segment(segment bytea)
    RETURNS SETOF queen.frame
    LANGUAGE c IMMUTABLE STRICT PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_decode_segment';

COMMENT ON FUNCTION queen.decode_segment(bytea) IS
'Decodes the bytes of one stored segment; a damaged one raises an error that says where.
Example: SELECT f.* FROM queen.segment s, queen.decode_segment(s.data) f LIMIT 10;  -- as the owner of the tables';
REVOKE ALL ON FUNCTION queen.decode_segment(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.decode_segment(bytea) TO queen_viewer;

-- functions/delete_traces.sql

-- queen.delete_traces: delete old notes.
--
-- Nothing else deletes them, not even drop_queue: call it from cron where notes are made.
--
-- Arguments:
--   older_than  Those made longer ago than this.
-- Result: How many were deleted.
-- Errors: 22023 (older_than is NULL).
-- Tables: queen.trace, queen.trace_name (deleted from).
-- Locks: The notes, until the transaction ends.
CREATE FUNCTION queen.delete_traces(older_than interval)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_delete_traces';

COMMENT ON FUNCTION queen.delete_traces(interval) IS
'Deletes the notes of record_trace that are older than this; returns how many.
Example: SELECT queen.delete_traces(interval ''30 days'');';
REVOKE ALL ON FUNCTION queen.delete_traces(interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.delete_traces(interval) TO queen_admin;

-- functions/dlq.sql

-- queen.dlq: list dead letters.
--
-- Pending and approved ones. Newest failure first; the order is stable, so that skip pages through it. For more of them than
-- one looks through, and for other filters, see dlq_list.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   max_rows        At most so many rows.
--   skip            Leave out so many rows first.
--   partition_id    Only this partition.
--   transaction_id  Only this message; found by index when the partition is given too.
-- Result: The records. A payload that cannot be decrypted is returned as stored, with is_encrypted true.
-- Errors: 22023 (max_rows or skip below 0).
-- Tables: queen.dlq_tally (read; folded when it is long), queen.dead_letter_record (read).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    max_rows int DEFAULT 100,
    skip int DEFAULT 0,
    partition_id uuid DEFAULT NULL,
    transaction_id text DEFAULT NULL
)
    RETURNS SETOF queen.dead_letter
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_dlq';

COMMENT ON FUNCTION queen.dlq(text, text, int, int, uuid, text) IS
'Lists dead letters that are pending or approved, newest failure first.
Example: SELECT queue, consumer_group, transaction_id, error, retry_count, payload FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq(text, text, int, int, uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq(text, text, int, int, uuid, text) TO queen_viewer, queen_sidecar;

-- functions/dlq_ancestry.sql

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

-- functions/dlq_approve.sql

-- queen.dlq_approve: approve a replay plan that somebody else has made.
--
-- Its records go from pending to approved, and back when the plan ends without having replayed them.
--
-- Arguments:
--   plan_id  The plan, in state planned.
--   note     For the audit.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN026 (the caller made the plan, by whatever spelling of the name), QN021 (not planned), QN023 (expired), QN025 (over its
--         limit), QN024 (not what was planned).
-- Tables: queen.replay_plan, queen.dead_letter_record (updated), queen.dlq_event (written).
-- Locks: The plan, then its records, until the transaction ends.
CREATE FUNCTION queen.dlq_approve(plan_id uuid, note text DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p   queen.replay_plan;
    who constant text := queen.actor();
BEGIN
    IF EXISTS (SELECT FROM queen.replay_plan r
                WHERE r.plan_id = dlq_approve.plan_id AND r.tenant = queen.current_tenant() AND queen.same_person(r.planned_by, who)) THEN
        RAISE EXCEPTION 'replay plan % was made by the same person', dlq_approve.plan_id
              USING ERRCODE = 'QN026', HINT = 'Somebody else has to approve it.';
    END IF;
    p := queen.replay_plan_lock(dlq_approve.plan_id, ARRAY['planned'], 'approved', true);
    UPDATE queen.replay_plan r
       SET state = 'approved', approved_by = who, approved_at = clock_timestamp(), approval_note = note,
           approved_digest = r.digest
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_approved', NULL, p.plan_id, NULL, jsonb_build_object('note', note, 'digest', p.digest));
    PERFORM FROM queen.dead_letter_record r
      WHERE r.id IN (SELECT i.dlq_id FROM queen.replay_item i WHERE i.plan_id = p.plan_id) ORDER BY r.id FOR UPDATE;
    WITH approved AS (
        UPDATE queen.dead_letter_record r SET status = 'approved'
          FROM queen.replay_item i
         WHERE i.plan_id = p.plan_id AND r.id = i.dlq_id AND r.status = 'pending'
        RETURNING r.id, r.queue, r.consumer_group)
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
    SELECT p.tenant, who, 'approved', a.id, p.plan_id, a.queue, a.consumer_group, '{}' FROM approved a;
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_approve(uuid, text) IS
'Approves a replay plan that somebody else has made.
Example: SELECT queen.dlq_approve(plan_id, ''looked at change 4711'') FROM queen.replay_plans WHERE state = ''planned'';';
REVOKE ALL ON FUNCTION queen.dlq_approve(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_approve(uuid, text) TO queen_operator, queen_sidecar;

-- functions/dlq_audit.sql

-- queen.dlq_audit: add a row to the audit. Internal, granted to nobody.
--
-- Arguments:
--   action   What was done, one word.
--   dlq_id   To which record; its consumer group is noted too.
--   plan_id  Under which plan.
--   queue    In which queue; by default the record's.
--   detail   What else is worth knowing; no payloads.
-- Tables: queen.dlq_event (inserted into), queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_audit(action text, dlq_id uuid, plan_id uuid, queue text, detail jsonb)
    RETURNS void
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
    SELECT queen.current_tenant(), queen.actor(), $1, $2, $3, coalesce($4, r.queue),
           coalesce($5 ->> 'consumerGroup', r.consumer_group), coalesce($5, '{}')
      FROM (SELECT) one LEFT JOIN queen.dead_letter_record r ON r.id = $2
$$;

COMMENT ON FUNCTION queen.dlq_audit(text, uuid, uuid, text, jsonb) IS
'Part of other functions: adds a row to the audit.
Example: SELECT queen.dlq_audit(''noted'', NULL, NULL, ''orders'', ''{}'');';
REVOKE ALL ON FUNCTION queen.dlq_audit(text, uuid, uuid, text, jsonb) FROM PUBLIC;

-- functions/dlq_cancel_plan.sql

-- queen.dlq_cancel_plan: end a replay plan before it is done.
--
-- What it has moved stays moved; records that it had approved and not moved are pending again.
--
-- Arguments:
--   plan_id  The plan, not ended.
--   note     For the audit.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (ended already), QN023 (expired).
-- Tables: queen.replay_plan, queen.dead_letter_record (updated), queen.dlq_event (written).
-- Locks: The plan, then its records, until the transaction ends.
CREATE FUNCTION queen.dlq_cancel_plan(plan_id uuid, note text DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_cancel_plan.plan_id,
             ARRAY['planned', 'approved', 'running', 'paused', 'canary_done'], 'cancelled', false);
    PERFORM queen.replay_plan_end(p.plan_id, 'cancelled', queen.actor(), jsonb_build_object('note', note));
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_cancel_plan(uuid, text) IS
'Ends a replay plan before it is done.
Example: SELECT queen.dlq_cancel_plan(plan_id) FROM queen.replay_plans WHERE state = ''paused'';';
REVOKE ALL ON FUNCTION queen.dlq_cancel_plan(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_cancel_plan(uuid, text) TO queen_operator, queen_sidecar;

-- functions/dlq_count.sql

-- queen.dlq_count: count dead letters by filter.
--
-- Exact, from the tally: what it costs depends on how many kinds of failures there are, not on how many records.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   failure_class   Only this class.
--   error_code      Only this code; empty for records without one.
--   fingerprint     Only this failure.
--   status          Only this status; all for every one; NULL for pending and approved.
-- Result: How many records pass.
-- Errors: 22023 (a class or status that does not exist).
-- Tables: queen.dlq_tally (read; folded when it is long).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_count(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    failure_class text DEFAULT NULL,
    error_code text DEFAULT NULL,
    fingerprint text DEFAULT NULL,
    status text DEFAULT NULL
)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_count';

COMMENT ON FUNCTION queen.dlq_count(text, text, text, text, text, text) IS
'Counts the dead letters that pass a filter.
Example: SELECT queen.dlq_count(''orders'', failure_class => ''transient'');';
REVOKE ALL ON FUNCTION queen.dlq_count(text, text, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_count(text, text, text, text, text, text) TO queen_viewer, queen_sidecar;

-- functions/dlq_delete.sql

-- queen.dlq_delete: delete the dead letters of one message.
--
-- All of them: several consumer groups can have one each. To delete one, use dlq_delete_row.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
-- Result: How many records were deleted.
-- Tables: queen.dead_letter_record (deleted from).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.dlq_delete(partition_id uuid, transaction_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_dlq_delete';

COMMENT ON FUNCTION queen.dlq_delete(uuid, text) IS
'Deletes the dead letters of one message, those of all consumer groups; returns how many.
Example: SELECT queen.dlq_delete(partition_id, transaction_id) FROM queen.dlq(''orders'') WHERE error = ''test'';';
REVOKE ALL ON FUNCTION queen.dlq_delete(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_delete(uuid, text) TO queen_operator, queen_sidecar;

-- functions/dlq_delete_row.sql

-- queen.dlq_delete_row: delete one dead letter.
--
-- The message itself stays in the log for as long as retention keeps it.
--
-- Arguments:
--   dlq_id  Id of the record.
-- Result: 1, or 0 if there is no such record.
-- Tables: queen.dead_letter_record (deleted from).
-- Locks: The record, until the transaction ends.
CREATE FUNCTION queen.dlq_delete_row(dlq_id uuid)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_dlq_delete_row';

COMMENT ON FUNCTION queen.dlq_delete_row(uuid) IS
'Deletes one dead letter; returns 1, or 0 if there is none of that id.
Example: SELECT queen.dlq_delete_row(id) FROM queen.dlq(''orders'', max_rows => 1);';
REVOKE ALL ON FUNCTION queen.dlq_delete_row(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_delete_row(uuid) TO queen_operator, queen_sidecar;

-- functions/dlq_discard.sql

-- queen.dlq_discard: decide that dead letters will not be replayed.
--
-- The records stay, with status discarded.
--
-- Arguments:
--   ids    The records; those that are gone or decided on are left out.
--   cause  obsolete, superseded, test, malformed, satisfied or unlawful.
--   note   Evidence, in words; not blank.
-- Result: How many were discarded.
-- Errors: 22023 (cause not one of these, note blank, ids NULL).
-- Tables: queen.dead_letter_record (updated), queen.dlq_event (written).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.dlq_discard(ids uuid[], cause text, note text)
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    done bigint;
BEGIN
    IF ids IS NULL THEN
        RAISE EXCEPTION 'ids must not be NULL' USING ERRCODE = '22023';
    END IF;
    IF NOT coalesce(cause = ANY (ARRAY['obsolete', 'superseded', 'test', 'malformed', 'satisfied', 'unlawful']), false) THEN
        RAISE EXCEPTION 'cause must be obsolete, superseded, test, malformed, satisfied or unlawful'
              USING ERRCODE = '22023';
    END IF;
    IF btrim(coalesce(note, '')) = '' THEN
        RAISE EXCEPTION 'note must not be blank' USING ERRCODE = '22023';
    END IF;
    PERFORM FROM queen.dead_letter_record r
      WHERE r.id = ANY (ids) AND r.tenant = queen.current_tenant() ORDER BY r.id FOR UPDATE;
    WITH discarded AS (
        UPDATE queen.dead_letter_record r SET status = 'discarded'
         WHERE r.id = ANY (ids) AND r.tenant = queen.current_tenant() AND r.status IN ('pending', 'approved')
        RETURNING r.tenant, r.id, r.queue, r.consumer_group, r.message_id)
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, queue, consumer_group, detail)
    SELECT d.tenant, queen.actor(), 'discarded', d.id, d.queue, d.consumer_group,
           jsonb_build_object('cause', cause, 'note', note, 'originalMessageId', d.message_id)
      FROM discarded d;
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN done;
END
$$;

COMMENT ON FUNCTION queen.dlq_discard(uuid[], text, text) IS
'Decides that dead letters will not be replayed; they stay on record. Returns how many.
Example: SELECT queen.dlq_discard(ARRAY[id], ''test'', ''sent by the load test'') FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_discard(uuid[], text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_discard(uuid[], text, text) TO queen_operator, queen_sidecar;

-- functions/dlq_event_refuse.sql

-- queen.dlq_event_refuse: what is in the audit stays as it is. Internal: the trigger of queen.dlq_event.
--
-- It fires whoever asks, the extension's owner and its functions too, and also while session_replication_role is
-- replica. A superuser can drop the trigger; nobody else can.
--
-- Errors: 42501, always.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.dlq_event_refuse()
    RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    RAISE EXCEPTION 'the audit of dead letters is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;

COMMENT ON FUNCTION queen.dlq_event_refuse() IS
'Part of table dlq_event: refuses to change or delete what is in the audit.
Example: DELETE FROM queen.dlq_event;  -- is refused';
REVOKE ALL ON FUNCTION queen.dlq_event_refuse() FROM PUBLIC;

CREATE TRIGGER dlq_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON queen.dlq_event
    FOR EACH STATEMENT EXECUTE FUNCTION queen.dlq_event_refuse();
ALTER TABLE queen.dlq_event ENABLE ALWAYS TRIGGER dlq_event_append_only;

-- functions/dlq_events.sql

-- queen.dlq_events: read the audit of dead letters.
--
-- Oldest first. To follow it, give the highest seq read so far; rows are numbered when they are written, so one of a
-- transaction that commits late may come to light behind a later number.
--
-- Arguments:
--   queue      Only this queue's.
--   plan_id    Only this plan's.
--   dlq_id     Only this record's.
--   after_seq  Only rows with a higher number.
--   max_rows   At most so many rows.
-- Result: Who did what, when.
-- Errors: 22023 (max_rows below 0).
-- Tables: queen.dlq_event (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_events(
    queue text DEFAULT NULL,
    plan_id uuid DEFAULT NULL,
    dlq_id uuid DEFAULT NULL,
    after_seq bigint DEFAULT 0,
    max_rows int DEFAULT 100
)
    RETURNS SETOF queen.dlq_audit_event
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF max_rows < 0 THEN
        RAISE EXCEPTION 'max_rows must not be below 0' USING ERRCODE = '22023';
    END IF;
    RETURN QUERY EXECUTE
        'SELECT e.seq, e.at, e.actor, e.action, e.dlq_id, e.plan_id, e.queue, e.consumer_group, e.detail
           FROM queen.dlq_event e
          WHERE e.tenant = $1 AND e.seq > $2'
        || CASE WHEN queue IS NULL THEN '' ELSE ' AND e.queue = $3' END
        || CASE WHEN plan_id IS NULL THEN '' ELSE ' AND e.plan_id = $4' END
        || CASE WHEN dlq_id IS NULL THEN '' ELSE ' AND e.dlq_id = $5' END
        || ' ORDER BY e.seq LIMIT $6'
        USING queen.current_tenant(), coalesce(after_seq, 0), queue, plan_id, dlq_id, coalesce(max_rows, 100);
END
$$;

COMMENT ON FUNCTION queen.dlq_events(text, uuid, uuid, bigint, int) IS
'Reads the audit of dead letters, oldest first: who did what, when, why.
Example: SELECT at, actor, action, detail FROM queen.dlq_events(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_events(text, uuid, uuid, bigint, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_events(text, uuid, uuid, bigint, int) TO queen_viewer, queen_sidecar;

-- functions/dlq_is_approved.sql

-- queen.dlq_is_approved: whether a dead letter may be replayed to a place, as somebody has approved. Internal.
--
-- Arguments:
--   of_record     The record.
--   to_queue      Queue it is about to go to.
--   to_partition  Partition.
--   repair        Payload instead of the one that was filed; NULL: none.
-- Result: Whether it is in an approved plan, for that place and that payload, that has neither ended nor expired.
-- Tables: queen.dead_letter_record, queen.replay_item, queen.replay_plan (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_is_approved(of_record uuid, to_queue text, to_partition text, repair json)
    RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT EXISTS (
        SELECT FROM queen.dead_letter_record r
          JOIN queen.replay_item i ON i.dlq_id = r.id
          JOIN queen.replay_plan p ON p.plan_id = i.plan_id
         WHERE r.id = $1 AND r.status = 'approved' AND p.approved_at IS NOT NULL
           AND p.state IN ('approved', 'running', 'paused', 'canary_done') AND p.expires_at > clock_timestamp()
           AND coalesce(p.to_queue, r.queue) = $2 AND coalesce(p.to_partition, r.partition) = $3
           AND p.repair_hash IS NOT DISTINCT FROM queen.repair_hash($4))
$$;
COMMENT ON FUNCTION queen.dlq_is_approved(uuid, text, text, json) IS
'Part of other functions: whether an approved plan that goes on has this dead letter, for this destination and payload.
Example: SELECT queen.dlq_is_approved(id, queue, partition, NULL) FROM queen.dead_letter_record;';
REVOKE ALL ON FUNCTION queen.dlq_is_approved(uuid, text, text, json) FROM PUBLIC;

-- functions/dlq_list.sql

-- queen.dlq_list: list dead letters by page and filter.
--
-- Newest failure first, in a stable order. A page costs the same wherever it is and however many records there are.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   failure_class   Only this class.
--   error_code      Only this code; empty for records without one.
--   fingerprint     Only this failure.
--   status          Only this status; all for every one; NULL for pending and approved.
--   from            Failed at this time or later.
--   to              Failed before this time.
--   after           page_cursor of the last record of the page before.
--   max_rows        At most so many rows.
--   redacted        Show payloads that are kept encrypted as queen_viewer sees them, whoever asks.
-- Result: The records. A payload kept encrypted (deadLetterPayload encrypt) is shown in full to who may run dlq_move_v1,
--   redacted to everybody else.
-- Errors: 22023 (a class, status or cursor that does not exist, max_rows below 0).
-- Tables: queen.dlq_tally (read; folded when it is long), queen.dead_letter_record (read).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_list(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    failure_class text DEFAULT NULL,
    error_code text DEFAULT NULL,
    fingerprint text DEFAULT NULL,
    status text DEFAULT NULL,
    "from" timestamptz DEFAULT NULL,
    "to" timestamptz DEFAULT NULL,
    after text DEFAULT NULL,
    max_rows int DEFAULT 100,
    redacted boolean DEFAULT false
)
    RETURNS SETOF queen.dead_letter
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_dlq_list';

COMMENT ON FUNCTION queen.dlq_list(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) IS
'Lists dead letters that pass a filter, newest failure first, page by page.
Example: SELECT queue, failure_class, error_code, error, page_cursor FROM queen.dlq_list(''orders'', failure_class => ''poison'');';
REVOKE ALL ON FUNCTION queen.dlq_list(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_list(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) TO queen_viewer, queen_sidecar;

-- functions/dlq_list_json.sql

-- queen.dlq_list_json: dlq_list as one JSON text.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   failure_class   Only this class.
--   error_code      Only this code; empty for records without one.
--   fingerprint     Only this failure.
--   status          Only this status; all for every one; NULL for pending and approved.
--   from            Failed at this time or later.
--   to              Failed before this time.
--   after           page_cursor of the last record of the page before.
--   max_rows        At most so many rows.
--   redacted        Show payloads that are kept encrypted as queen_viewer sees them, whoever asks.
-- Result: {"records": [...], "next": page cursor, or null on the last page}. The payload is data, exactly as it is stored.
-- Errors: As dlq_list.
-- Tables: As dlq_list.
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_list_json(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    failure_class text DEFAULT NULL,
    error_code text DEFAULT NULL,
    fingerprint text DEFAULT NULL,
    status text DEFAULT NULL,
    "from" timestamptz DEFAULT NULL,
    "to" timestamptz DEFAULT NULL,
    after text DEFAULT NULL,
    max_rows int DEFAULT 100,
    redacted boolean DEFAULT false
)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_list_json';

COMMENT ON FUNCTION queen.dlq_list_json(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) IS
'The records of dlq_list and the cursor of the next page, as JSON.
Example: SELECT queen.dlq_list_json(''orders'', max_rows => 10)::json -> ''next'';';
REVOKE ALL ON FUNCTION queen.dlq_list_json(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_list_json(text, text, text, text, text, text, timestamptz, timestamptz, text, int, boolean) TO queen_viewer, queen_sidecar;

-- functions/dlq_move_v1.sql

-- queen.dlq_move_v1: move a dead letter back into a queue.
--
-- Pushes the message to the end of its own partition, or another, with the transaction id dlq:<id> and a fresh retry
-- budget, and deletes the record, in one. Encryption follows the destination queue. Of two callers at once, one moves
-- and the other is told gone. If a message with that transaction id is already there, the record stays.
--
-- The name carries a version: if the verdict ever changes its shape, there will be a v2 beside it.
--
-- Arguments:
--   dlq_id        Id of the record.
--   to_queue      Queue to move it to, created if missing; by default its own.
--   to_partition  Partition to move it to, created if missing; by default its own.
-- Result: {"result", "queue", "partition", "consumerGroup", "dlqId", "originalTransactionId", "messageId",
--         "transactionId", "offset"}; result is moved, duplicate (record kept), gone (no such record, or decided on) or
--         redacted (record kept: its payload is redacted and the log has lost the message).
-- Errors: QN001 (bad name); QN009, QN010 (encrypted destination, no usable key; the record is untouched); QN022 (the
--         queue has requireApproval, and the record is not approved).
-- Tables: queen.dead_letter_record (deleted from), queen.dlq_event (written), and as push_batch.
-- Locks: The record, then the partition pushed to, until the transaction ends.
CREATE FUNCTION queen.dlq_move_v1(dlq_id uuid, to_queue text DEFAULT NULL, to_partition text DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_move_v1';

COMMENT ON FUNCTION queen.dlq_move_v1(uuid, text, text) IS
'Moves a dead letter to the end of its queue, or another; the verdict is moved, duplicate, gone or redacted.
Example: SELECT queen.dlq_move_v1(id) FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_move_v1(uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_move_v1(uuid, text, text) TO queen_operator, queen_sidecar;

-- functions/dlq_needs_approval.sql

-- queen.dlq_needs_approval: whether a queue wants a second person before its dead letters are replayed. Internal.
--
-- Arguments:
--   of_tenant   Tenant of the queue.
--   queue_name  Queue name; one that is gone wants nothing.
-- Result: The queue's option requireApproval.
-- Tables: queen.queue (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_needs_approval(of_tenant uuid, queue_name text)
    RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT coalesce((SELECT q.options::jsonb ->> 'requireApproval' = 'true'
                       FROM queen.queue q WHERE q.tenant = $1 AND q.name = $2), false)
$$;

COMMENT ON FUNCTION queen.dlq_needs_approval(uuid, text) IS
'Part of other functions: the option requireApproval of a queue.
Example: SELECT queen.dlq_needs_approval(queen.current_tenant(), ''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_needs_approval(uuid, text) FROM PUBLIC;

-- functions/dlq_pause_plan.sql

-- queen.dlq_pause_plan: pause a running replay plan.
--
-- The batch at work, a tenth of a second of messages at most, is still done.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_pause_plan(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_pause_plan.plan_id, ARRAY['running'], 'paused', false);
    UPDATE queen.replay_plan r
       SET state = 'paused'
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_paused', NULL, p.plan_id, NULL, NULL);
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_pause_plan(uuid) IS
'Pauses a running replay plan.
Example: SELECT queen.dlq_pause_plan(plan_id) FROM queen.replay_plans WHERE state = ''running'';';
REVOKE ALL ON FUNCTION queen.dlq_pause_plan(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_pause_plan(uuid) TO queen_operator, queen_sidecar;

-- functions/dlq_payload.sql

-- queen.dlq_payload: the payload of a record in plain text. Internal, granted to nobody.
--
-- Arguments:
--   payload       As stored.
--   is_encrypted  Whether it is stored sealed.
-- Result: payload_text: the text, as stored if it cannot be opened; payload_json: the same as jsonb, NULL where jsonb
--         cannot hold it or it cannot be opened.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.dlq_payload(payload bytea, is_encrypted boolean, OUT payload_text text, OUT payload_json jsonb)
    LANGUAGE c STABLE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'queen_dlq_payload';

COMMENT ON FUNCTION queen.dlq_payload(bytea, boolean) IS
'Part of other functions: the payload of a dead letter in plain text.
Example: SELECT (queen.dlq_payload(payload, is_encrypted)).payload_json FROM queen.dead_letter_record;';
REVOKE ALL ON FUNCTION queen.dlq_payload(bytea, boolean) FROM PUBLIC;

-- functions/dlq_plan.sql

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

-- functions/dlq_plan_status.sql

-- queen.dlq_plan_status: how far a replay plan is.
--
-- While it runs too: each batch shows as it is committed.
--
-- Arguments:
--   plan_id  The plan.
-- Result: {"planId", "state", "phase", "planned", "moved", "duplicate", "failed", "gone", "refused", "remaining", "rate",
--         "canary": {"size", "replayed", "duplicate", "failed", "gone", "refused", "remaining", "failedAgain", "settled",
--         "stillPending"} of exactly the canary's messages, "autoWiden", "needsApproval", "reason", "remediation",
--         "selection", "toQueue", "toPartition", "maxRecords", "digest", "repairHash", "plannedBy", "plannedAt", "approvedBy",
--         "approvedAt", "approvalNote", "startedBy", "startedAt", "endedAt", "expiresAt", "errors": up to 5 of failed
--         and refused records [{"dlqId", "state", "error"}]}.
--         state: planned, approved, running, paused, canary_done (stopped until dlq_widen), done, cancelled, expired.
--         planned = moved + duplicate + failed + gone + refused + remaining, at any time.
-- Errors: QN020 (no such plan).
-- Tables: queen.replay_plan, queen.replay_item, queen.dead_letter_record, queen.cursor and others (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_plan_status(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p      queen.replay_plan;
    errors jsonb;
BEGIN
    SELECT r.* INTO p FROM queen.replay_plan r
     WHERE r.plan_id = dlq_plan_status.plan_id AND r.tenant = queen.current_tenant();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no replay plan %', dlq_plan_status.plan_id USING ERRCODE = 'QN020';
    END IF;
    IF p.failed + p.refused > 0 THEN
        SELECT jsonb_agg(jsonb_build_object('dlqId', i.dlq_id, 'state', i.state, 'error', i.error) ORDER BY i.n) INTO errors
          FROM (SELECT * FROM queen.replay_item w
                 WHERE w.plan_id = p.plan_id AND w.state IN ('failed', 'refused') ORDER BY w.n LIMIT 5) i;
    END IF;
    RETURN jsonb_build_object(
        'planId', p.plan_id,
        'state', CASE WHEN p.ended_at IS NULL AND p.expires_at <= clock_timestamp() THEN 'expired' ELSE p.state END,
        'phase', p.phase, 'planned', p.planned, 'moved', p.moved, 'duplicate', p.duplicate, 'failed', p.failed,
        'gone', p.gone, 'refused', p.refused, 'remaining', p.planned - p.next_n, 'rate', p.rate,
        'canary', queen.replay_canary(p.plan_id, p.canary), 'autoWiden', p.auto_widen,
        'needsApproval', p.needs_approval, 'reason', p.reason, 'remediation', p.remediation, 'selection', p.selection)
        || jsonb_build_object(
        'toQueue', p.to_queue, 'toPartition', p.to_partition, 'maxRecords', p.max_records, 'digest', p.digest,
        'repairHash', p.repair_hash,
        'plannedBy', p.planned_by, 'plannedAt', p.planned_at, 'approvedBy', p.approved_by, 'approvedAt', p.approved_at,
        'approvalNote', p.approval_note, 'startedBy', p.started_by, 'startedAt', p.started_at, 'endedAt', p.ended_at,
        'expiresAt', p.expires_at, 'errors', coalesce(errors, '[]'));
END
$$;

COMMENT ON FUNCTION queen.dlq_plan_status(uuid) IS
'How far a replay plan is, with what became of its canary.
Example: SELECT queen.dlq_plan_status(plan_id) FROM queen.replay_plans;';
REVOKE ALL ON FUNCTION queen.dlq_plan_status(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_plan_status(uuid) TO queen_viewer, queen_sidecar;

-- functions/dlq_purge.sql

-- queen.dlq_purge: delete all dead letters of a queue.
--
-- Wants an exact queue name: there is no way to purge everything at once.
--
-- Arguments:
--   queue           Queue name.
--   consumer_group  Only those of this consumer group.
-- Result: How many records were deleted.
-- Errors: QN001 (bad name).
-- Tables: queen.dead_letter_record (deleted from).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.dlq_purge(queue text, consumer_group text DEFAULT NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_dlq_purge';

COMMENT ON FUNCTION queen.dlq_purge(text, text) IS
'Deletes all dead letters of a queue, or of one of its consumer groups; returns how many.
Example: SELECT queen.dlq_purge(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.dlq_purge(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_purge(text, text) TO queen_admin, queen_sidecar;

-- functions/dlq_record_json.sql

-- queen.dlq_record_json: one dead letter with all its evidence.
--
-- Arguments:
--   dlq_id    Id of the record.
--   redacted  Show a payload that is kept encrypted as queen_viewer sees it, whoever asks.
-- Result: The record as an element of dlq_list_json's records, whatever its status; NULL: there is none.
-- Errors: 22023 (dlq_id NULL).
-- Tables: queen.dead_letter_record, queen.queue (read).
-- Locks: None.
CREATE FUNCTION queen.dlq_record_json(dlq_id uuid, redacted boolean DEFAULT false)
    RETURNS text
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_record_json';

COMMENT ON FUNCTION queen.dlq_record_json(uuid, boolean) IS
'One dead letter with all its evidence, as JSON.
Example: SELECT queen.dlq_record_json(id)::json ->> ''error'' FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_record_json(uuid, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_record_json(uuid, boolean) TO queen_viewer, queen_sidecar;

-- functions/dlq_repair.sql

-- queen.dlq_repair: replay a dead letter with an edited payload.
--
-- The edited message is a new one, with an id of its own, the transaction id repair:<uuid>, and headers that name the
-- original. The record is not edited: it stays as evidence, with status replayed.
--
-- Arguments:
--   dlq_id        The record, not decided on yet. If its queue has requireApproval, it must be in a plan that somebody else
--                 has approved and that was made for this payload (argument repair of dlq_plan) and destination. The plan is
--                 done with it.
--   payload       The payload instead of the stored one; any JSON.
--   reason        Why; not blank.
--   to_queue      Queue, created if missing; by default its own.
--   to_partition  Partition, created if missing; by default its own.
-- Result: As dlq_move_v1, with partitionId; result is repaired.
-- Errors: QN027 (no such record), QN022 (this payload is not approved), 22023 (reason blank), QN002 (no payload, or one with "[REDACTED]"
--         in it), QN003 (payload too large), QN001 (bad name); QN009, QN010 (encrypted destination, no usable key).
-- Tables: As dlq_move_v1; queen.dead_letter_record, queen.replay_plan, queen.replay_item (updated), queen.dlq_event (written).
-- Locks: The plan, if there is one; then as dlq_move_v1.
CREATE FUNCTION queen.dlq_repair(
    dlq_id uuid,
    payload json,
    reason text,
    to_queue text DEFAULT NULL,
    to_partition text DEFAULT NULL
)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    me      constant uuid := queen.current_tenant();
    new     constant text := queen.repair_hash(payload);
    old     text;
    plan    uuid;
    verdict jsonb;
BEGIN
    IF btrim(coalesce(reason, '')) = '' THEN
        RAISE EXCEPTION 'reason must not be blank' USING ERRCODE = '22023';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'payload must not be NULL' USING ERRCODE = 'QN002';
    END IF;
    -- What an operator sees of a redacted record, sent back, would be taken for data.
    IF position('[REDACTED]' IN payload::text) > 0 THEN
        RAISE EXCEPTION 'the payload has redacted values'
              USING ERRCODE = 'QN002', HINT = 'Take what stands for "[REDACTED]" from its source.';
    END IF;
    -- Plans before records, as everywhere.
    SELECT p.plan_id INTO plan
      FROM queen.dead_letter_record r
      JOIN queen.replay_item i ON i.dlq_id = r.id
      JOIN queen.replay_plan p ON p.plan_id = i.plan_id
     WHERE r.id = dlq_repair.dlq_id AND p.tenant = me AND p.repair_hash = new
       AND p.state = 'approved' AND p.expires_at > clock_timestamp()
       AND coalesce(p.to_queue, r.queue) = coalesce(btrim(dlq_repair.to_queue), r.queue)
       AND coalesce(p.to_partition, r.partition) = coalesce(btrim(dlq_repair.to_partition), r.partition)
     ORDER BY p.planned_at LIMIT 1
       FOR UPDATE OF p;
    IF FOUND THEN
        -- As it was approved.
        PERFORM queen.replay_plan_lock(plan, ARRAY['approved'], 'carried out', true);
    END IF;
    -- Of what was pushed; where that could not be opened, of what is stored.
    SELECT coalesce(r.payload_hash, encode(sha256(r.payload), 'hex')) INTO old FROM queen.dead_letter_record r
     WHERE r.id = dlq_repair.dlq_id AND r.tenant = me AND r.status IN ('pending', 'approved')
       FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no dead letter % to repair', dlq_repair.dlq_id USING ERRCODE = 'QN027';
    END IF;
    verdict := queen.dlq_replay_row(dlq_repair.dlq_id, to_queue, to_partition, payload);
    PERFORM queen.dlq_audit('repaired', dlq_repair.dlq_id, plan, NULL, (verdict -> 'detail') || jsonb_build_object(
        'reason', reason,
        'originalPayloadHash', old,
        'payloadHash', new));
    IF plan IS NOT NULL THEN
        UPDATE queen.replay_item i
           SET state = 'moved', message_id = (verdict ->> 'messageId')::uuid,
               to_partition_id = (verdict ->> 'partitionId')::uuid, at_offset = (verdict ->> 'offset')::bigint,
               done_at = clock_timestamp()
         WHERE i.plan_id = plan AND i.dlq_id = dlq_repair.dlq_id;
        UPDATE queen.replay_plan p
           SET next_n = p.planned, moved = 1, started_by = queen.actor(), started_at = clock_timestamp()
         WHERE p.plan_id = plan;
        PERFORM queen.replay_plan_end(plan, 'done', queen.actor());
    END IF;
    RETURN (verdict - 'detail') || '{"result": "repaired"}';
END
$$;

COMMENT ON FUNCTION queen.dlq_repair(uuid, json, text, text, text) IS
'Replays a dead letter with an edited payload, as a new message; the record stays as it is.
Example: SELECT queen.dlq_repair(id, ''{"id": 7, "total": 12}'', ''total was text'') FROM queen.dlq(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_repair(uuid, json, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_repair(uuid, json, text, text, text) TO queen_operator, queen_sidecar;

-- functions/dlq_replay_row.sql

-- queen.dlq_replay_row: put one dead letter back into a queue, and keep the record. Internal, granted to nobody.
--
-- Arguments:
--   dlq_id        Id of the record, of whatever tenant: callers have looked.
--   to_queue      Queue, created if missing; by default its own.
--   to_partition  Partition, created if missing; by default its own.
--   payload       An edited payload: the message is a repair, with an id of its own.
-- Result: As dlq_move_v1, with partitionId, and detail for the audit.
-- Errors: As dlq_move_v1; QN022 (the queue wants an approval that the record has not).
-- Tables: queen.dead_letter_record (updated), and as push_batch.
-- Locks: The record, then the partition pushed to, until the transaction ends.
CREATE FUNCTION queen.dlq_replay_row(dlq_id uuid, to_queue text, to_partition text, payload json DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_dlq_replay_row';

COMMENT ON FUNCTION queen.dlq_replay_row(uuid, text, text, json) IS
'Part of other functions: puts a dead letter back into a queue and keeps the record.
Example: SELECT queen.dlq_replay_row(id, NULL, NULL) FROM queen.dead_letter_record;';
REVOKE ALL ON FUNCTION queen.dlq_replay_row(uuid, text, text, json) FROM PUBLIC;

-- functions/dlq_resume_plan.sql

-- queen.dlq_resume_plan: resume a paused replay plan.
--
-- At its rate from now on: what it has missed is not made up for.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired), QN024 (not what was planned or approved), QN025 (over its
--         limit).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_resume_plan(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_resume_plan.plan_id, ARRAY['paused'], 'resumed', true);
    UPDATE queen.replay_plan r
       SET state = 'running',
           -- Not before the next message is due: whoever stops and goes on does not go faster.
           due_at = greatest(r.due_at, clock_timestamp()), next_at = greatest(r.next_at, clock_timestamp())
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_resumed', NULL, p.plan_id, NULL, NULL);
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_resume_plan(uuid) IS
'Resumes a paused replay plan.
Example: SELECT queen.dlq_resume_plan(plan_id) FROM queen.replay_plans WHERE state = ''paused'';';
REVOKE ALL ON FUNCTION queen.dlq_resume_plan(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_resume_plan(uuid) TO queen_operator, queen_sidecar;

-- functions/dlq_run.sql

-- queen.dlq_run: start a replay plan.
--
-- Messages move when queen.run_replays or the background worker gets to it: the canary first.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state, or for a repair), QN023 (expired), QN024 (not what was planned or approved), QN025 (over its
--         limit), QN022 (not approved).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_run(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_run.plan_id, ARRAY['planned', 'approved'], 'started', true);
    IF p.repair_hash IS NOT NULL THEN
        RAISE EXCEPTION 'replay plan % is for a repair: it cannot be started', p.plan_id
              USING ERRCODE = 'QN021', HINT = 'Call queen.dlq_repair, with the payload that the plan was made with.';
    END IF;
    -- As the queues are now: an option that was set after the plan was made counts.
    IF p.approved_at IS NULL AND (p.needs_approval OR EXISTS (
           SELECT FROM (SELECT DISTINCT r.queue FROM queen.replay_item i
                          JOIN queen.dead_letter_record r ON r.id = i.dlq_id WHERE i.plan_id = p.plan_id) q
            WHERE queen.dlq_needs_approval(p.tenant, q.queue))) THEN
        RAISE EXCEPTION 'replay plan % is not approved', p.plan_id
              USING ERRCODE = 'QN022', HINT = 'Somebody else than its maker has to call queen.dlq_approve.';
    END IF;
    UPDATE queen.replay_plan r
       SET state = 'running', started_by = queen.actor(), started_at = clock_timestamp(),
           due_at = clock_timestamp(), next_at = clock_timestamp(), recent_at = '{}', recent_n = '{}'
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_started', NULL, p.plan_id, NULL, jsonb_build_object('digest', p.digest));
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_run(uuid) IS
'Starts a replay plan: its canary first.
Example: SELECT queen.dlq_run(plan_id) FROM queen.replay_plans WHERE state = ''approved'';';
REVOKE ALL ON FUNCTION queen.dlq_run(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_run(uuid) TO queen_operator, queen_sidecar;

-- functions/dlq_stats.sql

-- queen.dlq_stats: figures of the dead letters, by queue and consumer group.
--
-- Arguments:
--   queue           Only this queue.
--   consumer_group  Only this consumer group.
--   window_minutes  What rates are over: so many full minutes and the running one; 1 to 60.
-- Result: A row for each queue and group that has records, or had some made in that time.
-- Errors: 22023 (window_minutes out of range).
-- Tables: queen.dlq_tally (read; folded when it is long), queen.dead_letter_record, queen.queue (read).
-- Locks: None that is waited for.
CREATE FUNCTION queen.dlq_stats(
    queue text DEFAULT NULL,
    consumer_group text DEFAULT NULL,
    window_minutes int DEFAULT 10
)
    RETURNS SETOF queen.dlq_stat
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'queen_dlq_stats';

COMMENT ON FUNCTION queen.dlq_stats(text, text, int) IS
'Figures of the dead letters by queue and consumer group: how many, how old, how fast they come, which failures.
Example: SELECT queue, consumer_group, pending, net_per_minute, owner FROM queen.dlq_stats(''orders'');';
REVOKE ALL ON FUNCTION queen.dlq_stats(text, text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_stats(text, text, int) TO queen_viewer, queen_sidecar;

-- functions/dlq_widen.sql

-- queen.dlq_widen: go on after the canary.
--
-- The rest follows, at the same rate.
--
-- Arguments:
--   plan_id  The plan.
-- Result: As dlq_plan_status.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired), QN024 (not what was planned or approved), QN025 (over its
--         limit).
-- Tables: queen.replay_plan (updated), queen.dlq_event (written).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.dlq_widen(plan_id uuid)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    p queen.replay_plan;
BEGIN
    p := queen.replay_plan_lock(dlq_widen.plan_id, ARRAY['canary_done'], 'widened', true);
    UPDATE queen.replay_plan r
       SET state = 'running', phase = 'rest',
           -- Not before the next message is due: whoever stops and goes on does not go faster.
           due_at = greatest(r.due_at, clock_timestamp()), next_at = greatest(r.next_at, clock_timestamp())
     WHERE r.plan_id = p.plan_id;
    PERFORM queen.dlq_audit('plan_widened', NULL, p.plan_id, NULL, jsonb_build_object('canary', queen.replay_canary(p.plan_id, p.canary)));
    RETURN queen.dlq_plan_status(p.plan_id);
END
$$;

COMMENT ON FUNCTION queen.dlq_widen(uuid) IS
'Lets a replay plan go on after its canary.
Example: SELECT queen.dlq_widen(plan_id) FROM queen.replay_plans WHERE state = ''canary_done'';';
REVOKE ALL ON FUNCTION queen.dlq_widen(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.dlq_widen(uuid) TO queen_operator, queen_sidecar;

-- functions/drop_consumer_group.sql

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

-- functions/drop_queue.sql

-- queen.drop_queue: remove a queue and all that belongs to it.
--
-- Messages, partitions, consumer groups, leases and dead letters go. Nobody is asked, nothing can be brought back
-- after commit. A push that is waiting for its commit meanwhile creates the queue again, as any first push does.
--
-- Arguments:
--   queue  Queue name.
-- Result: true if there was such a queue.
-- Errors: QN001 (bad name).
-- Tables: All of schema queen (deleted from); queen.dlq_event (written).
-- Locks: The queue, then its cursors, then its partitions, both ascending, until the transaction ends; waits for pops,
--        acks, pushes and housekeeping under way, and they for it.
CREATE FUNCTION queen.drop_queue(queue text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_drop_queue';

COMMENT ON FUNCTION queen.drop_queue(text) IS
'Removes a queue with its messages, consumer groups and dead letters; false if there is none of that name.
Example: SELECT queen.drop_queue(''orders'');';
REVOKE ALL ON FUNCTION queen.drop_queue(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.drop_queue(text) TO queen_admin, queen_sidecar;

-- functions/due_json.sql

-- queen.due_json: when pops may find something, for many groups at once.
--
-- For the HTTP server: what wait_changes cannot tell, because no commit brings it. It takes nothing: pop next, and
-- expect that there is nothing after all.
--
-- Arguments:
--   watches  JSON array of [queue, consumer_group] or [queue, consumer_group, partition]; a consumer_group that is null
--            is __QUEUE_MODE__, a partition that is null is any. Names are compared as they are.
-- Result: A JSON array with one element a watch, in order: 0: now; n: not before n milliseconds have passed (the end of
--         a lease, of delayedProcessing or of windowBuffer; or, where far ones are dear to find, when to ask again);
--         null: nothing is known that time alone would bring. 0 also where it is unsure, and for a group that
--         has not subscribed or a queue that does not exist: the pop would see to that. null for a partition that does not
--         exist.
-- Errors: 22023 (watches is NULL or not such an array).
-- Tables: queen.queue, queen.subscription, queen.ready, queen.partition, queen.cursor, queen.segment, queen.trimmed
--         (read).
-- Locks: None.
CREATE FUNCTION queen.due_json(watches text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_due_json';

COMMENT ON FUNCTION queen.due_json(text) IS
'For each [queue, consumer_group] or [queue, consumer_group, partition], in how many milliseconds a pop may find something.
Example: SELECT queen.due_json(''[["orders", "billing"], ["orders", "billing", "eu"]]'');';
REVOKE ALL ON FUNCTION queen.due_json(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.due_json(text) TO queen_sidecar;

-- functions/flush.sql

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

-- functions/maintain.sql

-- queen.maintain: do the housekeeping.
--
-- Applies retention, forgets deduplication ids out of their window, folds counters. Idempotent, safe to run anywhere
-- and any time, from cron or by hand; what another session is at is left to it. It takes no lock that a push, pop or
-- ack waits for, even if its transaction stays open. Not running it costs space and nothing else.
--
-- Result: What was done, as counts.
-- Tables: queen.segment, queen.trimmed, queen.transaction_id, queen.cursor, queen.ready,
--         queen.dropped_duplicate (deleted from, written).
-- Locks: None that traffic waits for.
CREATE FUNCTION queen.maintain()
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000
    AS 'MODULE_PATHNAME', 'queen_maintain';

COMMENT ON FUNCTION queen.maintain() IS
'Applies retention and does the housekeeping; safe at any time. Returns what was done.
Example: SELECT queen.maintain();';
REVOKE ALL ON FUNCTION queen.maintain() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.maintain() TO queen_admin, queen_sidecar;

-- functions/message.sql

-- queen.message: look one message up.
--
-- The newest with that transaction id, as messages shows it.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
-- Result: The message; NULL if there is none.
-- Errors: QN011, QN012 (segment damaged or unknown).
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.transaction_id,
--         queen.subscription, queen.cursor, queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.message(partition_id uuid, transaction_id text)
    RETURNS queen.stored_message
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_message';

COMMENT ON FUNCTION queen.message(uuid, text) IS
'Looks one stored message up; NULL if there is none.
Example: SELECT (queen.message(partition_id, ''order-1'')).* FROM queen.partitions WHERE queue = ''orders'';';
REVOKE ALL ON FUNCTION queen.message(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.message(uuid, text) TO queen_viewer, queen_sidecar;

-- functions/messages.sql

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

-- functions/nack.sql

-- queen.nack: report that a message of a lease failed.
--
-- As ack with status failed, addressed by lease instead of partition and group. Messages before it in its partition
-- count as completed; the lease on the partition ends.
--
-- Arguments:
--   lease_id        The lease, as pop gave it.
--   transaction_id  Transaction id of the message that failed.
--   error           What went wrong; kept with the dead letter, cut at 4 KiB.
--   status          failed, retry or dlq, as in ack.
--   reason          A word for why, kept with the dead letter.
-- Result: One row; on a lease that is not live, success is false.
-- Errors: QN017 (the lease holds this id in several partitions: use ack);
--         QN011, QN012 (segment damaged or unknown).
-- Tables: queen.partition, queen.segment, queen.transaction_id (read); queen.cursor, queen.ready,
--         queen.dead_letter_record (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.nack(
    lease_id uuid,
    transaction_id text,
    error text DEFAULT NULL,
    status text DEFAULT 'failed',
    reason text DEFAULT NULL
)
    RETURNS queen.ack_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_nack';

COMMENT ON FUNCTION queen.nack(uuid, text, text, text, text) IS
'Reports that a message failed: it is delivered again until retryLimit is used up, then it becomes a dead letter.
Example: SELECT queen.nack(m.lease_id, m.transaction_id, ''no such customer'') FROM queen.pop(''orders'', ''billing'') m;';
REVOKE ALL ON FUNCTION queen.nack(uuid, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.nack(uuid, text, text, text, text) TO queen_consumer;

-- functions/pause_group.sql

-- queen.pause_group: stop a consumer group in one queue.
--
-- Its pops bring nothing and charge nothing until queen.resume_group, and whoever waits for messages waits on. Leases
-- under way may still be settled, renewed and released; what fails meanwhile is charged as ever.
--
-- Arguments:
--   queue           Name of the queue.
--   consumer_group  Name of the group; __QUEUE_MODE__ for consumers who name none.
--   reason          Why, shown in queen.consumer_groups; cut at 500 bytes.
-- Result: Whether that changed anything: false for a group that is paused already, or that has never popped from the
--         queue. The reason of the first pause stays.
-- Errors: QN001 (bad name), QN013 (no such queue).
-- Tables: queen.subscription (replaced), queen.dlq_event (written).
-- Locks: The groups of the queue, then the group's row, until the transaction ends. Waits for no pop and no ack, but for
--        one that is just pausing the group by itself.
CREATE FUNCTION queen.pause_group(
    queue text,
    consumer_group text,
    reason text DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_pause_group';

COMMENT ON FUNCTION queen.pause_group(text, text, text) IS
'Lets the pops of a consumer group in a queue bring nothing until resume_group; returns whether it was not paused before.
Example: SELECT queen.pause_group(''orders'', ''billing'', ''the payment provider is down'');';
REVOKE ALL ON FUNCTION queen.pause_group(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.pause_group(text, text, text) TO queen_operator, queen_sidecar;

-- functions/pop.sql

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

-- functions/pop_json.sql

-- queen.pop_json: pop for the HTTP server: the result as JSON text.
--
-- See pop.
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
-- Errors: As pop.
-- Tables: As pop.
-- Locks: As pop.
CREATE FUNCTION queen.pop_json(
    queue text,
    consumer_group text DEFAULT '__QUEUE_MODE__',
    batch int DEFAULT 1,
    partition text DEFAULT NULL,
    max_partitions int DEFAULT 1,
    lease_seconds int DEFAULT NULL,
    auto_ack boolean DEFAULT false,
    subscription_mode text DEFAULT NULL,
    subscription_from text DEFAULT NULL,
    conflation boolean DEFAULT NULL,
    max_bytes int DEFAULT NULL
)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_pop_json';

COMMENT ON FUNCTION queen.pop_json(text, text, int, text, int, int, boolean, text, text, boolean, int) IS
'pop with the result as JSON text, for the HTTP server.
Example: SELECT queen.pop_json(''orders'', ''billing'', batch => 10);';
REVOKE ALL ON FUNCTION queen.pop_json(text, text, int, text, int, int, boolean, text, text, boolean, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.pop_json(text, text, int, text, int, int, boolean, text, text, boolean, int) TO queen_sidecar;

-- functions/pop_matching.sql

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

-- functions/pop_matching_json.sql

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

-- functions/process_once.sql

-- queen.process_once: whether a consumer sees this message for the first time.
--
-- Part of the caller's transaction: if that is rolled back, the message counts as never seen. Of two callers at once, the
-- second waits for the first; it is told false when that commits, and true when it rolls back. In a REPEATABLE READ or
-- SERIALIZABLE transaction the second may get a serialization failure instead, and tries again.
--
-- Arguments:
--   consumer    Who: the same message is new to each consumer once. Same rules as a name.
--   message_id  Any id that stays the same when the message comes again: of a replayed message, its x-causation-id.
-- Result: true the first time, false ever after (maintain() forgets after queen.processed_message_days).
-- Errors: QN001 (bad consumer), 22023 (message_id is NULL).
-- Tables: queen.processed_message (inserted into).
-- Locks: The pair, until the transaction ends.
CREATE FUNCTION queen.process_once(consumer text, message_id uuid)
    RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_variable
BEGIN
    IF btrim(coalesce(consumer, '')) = '' OR length(consumer) > 255 OR consumer ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'the name of the consumer is blank, too long, or has control characters' USING ERRCODE = 'QN001';
    END IF;
    IF message_id IS NULL THEN
        RAISE EXCEPTION 'message_id must not be NULL' USING ERRCODE = '22023';
    END IF;
    INSERT INTO queen.processed_message AS m (tenant, consumer, message_id)
    VALUES (queen.current_tenant(), consumer, message_id)
        ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

COMMENT ON FUNCTION queen.process_once(text, uuid) IS
'Whether a consumer sees this message for the first time, within the caller''s transaction.
Example: SELECT queen.process_once(''billing'', message_id) FROM queen.pop(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.process_once(text, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.process_once(text, uuid) TO queen_consumer, queen_sidecar;

-- functions/push.sql

-- queen.push: put one message into a queue, as part of the caller's transaction.
--
-- The message appears when the transaction commits and never if it does not, savepoints included. It is collected in
-- the session until then: a transaction that has pushed and then waits holds no lock that another push, pop or ack
-- needs. All pushes of a transaction to one partition are stored together and in order.
--
-- A message with the transaction id of an earlier one, within the queue's dedupWindowSeconds, is a duplicate and is
-- not stored. A duplicate that comes to light only at commit is dropped in silence and counted: the id is in the queue
-- exactly once. Queue and partition are created by the first push.
--
-- Arguments:
--   queue           Queue name: 1 to 255 characters, not blank, no control characters.
--   payload         The message, any JSON; SQL NULL is refused, JSON null is a payload. To keep the text byte for
--                   byte, use push_batch.
--   partition       The lane: order holds within a partition, a consumer group works on as many partitions at once as
--                   there are.
--   transaction_id  Deduplication id, up to 65535 bytes; by default the message id.
--   trace_id        Handed to the consumer as it is.
--   headers         A JSON object, handed to the consumer as it is.
-- Result: One row. partition_id and offset are NULL: they are given at commit. A duplicate answers those of
--         the message that is there.
-- Errors: QN001 (bad name); QN002 (not JSON, or missing); QN003 (payload larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN009, QN010 (encrypted queue, no usable key). Nothing is
--         stored then.
-- Tables: queen.queue, queen.partition, queen.segment, queen.transaction_id, queen.subscription, queen.ready
--         (all at commit).
-- Locks: None before commit; then the rows of the partitions, ascending, for as long as the commit takes.
CREATE FUNCTION queen.push(
    queue text,
    payload jsonb,
    partition text DEFAULT 'Default',
    transaction_id text DEFAULT NULL,
    trace_id uuid DEFAULT NULL,
    headers jsonb DEFAULT NULL
)
    RETURNS queen.push_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10
    AS 'MODULE_PATHNAME', 'queen_push';

COMMENT ON FUNCTION queen.push(text, jsonb, text, text, uuid, jsonb) IS
'Puts a message into a queue; it lands when the transaction commits, and only then.
Needs no setup: queue and partition are created by the first push.
Example: SELECT queen.push(''orders'', ''{"id": 1}'', partition => ''customer-7'', transaction_id => ''order-1'');';
REVOKE ALL ON FUNCTION queen.push(text, jsonb, text, text, uuid, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push(text, jsonb, text, text, uuid, jsonb) TO queen_producer;

-- functions/push_batch.sql

-- queen.push_batch: append messages given as JSON, now.
--
-- For producers that speak JSON and commit at once, such as the HTTP server. Payloads are kept byte for byte. Other
-- than push, this appends right away: offsets are known, and the partitions stay locked until the transaction ends. So
-- do little after it. One call locks in one global order, so that two such calls never deadlock.
--
-- An item with the transaction id of a message that is already there, or of an earlier item, is a duplicate.
--
-- Arguments:
--   items  A JSON array of objects {queue, partition, payload, transactionId, traceId, headers}; queue and payload are
--          required, unknown keys are ignored.
-- Result: One row for each item, in order, with partition_id and offset; a duplicate answers those of the
--         message that is there.
-- Errors: QN001 (bad name); QN002 (not JSON, or missing); QN003 (payload larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN009, QN010 (encrypted queue, no usable key). Nothing is
--         stored then. QN008 (items have the wrong shape); 22P02 (traceId is not a UUID).
-- Tables: queen.queue, queen.partition, queen.segment, queen.transaction_id, queen.subscription, queen.ready.
-- Locks: The rows of the partitions, ascending, until the transaction ends.
CREATE FUNCTION queen.push_batch(items json)
    RETURNS SETOF queen.push_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_push_batch';

COMMENT ON FUNCTION queen.push_batch(json) IS
'Appends messages given as a JSON array, at once; payloads are kept byte for byte.
Keeps the partitions locked until the transaction ends: meant for autocommit. Inside a business transaction use push.
Example: SELECT * FROM queen.push_batch(''[{"queue": "orders", "payload": {"id": 1}}]'');';
REVOKE ALL ON FUNCTION queen.push_batch(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push_batch(json) TO queen_producer;

-- functions/push_batch_json.sql

-- queen.push_batch_json: push_batch for the HTTP server: the result as JSON text.
--
-- For producers that speak JSON and commit at once, such as the HTTP server. Payloads are kept byte for byte. Other
-- than push, this appends right away: offsets are known, and the partitions stay locked until the transaction ends. So
-- do little after it. One call locks in one global order, so that two such calls never deadlock.
--
-- Arguments:
--   items  A JSON array of objects {queue, partition, payload, transactionId, traceId, headers, producer}; queue and
--          payload are required, unknown keys are ignored. producer, a string or null, is stored as who pushed the
--          message: whoever may call this has authenticated them. push_batch ignores that key.
-- Result: A JSON array with one object for each item: messageId, offset, and duplicate if it is one.
-- Errors: As push_batch; QN008 for a producer that is no string or has control characters, too.
-- Tables: As push_batch.
-- Locks: As push_batch.
CREATE FUNCTION queen.push_batch_json(items text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_push_batch_json';

COMMENT ON FUNCTION queen.push_batch_json(text) IS
'push_batch with the result as JSON text, for the HTTP server.
Example: SELECT queen.push_batch_json(''[{"queue": "orders", "payload": {"id": 1}}]'');';
REVOKE ALL ON FUNCTION queen.push_batch_json(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push_batch_json(text) TO queen_sidecar;

-- functions/push_many.sql

-- queen.push_many: put several messages into one partition, as part of the caller's transaction.
--
-- As push for each payload in turn, in one call.
--
-- Arguments:
--   queue            Queue name: 1 to 255 characters, not blank, no control characters.
--   payloads         The messages, in order; one dimension, no NULL element.
--   partition        The lane of all of them.
--   transaction_ids  Deduplication ids, one for each payload; a NULL element means the message id.
-- Result: One row for each payload, in order; as push.
-- Errors: QN001 (bad name); QN002 (not JSON, or missing); QN003 (payload larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN009, QN010 (encrypted queue, no usable key). Nothing is
--         stored then. 22023 (arrays of different length).
-- Tables: As push.
-- Locks: As push.
CREATE FUNCTION queen.push_many(
    queue text,
    payloads jsonb[],
    partition text DEFAULT 'Default',
    transaction_ids text[] DEFAULT NULL
)
    RETURNS SETOF queen.push_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_push_many';

COMMENT ON FUNCTION queen.push_many(text, jsonb[], text, text[]) IS
'Puts several messages into one partition; they land when the transaction commits, and only then.
Example: SELECT * FROM queen.push_many(''orders'', ARRAY[''{"id": 1}'', ''{"id": 2}'']::jsonb[]);';
REVOKE ALL ON FUNCTION queen.push_many(text, jsonb[], text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.push_many(text, jsonb[], text, text[]) TO queen_producer;

-- functions/read.sql

-- queen.read: read a partition from an offset on.
--
-- Takes no lease and moves no cursor: for replay, audit, export. Starts at the first message still stored if retention
-- has removed the one asked for.
--
-- Arguments:
--   partition_id  The partition.
--   from_offset   First offset wanted; 0 is the beginning.
--   max_rows      At most so many rows.
-- Result: The messages in the order of their offsets; none if there is no such partition.
-- Errors: 22023 (from_offset or max_rows below 0); QN011, QN012 (segment damaged or unknown).
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.subscription, queen.cursor,
--         queen.dead_letter_record (read).
-- Locks: None.
CREATE FUNCTION queen.read(partition_id uuid, from_offset bigint, max_rows int DEFAULT 100)
    RETURNS SETOF queen.stored_message
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_read';

COMMENT ON FUNCTION queen.read(uuid, bigint, int) IS
'Reads the messages of a partition from an offset on, in order; no lease, no cursor.
Example: SELECT r.* FROM queen.partitions p, queen.read(p.partition_id, 0) r WHERE p.queue = ''orders'';';
REVOKE ALL ON FUNCTION queen.read(uuid, bigint, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.read(uuid, bigint, int) TO queen_viewer;

-- functions/record_trace.sql

-- queen.record_trace: note something about a message.
--
-- Notes are kept beside the log, with the names of queue and partition: they outlive both. Whether the partition has
-- such a message is not looked at.
--
-- Arguments:
--   partition_id    Partition of the message.
--   transaction_id  Transaction id of the message.
--   data            What to note; any JSON, kept byte for byte.
--   consumer_group  The group that notes it.
--   event_type      Kind of the event, a word of the caller's; same rules as a name.
--   trace_names     Names to find it by, with notes on other messages; same rules as a name. Each counts once.
-- Result: Id of the note.
-- Errors: QN001 (bad group, event type or trace name); QN003 (data larger than queen.max_payload_bytes);
--         QN004, QN005 (bad or too long transaction id); QN014 (no such partition); 22023 (an argument is NULL).
-- Tables: queen.partition, queen.queue (read); queen.trace, queen.trace_name (written).
-- Locks: None that another call waits for.
CREATE FUNCTION queen.record_trace(
    partition_id uuid,
    transaction_id text,
    data json,
    consumer_group text DEFAULT '__QUEUE_MODE__',
    event_type text DEFAULT 'info',
    trace_names text[] DEFAULT NULL
)
    RETURNS uuid
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'queen_record_trace';

COMMENT ON FUNCTION queen.record_trace(uuid, text, json, text, text, text[]) IS
'Notes something about a message; returns the id of the note.
Example: SELECT queen.record_trace(partition_id, transaction_id, ''{"step": "paid"}'', trace_names => ARRAY[''order-1'']) FROM queen.pop(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.record_trace(uuid, text, json, text, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.record_trace(uuid, text, json, text, text, text[]) TO queen_consumer, queen_sidecar;

-- functions/release.sql

-- queen.release: give a lease back.
--
-- What it holds unsettled can be delivered again at once. Nothing is charged: for a consumer that stops.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
-- Result: How many partitions were released; 0 if the lease is not live.
-- Tables: queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.release(lease_id uuid)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_release';

COMMENT ON FUNCTION queen.release(uuid) IS
'Gives a lease back without charge; its messages are delivered again. Returns the number of partitions, 0 if the lease is not live.
Example: SELECT queen.release(lease_id) FROM queen.pop(''orders'', ''billing'') LIMIT 1;';
REVOKE ALL ON FUNCTION queen.release(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.release(uuid) TO queen_consumer, queen_sidecar;

-- functions/renew_lease.sql

-- queen.renew_lease: hold a lease for longer.
--
-- It ends no sooner than seconds from now, in all its partitions. Never shortens it.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
--   seconds   Seconds from now, 1 to 604800.
-- Result: When the lease ends now (the earliest of its partitions); NULL if it is not live.
-- Errors: 22023 (seconds out of range).
-- Tables: queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.renew_lease(lease_id uuid, seconds int DEFAULT 60)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_renew_lease';

COMMENT ON FUNCTION queen.renew_lease(uuid, int) IS
'Makes a lease last at least so many seconds from now; returns its end, NULL if it is not live.
Example: SELECT queen.renew_lease(lease_id, 300) FROM queen.pop(''orders'', ''billing'') LIMIT 1;';
REVOKE ALL ON FUNCTION queen.renew_lease(uuid, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.renew_lease(uuid, int) TO queen_consumer, queen_sidecar;

-- functions/renew_lease_json.sql

-- queen.renew_lease_json: renew_lease for the HTTP server: the result as JSON text.
--
-- See renew_lease.
--
-- Arguments:
--   lease_id  The lease, as pop gave it.
--   seconds   Seconds from now, 1 to 604800.
-- Result: A JSON object: success, renewed (of how many partitions), and newExpiresAt, expiresAt and lease_expires_at,
--         which are the same: the earliest end of its partitions, null if the lease is not live.
-- Errors: As renew_lease.
-- Tables: As renew_lease.
-- Locks: As renew_lease.
CREATE FUNCTION queen.renew_lease_json(lease_id uuid, seconds int DEFAULT 60)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 50
    AS 'MODULE_PATHNAME', 'queen_renew_lease_json';

COMMENT ON FUNCTION queen.renew_lease_json(uuid, int) IS
'renew_lease with the result as JSON text, for the HTTP server.
Example: SELECT queen.renew_lease_json(gen_random_uuid());';
REVOKE ALL ON FUNCTION queen.renew_lease_json(uuid, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.renew_lease_json(uuid, int) TO queen_sidecar;

-- functions/repair_hash.sql

-- queen.repair_hash: what stands for the payload of a repair in plans, approvals and the audit. Internal, granted to nobody.
--
-- Arguments:
--   payload  The payload.
-- Result: SHA-256 of its text, byte for byte, in hex; NULL for NULL.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.repair_hash(payload json)
    RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT encode(sha256(convert_to($1::text, 'UTF8')), 'hex')
$$;

COMMENT ON FUNCTION queen.repair_hash(json) IS
'Part of other functions: the hash that an approval of a repair is for.
Example: SELECT queen.repair_hash(''{"id": 7}'');';
REVOKE ALL ON FUNCTION queen.repair_hash(json) FROM PUBLIC;

-- functions/replay_batch.sql

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

-- functions/replay_canary.sql

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

-- functions/replay_digest.sql

-- queen.replay_digest: what a plan is, in one hash. Internal, granted to nobody.
--
-- Arguments:
--   plan  The plan.
--   ids   Its records, in order.
-- Result: SHA-256 over what was decided and the records; it changes when any of it does.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.replay_digest(plan queen.replay_plan, ids uuid[])
    RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO'
    AS $$
    SELECT encode(sha256(convert_to(
        concat_ws(E'\n', jsonb_build_array(
            $1.plan_id, $1.tenant, $1.reason, $1.remediation, $1.selection, $1.to_queue, $1.to_partition, $1.rate,
            $1.canary, $1.auto_widen, $1.max_records, $1.expires_at, $1.planned_by, $1.needs_approval,
            $1.repair_hash),
            array_to_string($2, ',')), 'UTF8')), 'hex')
$$;

COMMENT ON FUNCTION queen.replay_digest(queen.replay_plan, uuid[]) IS
'Part of other functions: one hash over what a plan decides.
Example: SELECT queen.replay_digest(p, ARRAY[]::uuid[]) FROM queen.replay_plan p;';
REVOKE ALL ON FUNCTION queen.replay_digest(queen.replay_plan, uuid[]) FROM PUBLIC;

-- functions/replay_failed_again.sql

-- queen.replay_failed_again: a plan keeps what it was told by a dead letter that is deleted. Internal: a trigger of
-- queen.dead_letter_record.
--
-- That a replayed message has failed again shows by its new dead letter. When that is deleted, purged or moved, the plans
-- that had replayed the message note it, so that a canary does not become clean by being swept up. Which plans: the audit
-- knows, which nobody changes.
--
-- Tables: queen.dlq_event (read), queen.replay_item (updated).
-- Locks: The items of the plans, until the transaction ends.
CREATE FUNCTION queen.replay_failed_again()
    RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET jit = off
    AS $$
BEGIN
    -- Most dead letters are of messages that nobody had replayed: those are not looked up.
    UPDATE queen.replay_item i SET failed_again = true
      FROM before b
      JOIN queen.dlq_event e ON e.detail ->> 'messageId' = b.message_id::text AND e.detail ? 'messageId'
     WHERE (b.hops > 0 OR b.transaction_id LIKE 'dlq:%' OR b.transaction_id LIKE 'repair:%')
       AND i.plan_id = e.plan_id AND i.dlq_id = e.dlq_id AND i.message_id = b.message_id
       AND i.consumer_group = b.consumer_group AND NOT i.failed_again;
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION queen.replay_failed_again() IS
'Part of queen.dead_letter_record: plans remember what failed again when its record goes. A trigger, which nobody calls.
Example: SELECT failed_again FROM queen.replay_item;';
REVOKE ALL ON FUNCTION queen.replay_failed_again() FROM PUBLIC;

CREATE TRIGGER replay_failed_again_delete AFTER DELETE ON queen.dead_letter_record
    REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION queen.replay_failed_again();

-- functions/replay_plan_end.sql

-- queen.replay_plan_end: end a plan. Internal, granted to nobody.
--
-- Records that it had approved and not replayed are pending again, unless another approved plan waits for them.
--
-- Arguments:
--   of_plan    The plan, locked by the caller.
--   new_state  done, cancelled or expired.
--   who        In whose name.
--   detail     For the audit.
-- Tables: queen.replay_plan, queen.dead_letter_record (updated), queen.replay_item (read), queen.dlq_event (written).
-- Locks: The records, until the transaction ends.
CREATE FUNCTION queen.replay_plan_end(of_plan uuid, new_state text, who text, detail jsonb DEFAULT '{}')
    RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    plan queen.replay_plan;
BEGIN
    UPDATE queen.replay_plan p SET state = new_state, ended_at = clock_timestamp() WHERE p.plan_id = of_plan
    RETURNING p.* INTO plan;
    INSERT INTO queen.dlq_event (tenant, actor, action, plan_id, detail)
    VALUES (plan.tenant, who, 'plan_' || new_state, of_plan,
            jsonb_build_object('moved', plan.moved, 'duplicate', plan.duplicate, 'failed', plan.failed, 'gone', plan.gone,
                               'refused', plan.refused, 'remaining', plan.planned - plan.next_n) || detail);
    IF plan.approved_at IS NULL THEN
        RETURN;
    END IF;
    WITH back AS (
        UPDATE queen.dead_letter_record r SET status = 'pending'
          FROM queen.replay_item i
         WHERE i.plan_id = of_plan AND i.state IN ('planned', 'duplicate', 'failed', 'refused')
           AND r.id = i.dlq_id AND r.status = 'approved'
           AND NOT EXISTS (SELECT FROM queen.replay_item o JOIN queen.replay_plan p ON p.plan_id = o.plan_id
                            WHERE o.dlq_id = i.dlq_id AND o.plan_id <> of_plan AND o.state = 'planned'
                              AND p.approved_at IS NOT NULL
                              AND p.state IN ('approved', 'running', 'paused', 'canary_done'))
        RETURNING r.id, r.queue, r.consumer_group)
    INSERT INTO queen.dlq_event (tenant, actor, action, dlq_id, plan_id, queue, consumer_group, detail)
    SELECT plan.tenant, who, 'approval_ended', b.id, of_plan, b.queue, b.consumer_group, '{}' FROM back b;
END
$$;

COMMENT ON FUNCTION queen.replay_plan_end(uuid, text, text, jsonb) IS
'Part of other functions: ends a plan.
Example: SELECT queen.replay_plan_end(plan_id, ''cancelled'', ''ada'') FROM queen.replay_plan;';
REVOKE ALL ON FUNCTION queen.replay_plan_end(uuid, text, text, jsonb) FROM PUBLIC;

-- functions/replay_plan_lock.sql

-- queen.replay_plan_lock: a plan of the tenant, locked and as it was made. Internal, granted to nobody.
--
-- Arguments:
--   of_plan The plan.
--   states  States that allow the step.
--   step    The step, for the message.
--   fresh   Whether the step is one of deciding or starting: then the plan must not be expired, over its limit or altered.
-- Result: The plan.
-- Errors: QN020 (no such plan), QN021 (other state), QN023 (expired), QN025 (over its limit), QN024 (altered).
-- Tables: queen.replay_plan (locked), queen.replay_item (read).
-- Locks: The plan, until the transaction ends.
CREATE FUNCTION queen.replay_plan_lock(of_plan uuid, states text[], step text, fresh boolean)
    RETURNS queen.replay_plan
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    plan queen.replay_plan;
    ids  uuid[];
BEGIN
    SELECT p.* INTO plan FROM queen.replay_plan p WHERE p.plan_id = of_plan AND p.tenant = queen.current_tenant() FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no replay plan %', of_plan USING ERRCODE = 'QN020';
    END IF;
    IF plan.state = 'expired' OR (fresh AND plan.state = ANY (states) AND plan.expires_at <= clock_timestamp()) THEN
        RAISE EXCEPTION 'replay plan % has expired: it cannot be %', of_plan, step
              USING ERRCODE = 'QN023', HINT = 'Make a new plan.';
    END IF;
    IF NOT plan.state = ANY (states) THEN
        RAISE EXCEPTION 'replay plan % is %: it cannot be %', of_plan, plan.state, step USING ERRCODE = 'QN021';
    END IF;
    IF fresh THEN
        SELECT array_agg(i.dlq_id ORDER BY i.n) INTO ids FROM queen.replay_item i WHERE i.plan_id = of_plan;
        IF coalesce(cardinality(ids), 0) > plan.max_records THEN
            RAISE EXCEPTION 'replay plan % has % records, its limit is %', of_plan, cardinality(ids), plan.max_records
                  USING ERRCODE = 'QN025';
        END IF;
        IF plan.planned <> coalesce(cardinality(ids), 0)
           OR plan.digest <> queen.replay_digest(plan, coalesce(ids, '{}'))
           OR plan.approved_digest <> plan.digest THEN
            RAISE EXCEPTION 'replay plan % is not what was planned', of_plan
                  USING ERRCODE = 'QN024', HINT = 'Make a new plan.';
        END IF;
    END IF;
    RETURN plan;
END
$$;

COMMENT ON FUNCTION queen.replay_plan_lock(uuid, text[], text, boolean) IS
'Part of other functions: locks a plan and checks that a step is allowed.
Example: SELECT queen.replay_plan_lock(plan_id, ARRAY[''planned''], ''approved'', true) FROM queen.replay_plan;';
REVOKE ALL ON FUNCTION queen.replay_plan_lock(uuid, text[], text, boolean) FROM PUBLIC;

-- functions/replay_plans_expire.sql

-- queen.replay_plans_expire: end the plans whose time is over. Internal, granted to nobody.
--
-- Arguments:
--   of_tenant  Only this tenant's; NULL: all.
-- Tables: As replay_plan_end.
-- Locks: The plans; those that another session works on are left to it.
CREATE FUNCTION queen.replay_plans_expire(of_tenant uuid)
    RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    ended uuid;
BEGIN
    FOR ended IN SELECT p.plan_id FROM queen.replay_plan p
               WHERE p.state IN ('planned', 'approved', 'running', 'paused', 'canary_done')
                 AND p.expires_at <= clock_timestamp() AND (of_tenant IS NULL OR p.tenant = of_tenant)
                 FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM queen.replay_plan_end(ended, 'expired', queen.actor());
    END LOOP;
END
$$;

COMMENT ON FUNCTION queen.replay_plans_expire(uuid) IS
'Part of other functions: ends plans whose time is over.
Example: SELECT queen.replay_plans_expire(NULL);';
REVOKE ALL ON FUNCTION queen.replay_plans_expire(uuid) FROM PUBLIC;

-- functions/resume_group.sql

-- queen.resume_group: let a paused consumer group go on in one queue.
--
-- Whoever waits for its messages is woken. A group that had paused itself counts causes anew from here on.
--
-- Arguments:
--   queue           Name of the queue.
--   consumer_group  Name of the group; __QUEUE_MODE__ for consumers who name none.
-- Result: Whether it was paused.
-- Errors: QN001 (bad name), QN013 (no such queue).
-- Tables: queen.subscription (replaced), queen.dlq_event (written).
-- Locks: As queen.pause_group.
CREATE FUNCTION queen.resume_group(queue text, consumer_group text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_resume_group';

COMMENT ON FUNCTION queen.resume_group(text, text) IS
'Lets a paused consumer group go on; returns whether it was paused.
Example: SELECT queen.resume_group(''orders'', ''billing'');';
REVOKE ALL ON FUNCTION queen.resume_group(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.resume_group(text, text) TO queen_operator, queen_sidecar;

-- functions/run_replays.sql

-- queen.run_replays: run the replay plans that are started.
--
-- A procedure, as it commits after each batch. Call it from anywhere, again and again, also from several sessions at
-- once: a plan's rate is the plan's. Nothing is lost and nothing moves twice, wherever it is interrupted. Not needed where
-- a background worker runs (setting queen.worker_databases).
--
-- Arguments:
--   max_ms       Come back after so many milliseconds, or when no plan is running.
--   all_tenants  Plans of every tenant, as the background worker does, and not of the session's alone. For who may set
--                queen.tenant, and so could see to each in turn.
--   result       Result; what is passed in does not matter.
-- Result: result: {"handled": records, whatever came of them, "running": whether there is more to do}.
-- Errors: 25001 (inside a transaction block, or called by a function); 22023 (max_ms below 0); 42501 (all
--         tenants, without the right to set queen.tenant).
-- Tables: As replay_batch.
-- Locks: As replay_batch, batch by batch.
CREATE PROCEDURE queen.run_replays(max_ms int DEFAULT 1000, all_tenants boolean DEFAULT false, INOUT result jsonb DEFAULT NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_run_replays';

COMMENT ON PROCEDURE queen.run_replays(int, boolean, jsonb) IS
'Runs the replay plans that are started, for so many milliseconds. Not inside a transaction block.
Example: CALL queen.run_replays(1000);';
REVOKE ALL ON PROCEDURE queen.run_replays(int, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.run_replays(int, boolean, jsonb) TO queen_operator, queen_sidecar;

-- functions/same_person.sql

-- queen.same_person: whether two actors count as one person. Internal, granted to nobody.
--
-- A name that differs only in case, in spaces, in characters that are not seen or in how a character is encoded is the same
-- name: an authority that spells somebody in two ways does not make two people of them.
--
-- Arguments:
--   one, other  What queen.actor() said, then and now.
-- Result: Whether they are the same; NULL if one of them is.
-- Tables: None.
-- Locks: None.
CREATE FUNCTION queen.same_person(one text, other text)
    RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'queen_same_person';

COMMENT ON FUNCTION queen.same_person(text, text) IS
'Part of other functions: whether two actors count as one person.
Example: SELECT queen.same_person(''Ann'', '' ann'');';
REVOKE ALL ON FUNCTION queen.same_person(text, text) FROM PUBLIC;

-- functions/seek.sql

-- queen.seek: set where a consumer group goes on.
--
-- Forward skips, backward delivers again. Ends the leases of the group there and resets its retries. Wants exactly one
-- target: to_end => true, or a timestamp. A timestamp means the first segment stored at or after it; an old one means
-- the beginning.
--
-- Arguments:
--   queue           Queue name.
--   consumer_group  Name of the consumer group; need not exist yet.
--   to_end          true: after the last message.
--   to_timestamp    The first message stored at or after this.
--   partition       Only this partition; by default, all.
-- Result: How many cursors were set.
-- Errors: QN001 (bad name); QN013 (no such queue); QN014 (no such partition); QN015 (no target, or two).
-- Tables: queen.partition, queen.segment (read); queen.subscription, queen.cursor, queen.ready (written).
-- Locks: The cursor of the group in each partition, ascending, until the transaction ends.
CREATE FUNCTION queen.seek(
    queue text,
    consumer_group text,
    to_end boolean DEFAULT NULL,
    to_timestamp timestamptz DEFAULT NULL,
    partition text DEFAULT NULL
)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_seek';

COMMENT ON FUNCTION queen.seek(text, text, boolean, timestamptz, text) IS
'Moves a consumer group to the end or to a point in time, in one partition or all; returns how many cursors were set.
Example: SELECT queen.seek(''orders'', ''billing'', to_timestamp => now() - interval ''1 day'');';
REVOKE ALL ON FUNCTION queen.seek(text, text, boolean, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.seek(text, text, boolean, timestamptz, text) TO queen_admin, queen_sidecar;

-- functions/set_subscription.sql

-- queen.set_subscription: change where a consumer group starts.
--
-- Matters for partitions that the group has no cursor for yet; cursors stay where they are (see seek).
--
-- Arguments:
--   consumer_group  Name of the consumer group.
--   start_at        It starts with the first segment stored at or after this; an old one means the beginning.
-- Result: In how many queues the group had a record to change.
-- Errors: QN001 (bad name); 22023 (start_at is NULL).
-- Tables: queen.queue (read); queen.subscription, queen.ready (written).
-- Locks: Creation and removal of groups in these queues, until the transaction ends.
CREATE FUNCTION queen.set_subscription(consumer_group text, start_at timestamptz)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'queen_set_subscription';

COMMENT ON FUNCTION queen.set_subscription(text, timestamptz) IS
'Changes where a consumer group starts in partitions that it has not read from yet; returns in how many queues it is known.
Example: SELECT queen.set_subscription(''billing'', now() - interval ''1 day'');';
REVOKE ALL ON FUNCTION queen.set_subscription(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.set_subscription(text, timestamptz) TO queen_admin, queen_sidecar;

-- functions/trace_names.sql

-- queen.trace_names: list the names that notes were made under.
--
-- The name used last first. Finding them costs a few index probes a name; counting, the index entries of the names that
-- are returned.
--
-- Arguments:
--   max_rows  At most so many rows.
--   skip      Leave out so many rows first.
--   name      Only this name.
-- Result: One row a name: how many notes it has, on how many messages, when the last one was made; and, the same on each
--         row, how many names there are in all.
-- Errors: 22023 (max_rows or skip below 0).
-- Tables: queen.trace_name (read).
-- Locks: None.
CREATE FUNCTION queen.trace_names(max_rows int DEFAULT 50, skip int DEFAULT 0, name text DEFAULT NULL)
    RETURNS TABLE (trace_name text, trace_count bigint, message_count bigint, last_seen_at timestamptz, total bigint)
    LANGUAGE c STABLE PARALLEL UNSAFE COST 1000 ROWS 50
    AS 'MODULE_PATHNAME', 'queen_trace_names';

COMMENT ON FUNCTION queen.trace_names(int, int, text) IS
'Lists the names that notes were made under, the one used last first, with counts.
Example: SELECT trace_name, trace_count, message_count FROM queen.trace_names();';
REVOKE ALL ON FUNCTION queen.trace_names(int, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.trace_names(int, int, text) TO queen_viewer, queen_sidecar;

-- functions/traces.sql

-- queen.traces: what was noted about one message.
--
-- Oldest first.
--
-- Arguments:
--   partition_id    Partition of the message; may be gone.
--   transaction_id  Transaction id of the message.
-- Result: The notes.
-- Errors: 22023 (an argument is NULL).
-- Tables: queen.trace (read).
-- Locks: None.
CREATE FUNCTION queen.traces(partition_id uuid, transaction_id text)
    RETURNS SETOF queen.trace_event
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'queen_traces';

COMMENT ON FUNCTION queen.traces(uuid, text) IS
'What was noted about one message, oldest first.
Example: SELECT t.* FROM queen.partitions p, queen.traces(p.partition_id, ''order-1'') t WHERE p.queue = ''orders'';';
REVOKE ALL ON FUNCTION queen.traces(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.traces(uuid, text) TO queen_viewer, queen_sidecar;

-- functions/traces_by_name.sql

-- queen.traces_by_name: what was noted under one name, whatever the message.
--
-- Newest first; the order is stable, so that skip pages through it.
--
-- Arguments:
--   name      The name; by bytes.
--   max_rows  At most so many rows.
--   skip      Leave out so many rows first.
-- Result: The notes.
-- Errors: 22023 (name is NULL, max_rows or skip below 0).
-- Tables: queen.trace, queen.trace_name (read).
-- Locks: None.
CREATE FUNCTION queen.traces_by_name(name text, max_rows int DEFAULT 100, skip int DEFAULT 0)
    RETURNS SETOF queen.trace_event
    LANGUAGE c STABLE PARALLEL UNSAFE COST 100 ROWS 100
    AS 'MODULE_PATHNAME', 'queen_traces_by_name';

COMMENT ON FUNCTION queen.traces_by_name(text, int, int) IS
'What was noted under one name, newest first.
Example: SELECT created_at, queue, transaction_id, event_type, data FROM queen.traces_by_name(''order-1'');';
REVOKE ALL ON FUNCTION queen.traces_by_name(text, int, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.traces_by_name(text, int, int) TO queen_viewer, queen_sidecar;

-- functions/transaction.sql

-- queen.transaction: push and acknowledge, all or nothing.
--
-- For consumers that speak JSON: take from one queue, pass on to another, exactly once. In SQL, a transaction with
-- pop, push and ack does the same.
--
-- What cannot be done undoes all effects of the call and is answered, not raised; the caller's transaction goes on. A
-- pushed transaction id that is already in its partition is such a case.
--
-- The caller needs the right to push and the right to ack: granted to producers and consumers, and the function
-- refuses whoever is not both.
--
-- Arguments:
--   operations  The wire's body {"operations": [...], "requiredLeases": [...]}, or the bare array. An operation is
--               {"type": "push", "items": [...]} or {"type": "ack", "transactionId", "partitionId", "status",
--               "consumerGroup", "leaseId", "error"}.
-- Result: {"transactionId", "success", "results": [...]}; on failure success is false, with reason and error,
--         and results is empty.
-- Errors: QN008 (not an array or object of operations; kv or timers that are not empty); 42501 (not both producer and consumer).
-- Tables: As push_batch and ack.
-- Locks: First the cursors, then the partitions pushed to, both ascending, until the transaction ends.
CREATE FUNCTION queen.transaction(operations json)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_transaction';

COMMENT ON FUNCTION queen.transaction(json) IS
'Pushes and acknowledges in one call, all or nothing; failure is answered as success false.
For roles that are both queen_producer and queen_consumer.
Example: SELECT queen.transaction(''[{"type": "push", "items": [{"queue": "invoices", "payload": {"order": 1}}]}]'');';
REVOKE ALL ON FUNCTION queen.transaction(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.transaction(json) TO queen_producer, queen_consumer;

-- functions/transaction_json.sql

-- queen.transaction_json: transaction for the HTTP server: text in, text out.
--
-- See transaction. Whoever may call this serves producers and consumers, and has authenticated them: it needs no other
-- right, and says who pushes.
--
-- Arguments:
--   operations  The wire's body {"operations": [...], "requiredLeases": [...]}, or the bare array. A push has its fields
--               itself or a list items; its payload is payload, else data, else {}; a traceId that is no UUID is dropped.
--               kv and timers must be absent, null or empty.
--   producer    Stored as who pushed the messages; NULL: nobody in particular.
-- Result: As transaction, as JSON text.
-- Errors: QN008 (operations that the wire refuses, in its words; producer with control characters).
-- Tables: As transaction.
-- Locks: As transaction.
CREATE FUNCTION queen.transaction_json(operations text, producer text DEFAULT NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 200
    AS 'MODULE_PATHNAME', 'queen_transaction_json';

COMMENT ON FUNCTION queen.transaction_json(text, text) IS
'transaction with text in and out, and the name of who pushes, for the HTTP server.
Example: SELECT queen.transaction_json(''[{"type": "push", "queue": "invoices", "payload": {"order": 1}}]'', ''ada'');';
REVOKE ALL ON FUNCTION queen.transaction_json(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.transaction_json(text, text) TO queen_sidecar;

-- functions/verify.sql

-- queen.verify: check what is stored.
--
-- Opens every segment, and looks for gaps or overlaps of offsets and for cursors that point outside of the log. Reads
-- everything, changes nothing, runs beside traffic.
--
-- Arguments:
--   queue  Only this queue.
-- Result: One row for each problem found; no row is good news. base_offset is the first offset of the segment
--         concerned, NULL if it is not about a segment.
-- Tables: queen.queue, queen.partition, queen.segment, queen.trimmed, queen.subscription, queen.cursor (read).
-- Locks: None.
CREATE FUNCTION queen.verify(queue text DEFAULT NULL)
    RETURNS TABLE (partition_id uuid, base_offset bigint, problem text)
    LANGUAGE c STABLE PARALLEL UNSAFE COST 10000 ROWS 10
    AS 'MODULE_PATHNAME', 'queen_verify';

COMMENT ON FUNCTION queen.verify(text) IS
'Checks checksums, offsets and cursors; one row for each problem, none if all is well.
Example: SELECT * FROM queen.verify(''orders'');';
REVOKE ALL ON FUNCTION queen.verify(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION queen.verify(text) TO queen_viewer;

-- functions/wait.sql

-- queen.wait: sleep until a group may find something in a queue.
--
-- A procedure, so that it holds no snapshot while it sleeps: it can wait for hours and vacuum goes on. It takes
-- nothing; call pop next, and expect that another consumer was faster. With the library in shared_preload_libraries it
-- is woken by the commit that stores a message; without, it looks from time to time.
--
-- Arguments:
--   queue           Queue name.
--   consumer_group  Name of the consumer group.
--   timeout_ms      At most so many milliseconds; 0 looks once.
--   ready           Result; what is passed in does not matter.
-- Result: ready: true if there is something to pop, false after the timeout.
-- Errors: QN001 (bad name); 25001 (inside a transaction block, or called by a function); 22023 (timeout_ms
--         below 0).
-- Tables: queen.queue, queen.subscription, queen.ready, queen.cursor, queen.segment (read).
-- Locks: None.
CREATE PROCEDURE queen.wait(
    queue text,
    consumer_group text,
    timeout_ms int,
    INOUT ready boolean DEFAULT NULL
)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_wait';

COMMENT ON PROCEDURE queen.wait(text, text, int, boolean) IS
'Sleeps until the group may find something in the queue, or timeout_ms milliseconds have passed.
Not inside a transaction block.
Example: CALL queen.wait(''orders'', ''billing'', 5000);';
REVOKE ALL ON PROCEDURE queen.wait(text, text, int, boolean) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.wait(text, text, int, boolean) TO queen_consumer, queen_sidecar;

-- functions/wait_changes.sql

-- queen.wait_changes: sleep until a commit has touched any queue.
--
-- One session that calls it again and again with the position of the answer before hears of every commit by which a
-- group may newly find something: messages, leases given back, seeks. It is for the HTTP server, which parks its long
-- polls meanwhile. A procedure, so that it holds no snapshot while it sleeps. What time alone brings (a lease that runs
-- out, a delay) is no commit: due_json says when. COMMIT PREPARED is not heard of.
--
-- The server keeps the last 8192 changes in shared memory, and so needs the library in shared_preload_libraries.
-- Without, a call sleeps at most 50 ms, and answers that anything may have happened.
--
-- Arguments:
--   since       Position of an earlier answer; NULL or anything else: the answer comes at once, for a position.
--   timeout_ms  At most so many milliseconds; 0 only looks.
--   changes     Result; what is passed in does not matter.
-- Result: changes: a JSON object: position, for the next call, and either all: true, when it cannot tell what happened
--         (since is no position of this start of the server, or lies too far behind), or queues: tenant and queue of
--         each that was touched after since, each once, of all tenants, at most 1000 (the next call brings the others);
--         none after the timeout. all as well when a queue was dropped.
-- Errors: 25001 (inside a transaction block, or called by a function); 22023 (timeout_ms below 0).
-- Tables: queen.queue (read).
-- Locks: None.
CREATE PROCEDURE queen.wait_changes(
    since text,
    timeout_ms int,
    INOUT changes text DEFAULT NULL
)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'queen_wait_changes';

COMMENT ON PROCEDURE queen.wait_changes(text, int, text) IS
'Sleeps until a commit after position since has touched any queue, or timeout_ms milliseconds have passed.
Not inside a transaction block.
Example: CALL queen.wait_changes(NULL, 5000);';
REVOKE ALL ON PROCEDURE queen.wait_changes(text, int, text) FROM PUBLIC;
GRANT EXECUTE ON PROCEDURE queen.wait_changes(text, int, text) TO queen_sidecar;

-- 40-views.sql

-- What an operator looks at. The views read the tables with their owner's rights and show the current tenant only;
-- as security barriers, so that no condition of a query is tried on a row of another tenant.
--
-- Exact, and cheap at 100,000 partitions: per partition, and per group and partition, they probe the ends of an index
-- (last segment, highest trimmed offset, newest cursor) and never walk segments or history. What costs more, or is not
-- always wanted, is a subquery of its own, which the planner leaves out when its column is not selected.

-- Building block: where the log of each partition begins and ends. Granted to nobody.
CREATE VIEW queen.partition_extent AS
SELECT p.qid,
       p.pid,
       p.name,
       p.partition_id,
       p.created_at,
       coalesce(t.upto + 1, 0)                               AS log_start,
       greatest(s.base + s.frames - 1, coalesce(t.upto, -1)) AS last_offset,   -- greatest() passes over NULL
       s.created_at                                          AS last_write_at
  FROM queen.partition p
  LEFT JOIN LATERAL (SELECT base, frames, created_at FROM queen.segment
                      WHERE pid = p.pid ORDER BY base DESC LIMIT 1) s ON true
  LEFT JOIN LATERAL (SELECT upto FROM queen.trimmed
                      WHERE pid = p.pid ORDER BY upto DESC LIMIT 1) t ON true;
COMMENT ON VIEW queen.partition_extent IS 'Part of the other views: where the log of each partition begins and ends.';

-- Building block: how far each group is in each partition that it reads; a partition that no group reads has one row
-- without a group. Granted to nobody.
--
-- Everything up to `settled` is done (or gone), (settled, held] is under a live lease, (held, last_offset] is pending.
-- A registered group reads every partition of its queue; one that only ever named partitions reads those.
CREATE VIEW queen.group_position AS
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT e.qid,
       e.pid,
       e.log_start,
       e.last_offset,
       g.gid,
       g.name AS consumer_group,
       x.settled,
       CASE WHEN g.expires_at > clock.now THEN greatest(x.settled, g.batch_end) ELSE x.settled END AS held,
       CASE WHEN g.expires_at > clock.now THEN g.lease_id END   AS lease_id,
       CASE WHEN g.expires_at > clock.now THEN g.expires_at END AS lease_expires_at,
       coalesce(g.retries, 0) AS retries,
       clock.now
  FROM clock
 CROSS JOIN queen.partition_extent e
  LEFT JOIN LATERAL (SELECT r.gid, r.name, r.start_at, c.committed, c.batch_end, c.lease_id, c.expires_at, c.retries
                       FROM queen.subscription r
                       LEFT JOIN LATERAL (SELECT committed, batch_end, lease_id, expires_at, retries FROM queen.cursor
                                           WHERE gid = r.gid AND pid = e.pid ORDER BY seq DESC LIMIT 1) c ON true
                      WHERE r.qid = e.qid AND (r.registered OR c.committed IS NOT NULL)) g ON true
 CROSS JOIN LATERAL (
       SELECT greatest(e.log_start - 1,
              CASE WHEN g.gid IS NULL THEN -1
                   WHEN g.committed IS NOT NULL THEN g.committed
                   -- No cursor yet: the group starts where its subscription says.
                   WHEN e.created_at > g.start_at THEN -1
                   WHEN coalesce(e.last_write_at < g.start_at, true) THEN e.last_offset
                   ELSE (
                       -- The offset before the first segment at or after start_at. created_at rises with base, so
                       -- halve: offset `low` lies in an older segment (or before the log), offset `high` does not.
                       WITH RECURSIVE halve(low, high) AS (
                           SELECT e.log_start - 1, e.last_offset
                           UNION ALL
                           SELECT CASE WHEN m.created_at < g.start_at THEN m.base + m.frames - 1 ELSE h.low END,
                                  CASE WHEN m.created_at < g.start_at THEN h.high ELSE m.base END
                             FROM halve h
                            CROSS JOIN LATERAL (SELECT base, frames, created_at FROM queen.segment
                                                 WHERE pid = e.pid AND base <= h.low + (h.high - h.low) / 2
                                                 ORDER BY base DESC LIMIT 1) m
                            WHERE h.high - h.low > 1)
                       SELECT max(low) FROM halve)
              END) AS settled
       OFFSET 0) x;   -- a fence: computed once, however often the columns above and the outer query name it
COMMENT ON VIEW queen.group_position IS 'Part of the other views: how far each consumer group is in each partition that it reads.';

-- pending and processing are those of the named group that is furthest behind, partition by partition; of
-- __QUEUE_MODE__ where no named group reads; where nobody does, everything is pending.
CREATE VIEW queen.queues WITH (security_barrier) AS
SELECT q.name                                   AS queue,
       q.options::jsonb ->> 'namespace'         AS namespace,
       q.options::jsonb ->> 'task'              AS task,
       (SELECT count(*) FROM queen.partition p WHERE p.qid = q.qid) AS partitions,
       (SELECT coalesce(sum(e.last_offset - e.log_start + 1), 0)::bigint
          FROM queen.partition_extent e WHERE e.qid = q.qid) AS messages,
       coalesce(d.pending, 0)::bigint           AS pending,
       coalesce(d.processing, 0)::bigint        AS processing,
       coalesce(f.dead_letters, 0)::bigint      AS dead_letters,
       (SELECT coalesce(sum(b.bytes), 0)::bigint
          FROM queen.partition p
         CROSS JOIN LATERAL (SELECT sum(octet_length(s.data)) AS bytes FROM queen.segment s WHERE s.pid = p.pid) b
         WHERE p.qid = q.qid)                   AS retained_bytes,
       d.oldest_pending_at,
       q.options::jsonb                         AS options,
       (SELECT coalesce(sum(c.pushes), 0)::bigint FROM queen.dropped_duplicate c
         WHERE c.qid = q.qid)                   AS duplicates_dropped,
       lpad(to_hex(q.qid), 32, '0')::uuid       AS id,
       q.created_at,
       (SELECT count(*) FROM queen.partition p JOIN queen.segment s ON s.pid = p.pid
         WHERE p.qid = q.qid)                   AS segments
  FROM queen.queue q
  LEFT JOIN LATERAL (
       SELECT sum(w.last_offset - w.held)  AS pending,
              sum(w.held - w.settled)      AS processing,
              min(CASE WHEN w.held < w.last_offset THEN
                  (SELECT s.created_at FROM queen.segment s
                    WHERE s.pid = w.pid AND s.base <= w.held + 1 ORDER BY s.base DESC LIMIT 1) END) AS oldest_pending_at
         FROM (SELECT DISTINCT ON (g.pid) g.pid, g.last_offset, g.settled, g.held
                 FROM queen.group_position g
                WHERE g.qid = q.qid
                ORDER BY g.pid, g.consumer_group = '__QUEUE_MODE__', g.settled, g.held) w) d ON true
  LEFT JOIN (SELECT t.tenant, t.queue, sum(t.n) AS dead_letters FROM queen.dlq_tally t
              WHERE t.status IN ('pending', 'approved') GROUP BY t.tenant, t.queue) f ON f.tenant = q.tenant AND f.queue = q.name
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.queues IS 'Queues of the current tenant, with depth. Select only the columns that you need: the costly ones are computed only then.';
COMMENT ON COLUMN queen.queues.queue IS 'Queue name.';
COMMENT ON COLUMN queen.queues.namespace IS 'Option namespace, for pop_matching.';
COMMENT ON COLUMN queen.queues.task IS 'Option task, for pop_matching.';
COMMENT ON COLUMN queen.queues.partitions IS 'Number of partitions.';
COMMENT ON COLUMN queen.queues.messages IS 'Messages stored, consumed or not.';
COMMENT ON COLUMN queen.queues.pending IS 'Messages that wait for delivery; those in processing do not count. In each partition, as the named group sees it that is furthest behind; __QUEUE_MODE__ if no named group reads it; all, if nobody does.';
COMMENT ON COLUMN queen.queues.processing IS 'Messages under a live lease of that same group.';
COMMENT ON COLUMN queen.queues.dead_letters IS 'Dead letters, of all groups, that are pending or approved.';
COMMENT ON COLUMN queen.queues.retained_bytes IS 'Bytes of the stored segments, compressed. Visits the row of every segment of the queue (not its data): the one column whose cost grows with what is stored.';
COMMENT ON COLUMN queen.queues.oldest_pending_at IS 'When the oldest pending message was stored; NULL if none is pending.';
COMMENT ON COLUMN queen.queues.options IS 'All effective options.';
COMMENT ON COLUMN queen.queues.duplicates_dropped IS 'Pushes that were answered as queued and found to be duplicates at their commit: dropped in silence, and counted.';
COMMENT ON COLUMN queen.queues.id IS 'Id of the queue: a name for it that a queue of the same name made later does not get.';
COMMENT ON COLUMN queen.queues.created_at IS 'When the queue was created.';
COMMENT ON COLUMN queen.queues.segments IS 'Segments stored. Visits the index entry of every one.';
GRANT SELECT ON queen.queues TO queen_viewer, queen_sidecar;

CREATE VIEW queen.partitions WITH (security_barrier) AS
SELECT q.name AS queue,
       e.name AS partition,
       e.partition_id,
       e.log_start,
       e.last_offset,
       e.created_at,
       e.last_write_at,
       d.pending,
       d.processing,
       coalesce(f.dead_letters, 0)::bigint AS dead_letters,
       (SELECT s.created_at FROM queen.segment s
         WHERE s.pid = e.pid AND s.base >= e.log_start ORDER BY s.base LIMIT 1) AS oldest_message_at
  FROM queen.queue q
  JOIN queen.partition_extent e ON e.qid = q.qid
  LEFT JOIN LATERAL (
       SELECT g.last_offset - g.held AS pending,
              g.held - g.settled     AS processing
         FROM queen.group_position g
        WHERE g.pid = e.pid
        ORDER BY g.consumer_group = '__QUEUE_MODE__', g.settled, g.held
        LIMIT 1) d ON true
  -- Counted once and joined, not partition by partition: with many records of few, that would read them all each time.
  LEFT JOIN (SELECT r.partition_id, count(*) AS dead_letters FROM queen.dead_letter_record r
              WHERE r.status IN ('pending', 'approved') GROUP BY r.partition_id) f ON f.partition_id = e.partition_id
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.partitions IS 'Partitions of the current tenant.';
COMMENT ON COLUMN queen.partitions.queue IS 'Queue name.';
COMMENT ON COLUMN queen.partitions.partition IS 'Partition name.';
COMMENT ON COLUMN queen.partitions.partition_id IS 'Id of the partition, as in messages.';
COMMENT ON COLUMN queen.partitions.log_start IS 'Lowest offset still stored; one above last_offset if nothing is.';
COMMENT ON COLUMN queen.partitions.last_offset IS 'Highest offset ever given; -1 before the first message.';
COMMENT ON COLUMN queen.partitions.created_at IS 'When the partition was created.';
COMMENT ON COLUMN queen.partitions.last_write_at IS 'When the last message was stored; NULL if retention has removed it.';
COMMENT ON COLUMN queen.partitions.pending IS 'Messages that wait for delivery, as in queues: to the named group that is furthest behind.';
COMMENT ON COLUMN queen.partitions.processing IS 'Messages under a live lease of that same group.';
COMMENT ON COLUMN queen.partitions.dead_letters IS 'Dead letters, of all groups, that are pending or approved.';
COMMENT ON COLUMN queen.partitions.oldest_message_at IS 'When the oldest message still stored was stored; NULL if there is none.';
GRANT SELECT ON queen.partitions TO queen_viewer, queen_sidecar;

CREATE VIEW queen.consumer_groups WITH (security_barrier) AS
SELECT g.name AS consumer_group,
       q.name AS queue,
       d.partitions,
       coalesce(d.pending, 0)::bigint    AS pending,
       coalesce(d.processing, 0)::bigint AS processing,
       d.oldest_pending_at,
       CASE WHEN g.registered THEN g.mode END AS subscription_mode,
       CASE WHEN g.registered THEN nullif(g.start_at, '-infinity') END AS subscription_timestamp,
       CASE WHEN g.registered THEN g.created_at END AS subscription_created_at,
       d.partitions_with_lag,
       coalesce(d.total_lag, 0)::bigint             AS total_lag,
       coalesce(d.max_time_lag_seconds, 0)          AS max_time_lag_seconds,
       d.active_leases,
       coalesce(d.settled, 0)::bigint               AS settled,
       g.conflation,
       g.paused_at,
       g.pause_reason
  FROM queen.queue q
  JOIN queen.subscription g ON g.qid = q.qid
  LEFT JOIN LATERAL (
       SELECT count(*)                     AS partitions,
              sum(w.last_offset - w.held)  AS pending,
              sum(w.held - w.settled)      AS processing,
              min(CASE WHEN w.held < w.last_offset THEN
                  (SELECT s.created_at FROM queen.segment s
                    WHERE s.pid = w.pid AND s.base <= w.held + 1 ORDER BY s.base DESC LIMIT 1) END) AS oldest_pending_at,
              count(*) FILTER (WHERE w.settled < w.last_offset) AS partitions_with_lag,
              sum(w.last_offset - w.settled)                    AS total_lag,
              max(CASE WHEN w.settled < w.last_offset THEN
                  (SELECT extract(epoch FROM w.now - s.created_at)::double precision FROM queen.segment s
                    WHERE s.pid = w.pid AND s.base <= w.settled + 1 ORDER BY s.base DESC LIMIT 1) END) AS max_time_lag_seconds,
              count(DISTINCT w.lease_id)                        AS active_leases,
              sum(w.settled + 1)                                AS settled
         FROM queen.group_position w
        WHERE w.qid = g.qid AND w.gid = g.gid) d ON true
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.consumer_groups IS 'Consumer groups of the current tenant, one row for each queue that they read.';
COMMENT ON COLUMN queen.consumer_groups.consumer_group IS 'Name of the group; __QUEUE_MODE__ is that of consumers who name none.';
COMMENT ON COLUMN queen.consumer_groups.queue IS 'Queue name.';
COMMENT ON COLUMN queen.consumer_groups.partitions IS 'Partitions of the queue that the group reads: all, or those it has named if it never popped from any.';
COMMENT ON COLUMN queen.consumer_groups.pending IS 'Messages that wait for delivery to the group; those in processing do not count.';
COMMENT ON COLUMN queen.consumer_groups.processing IS 'Messages under a live lease of the group.';
COMMENT ON COLUMN queen.consumer_groups.oldest_pending_at IS 'When the oldest pending message was stored; NULL if none is pending.';
COMMENT ON COLUMN queen.consumer_groups.subscription_mode IS 'Where the group started: all, new or timestamp; NULL for a group that only ever named partitions.';
COMMENT ON COLUMN queen.consumer_groups.subscription_timestamp IS 'It started with messages stored from then on; NULL for the beginning.';
COMMENT ON COLUMN queen.consumer_groups.subscription_created_at IS 'When the group subscribed, or came to pop from any partition; NULL for a group that only ever named partitions.';
COMMENT ON COLUMN queen.consumer_groups.partitions_with_lag IS 'Partitions with a message that the group has not settled.';
COMMENT ON COLUMN queen.consumer_groups.total_lag IS 'Messages that the group has not settled: pending and processing.';
COMMENT ON COLUMN queen.consumer_groups.max_time_lag_seconds IS 'Age of the oldest message that the group has not settled; 0 if there is none.';
COMMENT ON COLUMN queen.consumer_groups.active_leases IS 'Live leases of the group; one may hold several partitions.';
COMMENT ON COLUMN queen.consumer_groups.settled IS 'Messages that the group is done with: settled, passed over by its start, or removed by retention.';
COMMENT ON COLUMN queen.consumer_groups.conflation IS 'Whether the group gets only the newest message of each partition; those behind it count as pending until it is settled.';
COMMENT ON COLUMN queen.consumer_groups.paused_at IS 'Since when the pops of the group bring nothing; NULL if it is not paused.';
COMMENT ON COLUMN queen.consumer_groups.pause_reason IS 'Why, as whoever paused it has said; a group that has paused itself names the fingerprint.';
GRANT SELECT ON queen.consumer_groups TO queen_viewer, queen_sidecar;

CREATE VIEW queen.group_partitions WITH (security_barrier) AS
SELECT q.name         AS queue,
       w.consumer_group,
       p.name         AS partition,
       p.partition_id,
       w.settled,
       w.last_offset,
       w.last_offset - w.held AS pending,
       w.held - w.settled     AS processing,
       w.lease_id,
       w.lease_expires_at,
       w.retries,
       CASE WHEN w.held < w.last_offset THEN
           (SELECT s.created_at FROM queen.segment s
             WHERE s.pid = w.pid AND s.base <= w.held + 1 ORDER BY s.base DESC LIMIT 1) END AS oldest_pending_at,
       o.created_at AS oldest_unsettled_at,
       coalesce(extract(epoch FROM w.now - o.created_at), 0)::double precision AS lag_seconds
  FROM queen.queue q
  JOIN queen.partition p ON p.qid = q.qid
 -- A fence (OFFSET 0): one partition at a time, so that looking at one of them does not compute them all.
 CROSS JOIN LATERAL (SELECT * FROM queen.group_position g WHERE g.pid = p.pid AND g.gid IS NOT NULL OFFSET 0) w
  LEFT JOIN LATERAL (SELECT s.created_at FROM queen.segment s
                      WHERE s.pid = w.pid AND s.base <= w.settled + 1 AND w.settled < w.last_offset
                      ORDER BY s.base DESC LIMIT 1) o ON true
 WHERE q.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.group_partitions IS 'How far each consumer group of the current tenant is in each partition that it reads.';
COMMENT ON COLUMN queen.group_partitions.queue IS 'Queue name.';
COMMENT ON COLUMN queen.group_partitions.consumer_group IS 'Name of the group; __QUEUE_MODE__ is that of consumers who name none.';
COMMENT ON COLUMN queen.group_partitions.partition IS 'Partition name.';
COMMENT ON COLUMN queen.group_partitions.partition_id IS 'Id of the partition.';
COMMENT ON COLUMN queen.group_partitions.settled IS 'Highest offset that the group is done with, retention included; -1 before the first.';
COMMENT ON COLUMN queen.group_partitions.last_offset IS 'Highest offset of the partition ever given; -1 before the first message.';
COMMENT ON COLUMN queen.group_partitions.pending IS 'Messages that wait for delivery to the group; those in processing do not count.';
COMMENT ON COLUMN queen.group_partitions.processing IS 'Messages under a live lease of the group.';
COMMENT ON COLUMN queen.group_partitions.lease_id IS 'The live lease; NULL if there is none.';
COMMENT ON COLUMN queen.group_partitions.lease_expires_at IS 'When it ends.';
COMMENT ON COLUMN queen.group_partitions.retries IS 'Failures charged to the messages that are next.';
COMMENT ON COLUMN queen.group_partitions.oldest_pending_at IS 'When the oldest pending message was stored; NULL if none is pending.';
COMMENT ON COLUMN queen.group_partitions.oldest_unsettled_at IS 'When the oldest message was stored that the group is not done with; NULL if it is done with all.';
COMMENT ON COLUMN queen.group_partitions.lag_seconds IS 'Age of that message; 0 if there is none.';
GRANT SELECT ON queen.group_partitions TO queen_viewer, queen_sidecar;

-- Counted by the tally; when, by both ends of each kind in the index.
CREATE VIEW queen.dlq_depth WITH (security_barrier) AS
WITH kinds AS (
    -- The tenant is asked for first, also where nothing is counted: a session that may not say its tenant is refused.
    SELECT one.*
      FROM (SELECT queen.current_tenant() AS tenant OFFSET 0) me
     CROSS JOIN LATERAL (SELECT t.queue, t.consumer_group, t.kind, t.status, sum(t.n) AS n
                           FROM queen.dlq_tally t
                          WHERE t.tenant = me.tenant
                          GROUP BY t.queue, t.consumer_group, t.kind, t.status HAVING sum(t.n) > 0) one)
SELECT k.queue,
       k.consumer_group,
       coalesce(sum(k.n) FILTER (WHERE k.status IN ('pending', 'approved')), 0)::bigint AS dead_letters,
       min(o.failed_at) AS oldest_failed_at,
       max(w.failed_at) AS newest_failed_at,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'pending'), 0)::bigint   AS pending,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'approved'), 0)::bigint  AS approved,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'replayed'), 0)::bigint  AS replayed,
       coalesce(sum(k.n) FILTER (WHERE k.status = 'discarded'), 0)::bigint AS discarded
  FROM kinds k
  LEFT JOIN LATERAL (SELECT r.failed_at FROM queen.dead_letter_record r
                      WHERE r.kind = k.kind AND r.status = k.status AND k.status IN ('pending', 'approved')
                      ORDER BY r.failed_at, r.id LIMIT 1) o ON true
  LEFT JOIN LATERAL (SELECT r.failed_at FROM queen.dead_letter_record r
                      WHERE r.kind = k.kind AND r.status = k.status AND k.status IN ('pending', 'approved')
                      ORDER BY r.failed_at DESC, r.id DESC LIMIT 1) w ON true
 GROUP BY k.queue, k.consumer_group;
COMMENT ON VIEW queen.dlq_depth IS 'Dead letters of the current tenant, counted by queue and consumer group.';
COMMENT ON COLUMN queen.dlq_depth.queue IS 'Queue name.';
COMMENT ON COLUMN queen.dlq_depth.consumer_group IS 'The group that gave up.';
COMMENT ON COLUMN queen.dlq_depth.dead_letters IS 'Number of records that are pending or approved.';
COMMENT ON COLUMN queen.dlq_depth.oldest_failed_at IS 'When the oldest of them was made.';
COMMENT ON COLUMN queen.dlq_depth.newest_failed_at IS 'When the newest of them was made.';
COMMENT ON COLUMN queen.dlq_depth.pending IS 'Records that nobody has decided about.';
COMMENT ON COLUMN queen.dlq_depth.approved IS 'Records approved for a replay.';
COMMENT ON COLUMN queen.dlq_depth.replayed IS 'Records kept of messages that were replayed.';
COMMENT ON COLUMN queen.dlq_depth.discarded IS 'Records kept of messages that were discarded.';
GRANT SELECT ON queen.dlq_depth TO queen_viewer, queen_sidecar;

CREATE VIEW queen.replay_plans WITH (security_barrier) AS
SELECT p.plan_id,
       CASE WHEN p.ended_at IS NULL AND p.expires_at <= clock_timestamp() THEN 'expired' ELSE p.state END AS state,
       p.phase,
       p.planned,
       p.moved,
       p.duplicate,
       p.failed,
       p.gone,
       p.refused,
       p.planned - p.next_n AS remaining,
       p.rate,
       p.canary,
       p.needs_approval,
       p.reason,
       p.remediation,
       p.selection,
       p.to_queue,
       p.to_partition,
       p.planned_by,
       p.planned_at,
       p.approved_by,
       p.approved_at,
       p.started_by,
       p.started_at,
       p.ended_at,
       p.expires_at
  FROM queen.replay_plan p
 WHERE p.tenant = (SELECT queen.current_tenant());
COMMENT ON VIEW queen.replay_plans IS 'Replay plans of the current tenant, and how far they are; dlq_plan_status says more of one.';
COMMENT ON COLUMN queen.replay_plans.plan_id IS 'Id of the plan.';
COMMENT ON COLUMN queen.replay_plans.state IS 'planned, approved, running, paused, canary_done, done, cancelled or expired.';
COMMENT ON COLUMN queen.replay_plans.phase IS 'canary, or rest once the canary is behind it.';
COMMENT ON COLUMN queen.replay_plans.planned IS 'Records that it selected.';
COMMENT ON COLUMN queen.replay_plans.moved IS 'Records whose message is in a queue again.';
COMMENT ON COLUMN queen.replay_plans.duplicate IS 'Records whose message was there already.';
COMMENT ON COLUMN queen.replay_plans.failed IS 'Records that could not be moved.';
COMMENT ON COLUMN queen.replay_plans.gone IS 'Records that were deleted, replayed or discarded meanwhile.';
COMMENT ON COLUMN queen.replay_plans.refused IS 'Records that may not be replayed.';
COMMENT ON COLUMN queen.replay_plans.remaining IS 'Records that it has not come to yet.';
COMMENT ON COLUMN queen.replay_plans.rate IS 'Messages a second.';
COMMENT ON COLUMN queen.replay_plans.canary IS 'Records that go first.';
COMMENT ON COLUMN queen.replay_plans.needs_approval IS 'Whether somebody else has to approve it.';
COMMENT ON COLUMN queen.replay_plans.reason IS 'Why.';
COMMENT ON COLUMN queen.replay_plans.remediation IS 'What was done about the cause.';
COMMENT ON COLUMN queen.replay_plans.selection IS 'The filter, or how many ids were given.';
COMMENT ON COLUMN queen.replay_plans.to_queue IS 'Where to; NULL: each to its own queue.';
COMMENT ON COLUMN queen.replay_plans.to_partition IS 'NULL: each to its own partition.';
COMMENT ON COLUMN queen.replay_plans.planned_by IS 'Who made it.';
COMMENT ON COLUMN queen.replay_plans.planned_at IS 'When.';
COMMENT ON COLUMN queen.replay_plans.approved_by IS 'Who approved it, or NULL.';
COMMENT ON COLUMN queen.replay_plans.approved_at IS 'When.';
COMMENT ON COLUMN queen.replay_plans.started_by IS 'Who started it, or NULL.';
COMMENT ON COLUMN queen.replay_plans.started_at IS 'When.';
COMMENT ON COLUMN queen.replay_plans.ended_at IS 'When it was done, cancelled or expired; NULL while it is not.';
COMMENT ON COLUMN queen.replay_plans.expires_at IS 'Until when it may be approved, started and run.';
GRANT SELECT ON queen.replay_plans TO queen_viewer, queen_sidecar;

-- 90-grants.sql

-- The net below the grants that stand beside each function and view: whatever was forgotten there is closed here.
-- Taking from PUBLIC leaves what was granted to a role.
REVOKE ALL ON ALL TABLES IN SCHEMA queen FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA queen FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queen FROM PUBLIC;
