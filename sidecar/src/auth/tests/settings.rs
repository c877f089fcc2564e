//! Settings that cannot work stop the server before it starts.

use super::*;
use crate::config::Config;

fn problem(options: &[&str]) -> String {
    Auth::new(&config(options)).err().unwrap_or_else(|| panic!("{options:?} started"))
}

#[test]
fn defaults_are_those_of_queen_mq() {
    let config = Line::try_parse_from(["queen"]).unwrap().auth;
    assert!(!config.jwt_enabled);
    assert_eq!(config.jwt_algorithm, crate::auth::Algorithms::Hs256);
    assert_eq!((config.jwt_jwks_refresh_interval, config.jwt_jwks_timeout_ms, config.jwt_clock_skew), (3600, 5000, 30));
    assert_eq!(config.jwt_skip_paths, ["/health", "/metrics/prometheus", "/metrics", "/"]);
    assert_eq!((&*config.jwt_roles_claim, &*config.jwt_roles_array_claim), ("role", "roles"));
    let names = config.role_names().map(|(_, name)| name.to_owned());
    assert_eq!(names, ["admin", "read-write", "read-only", "write-only"]);
}

#[test]
fn enabled_without_a_key_does_not_start() {
    for options in [
        &[][..],
        &["--jwt-secret", ""],
        &["--jwt-public-key", RSA_PUBLIC],
        &["--jwt-jwks-url", "http://localhost/keys"],
        &["--jwt-algorithm", "RS256", "--jwt-secret", SECRET],
        &["--jwt-algorithm", "EdDSA", "--jwt-secret", SECRET],
        &["--jwt-algorithm", "auto"],
    ] {
        assert!(problem(options).contains("there is no key"), "{options:?}: {}", problem(options));
    }
}

#[test]
fn a_key_that_cannot_be_read_does_not_start() {
    for (algorithm, pem, sentence) in [
        ("RS256", "nonsense", "invalid RSA public key PEM"),
        ("RS384", ED_PUBLIC, "invalid RSA public key PEM"),
        ("RS256", RSA_PRIVATE, "invalid RSA public key PEM"),
        ("EdDSA", RSA_PUBLIC, "invalid Ed public key PEM"),
        ("EdDSA", ED_PRIVATE, "invalid Ed public key PEM"),
        ("auto", "nonsense", "neither an RSA nor an Ed public key PEM"),
    ] {
        let problem = problem(&["--jwt-algorithm", algorithm, "--jwt-public-key", pem]);
        assert!(problem.contains(sentence), "{algorithm}: {problem}");
        assert!(!problem.contains(pem.trim()), "{algorithm} quotes the key");
    }
}

#[test]
fn a_key_set_url_that_is_none_does_not_start_and_is_not_quoted() {
    for url in ["nonsense", "ftp://user:pass@host/", "/keys", "https://"] {
        let problem = problem(&["--jwt-algorithm", "RS256", "--jwt-jwks-url", url]);
        assert_eq!(problem, "JWT_JWKS_URL must be an http:// or https:// URL", "{url}");
    }
}

#[test]
fn a_role_without_a_name_does_not_start() {
    assert!(problem(&["--jwt-secret", SECRET, "--jwt-role-admin", ""]).contains("JWT_ROLE_ADMIN"));
}

#[test]
fn an_unknown_algorithm_does_not_start() {
    for name in ["none", "ES256", "PS256"] {
        assert!(Line::try_parse_from(["queen", "--jwt-algorithm", name]).is_err(), "{name}");
    }
}

#[test]
fn secrets_do_not_show() {
    let options = ["--jwt-secret", "hidden-1", "--jwt-jwks-url", "https://user:hidden-2@host/"];
    assert!(!format!("{:?}", config(&options)).contains("hidden"));
}

/// All settings.
#[derive(Parser)]
struct Whole {
    #[command(flatten)]
    config: Config,
}

#[test]
fn tenants_by_header_need_a_trusted_proxy() {
    let check = |options: &[&str]| {
        let line = ["queen", "--database-url", "postgresql://localhost/x"].iter().chain(options);
        Whole::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).config.check()
    };
    assert!(check(&["--tenancy-header", "1"]).unwrap_err().contains("QUEEN_KV_TRUSTED_PROXY=1"));
    assert_eq!(check(&["--tenancy-header", "1", "--trusted-proxy", "1"]), Ok(()));
    assert_eq!(check(&["--trusted-proxy", "1"]), Ok(()));
    assert_eq!(check(&[]), Ok(()));
}
