//! Who may enter: a request has a level by its route ([`levels`]), a token brings roles ([`roles`]), and a role
//! satisfies some levels.

mod config;
mod jwks;
mod keys;
mod levels;
mod refusal;
mod roles;
mod token;

#[cfg(test)]
mod tests;

pub use config::{Algorithms, AuthConfig, Secret};
pub use levels::{Level, required};
pub use roles::Role;

use crate::error::Problem;
use axum::http::{HeaderMap, Method};
use refusal::Refusal;
use std::time::{SystemTime, UNIX_EPOCH};
use token::Tokens;

/// Who a request comes from.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Claim `sub`: becomes the producer of what is pushed.
    pub subject: Option<String>,
    /// Whether it may change things: then it sees evidence that is kept encrypted.
    pub may_change: bool,
}

/// Decides who may enter.
pub struct Auth {
    /// Without it, everybody may do everything.
    gate: Option<Gate>,
}

struct Gate {
    tokens: Tokens,
    skip: Vec<String>,
    roles: Vec<(Role, String)>,
}

impl Auth {
    /// Reads the keys. A key set is fetched later, and again and again: its server may be down now.
    ///
    /// # Errors
    /// A sentence about what cannot work.
    pub fn new(config: &AuthConfig) -> Result<Auth, String> {
        if !config.jwt_enabled {
            return Ok(Auth { gate: None });
        }
        let named = config.role_names();
        if named.iter().any(|(_, name)| name.is_empty()) {
            return Err("JWT_ROLE_ADMIN, _READ_WRITE, _READ_ONLY and _WRITE_ONLY must not be empty".to_owned());
        }
        Ok(Auth {
            gate: Some(Gate {
                tokens: Tokens::new(config)?,
                skip: config.jwt_skip_paths.iter().map(|path| path.trim().to_owned()).collect(),
                roles: named.map(|(role, name)| (role, name.to_owned())).into(),
            }),
        })
    }

    /// Lets a request in, or not. Routes that need no token bring no identity even if there is one.
    ///
    /// # Errors
    /// 401: no token, or a bad one. 403: a good one whose roles do not suffice. 503: the key set could never be fetched.
    pub async fn admit(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Identity, Problem> {
        let Some(gate) = &self.gate else {
            return Ok(Identity { subject: None, may_change: true });
        };
        gate.admit(method, path, headers).await.map_err(|refusal| {
            tracing::debug!(%method, path, %refusal, "not let in");
            refusal.into()
        })
    }
}

impl Gate {
    async fn admit(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Identity, Refusal> {
        if self.skip.iter().any(|skipped| skipped == path) {
            return Ok(Identity::default());
        }
        let level = required(method, path);
        if level == Level::Public {
            return Ok(Identity::default());
        }
        let claims = self.tokens.check(headers, now()).await?;
        let has = |name: &String| claims.roles.contains(name);
        let may = |level| self.roles.iter().any(|(role, name)| role.satisfies(level) && has(name));
        if !may(level) {
            return Err(Refusal::Forbidden);
        }
        let may_change = may(Level::ReadWrite);
        Ok(Identity { subject: claims.subject, may_change })
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
