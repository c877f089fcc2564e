//! The router lets nothing past the gate. No database is there: what is refused never gets so far.

use super::levels::ROUTES;
use super::*;
use crate::auth::{Level, Role};
use crate::config::Config;
use crate::{routes, server};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use tower::ServiceExt;

/// All settings.
#[derive(Parser)]
struct Whole {
    #[command(flatten)]
    config: Config,
}

fn router() -> Router {
    let line = ["queen", "--database-url", "postgresql://nowhere.invalid/x", "--jwt-enabled", "true"];
    let Whole { config } =
        Whole::try_parse_from([&line[..], &["--jwt-secret", SECRET]].concat()).unwrap_or_else(|e| panic!("{e}"));
    routes::router(server::app(config).unwrap())
}

async fn answer(router: &Router, method: &str, path: &str, token: Option<&str>) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path);
    let request = match token {
        Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    };
    let response: Response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test]
async fn every_route_asks_for_a_token_and_for_a_role_that_suffices() {
    let router = router();
    let roles = [
        (Role::Admin, "admin"),
        (Role::ReadWrite, "read-write"),
        (Role::ReadOnly, "read-only"),
        (Role::WriteOnly, "write-only"),
    ];
    for (method, path, level) in ROUTES.iter().filter(|(_, _, level)| *level != Level::Public) {
        let none = answer(&router, method, path, None).await;
        assert_eq!(none, (401, json!({ "error": "Authentication required" })), "{method} {path}");
        for (role, name) in roles.iter().filter(|(role, _)| !role.satisfies(*level)) {
            let denied = answer(&router, method, path, Some(&token(&json!({ "role": name })))).await;
            assert_eq!(denied, (403, json!({ "error": "Insufficient permissions" })), "{method} {path} as {role:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_comes_before_the_route_is_looked_for() {
    let router = router();
    assert_eq!(answer(&router, "GET", "/api/v1/nope", None).await.0, 401);
    let reader = token(&json!({ "role": "read-only" }));
    assert_eq!(answer(&router, "GET", "/api/v1/nope", Some(&reader)).await.0, 403);
    let writer = token(&json!({ "role": "read-write" }));
    let nope = answer(&router, "GET", "/api/v1/nope", Some(&writer)).await;
    assert_eq!(nope, (404, json!({ "error": "Not Found", "code": "no_such_route" })));
}

#[tokio::test]
async fn a_sufficient_role_gets_in() {
    assert_eq!(answer(&router(), "GET", "/status", Some(&token(&json!({ "role": "read-only" })))).await.0, 200);
}

#[tokio::test]
async fn a_refusal_has_a_request_id_and_does_not_repeat_the_token() {
    let token = token(&json!({ "role": "read-only" }));
    let request = Request::post("/api/v1/push").header(header::AUTHORIZATION, &token).body(Body::empty()).unwrap();
    let response = router().oneshot(request).await.unwrap();
    assert!(response.headers().contains_key("x-request-id"));
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    assert!(!String::from_utf8_lossy(&body).contains(&token));
}
