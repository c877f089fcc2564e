//! The codec alone.
fn main() {}
