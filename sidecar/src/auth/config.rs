//! The settings of authentication; their names are those of Queen MQ.

use super::roles::Role;
use clap::{ArgAction, Args, ValueEnum, builder::BoolishValueParser, value_parser};
use std::fmt;
use std::str::FromStr;

/// Settings of authentication.
#[derive(Args, Clone, Debug)]
pub struct AuthConfig {
    /// Demand a JSON Web Token
    #[arg(long, env = "JWT_ENABLED", default_value_t = false, value_parser = BoolishValueParser::new(), action = ArgAction::Set)]
    pub jwt_enabled: bool,
    /// How tokens are signed; RS256 takes RS384 and RS512 too, auto every way there is a key for
    #[arg(long, env = "JWT_ALGORITHM", value_enum, ignore_case = true, default_value_t = Algorithms::Hs256)]
    pub jwt_algorithm: Algorithms,
    /// Secret of HS256, HS384 and HS512
    #[arg(long, env = "JWT_SECRET", hide_env_values = true, allow_hyphen_values = true)]
    pub jwt_secret: Option<Secret>,
    /// Public key (RSA or Ed25519, PEM) of RS256, RS384, RS512 and EdDSA
    #[arg(long, env = "JWT_PUBLIC_KEY", hide_env_values = true, allow_hyphen_values = true)]
    pub jwt_public_key: Option<String>,
    /// Where the public keys are published as a JSON Web Key Set
    #[arg(long, env = "JWT_JWKS_URL", hide_env_values = true)]
    pub jwt_jwks_url: Option<Secret>,
    /// Seconds after which the key set is fetched again
    #[arg(long, env = "JWT_JWKS_REFRESH_INTERVAL", default_value_t = 3600, value_parser = value_parser!(u32).range(1..))]
    pub jwt_jwks_refresh_interval: u32,
    /// Milliseconds that fetching the key set may take
    #[arg(long, env = "JWT_JWKS_TIMEOUT_MS", default_value_t = 5000, value_parser = value_parser!(u32).range(1..))]
    pub jwt_jwks_timeout_ms: u32,
    /// What claim `iss` has to be; not checked when unset
    #[arg(long, env = "JWT_ISSUER")]
    pub jwt_issuer: Option<String>,
    /// What claim `aud` has to be or to contain; not checked when unset
    #[arg(long, env = "JWT_AUDIENCE")]
    pub jwt_audience: Option<String>,
    /// Seconds that the clocks of issuer and server may differ
    #[arg(long, env = "JWT_CLOCK_SKEW", default_value_t = 30)]
    pub jwt_clock_skew: u32,
    /// Paths that need no token, whatever their level
    #[arg(
        long,
        env = "JWT_SKIP_PATHS",
        value_delimiter = ',',
        default_value = "/health,/metrics/prometheus,/metrics,/"
    )]
    pub jwt_skip_paths: Vec<String>,
    /// Claim that holds one role
    #[arg(long, env = "JWT_ROLES_CLAIM", default_value = "role")]
    pub jwt_roles_claim: String,
    /// Claim that holds several roles
    #[arg(long, env = "JWT_ROLES_ARRAY_CLAIM", default_value = "roles")]
    pub jwt_roles_array_claim: String,
    /// Name of the role that may do everything
    #[arg(long, env = "JWT_ROLE_ADMIN", default_value = "admin")]
    pub jwt_role_admin: String,
    /// Name of the role that may look, push, consume and configure
    #[arg(long, env = "JWT_ROLE_READ_WRITE", default_value = "read-write")]
    pub jwt_role_read_write: String,
    /// Name of the role that may look
    #[arg(long, env = "JWT_ROLE_READ_ONLY", default_value = "read-only")]
    pub jwt_role_read_only: String,
    /// Name of the role that may push
    #[arg(long, env = "JWT_ROLE_WRITE_ONLY", default_value = "write-only")]
    pub jwt_role_write_only: String,
}

impl AuthConfig {
    /// What tokens call the roles.
    pub(super) fn role_names(&self) -> [(Role, &str); 4] {
        [
            (Role::Admin, &self.jwt_role_admin),
            (Role::ReadWrite, &self.jwt_role_read_write),
            (Role::ReadOnly, &self.jwt_role_read_only),
            (Role::WriteOnly, &self.jwt_role_write_only),
        ]
    }
}

/// Which signatures are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Algorithms {
    /// HMAC with SHA-256.
    #[value(name = "HS256")]
    Hs256,
    /// HMAC with SHA-384.
    #[value(name = "HS384")]
    Hs384,
    /// HMAC with SHA-512.
    #[value(name = "HS512")]
    Hs512,
    /// RSA (PKCS #1 v1.5) with SHA-256, and as in Queen MQ SHA-384 and SHA-512.
    #[value(name = "RS256")]
    Rs256,
    /// RSA (PKCS #1 v1.5) with SHA-384.
    #[value(name = "RS384")]
    Rs384,
    /// RSA (PKCS #1 v1.5) with SHA-512.
    #[value(name = "RS512")]
    Rs512,
    /// Ed25519.
    #[value(name = "EdDSA")]
    EdDsa,
    /// What the token names, if there is a key for it.
    #[value(name = "auto")]
    Auto,
}

/// A setting that is not shown: its `Debug` hides it.
#[derive(Clone)]
pub struct Secret(pub String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Secret(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
