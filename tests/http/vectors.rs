//! The wire's behaviour vectors, by their numbers.

use crate::sidecar;
use queen_tests::sidecar::json;

#[tokio::test]
async fn a1_the_second_push_of_a_transaction_id_is_a_duplicate_of_the_first() {
    let http = sidecar().await;
    let body = json!({"items": [{"queue": "q", "payload": 1, "transactionId": "a"}]});
    let first = http.post("/api/v1/push", &body).await.expect(201);
    let second = http.post("/api/v1/push", &body).await.expect(201);
    assert_eq!((&first[0]["status"], &second[0]["status"]), (&json!("queued"), &json!("duplicate")));
    assert_eq!(first[0]["message_id"], second[0]["message_id"]);
}
