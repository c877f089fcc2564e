//! Which signatures are accepted, with which key.

use super::*;
use Algorithm::{EdDSA, HS256, HS384, HS512, PS256, RS256, RS384, RS512};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const ALL: [Algorithm; 8] = [HS256, HS384, HS512, RS256, RS384, RS512, EdDSA, PS256];

#[tokio::test]
async fn each_setting_accepts_its_algorithms_and_no_other() {
    let settings: [(&str, &str, &[Algorithm]); 11] = [
        ("HS256", "", &[HS256]),
        ("HS384", "", &[HS384]),
        ("HS512", "", &[HS512]),
        ("RS256", RSA_PUBLIC, &[RS256, RS384, RS512]),
        ("RS384", RSA_PUBLIC, &[RS384]),
        ("RS512", RSA_PUBLIC, &[RS512]),
        ("EdDSA", ED_PUBLIC, &[EdDSA]),
        ("eddsa", ED_PUBLIC, &[EdDSA]),
        ("auto", RSA_PUBLIC, &[HS256, HS384, HS512, RS256, RS384, RS512]),
        ("auto", ED_PUBLIC, &[HS256, HS384, HS512, EdDSA]),
        ("auto", "", &[HS256, HS384, HS512]),
    ];
    for (setting, public, accepted) in settings {
        let auth = with_secret(&["--jwt-algorithm", setting, "--jwt-public-key", public]);
        for algorithm in ALL {
            let good = accepted.contains(&algorithm);
            let expected = if good { alice() } else { refused(401, "Unsupported token algorithm") };
            let token = signed(algorithm, None, &admin());
            assert_eq!(push(&auth, &token).await, expected, "{setting}: {algorithm:?}");
        }
    }
}

/// Signs with a public key as if it were a secret.
fn confused(public: &str) -> String {
    let secret = EncodingKey::from_secret(public.as_bytes());
    jsonwebtoken::encode(&Header::new(HS256), &admin(), &secret).unwrap()
}

#[tokio::test]
async fn a_public_key_is_never_an_hmac_secret() {
    for (setting, public) in [("RS256", RSA_PUBLIC), ("auto", RSA_PUBLIC), ("EdDSA", ED_PUBLIC), ("auto", ED_PUBLIC)] {
        let auth = auth(&["--jwt-algorithm", setting, "--jwt-public-key", public]);
        for form in [public, public.trim()] {
            assert_eq!(push(&auth, &confused(form)).await, refused(401, "Unsupported token algorithm"), "{setting}");
        }
    }
    let both = with_secret(&["--jwt-algorithm", "auto", "--jwt-public-key", RSA_PUBLIC]);
    assert_eq!(push(&both, &confused(RSA_PUBLIC)).await, refused(401, "Invalid token signature"));
}

#[test]
fn a_key_refuses_an_algorithm_of_another_family() {
    use crate::auth::keys::{Family, Key};
    use crate::auth::refusal::Refusal;
    let rsa = jsonwebtoken::DecodingKey::from_rsa_components("AQAB", "AQAB").unwrap();
    for algorithm in [HS256, EdDSA, PS256] {
        let verdict = Key::new(Family::Rsa, rsa.clone()).verify(algorithm, "a.b", "");
        assert_eq!(verdict, Err(Refusal::UnsupportedAlgorithm), "{algorithm:?}");
    }
}

#[tokio::test]
async fn none_is_no_algorithm() {
    let auth = with_secret(&["--jwt-algorithm", "auto"]);
    for name in ["none", "None", "NONE", "", "hs256"] {
        let head = URL_SAFE_NO_PAD.encode(json!({ "alg": name }).to_string());
        let body = URL_SAFE_NO_PAD.encode(admin().to_string());
        let verdict = push(&auth, &format!("{head}.{body}.")).await;
        assert_eq!(verdict, refused(401, "Unsupported token algorithm"), "{name:?}");
    }
}

#[tokio::test]
async fn a_pem_may_be_one_line_with_escaped_line_ends() {
    let line = RSA_PUBLIC.trim().replace('\n', "\\n");
    let auth = auth(&["--jwt-algorithm", "RS256", "--jwt-public-key", &line]);
    assert_eq!(push(&auth, &signed(RS256, None, &admin())).await, alice());
}
