//! `GET /openapi.json` and `/`: what is served here.

use super::json;
use crate::state::Shared;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{Html, Response};
use axum::routing::get;

/// The OpenAPI 3.1 document. It is written by hand; tests hold it against the routes and their levels.
pub const DOCUMENT: &str = include_str!("../openapi.json");

pub fn routes() -> Router<Shared> {
    Router::new().route("/openapi.json", get(document)).route("/", get(page))
}

async fn document() -> Response {
    json(StatusCode::OK, DOCUMENT)
}

async fn page() -> Html<&'static str> {
    Html(PAGE)
}

const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>queen</title>\n",
    "<style>body{font:1rem/1.6 sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}</style>\n",
    "<h1>queen ",
    env!("CARGO_PKG_VERSION"),
    "</h1>\n",
    "<p>A message broker in PostgreSQL; this is its HTTP server. It speaks the wire of Queen MQ 1.6.</p>\n",
    "<ul>\n<li><a href=\"/openapi.json\">/openapi.json</a>: every route, its parameters and answers</li>\n",
    "<li><a href=\"/health\">/health</a>: whether the database answers</li>\n",
    "<li><a href=\"/metrics/prometheus\">/metrics/prometheus</a>: counters</li>\n</ul>\n</html>\n",
);

#[cfg(test)]
mod tests;
