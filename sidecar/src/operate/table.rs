//! Aligned columns for people.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Longest cell, in characters.
const WIDEST: usize = 48;

/// A table that is being filled.
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. Those whose name ends with a space are aligned right.
    pub fn new(head: &[&'static str]) -> Table {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| shown(cell)).collect());
    }

    /// The text; the head is bold on a terminal, unless NO_COLOR is set.
    pub fn text(&self) -> String {
        self.render(is_colored(std::env::var_os("NO_COLOR").as_deref(), std::io::stdout().is_terminal()))
    }

    fn render(&self, colored: bool) -> String {
        let width = |n: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count());
            cells.chain([self.head[n].trim_end().chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &[&str]| {
            let cells = cells.iter().enumerate().map(|(n, cell)| {
                let width = widths[n];
                if self.head[n].ends_with(' ') { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let head: Vec<&str> = self.head.iter().map(|name| name.trim_end()).collect();
        let head = line(&head);
        let mut lines = vec![if colored { format!("\x1b[1m{head}\x1b[0m") } else { head }];
        for row in &self.rows {
            lines.push(line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        lines.join("\n")
    }
}

/// Whether colours are wanted: on a terminal, unless NO_COLOR says something (no-color.org).
fn is_colored(no_color: Option<&OsStr>, is_terminal: bool) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// A cell: one line, not too long, and nothing in it that moves the cursor.
pub fn shown(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= WIDEST {
        return clean;
    }
    clean.chars().take(WIDEST - 1).chain(['…']).collect()
}

/// A value of an answer as a cell: texts as they are, nothing for null.
pub fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number with a digit behind the point.
pub fn rounded(value: &serde_json::Value) -> String {
    value.as_f64().map_or_else(String::new, |number| format!("{number:.1}"))
}

/// Seconds as people say them.
pub fn age(seconds: f64) -> String {
    match seconds as u64 {
        0 => "-".to_owned(),
        s @ 1..=119 => format!("{s}s"),
        s @ 120..=7199 => format!("{}m", s / 60),
        s @ 7200..=172_799 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_are_one_harmless_line() {
        let mut table = Table::new(&["QUEUE", "PENDING ", "ERROR"]);
        table.row(vec!["orders".into(), "7".into(), "a\u{1b}[31m\nb".into()]);
        table.row(vec!["q".into(), "1234567890".into(), "x".repeat(60)]);
        let long = format!("{}…", "x".repeat(WIDEST - 1));
        assert_eq!(
            table.render(false),
            format!("QUEUE      PENDING  ERROR\norders           7  a [31m b\nq       1234567890  {long}")
        );
        assert!(table.render(true).starts_with("\x1b[1mQUEUE"));
    }

    #[test]
    fn colours_are_for_terminals_whose_people_want_them() {
        assert!(is_colored(None, true));
        assert!(is_colored(Some(OsStr::new("")), true));
        assert!(!is_colored(Some(OsStr::new("1")), true));
        assert!(!is_colored(None, false));
    }

    #[test]
    fn ages_are_short() {
        assert_eq!([0.0, 90.0, 600.0, 7300.0, 200_000.0].map(age), ["-", "90s", "10m", "2h", "2d"]);
    }
}
