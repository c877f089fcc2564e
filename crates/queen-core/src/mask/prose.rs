//! Secrets in sentences: `password hunter2`, `the pwd for app is hunter2`, `token - dGVzdA==`.
//!
//! What follows a word for a secret counts as one unless it is among the words that ordinarily do. So a text about
//! passwords stays readable, and what nobody has thought of is masked.

use super::REDACTED;
use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

/// A word for a secret, what may stand between, and the word or quotation behind it. What is between is bounded, so that
/// looking is linear in the text.
static PROSE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let pattern = r#"(?ix)
        (?: (?<plain> passw(?:or)?[dt] | passphrase | passcode | pwd | secret (?:[\x20_-]?key)? | token
              | (?:api|access|private|account|shared|encryption)[\x20_-]?key | credential | session[\x20_-]?id ) s?
          | \b (?<short> pass | pw | pin | otp | jwt | cvv2? | cvc | ssn | iban | sid )
          | \b (?<weak> key | signature | auth | nonce | salt ) )
        (?<between> ['"`)\]]?
          (?: (?: [\t\x20]+ (?:for|of|from) (?: [\t\x20]+ [^\s"]{1,64} ){1,3}? )?
              (?: [\t\x20]+ (?:value|string|used|given|provided|supplied|entered|sent|received|now|currently|still) ){0,2}
              [\t\x20]* (?: [\t\x20] (?: (?:is|was|has\x20been|been|being) [\t\x20]+ )? (?:set|reset|changed|updated|rotated) [\t\x20]+ to
                | [\t\x20] (?:is|was|are|were|be|being|as|equals)
                | : | [\t\x20] [=:>\x{2013}\x{2014}\x{2192}-]{1,3} )
              (?: [\t\x20]+ (?:now|currently|still|just|really) )? [\t\x20]+
            | [\t\x20]+ ) )
        (?<value> "[^"\r\n]{1,200}" | '[^'\r\n]{1,200}' | `[^`\r\n]{1,200}` | [^\s"]+ )"#;
    Regex::new(pattern).ok()
});

#[rustfmt::skip]
/// What ordinarily follows a word for a secret; sorted. Parts of other words count too: `re-issued` is two.
const ORDINARY: &[&str] = &[
    "a", "about", "absent", "accepts", "access", "according", "account", "after", "again", "against", "age",
    "algorithm", "all", "allowed", "allows", "already", "also", "an", "and", "any", "appears", "are", "aren",
    "argument", "as", "associated", "at", "attempt", "attempts", "audience", "auth", "authenticated", "authentication",
    "authority", "authorization", "available", "bad", "based", "be", "because", "been", "before", "begins", "being",
    "belongs", "between", "blank", "body", "both", "bucket", "but", "by", "cache", "can", "cannot", "change",
    "changed", "check", "checks", "claim", "claims", "client", "column", "config", "configuration", "configured",
    "constraint", "contained", "contains", "could", "couldn", "count", "created", "credentials", "database", "decode",
    "decoded", "decoding", "deleted", "denied", "did", "didn", "differ", "differs", "disabled", "do", "does", "doesn",
    "don", "duplicate", "during", "each", "either", "empty", "encoding", "encryption", "endpoint", "ends", "error",
    "errors", "every", "exceeded", "exception", "exchange", "exhausted", "exist", "exists", "exp", "expired",
    "expires", "expiry", "failed", "fails", "failure", "fetch", "field", "file", "flow", "for", "forbidden", "format",
    "found", "from", "generation", "given", "got", "grant", "granted", "had", "has", "hash", "hasn", "have", "haven",
    "header", "here", "http", "https", "id", "identifier", "if", "ignored", "in", "included", "incorrect", "input",
    "instead", "into", "introspection", "invalid", "is", "isn", "issued", "issuer", "it", "its", "just", "key", "keys",
    "last", "leaked", "left", "length", "like", "limit", "limits", "list", "loaded", "lock", "locked", "login",
    "longer", "lookup", "lost", "malformed", "manager", "match", "matched", "matches", "may", "mechanism", "mismatch",
    "mismatched", "missing", "more", "must", "name", "needed", "never", "new", "no", "none", "not", "nothing", "now",
    "null", "number", "of", "ok", "old", "on", "once", "only", "or", "out", "over", "page", "parameter", "parse",
    "parsing", "pem", "per", "permission", "policy", "position", "present", "problem", "prompt", "protected",
    "provided", "provider", "query", "quota", "read", "reason", "received", "redacted", "refresh", "refreshed",
    "refused", "rejected", "remaining", "renewal", "renewed", "request", "requested", "required", "requires", "reset",
    "response", "retry", "revoked", "rotated", "rotation", "rule", "rules", "scope", "scopes", "screen", "see", "sent",
    "server", "service", "set", "should", "shouldn", "sign", "signature", "signed", "signing", "since", "size", "so",
    "specified", "starts", "still", "store", "stored", "string", "supplied", "supported", "table", "than", "that",
    "the", "their", "then", "there", "they", "this", "to", "too", "true", "ttl", "type", "unauthorized", "unavailable",
    "undefined", "under", "unexpected", "unknown", "unset", "unsupported", "until", "unused", "update", "updated",
    "use", "used", "user", "using", "valid", "validation", "validator", "value", "values", "verification", "verify",
    "version", "via", "violates", "was", "wasn", "weak", "were", "weren", "when", "where", "which", "while", "who",
    "will", "with", "within", "without", "won", "would", "wrong", "yet", "you", "your",
];
/// Letters and digits that a secret has at least.
const SHORTEST: usize = 3;

/// Masks them. None: the pattern cannot be used in this build.
pub fn mask(text: &str) -> Option<Cow<'_, str>> {
    let regex = PROSE.as_ref()?;
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = regex.captures_at(text, at) {
        let (Some(between), Some(value)) = (found.name("between"), found.name("value")) else { break };
        let (start, end) = core(text, value.range());
        let kind = if found.name("short").is_some() {
            Kind::Short
        } else if found.name("weak").is_some() {
            Kind::Weak
        } else {
            Kind::Plain
        };
        if is_secret(&text[start..end], kind) {
            out.push_str(&text[copied..between.start()]);
            // For whom it is: a few words, which may name another secret.
            out.push_str(&mask(&text[between.start()..start])?);
            out.push_str(REDACTED);
            (copied, at) = (end, end);
        } else {
            // The word behind it may be one for a secret itself, or the sentence go on after another word.
            at = between.start();
        }
    }
    if copied == 0 {
        return Some(Cow::Borrowed(text));
    }
    out.push_str(&text[copied..]);
    Some(Cow::Owned(out))
}

/// How much the word before says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing else than a secret.
    Plain,
    /// Also something else: only what has a digit is a secret.
    Short,
    /// Mostly something else: only what looks random is one.
    Weak,
}

/// Without the marks of the sentence around it.
fn core(text: &str, range: std::ops::Range<usize>) -> (usize, usize) {
    let value = &text[range.clone()];
    let start = value.trim_start_matches(['(', '[', '{', '<', '"', '\'', '`']);
    let core = start.trim_end_matches(['.', ',', ';', ':', ')', ']', '}', '>', '"', '\'', '`']);
    let start = range.end - start.len();
    (start, start + core.len())
}

fn is_secret(core: &str, kind: Kind) -> bool {
    let count = |wanted: fn(char) -> bool| core.chars().filter(|c| wanted(*c)).count();
    let digits = count(|c| c.is_numeric());
    if count(char::is_alphanumeric) < SHORTEST {
        return false;
    }
    match kind {
        Kind::Plain => {
            // A status, an attempt.
            let is_small_number = core.len() <= 3 && digits == core.len();
            !is_small_number && !core.split(|c: char| !c.is_alphanumeric()).all(is_ordinary)
        }
        Kind::Short => digits > 0,
        Kind::Weak => {
            let mixed = count(char::is_lowercase) > 0 && count(char::is_uppercase) > 0 && digits > 0;
            let one_word = !core.contains(char::is_whitespace) && !core.contains(REDACTED);
            one_word && core.len() >= 8 && (mixed || core.ends_with('='))
        }
    }
}

fn is_ordinary(word: &str) -> bool {
    const NAMES: [&str; 9] = ["api", "jwt", "passphrase", "passwd", "password", "pwd", "secret", "session", "token"];
    let word = word.to_ascii_lowercase();
    let word = word.as_str();
    // What is left of `isn't`, `can't` and `it's`.
    word.len() <= 1
        || matches!(word, "ll" | "re" | "ve")
        || ORDINARY.binary_search(&word).is_ok()
        || NAMES.contains(&word.strip_suffix('s').unwrap_or(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinary_words_are_sorted_and_the_pattern_compiles() {
        assert!(ORDINARY.is_sorted());
        assert!(PROSE.is_some());
    }

    #[test]
    fn what_follows_a_word_for_a_secret_is_masked_up_to_the_sentence() {
        for (text, wanted) in [
            ("password hunter2", "password [REDACTED]"),
            ("bad password hunter2!, try again", "bad password [REDACTED], try again"),
            ("the pwd is hunter2.", "the pwd is [REDACTED]."),
            ("Passwords (hunter2) differ", "Passwords ([REDACTED]) differ"),
            ("password for user app is swordfish", "password for user app is [REDACTED]"),
            ("password was changed to swordfish by bob", "password was changed to [REDACTED] by bob"),
            ("password reset to swordfish", "password reset to [REDACTED]"),
            ("token - dGVzdA==", "token - [REDACTED]"),
            ("token abc123 refused", "token [REDACTED] refused"),
            ("api key abcdef refused", "api key [REDACTED] refused"),
            ("API-key is now abcdef", "API-key is now [REDACTED]"),
            ("client_secret swordfish", "client_secret [REDACTED]"),
            ("refreshToken swordfish", "refreshToken [REDACTED]"),
            ("password token swordfish", "password token [REDACTED]"),
            ("password is \"hun ter2\"", "password is \"[REDACTED]\""),
            ("the password `hun ter2` is wrong", "the password `[REDACTED]` is wrong"),
            ("pin 4821 refused", "pin [REDACTED] refused"),
            ("cvv is 123", "cvv is [REDACTED]"),
            ("key aB3dEfGh refused", "key [REDACTED] refused"),
            ("signature dGVzdA==", "signature [REDACTED]"),
            ("password geheim\u{df}wort", "password [REDACTED]"),
        ] {
            assert_eq!(mask(text).unwrap(), wanted);
            assert_eq!(mask(wanted).unwrap(), wanted);
        }
    }

    #[test]
    fn sentences_about_secrets_stay_readable() {
        for text in [
            "password is wrong",
            "token expired",
            "password required",
            "invalid token",
            "invalid token (401)",
            "invalid token\njava.lang.IllegalStateException: boom",
            "password authentication failed for user \"app\"",
            "the token has been revoked by its issuer",
            "Passwords don't match, the password isn't set",
            "password for user bob is too short",
            "no token was given; a secret key must be configured",
            "Unexpected token } in JSON at position 17",
            "unexpected token undefined",
            "access token is not yet valid: check the claim exp",
            "duplicate key value violates unique constraint",
            "key order-4711 not found",
            "API key missing in the request",
            "session id not found",
            "pass 2 of 3 failed, the pin is bent",
            "TOKEN_EXPIRED: token refresh failed",
            "secret store unavailable",
            "ssn field missing",
        ] {
            assert_eq!(mask(text).unwrap(), text);
        }
    }
}
