//! A login of each role: what it may call, and what it is refused; and what others could slip in.

mod roles;
mod search_path;
mod surface;
mod tenant;

use queen_tests::{Client, shared_cluster};
use tokio_postgres::SimpleQueryMessage;

/// What SQL answers: rows by line, columns by `|`, NULL as `~`; or the SQLSTATE that it fails with.
async fn ask(client: &Client, sql: &str) -> Result<String, String> {
    let messages = client.simple_query(sql).await.map_err(|e| {
        let e = e.as_db_error().unwrap_or_else(|| panic!("connection lost in {sql:.200}: {e}"));
        e.code().code().to_owned()
    })?;
    let mut lines = Vec::new();
    for message in &messages {
        if let SimpleQueryMessage::Row(row) = message {
            let cells: Vec<&str> = (0..row.len()).map(|i| row.get(i).unwrap_or("~")).collect();
            lines.push(cells.join("|"));
        }
    }
    Ok(lines.join("\n"))
}

async fn rows(client: &Client, sql: &str) -> String {
    ask(client, sql).await.unwrap_or_else(|state| panic!("{state} from {sql}"))
}

/// A database with one queue `q` that has a message, a group with a dead letter, and a superuser's session in it.
async fn database() -> (String, Client) {
    let name = shared_cluster().fresh_database().await;
    let client = shared_cluster().client(&name).await;
    for sql in [
        "SELECT queen.push('q', '{\"secret\": 1}', transaction_id => 'a'); SELECT queen.push('q', '2', transaction_id => 'b')",
        "SELECT queen.ack(partition_id, 'a', 'dlq', 'g', lease_id) FROM queen.pop('q', 'g', subscription_mode => 'all')",
    ] {
        rows(&client, sql).await;
    }
    assert_eq!(rows(&client, "SELECT count(*) FROM queen.dlq()").await, "1");
    (name, client)
}
