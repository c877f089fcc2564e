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
