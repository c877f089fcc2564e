//! What makes two failures the same: the error text without what differs from one occurrence to the next.

use crate::redact::hex;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the normalized text that count.
const COUNTED_BYTES: usize = 1024;
/// A word longer than this is an identifier of some kind.
const LONG_WORD: usize = 32;
/// A word of this many hexadecimal digits is a number, even without a decimal digit.
const HEX_WORD: usize = 8;
/// Quoted text is masked up to this many bytes; a quote that is not closed by then is an apostrophe.
const QUOTED_BYTES: usize = 256;

/// The text in lower case with white space collapsed, quoted text as `?`, and each word that has a digit, is a long
/// hexadecimal number or is very long as `#`. At most 1 KiB.
pub fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(COUNTED_BYTES));
    let mut rest = text;
    let mut after_word = false;
    while let Some(c) = rest.chars().next()
        && out.len() < COUNTED_BYTES
    {
        // Most words are plain ASCII letters, with nothing to mask.
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let ends = |b: &u8| b.is_ascii() && !is_word(char::from(*b));
        if (1..=LONG_WORD).contains(&letters)
            && rest.as_bytes().get(letters).is_none_or(ends)
            && (letters < HEX_WORD || !rest.as_bytes()[..letters].iter().all(u8::is_ascii_hexdigit))
        {
            let from = out.len();
            out.push_str(&rest[..letters]);
            out[from..].make_ascii_lowercase();
            rest = &rest[letters..];
            after_word = true;
            continue;
        }
        if c.is_whitespace() {
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
            rest = &rest[c.len_utf8()..];
            after_word = false;
        } else if matches!(c, '\'' | '"' | '`')
            && !after_word
            && let Some(length) = quoted(rest, c)
        {
            out.push('?');
            rest = &rest[length..];
            after_word = false;
        } else if is_word(c) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let word = &rest[..length];
            if is_variable(word) {
                // `#-#` of a uuid, or `#.#` of a version, is one thing.
                if !out.ends_with('#') {
                    out.push('#');
                }
            } else {
                out.extend(word.chars().flat_map(char::to_lowercase));
            }
            rest = &rest[length..];
            after_word = true;
        } else {
            let joins = out.ends_with('#') && matches!(c, '-' | '.' | ':' | '/' | ',');
            let next = rest[c.len_utf8()..].chars().next();
            if !(joins && next.is_some_and(is_word)) {
                out.push(c);
            }
            rest = &rest[c.len_utf8()..];
            after_word = false;
        }
    }
    while out.len() > COUNTED_BYTES {
        out.pop();
    }
    out.truncate(out.trim_end().len());
    out
}

/// The fingerprint of a failure: 32 hexadecimal digits over the normalized text and the code.
pub fn fingerprint(text: &str, code: &str) -> String {
    let mut counted = normalize(text);
    counted.push('\0');
    counted.push_str(code);
    hex(&xxh3_128(counted.as_bytes()).to_be_bytes())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_variable(word: &str) -> bool {
    word.len() > LONG_WORD
        || word.bytes().any(|b| b.is_ascii_digit())
        || (word.len() >= HEX_WORD && word.bytes().all(|b| b.is_ascii_hexdigit()))
        || word.chars().any(|c| c.is_numeric())
}

/// Length of the quoted text that `rest` starts with, quotes included.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len().min(QUOTED_BYTES) {
        match bytes[at] {
            b'\\' => at += 1,
            b'\n' => return None,
            b if b == quote as u8 => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_differs_from_one_occurrence_to_the_next_is_masked() {
        for (text, wanted) in [
            ("timeout after 3000 ms", "timeout after # ms"),
            ("order 0190aaaa-0000-7000-8000-00000000000f is gone", "order # is gone"),
            ("key 'alice' already\n  there", "key ? already there"),
            ("can't reach \"db-1\"", "can't reach ?"),
            ("at 0x7fff deadbeef", "at # #"),
            ("2026-01-31T12:00:00Z refused", "# refused"),
            ("10.0.0.1:5432 refused", "# refused"),
            ("an open ' quote", "an open ' quote"),
            (&format!("id {}", "x".repeat(40)), "id #"),
        ] {
            assert_eq!(normalize(text), wanted, "{text}");
        }
    }

    #[test]
    fn same_failures_share_a_fingerprint_and_the_code_tells_others_apart() {
        let one = fingerprint("order 17: no stock of 'a'", "STOCK");
        assert_eq!(one, fingerprint("order 4711: no stock of 'bcd'", "STOCK"));
        assert_ne!(one, fingerprint("order 17: no stock of 'a'", "OTHER"));
        assert_ne!(one, fingerprint("order 17: no price of 'a'", "STOCK"));
        assert_eq!(one.len(), 32);
    }

    proptest! {
        #[test]
        fn numbers_never_matter_and_nothing_panics(a in 0u64.., b in 0u64.., text in "\\PC{0,80}") {
            prop_assert_eq!(fingerprint(&format!("x {a} y"), ""), fingerprint(&format!("x {b} y"), ""));
            prop_assert!(normalize(&text).len() <= COUNTED_BYTES);
        }
    }
}
