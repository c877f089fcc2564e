//! Tests of authentication. The keys in `keys/` are for tests only and open nothing.

mod algorithms;
mod door;
mod jwks;
mod levels;
mod settings;
mod statuses;

use super::{Auth, AuthConfig, Identity};
use crate::error::Problem;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use clap::Parser;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

const SECRET: &str = "a secret of at least thirty-two bytes";
const RSA_PRIVATE: &str = include_str!("keys/rsa.private.pem");
const RSA_PUBLIC: &str = include_str!("keys/rsa.public.pem");
const ED_PRIVATE: &str = include_str!("keys/ed25519.private.pem");
const ED_PUBLIC: &str = include_str!("keys/ed25519.public.pem");

/// A command line with nothing but the settings of authentication.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    auth: AuthConfig,
}

fn config(options: &[&str]) -> AuthConfig {
    let line = ["queen", "--jwt-enabled", "true"].iter().chain(options);
    Line::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).auth
}

fn auth(options: &[&str]) -> Auth {
    Auth::new(&config(options)).unwrap()
}

/// With an HMAC secret.
fn with_secret(options: &[&str]) -> Auth {
    auth(&[&["--jwt-secret", SECRET], options].concat())
}

/// The key of the tests that an algorithm signs with.
fn private_key(algorithm: Algorithm) -> EncodingKey {
    match algorithm {
        Algorithm::EdDSA => EncodingKey::from_ed_pem(ED_PRIVATE.as_bytes()).unwrap(),
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => EncodingKey::from_secret(SECRET.as_bytes()),
        _ => EncodingKey::from_rsa_pem(RSA_PRIVATE.as_bytes()).unwrap(),
    }
}

fn signed(algorithm: Algorithm, id: Option<&str>, claims: &Value) -> String {
    let head = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
    jsonwebtoken::encode(&head, claims, &private_key(algorithm)).unwrap()
}

/// A token of the secret.
fn token(claims: &Value) -> String {
    signed(Algorithm::HS256, None, claims)
}

fn admin() -> Value {
    json!({ "sub": "alice", "role": "admin" })
}

/// Pushes with this in `Authorization`.
async fn push(auth: &Auth, authorization: &str) -> Result<Identity, Problem> {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(authorization.as_bytes()).unwrap());
    auth.admit(&Method::POST, "/api/v1/push", &headers).await
}

fn alice() -> Result<Identity, Problem> {
    Ok(Identity { subject: Some("alice".to_owned()), may_change: true })
}

/// An answer of this status whose body is `{"error": …}` and nothing else.
fn refused(status: u16, error: &str) -> Result<Identity, Problem> {
    Err(Problem { status: status.try_into().unwrap(), body: json!({ "error": error }) })
}
