//! Headers of a message: one JSON object, whose members are kept as they were written.

use crate::mask::{REDACTED, mask};
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Why a forwarded dead letter died.
pub const DEATH_REASON: &str = "x-death-reason";
/// The queue that it came from.
pub const ORIGINAL_QUEUE: &str = "x-original-queue";
/// How often it was delivered there.
pub const ATTEMPTS: &str = "x-attempts";
/// Its message id there.
pub const ORIGINAL_MESSAGE_ID: &str = "x-original-message-id";
/// How often a message has been replayed.
pub const REPLAY_HOPS: &str = "x-replay-hops";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";

/// The members of a headers object, in order.
#[derive(Debug, Default)]
pub struct Headers<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Headers<'a> {
    /// Reads a JSON object; None when it is none, or has a name that no text can hold.
    pub fn parse(json: &'a str) -> Option<Self> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        let mut reader = serde_json::Deserializer::from_str(json);
        serde::de::Deserializer::deserialize_map(&mut reader, Members).ok().map(Self)
    }

    /// The last member of this name: a string's text, anything else as it is written.
    pub fn get(&self, name: &str) -> Option<String> {
        let (_, raw) = self.0.iter().rev().find(|(n, _)| n == name)?;
        Some(serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned()))
    }

    /// The object with these members in place of those of the same names.
    pub fn with(&self, members: &[(&str, String)]) -> String {
        let kept = self.0.iter().filter(|(name, _)| members.iter().all(|(n, _)| n != name));
        let kept = kept.map(|(name, raw)| (name.as_str(), Cow::Borrowed(raw.get())));
        let added = members.iter().map(|(name, text)| (*name, Cow::Owned(quoted(text))));
        object(kept.chain(added))
    }

    /// The object as evidence may keep it: members with the names of credentials are replaced, credentials in the texts of
    /// the others are masked, names that look like credentials are replaced.
    pub fn redacted(&self) -> String {
        object(self.0.iter().map(|(name, raw)| {
            let shown = if matches!(mask(name), Cow::Owned(_)) { REDACTED } else { name.as_str() };
            if is_credential(name) {
                return (shown, Cow::Owned(quoted(REDACTED)));
            }
            let text: Option<String> = serde_json::from_str(raw.get()).ok();
            let value = match text.as_deref().map(mask) {
                Some(Cow::Owned(masked)) => Cow::Owned(quoted(&masked)),
                Some(Cow::Borrowed(_)) => Cow::Borrowed(raw.get()),
                // Not a text: kept if nothing in it looks like one.
                None if matches!(mask(raw.get()), Cow::Owned(_)) => Cow::Owned(quoted(REDACTED)),
                None => Cow::Borrowed(raw.get()),
            };
            (shown, value)
        }))
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn object<'a>(members: impl Iterator<Item = (&'a str, Cow<'a, str>)>) -> String {
    let members: Vec<String> = members.map(|(name, raw)| format!("{}:{raw}", quoted(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// Whether a header of this name carries a credential, whatever it looks like.
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let parts = [
        "authorization",
        "cookie",
        "api-key",
        "apikey",
        "access-key",
        "private-key",
        "account-key",
        "shared-key",
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "credential",
        "session",
        "signature",
    ];
    let words = ["auth", "pass", "pw", "pin", "otp", "sig", "sid", "jwt", "dsn", "cvv", "cvv2", "cvc", "ssn", "iban"];
    parts.iter().any(|part| name.contains(part)) || name.split(['-', '.']).any(|word| words.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_replaced_by_name_and_the_others_stay_as_written() {
        let headers = Headers::parse(r#"{"h" : 1.50, "x-attempts":"2","x-attempts":"3"}"#).unwrap();
        assert_eq!(headers.get("x-attempts").as_deref(), Some("3"));
        assert_eq!(headers.get("h").as_deref(), Some("1.50"));
        assert_eq!(headers.get("none"), None);
        assert_eq!(
            headers.with(&[(ATTEMPTS, "4".to_owned()), (DEATH_REASON, "a \"b\"".to_owned())]),
            r#"{"h":1.50,"x-attempts":"4","x-death-reason":"a \"b\""}"#
        );
        assert_eq!(Headers::default().with(&[(ATTEMPTS, "1".to_owned())]), r#"{"x-attempts":"1"}"#);
        assert!(Headers::parse("[1]").is_none());
    }

    #[test]
    fn credentials_are_replaced_by_name_or_masked_by_shape() {
        let headers = Headers::parse(
            r#"{"Authorization":"x1","Set-Cookie":["x2"],"X_Api_Key":"x3","url":"http://a:x4@h","n":7,"o":{"password":"x5"},"ok":"fine","AKIAIOSFODNN7EXAMPLE":1,"db-pwd":"x6","X-Access-Key":"x7","pass":"x8","x-auth":"x9","s":"{\"p\\u0061ssword\":\"y1\"}","kv":{"name":"password","value":"y2"},"compass":"north"}"#,
        )
        .unwrap();
        let redacted = headers.redacted();
        for secret in ["x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "y1", "y2", "AKIA"] {
            assert!(!redacted.contains(secret), "{redacted}");
        }
        assert!(redacted.contains(r#""compass":"north""#));
        assert!(redacted.contains(r#""ok":"fine""#) && redacted.contains(r#""n":7"#));
        let again = Headers::parse(&redacted).unwrap().redacted();
        assert_eq!(again, redacted);
    }
}
