//! The published key set (JWKS, RFC 7517): fetched in the background, kept while its server is down.

use super::keys::{Family, Key};
use super::refusal::Refusal;
use super::token::algorithm;
use axum::http::Uri;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use std::sync::{Arc, Once, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// After a fetch for an unknown key, the next such one waits this long: anybody can name a key that does not exist.
const PAUSE: Duration = Duration::from_secs(5);
/// After a failure, the next attempt comes sooner than the refresh would.
const RETRY: Duration = Duration::from_secs(15);
/// Bytes a key set may have.
const LIMIT: u64 = 1 << 20;

/// The key set of an issuer.
pub struct Jwks {
    source: Arc<Source>,
    refresh: Duration,
    started: Once,
}

struct Source {
    url: String,
    agent: ureq::Agent,
    held: RwLock<Held>,
    /// Whoever holds it fetches; nobody else does at the time.
    turn: Arc<Mutex<()>>,
}

#[derive(Clone, Default)]
struct Held {
    /// `None` until a fetch worked.
    keys: Option<Arc<[Published]>>,
    /// When the last fetch, successful or not, began.
    tried: Option<Instant>,
    /// When the last fetch for an unknown key began.
    asked: Option<Instant>,
    /// When they were fetched.
    fetched: Option<Instant>,
}

/// A key of the set.
struct Published {
    id: Option<String>,
    /// The one algorithm it is for, if the set says so.
    algorithm: Option<Algorithm>,
    key: Key,
}

impl Jwks {
    /// The key set at a URL. Nothing is fetched yet, unless a runtime is at hand.
    ///
    /// # Errors
    /// A sentence, when the URL is none. It is not quoted: it may hold a password.
    pub fn new(url: &str, timeout: Duration, refresh: Duration) -> Result<Jwks, String> {
        let parsed = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        let secure = match parsed.as_ref().and_then(Uri::scheme_str) {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("JWT_JWKS_URL must be an http:// or https:// URL".to_owned()),
        };
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            // A redirect must not lead out of encryption.
            .https_only(secure)
            .tls_config(ureq::tls::TlsConfig::builder().root_certs(roots(secure)).build())
            .build();
        let source =
            Source { url: url.to_owned(), agent: config.into(), held: RwLock::default(), turn: Arc::default() };
        let jwks = Jwks { source: Arc::new(source), refresh, started: Once::new() };
        if tokio::runtime::Handle::try_current().is_ok() {
            jwks.start();
        }
        Ok(jwks)
    }

    /// The key that a token names; without a name, the only one that fits. A key that is not there is looked for once
    /// more in a fresh set.
    ///
    /// # Errors
    /// `UnknownKey`, `UnsupportedAlgorithm` when the named key is for another one, `NoKeys` when no fetch ever worked.
    pub async fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Result<Key, Refusal> {
        let began = Instant::now();
        self.start();
        let found = self.source.held().find(algorithm, id);
        if !is_missing(&found) {
            return found;
        }
        let turn = self.source.turn.clone().lock_owned().await;
        // Whoever had the turn before may have brought it.
        let held = self.source.held();
        let found = held.find(algorithm, id);
        if !is_missing(&found) || !held.may_ask(began) {
            return found;
        }
        self.source.change(|held| held.asked = Some(Instant::now()));
        if self.source.fetch(turn).await && held.keys.is_none() {
            // The first set was fetched for everybody, not for an unknown key.
            self.source.change(|held| held.asked = None);
        }
        self.source.held().find(algorithm, id)
    }

    /// Starts the fetching, once. It ends when the set is dropped.
    fn start(&self) {
        self.started.call_once(|| {
            tokio::spawn(keep_fresh(Arc::downgrade(&self.source), self.refresh));
        });
    }
}

async fn keep_fresh(source: Weak<Source>, refresh: Duration) {
    while let Some(source) = source.upgrade() {
        let turn = source.turn.clone().lock_owned().await;
        // A request may have had the turn before and brought a fresh set: the first often does.
        let still_fresh = source.held().fetched.and_then(|at| refresh.checked_sub(at.elapsed()));
        let pause = match still_fresh {
            Some(rest) if !rest.is_zero() => {
                drop(turn);
                rest
            }
            _ if source.fetch(turn).await => refresh,
            _ => refresh.min(RETRY),
        };
        drop(source);
        tokio::time::sleep(pause).await;
    }
}

impl Source {
    fn held(&self) -> Held {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.held.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Fetches and keeps the set; of a failure, only the log tells. Once begun it goes on, even if the request that
    /// wanted it is gone.
    async fn fetch(self: &Arc<Self>, turn: OwnedMutexGuard<()>) -> bool {
        let source = self.clone();
        let work = move || {
            source.change(|held| held.tried = Some(Instant::now()));
            let fetched = source.download();
            match &fetched {
                Ok(keys) => {
                    tracing::debug!(keys = keys.len(), "fetched the token keys");
                    source.change(|held| (held.keys, held.fetched) = (Some(keys.clone()), Some(Instant::now())));
                }
                Err(problem) => tracing::warn!(%problem, "cannot fetch the token keys; the old ones stay"),
            }
            drop(turn);
            fetched.is_ok()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(false)
    }

    fn download(&self) -> Result<Arc<[Published]>, String> {
        let mut response = self.agent.get(&self.url).call().map_err(|e| without_url(&e))?;
        let text = response.body_mut().with_config().limit(LIMIT).read_to_vec().map_err(|e| without_url(&e))?;
        read(&text).ok_or_else(|| "the answer is not a JSON Web Key Set".to_owned())
    }
}

/// Whether a fresh set could help.
fn is_missing(found: &Result<Key, Refusal>) -> bool {
    matches!(found, Err(Refusal::UnknownKey | Refusal::NoKeys))
}

impl Held {
    /// Whether a request that began then may have the set fetched again.
    fn may_ask(&self, began: Instant) -> bool {
        let since = self.tried.is_some_and(|tried| tried >= began);
        let lately = self.asked.is_some_and(|asked| asked.elapsed() < PAUSE);
        !since && !lately
    }

    fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Result<Key, Refusal> {
        let keys = self.keys.as_ref().ok_or(Refusal::NoKeys)?;
        let mut named = keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id).peekable();
        named.peek().ok_or(Refusal::UnknownKey)?;
        let mut fit = named.filter(|key| key.fits(algorithm));
        match (fit.next(), fit.next(), id) {
            (Some(only), None, _) | (Some(only), Some(_), Some(_)) => Ok(only.key.clone()),
            (None, _, Some(_)) => Err(Refusal::UnsupportedAlgorithm),
            (_, _, None) => Err(Refusal::UnknownKey),
        }
    }
}

impl Published {
    fn fits(&self, algorithm: Algorithm) -> bool {
        Family::of(algorithm) == Some(self.key.family()) && self.algorithm.is_none_or(|only| only == algorithm)
    }
}

/// A key as it is published. Of its members only these count.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
}

/// Reads a set; keys of kinds that are not known here are none of our business, and secrets are not taken from a set.
fn read(text: &[u8]) -> Option<Arc<[Published]>> {
    let set: Value = serde_json::from_slice(text).ok()?;
    let keys = set.get("keys")?.as_array()?;
    Some(keys.iter().filter_map(|key| published(Jwk::deserialize(key).ok()?)).collect())
}

fn published(jwk: Jwk) -> Option<Published> {
    if jwk.usage.is_some_and(|usage| usage != "sig") {
        return None;
    }
    let key = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => Key::new(Family::Rsa, DecodingKey::from_rsa_components(&jwk.n?, &jwk.e?).ok()?),
        ("OKP", Some("Ed25519")) => Key::new(Family::Ed, DecodingKey::from_ed_components(&jwk.x?).ok()?),
        _ => return None,
    };
    // A key for an algorithm that is not accepted is not for another one either.
    let algorithm = match jwk.alg {
        Some(name) => Some(algorithm(&name)?),
        None => None,
    };
    Some(Published { id: jwk.kid, algorithm, key })
}

/// The system's certificates, so that an issuer inside a company is trusted as elsewhere; without any, Mozilla's.
fn roots(needed: bool) -> ureq::tls::RootCerts {
    if !needed {
        return ureq::tls::RootCerts::WebPki;
    }
    let certificates = rustls_native_certs::load_native_certs().certs;
    if certificates.is_empty() {
        return ureq::tls::RootCerts::WebPki;
    }
    certificates.iter().map(|c| ureq::tls::Certificate::from_der(c).to_owned()).into()
}

/// What went wrong, without the URL that some of the messages quote.
fn without_url(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(status) => format!("HTTP status {status}"),
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        ureq::Error::HostNotFound => "the host's name cannot be resolved".to_owned(),
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::BodyExceedsLimit(limit) => format!("an answer of more than {limit} bytes"),
        ureq::Error::Rustls(error) => format!("TLS: {error}"),
        _ => "the request failed".to_owned(),
    }
}
