-- One case at least for every kind of error that SQL can raise, with its SQLSTATE.
\set VERBOSITY sqlstate
-- QN001 names
SELECT queen.push('', '1');
SELECT queen.push('q', '1', E'line\nbreak');
SELECT queen.pop('q', repeat('x', 256));
-- QN002 payloads
SELECT queen.push('q', NULL);
SELECT queen.push('q', '1', headers => '[]');
SELECT queen.push_batch('[{"queue": "q"}]');
-- QN003 too large
SET queen.max_payload_bytes = 10;
SELECT queen.push('q', '"0123456789"');
RESET queen.max_payload_bytes;
-- QN004, QN005 transaction ids
SELECT queen.push('q', '1', transaction_id => '');
SELECT queen.push('q', '1', transaction_id => E'\t');
SELECT queen.push('q', '1', transaction_id => repeat('x', 65536));
-- QN006, QN007 options
SELECT queen.configure('q', '{"retryLimit": -1}');
SELECT queen.configure('q', '[]');
SELECT queen.configure('q', '{"retries": 1}');
-- QN008 lists of the wrong shape
SELECT queen.push_batch('{}');
SELECT queen.push_batch('[{"payload": 1}]');
SELECT queen.ack_batch('[1]');
SELECT queen.transaction('{}');
SELECT queen.transaction('[{"type": "kv"}]');
-- QN009, QN010 keys
SELECT queen.configure('sealed', '{"encryptionEnabled": true}') -> 'encryptionEnabled' AS sealed;
SELECT queen.push('sealed', '1');
SET queen.encryption_keys = 'not a key';
SELECT queen.push('sealed', '1');
RESET queen.encryption_keys;
-- QN011, QN012 segments
SELECT queen.push('q', '1', transaction_id => 'a') IS NULL AS pushed;
SELECT queen.decode_segment('\x00');
SELECT queen.decode_segment(set_byte(data, length(data) - 1, get_byte(data, length(data) - 1) # 1)) FROM queen.segment;
SELECT queen.decode_segment(set_byte(data, 8, 255)) FROM queen.segment;
-- QN013, QN014, QN015 seek
SELECT queen.seek('nowhere', 'g', to_end => true);
SELECT queen.seek('q', 'g', to_end => true, partition => 'nowhere');
SELECT queen.seek('q', 'g');
SELECT queen.seek('q', 'g', to_end => true, to_timestamp => now());
-- QN017 an id in several partitions of a lease
SELECT queen.push('q', '1', 'other', 'a') IS NULL AS pushed;
SELECT lease_id FROM queen.pop('q', batch => 10, max_partitions => 0) LIMIT 1 \gset
SELECT queen.nack(:'lease_id', 'a');
-- 22P02 ids
SELECT queen.push_batch('[{"queue": "q", "payload": 1, "traceId": "x"}]');
SET queen.tenant = 'x';
SELECT queen.current_tenant();
RESET queen.tenant;
-- 22023 arguments
SELECT queen.pop('q', batch => 0);
SELECT queen.pop('q', lease_seconds => 604801);
SELECT queen.pop('q', 'new', subscription_mode => 'some');
SELECT queen.pop_matching();
SELECT queen.renew_lease(:'lease_id', 0);
SELECT queen.configure('q', '{}', 'patch');
SELECT queen.messages(status => 'lost');
SELECT queen.ack_lease(NULL);
-- QN020 to QN027 replay plans
SELECT queen.dlq_plan_status('0190aaaa-0000-7000-8000-00000000000f');
SELECT status FROM queen.push('dead', '1');
SELECT status FROM queen.push('dead', '2', partition => 'other');
SELECT a.dlq AS filed FROM queen.pop('dead', 'g', subscription_mode => 'all') m
 CROSS JOIN LATERAL queen.nack(m.lease_id, m.transaction_id, 'boom', 'dlq') a;
SELECT a.dlq AS filed FROM queen.pop('dead', 'g', subscription_mode => 'all') m
 CROSS JOIN LATERAL queen.nack(m.lease_id, m.transaction_id, 'boom', 'dlq') a;
SELECT queen.dlq_plan('r', 'c', filter => '{"queue": "dead"}') ->> 'planId' AS plan_id \gset
SELECT queen.dlq_widen(:'plan_id');
SELECT queen.configure('dead', '{"requireApproval": true}') IS NOT NULL AS configured;
SELECT queen.dlq_run(:'plan_id');
SELECT queen.dlq_approve(:'plan_id');
SELECT queen.dlq_plan('r', 'c', filter => '{"consumerGroup": "g"}', max_records => 1);
UPDATE queen.replay_plan SET rate = 1000;
SET queen.actor = 'somebody else';
SELECT queen.dlq_approve(:'plan_id');
UPDATE queen.replay_plan SET expires_at = now();
SELECT queen.dlq_approve(:'plan_id');
RESET queen.actor;
SELECT queen.dlq_repair('0190aaaa-0000-7000-8000-00000000000f', '1', 'r');
-- 22007 times
SELECT queen.pop('q', 'new', subscription_from => 'soon');
-- 25001 inside a transaction block, 25006 in a read-only one
BEGIN;
CALL queen.wait('q', 'g', 0);
ROLLBACK;
BEGIN READ ONLY;
SELECT queen.push('q', '1');
ROLLBACK;
-- 42501 without the right
CREATE ROLE errors_producer;
GRANT queen_producer TO errors_producer;
SET ROLE errors_producer;
SELECT queen.transaction('[{"type": "push", "queue": "q"}]');
SELECT queen.pop('q');
SET queen.tenant = '00000000-0000-0000-0000-000000000002';
RESET ROLE;
DROP ROLE errors_producer;

-- What they say: the value, cut, and the limit; a hint where there is something to do.
\set VERBOSITY default
SELECT queen.push(repeat('x', 300), '1');
SELECT queen.push('q', '1', transaction_id => repeat('x', 65536));
SELECT queen.push('q', NULL);
SELECT queen.pop('q', batch => 0);
SELECT queen.pop('q', lease_seconds => 0);
SELECT queen.pop('q', 'new', subscription_mode => 'some');
SELECT queen.pop('q', 'new', subscription_from => 'soon');
SELECT queen.configure('q', '{"leaseTime": 0}');
SELECT queen.configure('q', '{"retries": 1}');
SELECT queen.push_batch('[{"queue": "q", "payload": 1}, {"queue": "q", "payload": 2, "transactionId": ""}]');
SELECT queen.push_batch('["secret"]');
SELECT queen.transaction('{"operations": "secret"}');
SELECT queen.push('sealed', '"secret"');
SELECT queen.nack(:'lease_id', 'a');
SELECT queen.seek('nowhere', 'g', to_end => true);
SELECT queen.seek('q', 'g');
CALL queen.wait('q', 'g', -1);
BEGIN;
CALL queen.wait('q', 'g', 0);
ROLLBACK;
BEGIN;
CALL queen.wait_changes(NULL, 0);
ROLLBACK;
SELECT queen.due_json('{"secret": 1}');
SELECT queen.decode_segment('\x00');
SELECT queen.dlq_plan('r', 'c', filter => '{"colour": "secret"}');
SELECT queen.dlq_discard('{}', 'boring', 'n');
BEGIN;
CALL queen.run_replays(0);
ROLLBACK;
DELETE FROM queen.dlq_event;
