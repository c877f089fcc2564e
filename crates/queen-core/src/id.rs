//! Message ids: UUIDv7, made so that they sort in log order.

/// Makes message ids.
#[derive(Debug, Default)]
pub struct IdGenerator {
    last: u128,
}

impl IdGenerator {
    /// A generator that has handed out nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first of `n` consecutive ids (first, first + 1, …).
    pub fn reserve(&mut self, unix_micros: u64, n: u64) -> u128 {
        let _ = (unix_micros, n, self.last);
        todo!()
    }
}

/// Microseconds since the Unix epoch; `Some` only for version 7 with the RFC variant.
pub fn unix_micros(id: u128) -> Option<u64> {
    let _ = id;
    todo!()
}

/// Hyphenated lower-case text.
pub fn format(id: u128) -> String {
    let _ = id;
    todo!()
}

/// Writes the hyphenated lower-case text.
pub fn write(id: u128, out: &mut [u8; 36]) {
    let _ = (id, out);
    todo!()
}

/// Reads only the exact canonical lower-case form.
pub fn parse_canonical(text: &str) -> Option<u128> {
    let _ = text;
    todo!()
}
