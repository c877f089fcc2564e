-- POST /api/v1/messages/:partitionId/:transactionId/retry: which dead letter the address means, the newest.
-- $1 partition id, $2 transaction id. The answer is its id, no JSON. No row: there is none.
SELECT d.id::text
  FROM queen.dlq(max_rows => 1, partition_id => $1::uuid, transaction_id => $2::text) d
