//! The blocks of a Markdown file that are run, and the outputs shown below them.

/// A block that is run.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// Of the opening fence, from 1.
    pub line: usize,
    pub language: Language,
    pub code: String,
    /// The `text` block right after it.
    pub expected: Option<String>,
}

/// What a block is run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// psql.
    Sql,
    /// sh.
    Shell,
}

impl Language {
    fn of(tag: &str) -> Option<Language> {
        match tag {
            "sql" => Some(Language::Sql),
            "sh" => Some(Language::Shell),
            _ => None,
        }
    }
}

/// All blocks tagged `sql` or `sh`, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // Whether a `text` block here would belong to the last such block.
    let mut follows = false;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            follows &= line.trim().is_empty();
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let body: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| line.trim() != "```")
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        let body = body.join("\n");
        let language = Language::of(info.trim());
        match language {
            Some(language) => blocks.push(Block { line: number + 1, language, code: body, expected: None }),
            None if follows && info.trim() == "text" => {
                if let Some(block) = blocks.last_mut() {
                    block.expected = Some(body);
                }
            }
            None => {}
        }
        follows = language.is_some();
    }
    blocks
}

/// Replaces each `2026-01-31 12:34:56.789+00` (also without zone or fraction) by `<time>`.
pub fn mask_times(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = time_length(rest.as_bytes());
        if length > 0 {
            masked.push_str("<time>");
            rest = &rest[length..];
        } else {
            masked.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    masked
}

/// How many bytes at the start of `text` are a time; 0 when it is none.
fn time_length(text: &[u8]) -> usize {
    const SHAPE: &[u8] = b"dddd-dd-dd dd:dd:dd";
    let matches = |(have, want): (&u8, &u8)| match want {
        b'd' => have.is_ascii_digit(),
        b' ' => matches!(have, b' ' | b'T'),
        _ => have == want,
    };
    if text.len() < SHAPE.len() || !text.iter().zip(SHAPE).all(matches) {
        return 0;
    }
    let tail = &text[SHAPE.len()..];
    let fraction_and_zone =
        tail.iter().take_while(|b| b.is_ascii_digit() || matches!(b, b'.' | b'+' | b'-' | b':' | b'Z')).count();
    SHAPE.len() + fraction_and_zone
}
