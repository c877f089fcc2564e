//! `POST /api/v1/configure`

use super::{Caller, json};
use crate::body;
use crate::database::Statement;
use crate::error::{CallError, Problem};
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use queen_core::options::OPTION_NAMES;
use serde_json::{Map, Value, json as value};
use tokio_postgres::types::Type;

pub fn routes() -> Router<Shared> {
    Router::new().route("/api/v1/configure", post(configure))
}

const CONFIGURE: Statement =
    Statement { sql: "SELECT queen.configure($1, $2::jsonb, $3)::text", types: &[Type::TEXT, Type::TEXT, Type::TEXT] };
// A statement of its own: that which creates a queue does not see it.
const QUEUE_ID: Statement = Statement {
    sql: "SELECT coalesce((SELECT to_json(id) FROM queen.queues WHERE queue = $1), 'null')::text",
    types: &[Type::TEXT],
};

/// Longest body: of each byte of it, a dozen are made.
const MAX_BYTES: usize = 1 << 20;

async fn configure(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    let text = body::text(&body)?;
    if text.len() > MAX_BYTES {
        return Err(Problem::bad_body(format!("it has more than {MAX_BYTES} bytes")));
    }
    body::check(text)?;
    // Checked, but for how deep it may be.
    let body: Value = serde_json::from_str(text)
        .map_err(|e| Problem::bad_body(format!("not JSON at line {} column {}", e.line(), e.column())))?;
    let Value::Object(mut body) = body else { return Err(body::no_object(None)) };
    let Some(queue) = body.get("queue").and_then(Value::as_str).map(str::to_owned) else {
        return Err(Problem::bad_request("queue is required"));
    };
    let mode = match body.get("mode") {
        None | Some(Value::Null) => "merge",
        Some(Value::String(mode)) if mode == "merge" || mode == "replace" => mode,
        Some(other) => {
            let shown = queen_core::names::cut(&other.to_string(), 64);
            return Err(Problem::bad_request(format!("mode must be \"merge\" or \"replace\", got {shown}")));
        }
    }
    .to_owned();
    let options = Value::Object(options(&mut body)?).to_string();
    let options =
        app.database.act(caller.tenant, caller.subject.as_deref(), CONFIGURE, &[&queue, &options, &mode]).await?;
    let id = app.database.call(caller.tenant, QUEUE_ID, &[&queue]).await?;
    let read = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| CallError::Lost);
    let (mut options, id) = (read(&options)?, read(&id)?);
    let mut beside = |name: &str| options.as_object_mut().and_then(|options| options.remove(name));
    let (namespace, task) = (beside("namespace"), beside("task"));
    let answer = value!({
        "configured": true, "queueId": id, "partitionId": null, "queue": queue, "namespace": namespace, "task": task,
        "storage": "segments", "options": options,
    });
    Ok(json(StatusCode::OK, answer.to_string()))
}

/// The options: under `options`, or beside the queue. Those that do not exist are left out.
fn options(body: &mut Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let mut options = match body.remove("options") {
        Some(Value::Object(options)) => options,
        None | Some(Value::Null) => body.clone(),
        Some(_) => return Err(Problem::bad_body("options must be an object")),
    };
    options.retain(|name, _| OPTION_NAMES.contains(&name.as_str()));
    for name in ["namespace", "task"] {
        if let Some(Value::String(text)) = body.get(name)
            && !text.is_empty()
            && !options.contains_key(name)
        {
            options.insert(name.to_owned(), Value::from(text.as_str()));
        }
    }
    Ok(options)
}
