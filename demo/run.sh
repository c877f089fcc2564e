#!/bin/bash
# A tour of the broker, in a cluster of its own that is gone afterwards. Each step shows its SQL and
# what came of it, and checks it: the exit status is 0 only when everything was as told.
set -euo pipefail
source "$(dirname "$0")/../scripts/cluster.sh"
source "$(dirname "$0")/../scripts/sidecar.sh"
source "$(dirname "$0")/screen.sh"

"${CARGO:-cargo}" xtask install "$PG_CONFIG" release
(cd "$root" && "${CARGO:-cargo}" build --release -p queen-sidecar)

folder=$(server mktemp -d /tmp/queen-demo-XXXXXX)
goodbye() {
    stop_sidecar "$folder" || true
    if is_up "$folder"; then stop_cluster "$folder" immediate; fi
    server rm -rf "$folder"
}
trap goodbye EXIT
start() { start_cluster "$folder" listen_addresses= port=6432; }
new_cluster "$folder" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
start
sql() { "$bin/psql" -Xq -h "$folder" -p 6432 -U postgres -d postgres -v ON_ERROR_STOP=1 "$@"; }

say "$(sql -At -c "SELECT 'queen in PostgreSQL ' || current_setting('server_version')"), in a cluster of its own: $folder"

heading "A shop, and its queue of orders"
run <<'SQL'
CREATE EXTENSION queen;
CREATE TABLE shop_order (id int PRIMARY KEY, customer text, cents int);
CREATE TABLE invoice (order_id int PRIMARY KEY, cents int);
SELECT queen.configure('orders', '{"retryLimit": 3}')->'retryLimit' AS retry_limit;
SQL
check "the queue is there" orders "SELECT queue FROM queen.queues"

heading "Order and message: one transaction"
run <<'SQL'
BEGIN;
INSERT INTO shop_order VALUES (1, 'ada', 4200), (2, 'bob', 990), (3, 'ada', 1500), (4, 'bob', 70);
SELECT string_agg(p.transaction_id || ' ' || p.status, ', ') AS pushed
FROM shop_order o, queen.push('orders', to_jsonb(o), o.customer, 'order-' || o.id) p;
COMMIT;
SQL
check "four orders, four messages" 4/4 \
    "SELECT (SELECT count(*) FROM shop_order) || '/' || (SELECT count(*) FROM queen.messages('orders'))"

heading "The same with ROLLBACK"
run quiet <<'SQL'
BEGIN;
INSERT INTO shop_order VALUES (5, 'bob', 100000);
SELECT queen.push('orders', '{"id": 5}', 'bob', 'order-5');
ROLLBACK;
SQL
check "no order, no message" 4/4 \
    "SELECT (SELECT count(*) FROM shop_order) || '/' || (SELECT count(*) FROM queen.messages('orders'))"

heading "Group shipping: every message, each customer's in order"
run <<'SQL'
CREATE TABLE parcel AS
SELECT lease_id, partition AS customer, "offset", (payload->>'id')::int AS order_id
FROM queen.pop('orders', 'shipping', batch => 100, max_partitions => 0, subscription_mode => 'all');
SELECT customer, array_agg(order_id ORDER BY "offset") AS orders FROM parcel GROUP BY 1 ORDER BY 1;
SELECT queen.ack_lease(lease_id) AS acknowledged FROM parcel GROUP BY lease_id;
SQL
check "all four, in order" "ada 1,3;bob 2,4" \
    "SELECT string_agg(customer || ' ' || orders, ';' ORDER BY customer)
     FROM (SELECT customer, string_agg(order_id::text, ',' ORDER BY \"offset\") AS orders FROM parcel GROUP BY 1) p"

heading "Group billing: message, invoice and acknowledgement are one transaction"
run <<'SQL'
BEGIN;
WITH m AS MATERIALIZED (
  SELECT * FROM queen.pop('orders', 'billing', batch => 100, max_partitions => 0, subscription_mode => 'all')
), billed AS (INSERT INTO invoice SELECT (payload->>'id')::int, (payload->>'cents')::int FROM m)
SELECT queen.ack_lease(lease_id) AS acknowledged FROM m GROUP BY lease_id;
COMMIT;
SQL
check "four invoices, and nothing left to bill" 4/0 \
    "SELECT (SELECT count(*) FROM invoice) || '/' || (SELECT count(*) FROM queen.pop('orders', 'billing'))"

heading "A message that billing cannot digest: three retries, then the dead letters"
run quiet <<'SQL'
SELECT queen.push('orders', '{"id": 6, "cents": "a lot"}', 'bob', 'order-6');
SQL
attempt="SELECT m.delivery_attempt, a.success, a.dlq AS dead_letter
FROM queen.pop('orders', 'billing') m, queen.nack(m.lease_id, m.transaction_id, 'cents: not a number') a;"
run <<<"$attempt"
for _ in 2 3; do again "$attempt"; done
[ -z "$(sql -At -c "SELECT 1 FROM queen.dlq('orders')")" ] || failed "dead before its retries were used up"
again "$attempt"
run <<'SQL'
SELECT partition, transaction_id, retry_count, error, payload FROM queen.dlq('orders');
SQL
check "dead after four failures" "order-6 billing 3" \
    "SELECT transaction_id || ' ' || consumer_group || ' ' || retry_count FROM queen.dlq('orders')"

heading "Billing is fixed: back into the queue with it"
run <<'SQL'
SELECT v->>'result' AS result, v->'offset' AS "offset" FROM queen.dlq('orders') d, queen.dlq_move_v1(d.id) v;
SELECT m.payload, queen.ack_lease(m.lease_id) AS acknowledged FROM queen.pop('orders', 'billing') m;
SQL
check "no dead letter left, nothing to bill" 0/0 \
    "SELECT (SELECT count(*) FROM queen.dlq('orders')) || '/' || (SELECT count(*) FROM queen.pop('orders', 'billing'))"

heading "The server crashes while somebody holds a lease"
run quiet <<'SQL'
SELECT queen.push('orders', '{"id": 7, "cents": 300}', 'ada', 'order-7');
SQL
run <<'SQL'
SELECT transaction_id, delivery_attempt FROM queen.pop('orders', 'billing', lease_seconds => 2);
SQL
say "pg_ctl stop -m immediate; pg_ctl start"
stop_cluster "$folder" immediate
start
check "what was acknowledged stays acknowledged" "4 invoices, 1 to bill" \
    "SELECT (SELECT count(*) FROM invoice) || ' invoices, ' || pending + processing || ' to bill'
     FROM queen.consumer_groups WHERE queue = 'orders' AND consumer_group = 'billing'"
await "the other comes again when its lease has run out" "order-7" \
    "SELECT m.transaction_id FROM queen.pop('orders', 'billing') m, queen.ack_lease(m.lease_id)"

heading "What an operator sees"
run <<'SQL'
SELECT queue, partitions, messages, pending, processing, dead_letters FROM queen.queues;
SQL
check "billing is done, shipping has three to go" "billing 0;shipping 3" \
    "SELECT string_agg(consumer_group || ' ' || pending, ';' ORDER BY consumer_group) FROM queen.consumer_groups"

source "$(dirname "$0")/http.sh"
summary
