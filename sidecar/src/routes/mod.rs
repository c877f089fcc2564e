//! The routes, one file a resource.

mod ack;
mod analytics;
mod configure;
mod consumer_groups;
mod dead_letters;
mod dlq;
mod door;
mod health;
mod lease;
mod messages;
mod metrics;
mod openapi;
mod pop;
mod push;
mod resources;
pub mod status;
mod system;
mod traces;
mod transaction;
mod window;

use crate::error::Problem;
use crate::state::Shared;
use crate::uploads;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
pub use door::Caller;
use std::time::Duration;

/// Longest page of a listing.
const MAX_PAGE: i32 = 10_000;

/// Everything that is served.
pub fn router(app: Shared) -> Router {
    let resources = [
        push::routes(),
        pop::routes(),
        ack::routes(),
        lease::routes(),
        transaction::routes(),
        configure::routes(),
        resources::routes(),
        messages::routes(),
        dlq::routes(),
        dead_letters::routes(),
        consumer_groups::routes(),
        traces::routes(),
        health::routes(),
        system::routes(),
        status::routes(),
        analytics::routes(),
        metrics::routes(),
        openapi::routes(),
    ];
    let stall = Duration::from_secs(app.config.client_timeout_seconds);
    let served = resources
        .into_iter()
        .fold(Router::new(), Router::merge)
        .fallback(|| async { Problem::no_such_route() })
        .layer(axum::middleware::from_fn_with_state(app.clone(), uploads::count))
        // Refuses by the length that is told, before a byte of it is read.
        .layer(DefaultBodyLimit::disable())
        .layer(tower_http::limit::RequestBodyLimitLayer::new(app.config.max_body_bytes))
        .layer(tower_http::timeout::RequestBodyTimeoutLayer::new(stall))
        .layer(axum::middleware::from_fn_with_state(app.clone(), door::enter))
        .with_state(app);
    // `Allow` is there outside of the routes only.
    Router::new().fallback_service(served).layer(axum::middleware::map_response(door::name_the_methods))
}

/// A JSON text as an answer.
fn json(status: StatusCode, body: impl Into<String>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// The same for a JSON text that holds room in the budget of answers.
fn held(body: Bytes) -> Response {
    let mut response = (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    response.extensions_mut().insert(door::Weighed);
    response
}

/// A parameter that is there and not empty.
fn text_param(params: &window::Params, name: &str) -> Option<String> {
    // A name with a NUL cannot be stored, and so matches nothing; the database would not take it as text.
    params.get(name).filter(|text| !text.is_empty()).map(|text| text.replace('\0', "\u{fffd}"))
}

/// `limit` and `offset`; what cannot be read is as if it was not there.
fn page(params: &window::Params, limit: i32) -> (i32, i32) {
    let number = |name: &str| params.get(name).and_then(|text| text.parse::<i32>().ok()).filter(|n| *n >= 0);
    (number("limit").unwrap_or(limit).min(MAX_PAGE), number("offset").unwrap_or(0))
}

/// `true`, `1`, `yes`; anything else that is not a no is refused.
fn flag(value: Option<&str>, name: &str) -> Result<Option<bool>, Problem> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => Ok(None),
        Some("true" | "1" | "yes") => Ok(Some(true)),
        Some("false" | "0" | "no") => Ok(Some(false)),
        Some(_) => Err(Problem::bad_request(format!("{name} must be true or false"))),
    }
}

#[cfg(test)]
#[path = "operate_tests.rs"]
mod operate_tests;
