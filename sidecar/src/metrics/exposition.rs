//! Prometheus's text format, version 0.0.4.

use std::fmt::Write;

/// The format's content type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How a family's values are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, until a restart.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A text that is being written.
#[derive(Default, Debug)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a family; what it is about is one line.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    /// A family of one counter.
    pub fn counter(&mut self, name: &'static str, help: &str, value: u64) {
        self.family(name, Kind::Counter, help).value(&[], value as f64);
    }

    /// A family of one gauge.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        self.family(name, Kind::Gauge, help).value(&[], value);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// A family that is being written.
pub struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a value with its labels.
    pub fn value(&mut self, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(self.name);
        for (n, (name, value)) in labels.iter().enumerate() {
            _ = write!(self.text, "{}{name}=\"", if n == 0 { '{' } else { ',' });
            for char in value.chars() {
                match char {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    char => self.text.push(char),
                }
            }
            self.text.push('"');
        }
        _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_as_the_format_has_it() {
        let mut text = Exposition::default();
        text.counter("queen_a_total", "A.", 3);
        text.family("queen_b", Kind::Gauge, "B.").value(&[("queue", "a\"b\\c\nd"), ("op", "push")], 1.5);
        assert_eq!(
            text.finish(),
            "# HELP queen_a_total A.\n# TYPE queen_a_total counter\nqueen_a_total 3\n\
             # HELP queen_b B.\n# TYPE queen_b gauge\nqueen_b{queue=\"a\\\"b\\\\c\\nd\",op=\"push\"} 1.5\n"
        );
    }
}
