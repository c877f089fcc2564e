//! The published key set, served by a small server of the test.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Publishes a text and counts who asks for it.
struct Publisher {
    url: String,
    /// Status and body of the answer.
    answer: Arc<Mutex<(u16, String)>>,
    asked: Arc<AtomicUsize>,
}

impl Publisher {
    async fn new(keys: &[Value]) -> Publisher {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let (answer, asked) = (Arc::new(Mutex::new((200, String::new()))), Arc::new(AtomicUsize::new(0)));
        let publisher = Publisher { url, answer: answer.clone(), asked: asked.clone() };
        publisher.publish(keys);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // The whole request: closing with some of it unread would reset the connection.
                let (mut request, mut part) = (Vec::new(), [0; 4096]);
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut part).await {
                        Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
                        _ => break,
                    }
                }
                asked.fetch_add(1, SeqCst);
                let (status, body) = answer.lock().unwrap().clone();
                let head =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        publisher
    }

    fn publish(&self, keys: &[Value]) {
        self.answer(200, &json!({ "keys": keys }).to_string());
    }

    fn answer(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = (status, body.to_owned());
    }

    fn auth(&self, options: &[&str]) -> Auth {
        auth(&[&["--jwt-algorithm", "auto", "--jwt-jwks-url", &self.url], options].concat())
    }

    async fn asked_more_often_than(&self, times: usize) {
        while self.asked.load(SeqCst) <= times {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The keys of the tests: `rsa-1`, for any RSA algorithm, and `ed-1`.
fn published() -> Vec<Value> {
    serde_json::from_str(include_str!("keys/keys.json")).unwrap()
}

fn renamed(id: &str) -> Value {
    let mut key = published().remove(0);
    key["kid"] = json!(id);
    key
}

fn rsa(id: Option<&str>) -> String {
    signed(Algorithm::RS256, id, &admin())
}

fn ed(id: Option<&str>) -> String {
    signed(Algorithm::EdDSA, id, &admin())
}

#[tokio::test]
async fn the_named_key_checks_the_token() {
    let publisher = Publisher::new(&published()).await;
    let auth = publisher.auth(&[]);
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, alice());
    assert_eq!(push(&auth, &ed(Some("ed-1"))).await, alice());
    assert_eq!(push(&auth, &signed(Algorithm::RS512, Some("rsa-1"), &admin())).await, alice());
    assert_eq!(push(&auth, &rsa(Some("ed-1"))).await, refused(401, "Unsupported token algorithm"));
    assert_eq!(publisher.asked.load(SeqCst), 1, "the set is kept");
}

#[tokio::test]
async fn a_token_without_a_name_takes_the_only_key_of_its_kind() {
    let publisher = Publisher::new(&published()).await;
    let auth = publisher.auth(&[]);
    assert_eq!(push(&auth, &rsa(None)).await, alice());
    assert_eq!(push(&auth, &ed(None)).await, alice());
    publisher.publish(&[renamed("rsa-1"), renamed("rsa-2")]);
    assert_eq!(push(&publisher.auth(&[]), &rsa(None)).await, refused(401, "Unknown key ID"));
}

#[tokio::test]
async fn a_key_published_later_is_found_and_one_that_never_is_costs_one_fetch() {
    let publisher = Publisher::new(&[renamed("rsa-1")]).await;
    let auth = publisher.auth(&[]);
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, alice());
    publisher.publish(&[renamed("rsa-2")]);
    assert_eq!(push(&auth, &rsa(Some("rsa-2"))).await, alice());
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, refused(401, "Unknown key ID"));
    let before = publisher.asked.load(SeqCst);
    for _ in 0..50 {
        assert_eq!(push(&auth, &rsa(Some("made up"))).await, refused(401, "Unknown key ID"));
    }
    // Should this take very long, a pause or two between fetches may end meanwhile; but not fifty.
    assert!(publisher.asked.load(SeqCst) - before < 25);
}

#[tokio::test]
async fn requests_that_come_together_share_a_fetch() {
    let publisher = Publisher::new(&published()).await;
    let auth = Arc::new(publisher.auth(&[]));
    let requests = (0..20).map(|_| {
        let auth = auth.clone();
        tokio::spawn(async move { push(&auth, &rsa(Some("rsa-1"))).await })
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.unwrap(), alice());
    }
    assert_eq!(publisher.asked.load(SeqCst), 1);
}

#[tokio::test]
async fn the_old_keys_stay_while_the_server_is_down_and_new_ones_come_without_being_asked_for() {
    let publisher = Publisher::new(&[renamed("rsa-1")]).await;
    let auth = publisher.auth(&["--jwt-jwks-refresh-interval", "1"]);
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, alice());
    for (status, body) in [(500, "broken"), (200, "no JSON"), (200, "{}")] {
        publisher.answer(status, body);
        let before = publisher.asked.load(SeqCst);
        // The second of two fetches begins after the first was dealt with.
        publisher.asked_more_often_than(before + 1).await;
        assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, alice(), "{status} {body}");
    }
    publisher.publish(&[renamed("rsa-2")]);
    let before = publisher.asked.load(SeqCst);
    publisher.asked_more_often_than(before + 1).await;
    assert_eq!(push(&auth, &rsa(Some("rsa-2"))).await, alice());
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, refused(401, "Unknown key ID"), "a withdrawn key is gone");
}

#[tokio::test]
async fn without_any_set_yet_it_is_the_servers_trouble() {
    let publisher = Publisher::new(&[]).await;
    publisher.answer(503, "");
    let auth = publisher.auth(&[]);
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, refused(503, "The token keys are not available"));
    // Tokens of the other keys do not need it.
    let auth = publisher.auth(&["--jwt-secret", SECRET, "--jwt-public-key", RSA_PUBLIC]);
    assert_eq!(push(&auth, &token(&admin())).await, alice());
    assert_eq!(push(&auth, &rsa(None)).await, alice());
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, alice());
}

#[tokio::test]
async fn keys_for_other_uses_and_of_other_kinds_are_passed_over() {
    let mut encryption = renamed("encryption");
    encryption["use"] = json!("enc");
    let mut pss = renamed("pss");
    pss["alg"] = json!("PS256");
    let mut only = renamed("only-512");
    only["alg"] = json!("RS512");
    let secret = json!({ "kty": "oct", "kid": "secret", "k": "c2VjcmV0" });
    let curve = json!({ "kty": "EC", "kid": "ec", "crv": "P-256", "x": "AA", "y": "AA" });
    let keys = [json!(7), json!({}), secret, curve, encryption, pss, only, renamed("rsa-1")];
    let publisher = Publisher::new(&keys).await;
    let auth = publisher.auth(&[]);
    assert_eq!(push(&auth, &rsa(Some("rsa-1"))).await, alice());
    assert_eq!(push(&auth, &rsa(Some("only-512"))).await, refused(401, "Unsupported token algorithm"));
    assert_eq!(push(&auth, &signed(Algorithm::RS512, Some("only-512"), &admin())).await, alice());
    for id in ["encryption", "pss", "ec", "secret"] {
        assert_eq!(push(&auth, &rsa(Some(id))).await, refused(401, "Unknown key ID"), "{id}");
    }
    let head = Header { kid: Some("secret".to_owned()), ..Header::default() };
    let confused = jsonwebtoken::encode(&head, &admin(), &EncodingKey::from_secret(b"secret")).unwrap();
    assert_eq!(push(&auth, &confused).await, refused(401, "Unsupported token algorithm"));
}
