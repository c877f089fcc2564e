//! Redaction of JSON by an allowlist of paths: what is not named is replaced, structure and order stay.
//!
//! The text is walked once, without building values and without recursion: a payload may be nested to any depth.

use crate::mask::{REDACTED, mask};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Paths that a queue can allow.
pub const MAX_PATHS: usize = 64;
/// Bytes of a path.
pub const MAX_PATH_BYTES: usize = 512;
/// A member name longer than this is data.
const LONG_KEY: usize = 64;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Key(String),
    Index(usize),
    AnyKey,
    AnyIndex,
}

/// The paths whose values stay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allow(Vec<Vec<Step>>);

impl Allow {
    /// Reads paths such as `$.order.id`, `$.items[*].sku`, `$.items[0]`, `$['odd name']`, `$.*`. A path allows everything
    /// below it; `$` allows all.
    ///
    /// # Errors
    /// What is wrong with which path.
    pub fn parse(paths: &[String]) -> Result<Self, String> {
        if paths.len() > MAX_PATHS {
            return Err(format!("at most {MAX_PATHS} paths are allowed"));
        }
        let parsed = paths.iter().enumerate().map(|(n, path)| {
            steps(path).filter(|_| path.len() <= MAX_PATH_BYTES).ok_or_else(|| {
                format!(
                    "path {n}: one such as $.order.id or $.items[*].sku of at most {MAX_PATH_BYTES} bytes is allowed"
                )
            })
        });
        parsed.collect::<Result<_, _>>().map(Self)
    }
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            steps.push(match name {
                "" => return None,
                "*" => Step::AnyKey,
                _ => Step::Key(name.to_owned()),
            });
            rest = &after[end..];
        } else {
            let after = rest.strip_prefix('[')?;
            if let Some(quoted) = after.strip_prefix('\'') {
                let end = quoted.find("']")?;
                steps.push(Step::Key(quoted[..end].to_owned()));
                rest = &quoted[end + 2..];
            } else {
                let end = after.find(']')?;
                steps.push(match &after[..end] {
                    "*" => Step::AnyIndex,
                    index => Step::Index(index.parse().ok()?),
                });
                rest = &after[end + 1..];
            }
        }
    }
    Some(steps)
}

/// The JSON text with every value that no path allows replaced by `"[REDACTED]"`. What is allowed stays byte for byte. Names
/// of members stay, but for those that look like data themselves. A text that is not JSON is replaced as a whole.
pub fn redact(json: &str, allow: &Allow) -> String {
    let mut out = String::with_capacity(json.len().min(1 << 16));
    let mut walk = Walk { json, bytes: json.as_bytes(), at: 0, allow };
    match walk.all(&mut out) {
        Some(()) => out,
        None => format!("\"{REDACTED}\""),
    }
}

/// SHA-256 of a payload as it was pushed, in hexadecimal: that two payloads are the same is evidence, so the hash must
/// withstand somebody who wants another payload to have it. It is no redaction: who can guess a payload can confirm it.
pub fn payload_hash(payload: &[u8]) -> String {
    hex(&Sha256::digest(payload))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        hex.push(char::from(DIGITS[usize::from(byte >> 4)]));
        hex.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    hex
}

/// An open object or array, and which paths lead into it.
struct Frame {
    object: bool,
    index: usize,
    paths: u64,
}

struct Walk<'a> {
    json: &'a str,
    bytes: &'a [u8],
    at: usize,
    allow: &'a Allow,
}

impl<'a> Walk<'a> {
    fn all(&mut self, out: &mut String) -> Option<()> {
        let every = (0..self.allow.0.len()).fold(0u64, |mask, n| mask | 1 << n);
        let mut open: Vec<Frame> = Vec::new();
        self.value(out, &mut open, every)?;
        while let Some(frame) = open.last_mut() {
            self.blank();
            let end = if frame.object { b'}' } else { b']' };
            if self.peek()? == end {
                self.at += 1;
                out.push(char::from(end));
                open.pop();
                continue;
            }
            if frame.index > 0 {
                self.expect(b',')?;
                out.push(',');
                self.blank();
            }
            let (index, object, paths) = (frame.index, frame.object, frame.paths);
            frame.index += 1;
            let depth = open.len() - 1;
            let paths = if object {
                let raw = self.string()?;
                let name = name(raw)?;
                let paths = self.narrow(paths, depth, |step| match step {
                    Step::Key(key) => *key == name,
                    step => *step == Step::AnyKey,
                });
                let data = name.len() > LONG_KEY || matches!(mask(&name), std::borrow::Cow::Owned(_));
                // Where the path is allowed the name is too.
                if data && paths == 0 {
                    let _ = write!(out, "\"{REDACTED}\"");
                } else {
                    out.push_str(raw);
                }
                self.blank();
                self.expect(b':')?;
                out.push(':');
                paths
            } else {
                self.narrow(paths, depth, |step| *step == Step::AnyIndex || *step == Step::Index(index))
            };
            self.value(out, &mut open, paths)?;
        }
        self.blank();
        (self.at == self.bytes.len()).then_some(())
    }

    /// One value: copied if allowed, entered if it is an object or array, replaced otherwise. `paths` lead to it.
    fn value(&mut self, out: &mut String, open: &mut Vec<Frame>, paths: u64) -> Option<()> {
        self.blank();
        let depth = open.len();
        if (0..self.allow.0.len()).any(|n| paths & (1 << n) != 0 && self.allow.0[n].len() == depth) {
            let from = self.at;
            self.skip()?;
            out.push_str(&self.json[from..self.at]);
            return Some(());
        }
        match self.peek()? {
            c @ (b'{' | b'[') => {
                self.at += 1;
                out.push(char::from(c));
                open.push(Frame { object: c == b'{', index: 0, paths });
            }
            _ => {
                self.skip()?;
                let _ = write!(out, "\"{REDACTED}\"");
            }
        }
        Some(())
    }

    /// Of `paths`, those whose step at `depth` fits.
    fn narrow(&self, paths: u64, depth: usize, fits: impl Fn(&Step) -> bool) -> u64 {
        let mut left = 0;
        for (n, steps) in self.allow.0.iter().enumerate() {
            if paths & (1 << n) != 0 && steps.get(depth).is_some_and(&fits) {
                left |= 1 << n;
            }
        }
        left
    }

    /// Passes one value of any kind.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            self.blank();
            match self.peek()? {
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b'"' => {
                    self.string()?;
                }
                b',' | b':' if depth > 0 => self.at += 1,
                c if c.is_ascii_alphanumeric() || b"+-.".contains(&c) => {
                    while self.bytes.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || b"+-.".contains(c)) {
                        self.at += 1;
                    }
                }
                _ => return None,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Passes a string; answers it with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        let from = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return self.json.get(from..self.at);
                }
                _ => self.at += 1,
            }
        }
    }

    fn blank(&mut self) {
        while self.bytes.get(self.at).is_some_and(|c| b" \t\r\n".contains(c)) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }
}

/// The name that a quoted member name stands for; one that no text can hold matches no path.
fn name(raw: &str) -> Option<String> {
    let inside = raw.get(1..raw.len().checked_sub(1)?)?;
    if inside.contains('\\') {
        return Some(serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned()));
    }
    Some(inside.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allow(paths: &[&str]) -> Allow {
        Allow::parse(&paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn what_is_not_allowed_is_replaced_and_the_structure_stays() {
        let json = r#"{"order" : {"id":1.50,"note":"x"}, "items":[{"sku":"a","n":1},{"sku":"b"}], "ok":true, "none":null, "e":{}}"#;
        for (paths, wanted) in [
            (
                &["$.order.id", "$.items[*].sku"][..],
                r#"{"order":{"id":1.50,"note":"[R]"},"items":[{"sku":"a","n":"[R]"},{"sku":"b"}],"ok":"[R]","none":"[R]","e":{}}"#,
            ),
            (
                &[],
                r#"{"order":{"id":"[R]","note":"[R]"},"items":[{"sku":"[R]","n":"[R]"},{"sku":"[R]"}],"ok":"[R]","none":"[R]","e":{}}"#,
            ),
            (&["$"], json),
            (
                &["$.items[1]", "$.*.note"],
                r#"{"order":{"id":"[R]","note":"x"},"items":[{"sku":"[R]","n":"[R]"},{"sku":"b"}],"ok":"[R]","none":"[R]","e":{}}"#,
            ),
        ] {
            assert_eq!(redact(json, &allow(paths)), wanted.replace("[R]", REDACTED), "{paths:?}");
        }
        assert_eq!(redact("\"s\"", &allow(&[])), "\"[REDACTED]\"");
        assert_eq!(redact(r#"{"\u0061":1,"a":2}"#, &allow(&["$['a']"])), r#"{"\u0061":1,"a":2}"#);
    }

    #[test]
    fn a_name_that_is_data_is_replaced_too() {
        let json = r#"{"AKIAIOSFODNN7EXAMPLE":1,"4111111111111111":{"a":1}}"#;
        let redacted = redact(json, &allow(&[]));
        assert!(!redacted.contains("AKIA") && !redacted.contains("4111"), "{redacted}");
    }

    #[test]
    fn what_is_not_json_is_replaced_as_a_whole_and_any_depth_is_taken() {
        for text in ["", "{", "{\"secret\"", "[1,", "secret", "[1] 2", "\"\\", "{\"a\":}", "]"] {
            let redacted = redact(text, &allow(&[]));
            assert!(!redacted.contains("secret"), "{text}: {redacted}");
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(redact(&deep, &allow(&[])).len(), 200_000 + REDACTED.len() + 2);
    }

    #[test]
    fn paths_that_cannot_be_read_are_refused() {
        for bad in ["", "order", "$order", "$.", "$[", "$[x]", "$['a", "$.a..b"] {
            assert!(Allow::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_payload_is_known_by_its_hash() {
        assert_eq!(payload_hash(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![Just(serde_json::Value::Null), any::<i32>().prop_map(Into::into), Just("SECRET".into())];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_value_survives_an_empty_list_and_redacting_again_changes_nothing(value in json()) {
            for paths in [&[][..], &["$.a", "$[*].b"]] {
                let once = redact(&value.to_string(), &allow(paths));
                prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok());
                prop_assert_eq!(redact(&once, &allow(paths)), once.clone());
                prop_assert!(!paths.is_empty() || !once.contains("SECRET"));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[\\[\\]{}\",:\\\\a-c0-9 é]{0,60}") {
            let _ = redact(&text, &allow(&["$.a[*]"]));
        }
    }
}
