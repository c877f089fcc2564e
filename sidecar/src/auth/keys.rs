//! The keys that signatures are checked with.
//!
//! A key is of one family and checks signatures of that family only. Otherwise somebody could take the public key, which
//! anybody may have, as an HMAC secret and sign with it.

use super::config::{Algorithms, AuthConfig};
use super::jwks::Jwks;
use super::refusal::Refusal;
use jsonwebtoken::{Algorithm, DecodingKey};
use std::time::Duration;

/// Bytes an HMAC secret should have at least (RFC 7518, 3.2).
const GOOD_SECRET: usize = 32;

/// Kinds of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// A shared secret.
    Hmac,
    /// RSA, PKCS #1 v1.5.
    Rsa,
    /// Ed25519.
    Ed,
}

impl Family {
    /// The family of an algorithm; `None` of one that is never accepted.
    pub fn of(algorithm: Algorithm) -> Option<Family> {
        match algorithm {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => Some(Family::Hmac),
            Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 => Some(Family::Rsa),
            Algorithm::EdDSA => Some(Family::Ed),
            _ => None,
        }
    }
}

/// A key and its family.
#[derive(Clone)]
pub struct Key {
    family: Family,
    key: DecodingKey,
}

impl Key {
    /// A key of this family.
    pub fn new(family: Family, key: DecodingKey) -> Key {
        Key { family, key }
    }

    /// Its family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Checks the signature (in base64) of a message.
    ///
    /// # Errors
    /// `UnsupportedAlgorithm`, when the algorithm is of another family; `InvalidSignature`.
    pub fn verify(&self, algorithm: Algorithm, message: &str, signature: &str) -> Result<(), Refusal> {
        if Family::of(algorithm) != Some(self.family) {
            return Err(Refusal::UnsupportedAlgorithm);
        }
        match jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.key, algorithm) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Refusal::InvalidSignature),
        }
    }
}

/// All keys of the settings.
pub struct Keys {
    accepted: Vec<Algorithm>,
    secret: Option<Key>,
    public: Option<Key>,
    set: Option<Jwks>,
}

impl Keys {
    /// Reads the keys.
    ///
    /// # Errors
    /// A sentence, when a key cannot be read or nothing could ever be checked.
    pub fn new(config: &AuthConfig) -> Result<Keys, String> {
        let accepted = accepted(config.jwt_algorithm);
        let wants = |family| accepted.iter().any(|a| Family::of(*a) == Some(family));
        let secret = config.jwt_secret.as_ref().filter(|s| !s.0.is_empty() && wants(Family::Hmac));
        if secret.is_some_and(|s| s.0.len() < GOOD_SECRET) {
            tracing::warn!("JWT_SECRET has fewer than {GOOD_SECRET} bytes and can be guessed from a token");
        }
        let pem = config.jwt_public_key.as_deref().map(str::trim).filter(|pem| !pem.is_empty());
        let public = pem.map(|pem| public_key(pem, wants(Family::Rsa), wants(Family::Ed))).transpose()?.flatten();
        let url = config.jwt_jwks_url.as_ref().map(|url| url.0.trim()).filter(|url| !url.is_empty());
        let set = url.filter(|_| wants(Family::Rsa) || wants(Family::Ed)).map(|url| {
            let timeout = Duration::from_millis(config.jwt_jwks_timeout_ms.into());
            Jwks::new(url, timeout, Duration::from_secs(config.jwt_jwks_refresh_interval.into()))
        });
        let mut keys = Keys {
            accepted,
            secret: secret.map(|s| Key::new(Family::Hmac, DecodingKey::from_secret(s.0.as_bytes()))),
            public,
            set: set.transpose()?,
        };
        let there_is = |algorithm: &Algorithm| keys.there_is(*algorithm);
        let usable: Vec<_> = keys.accepted.iter().copied().filter(there_is).collect();
        if usable.is_empty() {
            return Err(format!("JWT_ENABLED is set, but there is no key: {}", missing(config.jwt_algorithm)));
        }
        keys.accepted = usable;
        Ok(keys)
    }

    /// Whether tokens may be signed so.
    pub fn accepts(&self, algorithm: Algorithm) -> bool {
        self.accepted.contains(&algorithm)
    }

    /// The key for a token. Of the key set it is the one the token names; without a name, the only one of its kind. The
    /// public key of the settings is for tokens that name no key of the set.
    ///
    /// # Errors
    /// `UnsupportedAlgorithm`, `UnknownKey`, `NoKeys`.
    pub async fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Result<Key, Refusal> {
        let family = Family::of(algorithm).ok_or(Refusal::UnsupportedAlgorithm)?;
        if family == Family::Hmac {
            // Never from the key set: what is published is no secret.
            return self.secret.clone().ok_or(Refusal::UnsupportedAlgorithm);
        }
        let public = self.public.as_ref().filter(|key| key.family() == family);
        match (&self.set, public) {
            (Some(set), None) => set.find(algorithm, id).await,
            (Some(set), Some(public)) if id.is_some() => {
                Ok(set.find(algorithm, id).await.unwrap_or_else(|_| public.clone()))
            }
            (_, Some(public)) => Ok(public.clone()),
            (None, None) => Err(Refusal::UnsupportedAlgorithm),
        }
    }

    fn there_is(&self, algorithm: Algorithm) -> bool {
        match Family::of(algorithm) {
            Some(Family::Hmac) => self.secret.is_some(),
            family => self.set.is_some() || self.public.as_ref().is_some_and(|key| Some(key.family()) == family),
        }
    }
}

fn accepted(setting: Algorithms) -> Vec<Algorithm> {
    use Algorithm::{EdDSA, HS256, HS384, HS512, RS256, RS384, RS512};
    match setting {
        Algorithms::Hs256 => vec![HS256],
        Algorithms::Hs384 => vec![HS384],
        Algorithms::Hs512 => vec![HS512],
        Algorithms::Rs256 => vec![RS256, RS384, RS512],
        Algorithms::Rs384 => vec![RS384],
        Algorithms::Rs512 => vec![RS512],
        Algorithms::EdDsa => vec![EdDSA],
        Algorithms::Auto => vec![HS256, HS384, HS512, RS256, RS384, RS512, EdDSA],
    }
}

fn missing(setting: Algorithms) -> &'static str {
    match setting {
        Algorithms::Hs256 | Algorithms::Hs384 | Algorithms::Hs512 => {
            "set JWT_SECRET, or set JWT_ALGORITHM to RS256, EdDSA or auto for public keys"
        }
        Algorithms::Auto => "set JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL",
        _ => "set JWT_PUBLIC_KEY or JWT_JWKS_URL",
    }
}

/// Reads a PEM of one of the wanted families; without one, it is left unread.
fn public_key(pem: &str, rsa: bool, ed: bool) -> Result<Option<Key>, String> {
    // Env files hold a PEM in one line.
    let pem = pem.replace("\\n", "\n");
    // The library would take private keys and certificates for what is in them.
    let is_public = pem.contains("BEGIN PUBLIC KEY") || pem.contains("BEGIN RSA PUBLIC KEY");
    let read = |family| match family {
        Family::Rsa if rsa => DecodingKey::from_rsa_pem(pem.as_bytes()).ok().map(|key| Key::new(family, key)),
        Family::Ed if ed => DecodingKey::from_ed_pem(pem.as_bytes()).ok().map(|key| Key::new(family, key)),
        _ => None,
    };
    let key = is_public.then(|| read(Family::Rsa).or_else(|| read(Family::Ed))).flatten();
    match (key, rsa, ed) {
        (Some(key), _, _) => Ok(Some(key)),
        (None, false, false) => Ok(None),
        (None, true, false) => Err("JWT_PUBLIC_KEY: invalid RSA public key PEM".to_owned()),
        (None, false, true) => Err("JWT_PUBLIC_KEY: invalid Ed public key PEM".to_owned()),
        (None, true, true) => Err("JWT_PUBLIC_KEY: neither an RSA nor an Ed public key PEM".to_owned()),
    }
}
