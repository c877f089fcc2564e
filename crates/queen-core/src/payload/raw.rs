//! Lists of objects, read field by field without building values.
//!
//! Every field is first taken as its raw text, and then read as what it should be. So a payload stays
//! the slice it is, and an error can be worded here: serde's own would quote the value it met.

use super::PayloadError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Reads a JSON array of objects; the raw text of the keys `names` goes to `entry`, in the order of
/// `names`, `None` for a key that is absent. Other keys are skipped; of a repeated key the last counts.
pub(super) fn list<'a, const N: usize, T>(
    json: &'a str,
    what: &'static str,
    names: &'static [&'static str; N],
    entry: impl FnMut(usize, [Option<&'a str>; N]) -> Result<T, PayloadError>,
) -> Result<Vec<T>, PayloadError> {
    let mut failure = None;
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let list = List { names, entry, failure: &mut failure };
    let read = deserializer.deserialize_seq(list).and_then(|v| deserializer.end().map(|()| v));
    match (read, failure) {
        (_, Some(failure)) => Err(failure),
        (Ok(list), None) => Ok(list),
        (Err(error), None) => {
            let problem = unquoted(&error);
            Err(PayloadError::NotAList { what, problem })
        }
    }
}

/// Reads a JSON object; the raw text of the keys `names`, in their order, `None` for a key that is absent. Other keys are
/// skipped; of a repeated key the last counts.
///
/// # Errors
/// [`PayloadError::NotAnObject`], which quotes nothing of the text.
pub fn read_object<'a, const N: usize>(
    json: &'a str,
    names: &'static [&'static str; N],
) -> Result<[Option<&'a str>; N], PayloadError> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Fields(names)
        .deserialize(&mut deserializer)
        .and_then(|fields| deserializer.end().map(|()| fields))
        .map_err(|error| PayloadError::NotAnObject { problem: unquoted(&error) })
}

/// The words of an error without the value that it met.
pub(super) fn unquoted(error: &serde_json::Error) -> String {
    match error.classify() {
        // Could quote the value that is in the place of an array or an object.
        serde_json::error::Category::Data => {
            format!("wrong type at line {} column {}", error.line(), error.column())
        }
        _ => error.to_string(),
    }
}

struct List<'f, const N: usize, F> {
    names: &'static [&'static str; N],
    entry: F,
    failure: &'f mut Option<PayloadError>,
}

impl<'a, const N: usize, T, F> Visitor<'a> for List<'_, N, F>
where
    F: FnMut(usize, [Option<&'a str>; N]) -> Result<T, PayloadError>,
{
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(fields) = seq.next_element_seed(Fields(self.names))? {
            match (self.entry)(list.len(), fields) {
                Ok(entry) => list.push(entry),
                Err(failure) => {
                    *self.failure = Some(failure);
                    return Err(A::Error::custom("refused"));
                }
            }
        }
        Ok(list)
    }
}

/// The wanted fields of one object.
struct Fields<const N: usize>(&'static [&'static str; N]);

impl<'a, const N: usize> DeserializeSeed<'a> for Fields<N> {
    type Value = [Option<&'a str>; N];

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a, const N: usize> Visitor<'a> for Fields<N> {
    type Value = [Option<&'a str>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = [None; N];
        while let Some(field) = map.next_key_seed(Key(self.0))? {
            let value: &'a RawValue = map.next_value()?;
            if let Some(slot) = field.and_then(|at| fields.get_mut(at)) {
                *slot = Some(value.get());
            }
        }
        Ok(fields)
    }
}

/// The position of a key among the wanted ones.
struct Key<const N: usize>(&'static [&'static str; N]);

impl<'a, const N: usize> DeserializeSeed<'a> for Key<N> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<const N: usize> Visitor<'_> for Key<N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    // Bytes and not text: a key with a lone surrogate escape is JSON too, and only to be skipped.
    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| name.as_bytes() == key))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        self.visit_bytes(key.as_bytes())
    }
}

/// Treats JSON `null` as absent.
pub fn not_null(raw: Option<&str>) -> Option<&str> {
    raw.filter(|raw| *raw != "null")
}

/// The text of a raw JSON string; `None` when it is no string or no text (a lone surrogate).
pub fn text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.as_bytes().contains(&b'\\') {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// As [`text`], but what is no text becomes U+FFFD instead of a refusal.
pub(super) fn lossy_text(raw: &str) -> Option<Cow<'_, str>> {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }
    raw.strip_prefix('"')?;
    text(raw).or_else(|| serde_json::Deserializer::from_str(raw).deserialize_bytes(Bytes).ok().map(Cow::Owned))
}
