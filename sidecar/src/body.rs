//! Reading request bodies: any content type, JSON all the same.

use crate::error::Problem;
use bytes::Bytes;
use queen_core::payload::{self, PayloadError};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Elements of a list that a request may have: of each, much more is made than the two bytes that it may take.
pub const MAX_ELEMENTS: usize = 100_000;

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
/// 400 when it is not a JSON object, or one of these keys is a list with too many elements.
pub fn object<'a, const N: usize>(
    body: &'a str,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a str>; N], Problem> {
    let read = payload::read_object(body, names).map(|fields| fields.map(payload::not_null));
    let fields = read.map_err(|error| {
        if body.trim_start().starts_with('{') {
            return bad(error);
        }
        check(body).err().unwrap_or_else(|| no_object(names.iter().copied().find(|name| LISTS.contains(name))))
    })?;
    for (name, field) in names.iter().zip(&fields) {
        if let Some(list) = field.filter(|_| COUNTED.contains(name)) {
            few(list, name)?;
        }
    }
    Ok(fields)
}

/// Keys that hold a list of which something is made element by element. What is kept as it came, a payload, may be any list.
const COUNTED: [&str; 6] = ["items", "acknowledgments", "operations", "requiredLeases", "ids", "traceNames"];

/// Refuses a list of too many elements before anything is made of it. Those of the `items` of operations count, too. What
/// is no list is left to who reads it.
///
/// # Errors
/// 400 saying how many there may be.
pub fn few(list: &str, name: &str) -> Result<(), Problem> {
    // An element and its comma take two bytes.
    if list.len() <= 2 * MAX_ELEMENTS {
        return Ok(());
    }
    let mut seen = 0;
    // What cannot be read is told by who reads it.
    _ = count(list, name == "operations", &mut seen);
    if seen <= MAX_ELEMENTS {
        return Ok(());
    }
    Err(Problem::bad_body(format!("{name} has more than {MAX_ELEMENTS} elements: send them in parts")))
}

/// Counts until there are too many.
fn count(list: &str, nested: bool, seen: &mut usize) -> serde_json::Result<()> {
    serde_json::Deserializer::from_str(list).deserialize_seq(Elements { nested, seen })
}

struct Elements<'s> {
    nested: bool,
    seen: &'s mut usize,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&RawValue>()? {
            *self.seen += 1;
            if self.nested
                && let Ok([Some(items)]) = payload::read_object(element.get(), &["items"])
            {
                _ = count(items, false, self.seen);
            }
            if *self.seen > MAX_ELEMENTS {
                return Err(A::Error::custom("too many"));
            }
        }
        Ok(())
    }
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
    if Keys(names).deserialize(&mut serde_json::Deserializer::from_str(body)).is_ok() {
        return Ok(());
    }
    Err(Problem::bad_body(match names {
        [] => "it has keys, and none is known here".to_owned(),
        names => format!("it has an unknown key; known are {}", names.join(", ")),
    }))
}

/// Reads an object up to the first key that is not among these: there may be any number.
struct Keys<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if !self.0.contains(&key.as_str()) {
                return Err(A::Error::custom("unknown"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn list(element: &str, count: usize) -> String {
        format!("[{}]", vec![element; count].join(","))
    }

    #[test]
    fn a_list_may_have_so_many_elements_and_not_one_more() {
        for element in ["0", "{}", "\"\"", "[[],0]"] {
            assert!(few(&list(element, MAX_ELEMENTS), "items").is_ok(), "{element}");
            let told = few(&list(element, MAX_ELEMENTS + 1), "items").unwrap_err();
            assert_eq!(told.text(), "bad body: items has more than 100000 elements: send them in parts", "{element}");
        }
    }

    #[test]
    fn the_items_of_operations_count_and_payloads_do_not() {
        let push = |list: &str| format!("[{{\"type\":\"push\",\"items\":{list}}},{{\"items\":{list}}}]");
        assert!(few(&push(&list("{}", MAX_ELEMENTS / 2 - 1)), "operations").is_ok());
        assert!(few(&push(&list("{}", MAX_ELEMENTS / 2)), "operations").is_err());
        let many = list("0", 3 * MAX_ELEMENTS);
        assert!(few(&format!("[{{\"payload\":{many},\"items\":{many}}}]"), "items").is_ok());
        let body = format!("{{\"data\":{many},\"traceNames\":[]}}");
        assert!(object(&body, &["data", "traceNames"]).is_ok());
        assert!(object(&format!("{{\"ids\":{many}}}"), &["ids"]).is_err());
    }

    #[test]
    fn what_is_no_list_is_left_to_who_reads_it() {
        let long = "x".repeat(3 * MAX_ELEMENTS);
        for text in [format!("\"{long}\""), format!("{{\"{long}\":1}}"), format!("[0,{long}"), "5".to_owned()] {
            assert!(few(&text, "items").is_ok());
        }
    }
}
