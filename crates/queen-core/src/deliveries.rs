//! How often each leased but uncommitted message was delivered.

/// Delivery counts of one (partition, consumer group).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Deliveries {}
impl Deliveries {
    /// Counts a delivery of `[first, end]`; answers the attempt number of `first`, this one included.
    pub fn deliver(&mut self, first: i64, end: i64) -> i32 {
        let _ = (first, end);
        todo!()
    }
    /// Forgets everything at or below `committed`.
    pub fn advance(&mut self, committed: i64) {
        let _ = committed;
        todo!()
    }
    /// Forgets everything.
    pub fn clear(&mut self) {
        todo!()
    }
    /// The stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }
    /// Reads the stored form; what cannot be read counts as nothing delivered yet.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let _ = bytes;
        todo!()
    }
}
