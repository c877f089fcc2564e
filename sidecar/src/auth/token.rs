//! Reading a token: from the header `Authorization` to claims that can be trusted.

use super::config::AuthConfig;
use super::keys::Keys;
use super::refusal::Refusal;
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// What a good token says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims {
    /// Claim `sub`.
    pub subject: Option<String>,
    /// The names of its roles.
    pub roles: Vec<String>,
}

/// The first part of a token.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// Extensions that have to be understood; none is here.
    crit: Option<IgnoredAny>,
}

/// Checks tokens.
pub struct Tokens {
    keys: Keys,
    issuer: Option<String>,
    audience: Option<String>,
    skew: f64,
    role_claims: [String; 2],
}

impl Tokens {
    /// Reads the keys and the rules.
    ///
    /// # Errors
    /// A sentence about the keys.
    pub fn new(config: &AuthConfig) -> Result<Tokens, String> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Ok(Tokens {
            keys: Keys::new(config)?,
            issuer: set(&config.jwt_issuer),
            audience: set(&config.jwt_audience),
            skew: config.jwt_clock_skew.into(),
            role_claims: [config.jwt_roles_claim.clone(), config.jwt_roles_array_claim.clone()],
        })
    }

    /// Checks the token of a request at a time, in seconds since 1970.
    ///
    /// # Errors
    /// All but `Forbidden`.
    pub async fn check(&self, headers: &HeaderMap, now: f64) -> Result<Claims, Refusal> {
        let token = presented(headers)?;
        let (message, signature) = token.rsplit_once('.').ok_or(Refusal::BadHeader)?;
        let (head, body) = message.split_once('.').ok_or(Refusal::BadHeader)?;
        let head: Head = decoded(head).ok_or(Refusal::BadHeader)?;
        if head.crit.is_some() || body.contains('.') {
            return Err(Refusal::BadHeader);
        }
        let algorithm = algorithm(&head.alg).filter(|a| self.keys.accepts(*a)).ok_or(Refusal::UnsupportedAlgorithm)?;
        let key = self.keys.find(algorithm, head.kid.as_deref()).await?;
        key.verify(algorithm, message, signature)?;
        // Only now may anything in it be believed.
        let claims: Map<String, Value> = decoded(body).ok_or(Refusal::BadClaims)?;
        self.judge(&claims, now)
    }

    fn judge(&self, claims: &Map<String, Value>, now: f64) -> Result<Claims, Refusal> {
        if time(claims, "exp")?.is_some_and(|exp| exp + self.skew <= now) {
            return Err(Refusal::Expired);
        }
        if time(claims, "nbf")?.is_some_and(|nbf| nbf > now + self.skew) {
            return Err(Refusal::NotYetValid);
        }
        if time(claims, "iat")?.is_some_and(|iat| iat > now + self.skew) {
            return Err(Refusal::IssuedInFuture);
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err(Refusal::InvalidIssuer);
        }
        if let Some(audience) = &self.audience
            && !texts(claims.get("aud")).any(|aud| aud == audience)
        {
            return Err(Refusal::InvalidAudience);
        }
        let subject = match claims.get("sub") {
            None | Some(Value::Null) => None,
            // The database has no text with a zero byte.
            Some(Value::String(subject)) if !subject.contains('\0') => Some(subject.clone()),
            Some(_) => return Err(Refusal::BadClaims),
        };
        let roles = self.role_claims.iter().flat_map(|claim| texts(claims.get(claim))).map(str::to_owned).collect();
        Ok(Claims { subject, roles })
    }
}

/// The token of a request: `Bearer <token>`, or the bare token.
fn presented(headers: &HeaderMap) -> Result<&str, Refusal> {
    let value = headers.get(header::AUTHORIZATION).ok_or(Refusal::NoToken)?;
    let text = value.to_str().map_err(|_| Refusal::BadHeader)?.trim();
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        // Another scheme.
        Some(_) => "",
        None if text.eq_ignore_ascii_case("bearer") => "",
        None => text,
    };
    if token.is_empty() { Err(Refusal::NoToken) } else { Ok(token) }
}

/// The algorithm of this exact name, if it could be accepted at all. `none` could not.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "HS256" => Some(Algorithm::HS256),
        "HS384" => Some(Algorithm::HS384),
        "HS512" => Some(Algorithm::HS512),
        "RS256" => Some(Algorithm::RS256),
        "RS384" => Some(Algorithm::RS384),
        "RS512" => Some(Algorithm::RS512),
        "EdDSA" => Some(Algorithm::EdDSA),
        _ => None,
    }
}

fn decoded<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A time; one that is no number must not pass for one that is absent.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<f64>, Refusal> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(Refusal::BadClaims),
    }
}

/// A text, or the texts of an array.
fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let several = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    value.and_then(Value::as_str).into_iter().chain(several.iter().filter_map(Value::as_str))
}
