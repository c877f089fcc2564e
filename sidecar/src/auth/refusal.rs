//! Why a request is not let in, and what it is told. The sentences are those of Queen MQ; none quotes the token.

use crate::error::Problem;
use axum::http::StatusCode;

/// Why a request is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No token.
    #[error("Authentication required")]
    NoToken,
    /// The token's first part cannot be read.
    #[error("Bad token header")]
    BadHeader,
    /// The token is signed in a way that is not accepted.
    #[error("Unsupported token algorithm")]
    UnsupportedAlgorithm,
    /// The signature is not one of the key.
    #[error("Invalid token signature")]
    InvalidSignature,
    /// Well signed, but its claims are not an object, or a claim that counts is of a wrong type.
    #[error("Bad token claims")]
    BadClaims,
    /// Past `exp`.
    #[error("Token has expired")]
    Expired,
    /// Before `nbf`.
    #[error("Token not yet valid")]
    NotYetValid,
    /// Before `iat`.
    #[error("Token issued in the future")]
    IssuedInFuture,
    /// Another `iss`.
    #[error("Invalid token issuer")]
    InvalidIssuer,
    /// Another `aud`.
    #[error("Invalid token audience")]
    InvalidAudience,
    /// The key set has no such key.
    #[error("Unknown key ID")]
    UnknownKey,
    /// The key set could never be fetched: it is not known whether the token is good.
    #[error("The token keys are not available")]
    NoKeys,
    /// The token is good, its roles do not suffice.
    #[error("Insufficient permissions")]
    Forbidden,
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Forbidden => StatusCode::FORBIDDEN,
            Refusal::NoKeys => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNAUTHORIZED,
        };
        Problem::new(status, refusal.to_string())
    }
}
