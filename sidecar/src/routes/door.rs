//! What every request passes first: its id, who it is from, whose queues it is about; and the line in the log.

use crate::auth::Identity;
use crate::budget::SMALL;
use crate::error::{CallError, Problem, Said};
use crate::peer::Peer;
use crate::state::Shared;
use crate::tenant::Tenant;
use crate::uploads::Upload;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Instant;
use uuid::Uuid;

const REQUEST_ID: &str = "x-request-id";

/// Who asks, and about whose queues.
#[derive(Clone, Default, Debug)]
pub struct Caller {
    /// Whose queues.
    pub tenant: Tenant,
    /// The authenticated subject.
    pub subject: Option<String>,
    /// Whether it may change things.
    pub may_change: bool,
    /// Its connection.
    pub peer: Peer,
    /// What its body takes of the memory for those.
    pub upload: Option<Upload>,
}

/// Lets a request in.
pub async fn enter(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = request_id(&request);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let headers = request.headers().clone();
    let mut response = match caller(&app, &method, &path, &headers).await {
        Ok(mut caller) => {
            caller.peer = request.extensions().get().cloned().unwrap_or_default();
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    if response.extensions().get::<Weighed>().is_none() {
        response = weigh(&app, &method, response).await;
    }
    // What was answered; it quotes neither payloads nor keys.
    let said = response.extensions_mut().remove::<Said>();
    let error = said.as_ref().map(|said| said.0.as_str());
    let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis() as u64);
    let shown = id.to_str().unwrap_or_default();
    if status >= 500 {
        tracing::warn!(request = shown, %method, path, status, ms, error, "request");
    } else {
        tracing::debug!(request = shown, %method, path, status, ms, error, "request");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Marks an answer that has its room in the budget of answers.
#[derive(Clone, Copy, Debug)]
pub struct Weighed;

/// Takes room for an answer that is there, unless it is small. What only looks is not answered when there is none; what has
/// been done is told in any case.
async fn weigh(app: &Shared, method: &Method, response: Response) -> Response {
    let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
    if bytes <= SMALL {
        return response;
    }
    let Some(room) = app.answers.weigh(bytes, method != Method::GET) else {
        return Problem::from(CallError::NoRoom).into_response();
    };
    let (parts, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => Response::from_parts(parts, room.hold(body).into()),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Gives a 405 a body, which says what `Allow` says.
pub async fn name_the_methods(response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    let methods = parts.headers.get(ALLOW).and_then(|allow| allow.to_str().ok()).unwrap_or("another method");
    let (told, body) =
        Problem::new(parts.status, format!("use {}", methods.replace(',', " or "))).into_response().into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.extend(told.headers);
    Response::from_parts(parts, body)
}

async fn caller(app: &Shared, method: &Method, path: &str, headers: &HeaderMap) -> Result<Caller, Problem> {
    let Identity { subject, may_change } = app.auth.admit(method, path, headers).await?;
    let tenant = if app.config.tenancy_header { Tenant::of(headers)? } else { Tenant::default() };
    Ok(Caller { tenant, subject, may_change, ..Caller::default() })
}

/// The client's own id, if it is a sensible one.
fn request_id(request: &Request) -> HeaderValue {
    let sensible =
        |v: &&HeaderValue| v.len() <= 128 && v.to_str().is_ok_and(|t| t.bytes().all(|b| b.is_ascii_graphic()));
    request
        .headers()
        .get(REQUEST_ID)
        .filter(|v| !v.is_empty())
        .filter(sensible)
        .cloned()
        .unwrap_or_else(|| HeaderValue::from_str(&Uuid::now_v7().to_string()).unwrap_or(HeaderValue::from_static("-")))
}
