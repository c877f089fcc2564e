//! Why a message failed, in words that an operations team can count: a class, a stable code, a reason.
//!
//! Three voices, the first that speaks is heard: the consumer's own statement, the reason if it names a cause by itself,
//! the queue's ordered rules on the error text. If none does, the class is `unknown`.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Rules that a queue can have.
pub const MAX_RULES: usize = 32;
/// Bytes of a rule's pattern.
pub const MAX_PATTERN_BYTES: usize = 512;
/// Characters of an error code.
pub const MAX_CODE_CHARS: usize = 64;
/// Bytes that a compiled pattern may take.
const COMPILED_BYTES: usize = 1 << 20;

/// What kind of failure it is: whether time can change it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Time may heal it: a timeout, a dependency that is away.
    Transient,
    /// Time will not.
    Permanent,
    /// A valid message that the handler cannot survive.
    Poison,
    /// The message cannot be read.
    Malformed,
    /// Its deadline has passed.
    Expired,
    /// Rules forbid to process it.
    Policy,
    /// Nobody has said.
    Unknown,
}

impl Class {
    /// Every class, in the order of the documentation.
    pub const ALL: [Self; 7] =
        [Self::Transient, Self::Permanent, Self::Poison, Self::Malformed, Self::Expired, Self::Policy, Self::Unknown];

    /// The word that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Poison => "poison",
            Self::Malformed => "malformed",
            Self::Expired => "expired",
            Self::Policy => "policy",
            Self::Unknown => "unknown",
        }
    }

    /// Reads the word that is stored, exactly.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// Whether time cannot change it, so that another delivery is of no use.
    pub fn is_hopeless(self) -> bool {
        !matches!(self, Self::Transient | Self::Unknown)
    }

    /// The class that a reason names by itself. `fatal` and `retries_exhausted` say how it ended, not why.
    pub fn of_reason(reason: &str) -> Option<Self> {
        match reason {
            "decode_error" | "malformed_envelope" => Some(Self::Malformed),
            "no_handler" => Some(Self::Permanent),
            "expired" => Some(Self::Expired),
            "max_deliveries" => Some(Self::Poison),
            _ => None,
        }
    }
}

/// One rule of a queue: error texts that match the pattern are of this class and code.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// A regular expression, searched for anywhere in the text.
    pub pattern: String,
    /// What it means.
    pub class: Class,
    /// A stable code; may be empty.
    #[serde(default)]
    pub code: String,
}

/// The rules of a queue, compiled: matching takes time linear in the text.
#[derive(Debug)]
pub struct Rules(Vec<(Regex, Class, String)>);

impl Rules {
    /// Compiles rules, in their order.
    ///
    /// # Errors
    /// What is wrong with which one: too many, too long, not a regular expression, a code that is none. The pattern is not
    /// quoted.
    pub fn compile(rules: &[Rule]) -> Result<Self, String> {
        if rules.len() > MAX_RULES {
            return Err(format!("at most {MAX_RULES} rules are allowed"));
        }
        let compiled = rules.iter().enumerate().map(|(n, rule)| {
            if rule.pattern.is_empty() || rule.pattern.len() > MAX_PATTERN_BYTES {
                return Err(format!("rule {n}: a pattern of 1 to {MAX_PATTERN_BYTES} bytes is allowed"));
            }
            if code(&rule.code) != rule.code {
                return Err(format!("rule {n}: a code of at most {MAX_CODE_CHARS} of A-Z a-z 0-9 . _ : - is allowed"));
            }
            let regex = RegexBuilder::new(&rule.pattern)
                .size_limit(COMPILED_BYTES)
                .dfa_size_limit(COMPILED_BYTES)
                .build()
                .map_err(|_| format!("rule {n}: a regular expression (syntax of RE2, no look-around) is allowed"))?;
            Ok((regex, rule.class, rule.code.clone()))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// Class and code of the first rule that the text matches.
    pub fn of(&self, text: &str) -> Option<(Class, &str)> {
        self.0.iter().find(|(regex, ..)| regex.is_match(text)).map(|(_, class, code)| (*class, code.as_str()))
    }
}

/// A code fit to be stored: at most 64 of `A-Z a-z 0-9 . _ : -`, everything else replaced by `_`.
pub fn code(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._:-".contains(c) { c } else { '_' };
    text.chars().take(MAX_CODE_CHARS).map(plain).collect()
}

/// What a consumer said about a failure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stated<'a> {
    /// Its word for the reason.
    pub reason: Option<Cow<'a, str>>,
    /// The class that it gave.
    pub class: Option<Class>,
    /// The code that it gave, cleaned.
    pub code: Option<String>,
}

/// Reads what a consumer gave as `reason` and `error`. Either may be a JSON object `{"class", "code"}` with a class that
/// exists, in which `reason` may be another member; the reason's counts first. What cannot be read that way is a plain text.
pub fn stated<'a>(reason: Option<&'a str>, error: Option<&str>) -> Stated<'a> {
    #[derive(Deserialize)]
    struct Statement {
        class: Option<String>,
        code: Option<String>,
        reason: Option<String>,
    }
    let read = |text: &str| {
        let object = text.trim_start().starts_with('{');
        let statement = object.then(|| serde_json::from_str::<Statement>(text).ok()).flatten()?;
        // Any other JSON object is a text like another.
        let class = Class::parse(statement.class.as_deref()?)?;
        Some((class, statement))
    };
    let (by_reason, by_error) = (reason.and_then(read), error.and_then(read));
    let plain = if by_reason.is_some() { None } else { reason.map(Cow::Borrowed) };
    let mut stated = Stated { reason: plain, class: None, code: None };
    for (class, statement) in [by_reason, by_error].into_iter().flatten() {
        stated.class = stated.class.or(Some(class));
        stated.code = stated.code.or(statement.code.as_deref().map(code));
        stated.reason = stated.reason.or(statement.reason.map(Cow::Owned));
    }
    stated
}

/// Class and code of a failure: as the consumer said, else as the reason says by itself, else by the rules, else unknown.
/// A part that the consumer has left out is filled in by the next voice.
pub fn classify(stated: &Stated<'_>, reason: &str, text: &str, rules: Option<&Rules>) -> (Class, String) {
    if let (Some(class), Some(code)) = (stated.class, &stated.code) {
        return (class, code.clone());
    }
    let (class, found) = match Class::of_reason(reason) {
        Some(class) => (class, reason),
        None => rules.and_then(|rules| rules.of(text)).unwrap_or((Class::Unknown, "")),
    };
    (stated.class.unwrap_or(class), stated.code.clone().unwrap_or_else(|| found.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(pattern: &str, class: Class, code: &str) -> Rule {
        Rule { pattern: pattern.to_owned(), class, code: code.to_owned() }
    }

    #[test]
    fn the_consumers_statement_wins_then_the_reason_then_the_first_rule_then_unknown() {
        let rules = Rules::compile(&[
            rule("(?i)time ?out", Class::Transient, "TIMEOUT"),
            rule("timeout of the account", Class::Permanent, "ACCOUNT"),
        ])
        .unwrap();
        let of = |reason: Option<&str>, error: &str| {
            let stated = stated(reason, Some(error));
            let word = stated.reason.clone().unwrap_or("retries_exhausted".into());
            classify(&stated, &word, error, Some(&rules))
        };
        assert_eq!(of(None, "Timeout of the account"), (Class::Transient, "TIMEOUT".into()));
        assert_eq!(of(Some("decode_error"), "timeout"), (Class::Malformed, "decode_error".into()));
        assert_eq!(of(Some(r#"{"class":"policy","code":"EU"}"#), "timeout"), (Class::Policy, "EU".into()));
        assert_eq!(of(None, r#"{"class":"poison","message":"timeout"}"#), (Class::Poison, "TIMEOUT".into()));
        assert_eq!(of(Some("fatal"), "else"), (Class::Unknown, String::new()));
        assert_eq!(of(Some(r#"{"class":"nonsense","code":"a b"}"#), "timeout"), (Class::Transient, "TIMEOUT".into()));
        assert_eq!(of(Some(r#"{"class":"policy","code":"a b"}"#), "timeout"), (Class::Policy, "a_b".into()));
    }

    #[test]
    fn a_statement_may_name_the_reason_and_another_object_is_a_text() {
        let told = stated(Some(r#"{"class":"poison","code":"X1","reason":"no_handler"}"#), None);
        assert_eq!(told.reason.as_deref(), Some("no_handler"));
        assert_eq!(stated(Some(r#"{"a":1}"#), None).reason.as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(stated(Some("{class"), Some("{")).class, None);
    }

    #[test]
    fn rules_that_cannot_be_used_are_refused_without_being_quoted() {
        for bad in [
            rule("(secret", Class::Unknown, ""),
            rule("", Class::Unknown, ""),
            rule("(?=secret)", Class::Unknown, ""),
            rule("secret", Class::Unknown, "two words"),
            rule(r"(\w{1000}){1000}", Class::Unknown, ""),
            rule(&"secret".repeat(100), Class::Unknown, ""),
        ] {
            let refused = Rules::compile(&[bad]).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(Rules::compile(&vec![rule("a", Class::Poison, ""); MAX_RULES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn anything_can_be_stated(reason in ".{0,60}", error in "[{}\":,a-z]{0,60}") {
            let told = stated(Some(&reason), Some(&error));
            let (_, found) = classify(&told, &reason, &error, None);
            prop_assert!(found.chars().count() <= MAX_CODE_CHARS);
        }
    }
}
