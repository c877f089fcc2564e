//! When two names of actors are one person's.

use unicode_normalization::UnicodeNormalization;

/// Whether two names are the same but for case, spaces, characters that are not seen and how characters are encoded. Names
/// that only look alike, in letters of different scripts, are different.
pub fn same(one: &str, other: &str) -> bool {
    folded(one) == folded(other)
}

fn folded(name: &str) -> String {
    let seen: String = name.nfkc().filter(|c| !is_unseen(*c)).collect();
    let words: Vec<&str> = seen.split_whitespace().collect();
    // Up and down again: there are letters with two small forms, and with none.
    words.join(" ").chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfkc().collect()
}

/// What shows nothing: controls that are no space, soft hyphens, joiners, marks of direction, selectors, tags.
fn is_unseen(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn case_spaces_encoding_and_what_is_not_seen_make_no_other_person() {
        for (one, other) in [
            ("Ann", "ann "),
            ("ann", "\tANN\n"),
            ("ann\u{a0}lee", "Ann  Lee"),
            ("ann", "\u{ff21}\u{ff2e}\u{ff2e}"),
            ("jos\u{e9}", "JOSE\u{301}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{3c3}\u{3b1}\u{3c2}", "\u{3a3}\u{391}\u{3a3}"),
            ("ann", "a\u{200b}n\u{ad}n\u{feff}"),
        ] {
            assert!(same(one, other), "{one:?} {other:?}");
        }
        for (one, other) in [("ann", "anne"), ("ann lee", "annlee"), ("ann", ""), ("ann", "\u{430}nn"), ("a.b", "ab")] {
            assert!(!same(one, other), "{one:?} {other:?}");
        }
    }
}
