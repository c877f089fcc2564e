//! Every answer that authentication gives.

use super::*;
use crate::auth::now;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

#[tokio::test]
async fn without_authentication_everybody_may_do_everything_and_is_nobody() {
    let auth = Auth::new(&Line::try_parse_from(["queen"]).unwrap().auth).unwrap();
    let headers = HeaderMap::new();
    let system = auth.admit(&Method::POST, "/api/v1/system/maintenance", &headers).await;
    let nobody = || Ok(Identity { subject: None, may_change: true });
    assert_eq!(system, nobody());
    assert_eq!(push(&auth, "Bearer nonsense").await, nobody());
}

#[tokio::test]
async fn bearer_in_any_case_or_the_bare_token() {
    let (auth, token) = (with_secret(&[]), token(&admin()));
    for shown in [format!("Bearer {token}"), format!("bEARER   {token} "), token] {
        assert_eq!(push(&auth, &shown).await, alice(), "{shown}");
    }
}

#[tokio::test]
async fn no_token_asks_for_one() {
    let auth = with_secret(&[]);
    let none = auth.admit(&Method::POST, "/api/v1/push", &HeaderMap::new()).await;
    assert_eq!(none, refused(401, "Authentication required"));
    for shown in ["", "Bearer", "bearer ", "Basic dXNlcjpwYXNz"] {
        assert_eq!(push(&auth, shown).await, refused(401, "Authentication required"), "{shown:?}");
    }
}

#[tokio::test]
async fn a_head_that_cannot_be_read() {
    let auth = with_secret(&[]);
    let good = token(&admin());
    let rest = good.split_once('.').unwrap().1;
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let critical = part(r#"{"alg":"HS256","crit":["exp"]}"#);
    for bad in [
        "nonsense".to_owned(),
        "a.b".to_owned(),
        format!("!!.{rest}"),
        format!("{}.{rest}", part("no JSON")),
        format!("{}.{rest}", part("{}")),
        format!("{critical}.{rest}"),
        format!("{good}.more"),
        "Bearer schl\u{fc}ssel".to_owned(),
    ] {
        assert_eq!(push(&auth, &bad).await, refused(401, "Bad token header"), "{bad}");
    }
}

#[tokio::test]
async fn a_signature_of_another_secret_or_of_other_claims() {
    let auth = with_secret(&[]);
    let other = EncodingKey::from_secret(b"another secret of thirty-two bytes or more");
    let foreign = jsonwebtoken::encode(&Header::default(), &admin(), &other).unwrap();
    let (mine, theirs) = (token(&json!({ "role": "read-only" })), token(&admin()));
    let (signature, head_and_claims) = (mine.rsplit_once('.').unwrap().1, theirs.rsplit_once('.').unwrap().0);
    let swapped = format!("{head_and_claims}.{signature}");
    let unsigned = format!("{head_and_claims}.");
    for bad in [foreign, swapped, unsigned] {
        assert_eq!(push(&auth, &bad).await, refused(401, "Invalid token signature"), "{bad}");
    }
}

#[tokio::test]
async fn times_are_judged_with_the_clocks_difference_in_mind() {
    let auth = with_secret(&["--jwt-clock-skew", "600"]);
    let now = now().floor();
    for (claim, at, verdict) in [
        ("exp", now - 1200.0, Some("Token has expired")),
        ("exp", now - 0.5 * 600.0, None),
        ("nbf", now + 1200.0, Some("Token not yet valid")),
        ("nbf", now + 0.5 * 600.0, None),
        ("iat", now + 1200.0, Some("Token issued in the future")),
        ("iat", now + 0.5 * 600.0, None),
        // A negative and a huge time are times.
        ("exp", -1.0, Some("Token has expired")),
        ("nbf", 1e300, Some("Token not yet valid")),
    ] {
        let token = token(&json!({ "sub": "alice", "role": "admin", claim: at }));
        let expected = verdict.map_or_else(alice, |error| refused(401, error));
        assert_eq!(push(&auth, &token).await, expected, "{claim} {}", at - now);
    }
}

#[tokio::test]
async fn a_token_ends_at_its_expiry_itself() {
    let auth = crate::auth::token::Tokens::new(&config(&["--jwt-secret", SECRET, "--jwt-clock-skew", "0"])).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, token(&json!({ "exp": 1000 })).parse().unwrap());
    assert!(auth.check(&headers, 999.5).await.is_ok());
    assert_eq!(auth.check(&headers, 1000.0).await, Err(crate::auth::refusal::Refusal::Expired));
}

#[tokio::test]
async fn claims_of_a_wrong_type_do_not_pass_for_absent_ones() {
    let auth = with_secret(&[]);
    for claims in [
        json!({ "role": "admin", "exp": "1" }),
        json!({ "role": "admin", "nbf": {} }),
        json!({ "role": "admin", "iat": [] }),
        json!({ "role": "admin", "sub": 7 }),
        json!({ "role": "admin", "sub": "a\0b" }),
        json!(["admin"]),
    ] {
        assert_eq!(push(&auth, &token(&claims)).await, refused(401, "Bad token claims"), "{claims}");
    }
}

#[tokio::test]
async fn issuer_is_exactly_the_one_of_the_settings() {
    let auth = with_secret(&["--jwt-issuer", "https://issuer"]);
    let with = |iss: Value| token(&json!({ "sub": "alice", "role": "admin", "iss": iss }));
    assert_eq!(push(&auth, &with(json!("https://issuer"))).await, alice());
    for other in [json!("https://issuer/"), json!(["https://issuer"]), json!(null)] {
        assert_eq!(push(&auth, &with(other.clone())).await, refused(401, "Invalid token issuer"), "{other}");
    }
    assert_eq!(push(&auth, &token(&admin())).await, refused(401, "Invalid token issuer"));
}

#[tokio::test]
async fn audience_is_or_contains_the_one_of_the_settings() {
    let auth = with_secret(&["--jwt-audience", "queen"]);
    let with = |aud: Value| token(&json!({ "sub": "alice", "role": "admin", "aud": aud }));
    for good in [json!("queen"), json!(["other", "queen"])] {
        assert_eq!(push(&auth, &with(good.clone())).await, alice(), "{good}");
    }
    for other in [json!("Queen"), json!(["queens"]), json!([]), json!(null)] {
        assert_eq!(push(&auth, &with(other.clone())).await, refused(401, "Invalid token audience"), "{other}");
    }
    assert_eq!(push(&auth, &token(&admin())).await, refused(401, "Invalid token audience"));
    // Not asked for, not checked.
    assert_eq!(push(&with_secret(&[]), &with(json!("other"))).await, alice());
}

#[tokio::test]
async fn a_good_token_without_a_sufficient_role_is_403() {
    let auth = with_secret(&[]);
    for claims in [json!({}), json!({ "role": "read-only" }), json!({ "role": "Admin" }), json!({ "role": 1 })] {
        assert_eq!(push(&auth, &token(&claims)).await, refused(403, "Insufficient permissions"), "{claims}");
    }
}

#[tokio::test]
async fn roles_come_from_either_claim_under_the_names_of_the_settings() {
    let auth =
        with_secret(&["--jwt-roles-claim", "grp", "--jwt-roles-array-claim", "grps", "--jwt-role-admin", "root"]);
    for claims in [
        json!({ "grp": "root" }),
        json!({ "grps": ["x", "root"] }),
        json!({ "grp": "read-only", "grps": ["write-only"] }),
    ] {
        assert!(push(&auth, &token(&claims)).await.is_ok(), "{claims}");
    }
    for claims in [json!({ "grp": "admin" }), json!({ "role": "root" }), json!({ "roles": ["root"] })] {
        assert_eq!(push(&auth, &token(&claims)).await, refused(403, "Insufficient permissions"), "{claims}");
    }
}

#[tokio::test]
async fn skipped_paths_and_public_routes_look_at_no_token() {
    let auth = with_secret(&["--jwt-skip-paths", "/api/v1/push, /status"]);
    for path in ["/api/v1/push", "/status", "/health"] {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, token(&json!({ "sub": "alice", "exp": 1 })).parse().unwrap());
        assert_eq!(auth.admit(&Method::POST, path, &headers).await, Ok(Identity::default()), "{path}");
    }
    let below = auth.admit(&Method::POST, "/api/v1/push/x", &HeaderMap::new()).await;
    assert_eq!(below, refused(401, "Authentication required"));
}
