//! Reading request bodies: any content type, JSON all the same.

use crate::error::Problem;
use bytes::Bytes;
use queen_core::payload::{self, PayloadError};

/// The body as text.
///
/// # Errors
/// 400 when it is not UTF-8, and thus not JSON.
pub fn text(body: &Bytes) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|_| Problem::bad_body("not UTF-8"))
}

/// The raw texts of these keys of an object; null is as good as absent.
///
/// # Errors
/// 400 when it is not a JSON object.
pub fn object<'a, const N: usize>(
    body: &'a str,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a str>; N], Problem> {
    let read = payload::read_object(body, names).map(|fields| fields.map(payload::not_null));
    read.map_err(|error| {
        if body.trim_start().starts_with('{') {
            return bad(error);
        }
        check(body).err().unwrap_or_else(|| no_object(names.iter().copied().find(|name| LISTS.contains(name))))
    })
}

/// Keys of a body that hold a list: it is often sent in the place of the body.
const LISTS: [&str; 2] = ["items", "acknowledgments"];

/// 400 unless it is one JSON value.
///
/// # Errors
/// As described.
pub fn check(body: &str) -> Result<(), Problem> {
    if body.trim().is_empty() {
        return Err(Problem::bad_body("the body is empty"));
    }
    payload::check_json(body, usize::MAX).map_err(|error| match error {
        PayloadError::NotJson { problem } => Problem::bad_body(format!("not JSON: {problem}")),
        other => bad(other),
    })
}

/// 400 for another kind of value than an object; `list` is the key that most of it is in.
pub fn no_object(list: Option<&str>) -> Problem {
    Problem::bad_body(match list {
        Some(list) => format!("the body must be an object {{\"{list}\": […]}}"),
        None => "the body must be an object".to_owned(),
    })
}

/// Refuses keys that are not among these: of surfaces that are this server's own. The body has been read before.
///
/// # Errors
/// 400 naming those that are known, and not the one that is not.
pub fn only(body: &str, names: &[&str]) -> Result<(), Problem> {
    let keys = serde_json::from_str::<std::collections::BTreeMap<String, serde::de::IgnoredAny>>(body);
    if keys.is_ok_and(|keys| keys.keys().all(|key| names.contains(&key.as_str()))) {
        return Ok(());
    }
    Err(Problem::bad_body(match names {
        [] => "it has keys, and none is known here".to_owned(),
        names => format!("it has an unknown key; known are {}", names.join(", ")),
    }))
}

/// As [`object`], of a surface that is this server's own: a key that it does not know is refused.
///
/// # Errors
/// As [`object`] and [`only`].
pub fn strict_object<'a, const N: usize>(
    body: &'a Bytes,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a str>; N], Problem> {
    let text = text(body)?;
    let fields = object(text, names)?;
    only(text, names)?;
    Ok(fields)
}

/// As [`strict_object`]; no body at all, and null, is an empty object.
///
/// # Errors
/// As [`strict_object`].
pub fn strict_optional_object<'a, const N: usize>(
    body: &'a Bytes,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a str>; N], Problem> {
    if matches!(text(body)?.trim(), "" | "null") { Ok([None; N]) } else { strict_object(body, names) }
}

/// As [`object`]; no body at all is an empty object.
///
/// # Errors
/// 400 when it is something else than a JSON object.
pub fn optional_object<'a, const N: usize>(
    body: &'a Bytes,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a str>; N], Problem> {
    let text = text(body)?;
    if text.trim().is_empty() { Ok([None; N]) } else { object(text, names) }
}

/// A field that has to be a string when it is there.
///
/// # Errors
/// 400 naming the field.
pub fn string(raw: Option<&str>, name: &str) -> Result<Option<String>, Problem> {
    raw.map(|raw| {
        payload::text(raw).map(|t| t.into_owned()).ok_or_else(|| Problem::bad_body(format!("{name} must be a string")))
    })
    .transpose()
}

/// 400 for what queen-core refused. Which list an item is of goes without saying here.
pub fn bad(error: PayloadError) -> Problem {
    let text = error.to_string();
    let item = text.strip_prefix("push ").or(text.strip_prefix("ack ")).filter(|rest| rest.starts_with("item "));
    Problem::bad_body(item.unwrap_or(&text))
}
