//! One push request as it lies in the buffer.
//!
//! ```text
//!  0        4        8               16                32       36
//!  +--------+--------+----------------+-----------------+--------+---------------------------+
//!  | magic  | length | XXH3-64        | tenant          | items  | JSON array of the items   |
//!  +--------+--------+----------------+-----------------+--------+---------------------------+
//!                                      `------------- length bytes: the body --------------'
//! ```
//!
//! Numbers are little-endian. The magic ends in the version of the format; the checksum is that of the body. So a record
//! that was written in part is told from a whole one, whatever the disk has left in its place.

use crate::tenant::Tenant;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// `QBR` and the version of the format.
const MAGIC: [u8; 4] = *b"QBR1";
/// Bytes in front of the body.
pub const HEADER: usize = 16;
/// Bytes of the body in front of the items.
const BODY_HEADER: usize = 20;
/// Longest body that is believed.
const MAX_BODY: usize = 1 << 30;

/// A push request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whose queues.
    pub tenant: Tenant,
    /// How many items there are.
    pub items: u32,
    /// The items, as the database takes them: a JSON array of objects, each with a transaction id.
    pub array: String,
}

/// What stands at a place is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no record, or a damaged one")]
pub struct Broken;

impl Record {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Broken`]: longer than a record may be.
    pub fn encode(&self) -> Result<Vec<u8>, Broken> {
        let length = BODY_HEADER + self.array.len();
        if length > MAX_BODY {
            return Err(Broken);
        }
        let mut bytes = Vec::with_capacity(HEADER + length);
        bytes.extend(MAGIC);
        bytes.extend((length as u32).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.tenant.0.as_bytes());
        bytes.extend(self.items.to_le_bytes());
        bytes.extend(self.array.as_bytes());
        let sum = xxh3_64(&bytes[HEADER..]);
        bytes[8..HEADER].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Length of the body, and its checksum.
    ///
    /// # Errors
    /// [`Broken`]: no header of a record.
    pub fn header(bytes: &[u8; HEADER]) -> Result<(usize, u64), Broken> {
        let [m0, m1, m2, m3, l0, l1, l2, l3, sum @ ..] = *bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if [m0, m1, m2, m3] != MAGIC || !(BODY_HEADER..=MAX_BODY).contains(&length) {
            return Err(Broken);
        }
        Ok((length, u64::from_le_bytes(sum)))
    }

    /// The record with this body.
    ///
    /// # Errors
    /// [`Broken`]: it is not what was written.
    pub fn body(bytes: &[u8], sum: u64) -> Result<Record, Broken> {
        if xxh3_64(bytes) != sum {
            return Err(Broken);
        }
        let (tenant, rest) = bytes.split_first_chunk::<16>().ok_or(Broken)?;
        let (items, array) = rest.split_first_chunk::<4>().ok_or(Broken)?;
        let array = std::str::from_utf8(array).map_err(|_| Broken)?.to_owned();
        Ok(Record { tenant: Tenant(Uuid::from_bytes(*tenant)), items: u32::from_le_bytes(*items), array })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Record, Broken> {
        let (header, body) = bytes.split_first_chunk::<HEADER>().ok_or(Broken)?;
        let (length, sum) = Record::header(header)?;
        Record::body(body.get(..length).ok_or(Broken)?, sum)
    }

    fn record() -> Record {
        Record { tenant: Tenant(Uuid::from_u128(7)), items: 2, array: "[{\"payload\":\"é\"},{}]".to_owned() }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        assert_eq!(decode(&record().encode().unwrap()), Ok(record()));
    }

    #[test]
    fn no_byte_can_change_unseen() {
        let bytes = record().encode().unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(decode(&other), Err(Broken), "byte {at}");
        }
    }

    #[test]
    fn no_part_of_a_record_is_one() {
        let bytes = record().encode().unwrap();
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Err(Broken), "{length} bytes");
        }
        assert_eq!(decode(&vec![0; bytes.len()]), Err(Broken));
    }
}
