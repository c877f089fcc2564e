/// Books one payment; answers whether there was a message.
async fn book_one(client: &mut tokio_postgres::Client) -> Result<bool, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let pop = "SELECT partition_id, transaction_id, lease_id, payload,
                      coalesce((headers ->> 'x-causation-id')::uuid, message_id) AS id
                 FROM queen.pop('payments', 'bookkeeping', subscription_mode => 'all')";
    let Some(message) = transaction.query_opt(pop, &[]).await? else { return Ok(false) };
    let id: uuid::Uuid = message.get("id");
    let once = transaction.query_one("SELECT queen.process_once('bookkeeping', $1)", &[&id]).await?;
    if once.get(0) {
        let payload: serde_json::Value = message.get("payload");
        let change = "UPDATE account SET balance = balance + ($1::jsonb ->> 'amount')::numeric
                       WHERE owner = $1::jsonb ->> 'owner'";
        transaction.execute(change, &[&payload]).await?;
    }
    let ack = "SELECT queen.ack($1, $2, 'completed', 'bookkeeping', $3)";
    let (partition, transaction_id): (uuid::Uuid, String) = (message.get(0), message.get(1));
    let lease: uuid::Uuid = message.get("lease_id");
    transaction.execute(ack, &[&partition, &transaction_id, &lease]).await?;
    transaction.commit().await?;
    Ok(true)
}
