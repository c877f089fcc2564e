//! When two names of actors are one person's.

use unicode_normalization::UnicodeNormalization;

/// Whether two names are the same but for case, spaces, characters that are not seen and how characters are encoded. Names
/// that only look alike, in letters of different scripts, are different.
pub fn same(one: &str, other: &str) -> bool {
    folded(one) == folded(other)
}

fn folded(name: &str) -> String {
    let seen: String = name.nfkc().filter(|c| !is_unseen(*c)).map(plain).collect();
    let words: Vec<&str> = seen.split_whitespace().collect();
    // Up and down again: there are letters with two small forms, and with none.
    words.join(" ").chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfkc().collect()
}

/// What shows nothing: controls that are no space, and what Unicode says may be left out when it is shown
/// (Default_Ignorable_Code_Point: soft hyphens, joiners, fillers, marks of direction, selectors, tags); and marks of
/// annotation, and the empty braille cell.
fn is_unseen(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Hyphens are one character, however they may break a line.
fn plain(c: char) -> char {
    if matches!(c, '\u{2010}' | '\u{2011}') { '-' } else { c }
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
            ("ann", "\u{3164}a\u{115f}n\u{ffa0}n\u{1bca0}\u{2800}\u{fff9}"),
            ("a-b", "a\u{2011}b"),
        ] {
            assert!(same(one, other), "{one:?} {other:?}");
        }
        for (one, other) in [("ann", "anne"), ("ann lee", "annlee"), ("ann", ""), ("ann", "\u{430}nn"), ("a.b", "ab")] {
            assert!(!same(one, other), "{one:?} {other:?}");
        }
    }
}
