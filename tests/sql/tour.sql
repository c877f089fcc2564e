-- The main verbs, in the order in which one meets them.
\set VERBOSITY terse

-- A push is part of the caller's transaction.
BEGIN;
SELECT status, "offset" FROM queen.push('orders', '{"id": 1}', partition => 'ada', transaction_id => 'order-1');
SELECT status FROM queen.push('orders', '{"id": 2}', partition => 'ada', transaction_id => 'order-2');
SELECT status FROM queen.push('orders', '{"id": 1}', partition => 'ada', transaction_id => 'order-1');
COMMIT;
BEGIN;
SELECT status FROM queen.push('orders', '{"id": 99}', partition => 'ada', transaction_id => 'order-99');
ROLLBACK;
SELECT partition, "offset", transaction_id, payload, status FROM queen.messages('orders') ORDER BY "offset";

-- Several at once, into one partition; and as JSON, which answers offsets.
SELECT index, status FROM queen.push_many('orders', ARRAY['{"id": 3}', '{"id": 4}']::jsonb[], 'bob', ARRAY['order-3', 'order-4']);
SELECT index, transaction_id, queue, status, "offset"
  FROM queen.push_batch('[{"queue": "orders", "partition": "bob", "payload": {"b":1, "a": 1.50}, "transactionId": "order-5"},
                          {"queue": "orders", "partition": "bob", "payload": null, "transactionId": "order-3"}]');

-- A new group starts with what comes after it, unless it says otherwise.
SELECT * FROM queen.pop('orders', 'late');
SELECT partition, "offset", transaction_id, payload_text, delivery_attempt
  FROM queen.pop('orders', 'billing', batch => 10, max_partitions => 2, subscription_mode => 'all');
SELECT count(*) AS "leased by somebody" FROM queen.pop('orders', 'billing', batch => 10, max_partitions => 2);
SELECT consumer_group, pending, processing, subscription_mode FROM queen.consumer_groups ORDER BY 1;

-- Settle: completed, failed, and all that a lease holds.
SELECT lease_id FROM queen.cursor WHERE lease_id IS NOT NULL LIMIT 1 \gset
SELECT partition_id AS ada FROM queen.partitions WHERE partition = 'ada' \gset
SELECT transaction_id, success, error, lease_released, dlq, dropped, noop FROM queen.ack(:'ada', 'order-1', 'completed', 'billing', :'lease_id');
SELECT transaction_id, success, error, lease_released, dlq, dropped, noop FROM queen.ack(:'ada', 'order-1', 'completed', 'billing', :'lease_id');
SELECT transaction_id, success, error, lease_released, dlq, dropped, noop FROM queen.ack(:'ada', 'order-9', 'completed', 'billing', :'lease_id');
SELECT transaction_id, success, error, lease_released, dlq, dropped, noop FROM queen.nack(:'lease_id', 'order-2', 'no such customer');
SELECT transaction_id, success, error, lease_released, dlq, dropped, noop FROM queen.nack(:'lease_id', 'order-2', 'no such customer');
SELECT queen.ack_lease(:'lease_id');
SELECT queen.ack_lease(:'lease_id');

-- The same message again, then for good.
SELECT transaction_id, delivery_attempt, lease_id FROM queen.pop('orders', 'billing') \gset again_
SELECT :'again_transaction_id' AS again, :again_delivery_attempt AS attempt;
SELECT queen.renew_lease(:'again_lease_id', 600) > now() AS renewed, queen.release(:'again_lease_id') AS released;
SELECT lease_id FROM queen.pop('orders', 'billing') \gset
SELECT success, dlq FROM queen.nack(:'lease_id', 'order-2', 'give up', 'dlq', 'fatal');
SELECT queue, partition, consumer_group, "offset", transaction_id, payload, error, reason, retry_count FROM queen.dlq();

-- Back into the queue, once.
SELECT id AS dlq_id FROM queen.dlq() \gset
SELECT v ->> 'result' AS result, v ->> 'partition' AS partition, v ->> 'offset' AS "offset" FROM queen.dlq_move_v1(:'dlq_id') v;
SELECT v ->> 'result' AS result FROM queen.dlq_move_v1(:'dlq_id') v;
SELECT split_part(transaction_id, ':', 1) AS transaction_id, payload FROM queen.pop('orders', 'billing', auto_ack => true);

-- All or nothing, for those who speak JSON.
SELECT transaction_id, partition_id, lease_id FROM queen.pop('orders', 'audit', partition => 'bob', subscription_mode => 'all') \gset
SELECT t -> 'success' AS success, t -> 'results' -> 0 ->> 'type' AS first, t -> 'results' -> 1 ->> 'type' AS second
  FROM queen.transaction(json_build_array(
       json_build_object('type', 'push', 'queue', 'invoices', 'payload', json_build_object('order', 3), 'transactionId', 'invoice-3'),
       json_build_object('type', 'ack', 'transactionId', :'transaction_id', 'partitionId', :'partition_id', 'leaseId', :'lease_id',
                         'consumerGroup', 'audit'))) t;
SELECT t -> 'success' AS success, t ->> 'reason' AS reason, t ->> 'error' AS error
  FROM queen.transaction('[{"type": "push", "queue": "invoices", "payload": 1, "transactionId": "invoice-3"}]') t;

-- Options, seek, retention.
SELECT o -> 'leaseTime' AS "leaseTime", o -> 'retryLimit' AS "retryLimit" FROM queen.configure('orders', '{"retryLimit": 7}') o;
SELECT o -> 'leaseTime' AS "leaseTime", o -> 'retryLimit' AS "retryLimit" FROM queen.configure('orders', '{"leaseTime": 30}', 'replace') o;
SELECT queen.seek('orders', 'billing', to_timestamp => '-infinity');
SELECT string_agg(transaction_id, ' ' ORDER BY "offset") FROM queen.pop('orders', 'billing', batch => 10, partition => 'bob');
SELECT queen.seek('orders', 'billing', to_end => true, partition => 'bob');
SELECT queen.maintain();
CALL queen.wait('orders', 'billing', 0);

-- What an HTTP server asks for its long polls.
SELECT queen.due_json('[["orders", "billing"], ["orders", "billing", "bob"], ["orders", "nobody yet"], ["nowhere", "billing"]]');
CALL queen.wait_changes(NULL, 0) \gset
SELECT queen.push('orders', '{"order": 9}', 'bob', 'order-9') \g /dev/null
CALL queen.wait_changes((:'changes'::jsonb)->>'position', 0) \gset
SELECT :'changes'::jsonb - 'position' AS changes;

-- Look.
SELECT queue, partitions, messages, dead_letters FROM queen.queues ORDER BY 1;
SELECT queue, partition, log_start, last_offset FROM queen.partitions ORDER BY 1, 2;
SELECT r."offset", r.payload_text, r.status FROM queen.partitions p, queen.read(p.partition_id, 0) r WHERE p.partition = 'bob' ORDER BY 1;
SELECT m.transaction_id, m.status FROM queen.partitions p, queen.message(p.partition_id, 'order-1') m WHERE p.partition = 'ada';
SELECT f.frame_index, f.transaction_id, f.payload_text FROM queen.segment s, queen.decode_segment(s.data) f
 WHERE s.pid = (SELECT pid FROM queen.partition WHERE name = 'bob') ORDER BY s.base, 1;
SELECT * FROM queen.verify();

-- And away.
SELECT queen.drop_consumer_group('audit'), queen.drop_queue('invoices'), queen.drop_queue('invoices') AS again;
