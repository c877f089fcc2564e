//! What a run printed, against what it should have.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Replaces the digits of each uuid by `x`, so that columns keep their width. Uuids that begin with
/// `00000000` are constants, and stay.
pub fn mask_uuids(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let inside_word = masked.ends_with(|c: char| c.is_ascii_alphanumeric());
        match rest.get(..36) {
            Some(uuid) if !inside_word && is_uuid(uuid) && !uuid.starts_with("00000000") => {
                masked.push_str("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
                rest = &rest[36..];
            }
            _ => {
                masked.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    masked
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        })
}

/// Fails with a diff when `actual` is not what the file holds; with `UPDATE_EXPECT=1` writes the
/// file instead.
pub fn expect_file(expected: &Path, actual: &str) -> Result<(), String> {
    if fs::read_to_string(expected).is_ok_and(|text| text == actual) {
        return Ok(());
    }
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|v| v == "1") {
        return fs::write(expected, actual).map_err(|e| format!("{}: {e}", expected.display()));
    }
    let text = fs::read_to_string(expected).unwrap_or_default();
    Err(format!("{} differs (UPDATE_EXPECT=1 accepts the new output)\n{}", expected.display(), diff(&text, actual)))
}

/// A unified diff.
pub fn diff(expected: &str, actual: &str) -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = |side: &str, text: &str| {
        let path = std::env::temp_dir().join(format!("queen-{side}-{}-{n}", std::process::id()));
        fs::write(&path, text).expect("write a file to compare");
        path
    };
    let (left, right) = (file("expected", expected), file("actual", actual));
    let output = Command::new("diff")
        .args(["-U3", "--label=expected", "--label=actual"])
        .args([&left, &right])
        .output()
        .expect("diff");
    let _ = (fs::remove_file(left), fs::remove_file(right));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_masked_in_place() {
        let id = "0198c0de-7f00-7000-8000-0123456789ab";
        assert_eq!(mask_uuids(&format!(" {id} | é")), " xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx | é");
        let constant = "00000000-0000-0000-0000-000000000001";
        assert_eq!(mask_uuids(constant), constant);
        let not_one = "0198c0de-7f00-7000-8000-0123456789aG";
        assert_eq!(mask_uuids(not_one), not_one);
    }

    #[test]
    fn a_diff_shows_the_changed_line() {
        assert!(diff("a\nb\n", "a\nc\n").contains("-b\n+c\n"));
    }
}
