//! Credentials in free text: found by shape, replaced by `[REDACTED]`.
//!
//! When in doubt a text is masked: a masked identifier costs a look into the log, a stored password costs more. Matching is
//! linear in the text, and only its beginning is looked at, as no more of it is kept.

mod prose;

use crate::names::{MAX_ERROR_TEXT_BYTES, clean_error_text};
use regex::{Captures, Regex};
use std::borrow::Cow;
use std::sync::LazyLock;

/// What stands where something was removed.
pub const REDACTED: &str = "[REDACTED]";
/// Lines of a stack trace that are kept.
pub const MAX_LINES: usize = 40;
/// Bytes that are looked at: masking makes a text shorter, so more than is kept.
const WINDOW_BYTES: usize = 4 * MAX_ERROR_TEXT_BYTES;
/// A digit sequence as long as a card number.
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// A shape, and what replaces it: its first group, if that is kept, and the mark between the quotes of the others.
struct Shape {
    regex: Regex,
    keep: bool,
}

/// Parts of the names of what is secret.
const NAMES: &str = r"passw(?:or)?[dt]|passwd|passphrase|passcode|pwd|secret|token|api[\x20_-]?key|access[\x20_-]?key|auth[_-]?key|private[\x20_-]?key|account[\x20_-]?key|shared[_-]?key|credential|session[_-]?id|sessid|signature|card[_-]?(?:number|no)|cvv2?|cvc|ssn|iban";
/// Names of secrets by themselves or behind a separator; within words they mean something else.
const SHORT_NAMES: &str = "pass|pw|pin|otp|sig|sid|jwt";

static SHAPES: LazyLock<Option<Vec<Shape>>> = LazyLock::new(|| {
    let name = format!(r"\b(?:[\w.-]*(?:{NAMES})[\w.-]*|(?:[\w.-]*[_.-])?(?:{SHORT_NAMES}))");
    // A text in quotes of any kind, what is in brackets to the end of its line or of the bracket that opens there, a block
    // of YAML, a word.
    let value = r#"(?: \[REDACTED\]
        | [bruf]{0,2} (?: (\\+["']) [^\r\n]*? (?: \\+["'] | $ ) | (""") [^"]* (?: """ | $ ) | ("") [^",;\]\r\n}]+ ""
            | (") (?: [^"\\\r\n] | \\. )* (?: " | $ ) | (') (?: [^'\\\r\n] | \\. )* (?: ' | $ ) )
        | \w{0,40} \s? (?: [\[{(] [^\S\r\n]* [\r\n] [^\])}]* [\])}]? | [\[{(] [^\r\n]* )
        | [|>] [+-]? \s* [\r\n]+ [^\r\n]*
        | [^\s,;&"'] [^\s,;&]* )"#;
    let shapes = [
        // Private keys, to their end or that of the text.
        (r"(?s)-{4,5} ?BEGIN [A-Z0-9 ]*-{4,5}.*?(?:-{4,5} ?END [A-Z0-9 ]*-{4,5}|\z)".to_owned(), false),
        // Headers that carry credentials, also in a list of pairs or as variables of CGI: the rest of the line.
        (
            r"(?i)(\b[\w-]*authorization|\b(?:[\w-]*[_-])?cookie2?|\bx-(?:[a-z-]*-)?(?:auth|api-key|auth-token|access-token|csrf-token|amz-security-token))\\*(?:[\x22']{1,2}\s*[:=,]|\s*[:=])\s*[^\r\n]+".to_owned(),
            true,
        ),
        // Tokens by their scheme.
        (r"(?i)(\bbearer)\s+\S+".to_owned(), true),
        (r"(?i)(\b(?:basic|digest|negotiate|apikey)\s+)[A-Za-z0-9+/._~=-]{8,}".to_owned(), true),
        // JSON web tokens.
        (r"\beyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,4}".to_owned(), false),
        // User and password of a connection string, with and without a scheme.
        (r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s\x22'<>]*@".to_owned(), true),
        (r"(\b[\w.+%-]{1,64}:)[^\s@:/\x22'<>()\[\]]+@".to_owned(), true),
        (r"((?:^|\s)(?:-u|--user)[\s=]+[\x22']?[^\s:\x22']+:)[^\s\x22'\[]+".to_owned(), true),
        // name=value, name: value, "name":"value", also escaped once more, or doubled as in CSV.
        (format!(r#"(?ix) ( {name} \\* ["']{{0,2}} \s* (?: => | := | [:=] ) \s* (?: (?:is|was) \s+ )? ) {value}"#), true),
        // ("name", "value"), {"name": "name", "value": "value"}.
        (
            format!(r#"(?ix) ( {name} \\* ["'] \s* , \s* (?: \\* ["']? value \\* ["']? \s* [:=] \s* )? ) {value}"#),
            true,
        ),
        // Key (name)=(value), of PostgreSQL.
        (format!(r"(?ix) ( \( [^()\r\n]* (?:{NAMES}) [^()\r\n]* \) = ) \( [^\r\n]*"), true),
        // PASSWORD 'value', of SQL.
        (
            format!(r#"(?ix) ( (?: {name} | \bidentified\s+by ) \s+ ) (?: (") [^"\r\n]+ (?: " | $ ) | (') [^'\r\n]+ (?: ' | $ ) )"#),
            true,
        ),
        // <name>value</name>
        (format!(r"(?ix) ( < [\w:.-]* (?:{NAMES}) [\w:.-]* (?: \s [^<>]* )? > ) (?: <!\[CDATA\[ )? [^<]+"), true),
        (r"(?i)(--?(?:password|passwd|token|secret|api-?key)\s+)[^\s-]\S*".to_owned(), true),
        // Keys of well-known makers.
        (
            r"\b(?:(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}|(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}|AIza[A-Za-z0-9_-]{16,}|glpat-[A-Za-z0-9_-]{12,}|npm_[A-Za-z0-9]{16,}|hf_[A-Za-z0-9]{16,}|SG\.[A-Za-z0-9_.-]{16,}|ya29\.[A-Za-z0-9_-]{12,}|whsec_[A-Za-z0-9]{12,}|sq0[a-z]{3}-[A-Za-z0-9_-]{16,})".to_owned(),
            false,
        ),
    ];
    shapes.into_iter().map(|(text, keep)| Some(Shape { regex: Regex::new(&text).ok()?, keep })).collect()
});

/// A character that is written by its number: in JSON, or in a URL.
static NUMBERED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)(?:\\+u00|%)([2-7][0-9a-f])").ok());

/// Words that could be keys in hexadecimal or base64.
static LONG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/_-]{32,}={0,2}").ok());
/// Digits that could be a card number, however they are grouped; or a UUID, which is none.
static DIGITS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9]{4}(?:[\s\x{2010}-\x{2015}.,_/|-]{1,3}[0-9]{4}){3}[0-9]{0,3}|\b[0-9]{4}[\s\x{2010}-\x{2015}.,_/|-]{1,3}[0-9]{6}[\s\x{2010}-\x{2015}.,_/|-]{1,3}[0-9]{4,5}|[0-9](?:[ .-]?[0-9]){12,}").ok()
});

/// The text with everything replaced that looks like a credential or a card number, also where characters of it are written
/// by their numbers, in full width or in the digits of another script. UUIDs stay, where no word for a secret is before.
pub fn mask(text: &str) -> Cow<'_, str> {
    masked(text).unwrap_or(Cow::Borrowed(REDACTED))
}

/// None: a pattern cannot be used in this build, so that nobody can say what the text still holds.
fn masked(text: &str) -> Option<Cow<'_, str>> {
    let masked = by_shape(text)?;
    let mut plain = plain_digits(&masked);
    let numbered = NUMBERED.as_ref()?;
    // Each step makes it shorter.
    while let Cow::Owned(decoded) = numbered.replace_all(&plain, numbered_character) {
        plain = Cow::Owned(decoded);
    }
    if let Cow::Owned(plain) = &plain
        && let Cow::Owned(found) = by_shape(plain)?
        && found != *plain
    {
        return Some(Cow::Owned(found));
    }
    Some(masked)
}

/// The text with ASCII for characters in full width and for decimal digits of other scripts.
fn plain_digits(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.chars().any(|c| ascii_of(c) != c) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(ascii_of).collect())
}

fn ascii_of(c: char) -> char {
    /// Where ten digits begin: scripts in use, and letters of mathematics, of which there are five sets in a row.
    const ZEROS: [u32; 17] = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0, 0xf20,
        0x1040, 0x17e0,
    ];
    let of = |n: u32| char::from_u32(n).unwrap_or(c);
    let digit = |from: u32| of(u32::from(b'0') + from % 10);
    match u32::from(c) {
        ..0x660 => c,
        n @ 0xff01..=0xff5e => of(n - 0xfee0),
        0x3000 => ' ',
        n @ 0x1d7ce..=0x1d7ff => digit(n - 0x1d7ce),
        n => ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&n)).map_or(c, |zero| digit(n - zero)),
    }
}

fn numbered_character(found: &Captures<'_>) -> String {
    u8::from_str_radix(&found[1], 16).map(|n| char::from(n).to_string()).unwrap_or_default()
}

fn by_shape(text: &str) -> Option<Cow<'_, str>> {
    let mut masked = Cow::Borrowed(text);
    for shape in SHAPES.as_ref()? {
        replace(&mut masked, &shape.regex, |found| {
            let kept = found.get(1).filter(|_| shape.keep).map_or("", |kept| kept.as_str());
            let blank = if kept.is_empty() || kept.ends_with(|c: char| !c.is_alphanumeric()) { "" } else { ": " };
            let quote = (2..found.len()).find_map(|n| found.get(n)).map_or("", |quote| quote.as_str());
            format!("{kept}{blank}{quote}{REDACTED}{quote}")
        });
    }
    let or_kept = |found: &str, secret: bool| if secret { REDACTED.to_owned() } else { found.to_owned() };
    replace(&mut masked, LONG.as_ref()?, |found| or_kept(&found[0], is_key(&found[0])));
    replace(&mut masked, DIGITS.as_ref()?, |found| or_kept(&found[0], has_card(&found[0])));
    // Last: of a number in groups it sees the first.
    if let Cow::Owned(changed) = prose::mask(&masked)? {
        masked = Cow::Owned(changed);
    }
    Some(masked)
}

/// An error text fit to be stored where evidence is redacted: cleaned, masked, at most 40 lines and 4 KiB.
pub fn error_text(text: &str) -> String {
    let mut end = text.len().min(WINDOW_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut window = &text[..end];
    if end < text.len() {
        // A credential that goes on behind the window would no longer look like one: the last word goes.
        let boundary = window.rfind(char::is_whitespace).unwrap_or(0);
        window = &window[..boundary];
    }
    let mut masked = mask(window).into_owned();
    if let Some((at, _)) = masked.match_indices('\n').nth(MAX_LINES - 1) {
        masked.truncate(at);
    }
    clean_error_text(&masked)
}

fn replace(text: &mut Cow<'_, str>, regex: &Regex, with: impl Fn(&Captures<'_>) -> String) {
    if let Cow::Owned(changed) = regex.replace_all(text, with) {
        *text = Cow::Owned(changed);
    }
}

fn is_key(word: &str) -> bool {
    let digit = word.bytes().any(|b| b.is_ascii_digit());
    let letter = word.bytes().any(|b| b.is_ascii_alphabetic());
    digit && letter && crate::id::parse_canonical(word).is_none()
}

/// Whether some part of a sequence of digits, separators aside, has a card number's length and check digit.
fn has_card(run: &str) -> bool {
    if crate::id::parse_canonical(run).is_some() {
        return false;
    }
    let digits: Vec<u32> = run.chars().filter_map(|c| c.to_digit(10)).collect();
    CARD_DIGITS.into_iter().any(|length| digits.windows(length).any(luhn))
}

fn luhn(digits: &[u32]) -> bool {
    let doubled = |d: u32| if d > 4 { 2 * d - 9 } else { 2 * d };
    let sum: u32 = digits.iter().rev().enumerate().map(|(n, &d)| if n % 2 == 1 { doubled(d) } else { d }).sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Texts with a secret, and the secret.
    const SEEDED: &[(&str, &str)] = &[
        ("GET /x: Authorization: Bearer abc.def-1, status 401", "abc.def-1"),
        ("bearer hunter2hunter2", "hunter2hunter2"),
        ("sent Basic dXNlcjpwYXNzd29yZA== to it", "dXNlcjpwYXNzd29yZA"),
        ("key sk-live-4eC39HqLyjWDarjtT1 refused", "4eC39HqLyjWDarjtT1"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912E7710c838347Ae178B4a"),
        ("xoxb-123456789012-abcdefGHIJ", "abcdefGHIJ"),
        ("postgres://app:p@ss/w0rd@db.local:5432/x down", "w0rd"),
        ("Server=db;User Id=sa;Password=hunter2;", "hunter2"),
        ("{\"password\": \"hun ter2\", \"a\": 1}", "hun ter2"),
        (r#"{\"api_key\":\"hun ter2\"}"#, "ter2"),
        ("client_secret => hunter2", "hunter2"),
        ("mysql --password hunter2 -h x", "hunter2"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_123", "eyJzdWIiOiIxIn0"),
        ("card 4111 1111 1111 1111 declined", "1111 1111"),
        ("card 4111-1111-1111-1111", "1111-1111"),
        ("pan=4242424242424242;", "424242"),
        ("Cookie: sid=1; theme=dark", "sid=1"),
        ("x-api-key: short", "short"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIB\nabc\n-----END RSA PRIVATE KEY-----", "MIIB"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB", "MIIB"),
        ("hash 5f4dcc3b5aa765d61d8327deb882cf99 leaked", "5f4dcc3b5aa765d61d8327deb882cf99"),
        ("card 4111  1111/1111_1111 declined", "1111/1111"),
        ("card 4111\u{a0}1111\u{2013}1111\t1111", "1111\t1111"),
        ("amex 3782, 822463, 10005", "822463"),
        ("Config { password: Some(\"hun ter2\"), port: 1 }", "ter2"),
        ("{\"passwords\": [\"hunter2\", \"swordfish\"]}", "swordfish"),
        ("{\"secret\": {\n  \"value\": \"hunter2\"\n}, \"a\": 1}", "hunter2"),
        ("password=b'hunter2'", "hunter2"),
        ("password: |\n  hunter2", "hunter2"),
        ("password=\"\"\"hunter2\"\"\"", "hunter2"),
        ("password=hun'ter2", "ter2"),
        ("DB_PASS=hunter2", "hunter2"),
        ("pin: 4821", "4821"),
        ("API key: hunter2", "hunter2"),
        ("<wsse:Password Type=\"x\">hunter2</wsse:Password>", "hunter2"),
        ("ALTER USER app PASSWORD 'hunter2'", "hunter2"),
        ("Key (password)=(hunter2) already exists.", "hunter2"),
        ("Key (tenant, api_key)=(5, hunter2) already exists.", "hunter2"),
        ("dsn app:hunter2@tcp(db:3306)/x refused", "hunter2"),
        ("curl -u admin:hunter2 https://x", "hunter2"),
        ("HTTP_AUTHORIZATION=Token hunter2", "hunter2"),
        ("HTTP_COOKIE=sid=hunter2", "hunter2"),
        ("[('Authorization', 'Token hunter2'), ('a', 'b')]", "hunter2"),
        ("Authorization:\n  Token hunter2", "hunter2"),
        ("('password', 'hunter2')", "hunter2"),
        (r#"{"name":"password","value":"hunter2"}"#, "hunter2"),
        (r#"{"pass\u0077ord":"hunter2"}"#, "hunter2"),
        (r"{\u0022password\u0022:\u0022hunter2\u0022}", "hunter2"),
        (r"\\u0041KIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
        ("?sig=aB3%2FdEfGhIjKl&se=1", "dEfGhIjKl"),
        ("password%3Dhunter2%26a%3D1", "hunter2"),
        ("password hunter2", "hunter2"),
        ("the pwd for app is hunter2", "hunter2"),
        ("api key: hunter2", "hunter2"),
        ("password: is hunter2", "hunter2"),
        (
            "card \u{ff14}\u{ff11}\u{ff11}\u{ff11} \u{ff11}\u{ff11}\u{ff11}\u{ff11} \u{ff11}\u{ff11}\u{ff11}\u{ff11} \u{ff11}\u{ff11}\u{ff11}\u{ff11}",
            "\u{ff11}",
        ),
        (
            "card \u{664}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}\u{661}",
            "\u{661}\u{661}",
        ),
        ("\u{ff50}\u{ff41}\u{ff53}\u{ff53}\u{ff57}\u{ff4f}\u{ff52}\u{ff44}\u{ff1d}hunter2", "hunter2"),
        ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nP2/56wAA\n---- END SSH2", "P2/56wAA"),
    ];

    #[test]
    fn every_shape_compiles() {
        assert_eq!(SHAPES.as_ref().map(Vec::len), Some(15));
        assert!(LONG.is_some() && DIGITS.is_some());
    }

    #[test]
    fn secrets_of_every_kind_are_masked_and_masking_again_changes_nothing() {
        for (text, secret) in SEEDED {
            let masked = mask(text).into_owned();
            assert!(!masked.contains(secret), "{masked}");
            assert!(masked.contains(REDACTED), "{masked}");
            assert_eq!(mask(&masked), masked);
        }
    }

    #[test]
    fn what_tells_an_operator_something_stays() {
        for text in [
            "timeout after 3000 ms at order 0190aaaa-0000-7000-8000-00000000000f",
            "password authentication failed for user \"app\"",
            "java.lang.IllegalStateException: no handler\n\tat com.example.Worker.run(Worker.java:42)",
            "HTTP 429 from https://api.example.com/v1/orders",
            "created 2026-01-31T12:00:00Z",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    #[test]
    fn a_long_text_keeps_its_first_lines_and_no_secret_at_any_cut() {
        let trace: String = (0..100).map(|n| format!("  at frame {n}\n")).collect();
        assert_eq!(error_text(&trace).lines().count(), MAX_LINES);
        for before in [4080, WINDOW_BYTES - 60, WINDOW_BYTES - 20] {
            let text = format!("{} password=hunter2secret tail {}", "a b ".repeat(before / 4), "x ".repeat(1 << 19));
            let kept = error_text(&text);
            assert!(kept.len() <= MAX_ERROR_TEXT_BYTES && !kept.contains("hunter2"), "{before}");
        }
    }

    proptest! {
        #[test]
        fn a_seeded_secret_never_survives(n in 0..SEEDED.len(), before in "[a-z ,.]{0,40}", after in "[a-z ,.]{0,40}") {
            let (text, secret) = SEEDED[n];
            let masked = error_text(&format!("{before} {text} {after}"));
            prop_assert!(!masked.contains(secret), "{}", masked);
        }

        #[test]
        fn masking_sentences_is_idempotent(words in proptest::collection::vec(
            prop_oneof![
                Just("password"), Just("token"), Just("api key"), Just("is"), Just("for"), Just("was"), Just("to"), Just("set"),
                Just("wrong"), Just("hunter2"), Just("(x1y2)"), Just("\"a b"), Just("'c d'"), Just("key"), Just("pin"), Just("4821"),
                Just("[REDACTED]"), Just("="), Just(":"), Just("-"), Just("\n"), Just("4111 1111 1111 1111"),
                Just("dGVzdA=="), Just("Secret,"), Just("bearer"), Just("\u{ff11}"),
            ], 0..14), glue in prop_oneof![Just(" "), Just("  ")]) {
            let once = mask(&words.join(glue)).into_owned();
            prop_assert_eq!(mask(&once), once.as_str());
        }

        #[test]
        fn masking_is_idempotent_and_never_panics(text in "\\PC{0,120}", near in "[a-zA-Z0-9:=\"'@/\\[\\]. -]{0,80}") {
            for text in [text, near] {
                let once = mask(&text).into_owned();
                prop_assert_eq!(mask(&once), once.as_str());
                let _ = error_text(&text);
            }
        }
    }
}
