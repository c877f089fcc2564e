//! The stored blob: the frames of one append to one partition, indexed, checksummed and compressed.
//!
//! All numbers are little-endian and of the width shown; there is no padding.
//!
//! ```text
//! offset  bytes
//!      0      8  magic "QUEENSEG"
//!      8      2  version = 1
//!     10      1  codec: 0 stored, 1 zstd
//!     11      1  flags: bit 0 ids are consecutive from first_id, bit 1 there is a hash table
//!     12      4  frame count, at least 1
//!     16      4  block count, at least 1
//!     20      4  raw length of all frames, at most 1 GiB
//!     24     16  first_id, the message id of frame 0
//!     40     16  xxh3-128 of everything but these 16 bytes
//!     56         frame table: per frame  u32 raw_end, counted from the start of all frames
//!                block table: per block  u32 raw_end, u32 stored_end
//!                hash table:  per frame  u64 hash of the transaction id, 0 = default   (flag bit 1)
//!                id table:    per frame  u128 message id                      (unless flag bit 0)
//!                body:        the blocks, one after the other
//! ```
//!
//! A block is a run of whole frames, each compressed on its own, so that one frame is read by
//! decompressing one block. Blocks aim at [`BLOCK_TARGET`] raw bytes; a longer frame has a block of its
//! own. The layout of a frame is drawn in [`mod@frame`].
//!
//! A reader checks everything before it computes with it: [`Segment::parse`] refuses whatever is not
//! exactly this layout, and no buffer is larger than the declared, bounded lengths.

mod block;
mod encode;
mod error;
pub mod frame;
mod opened;
mod parse;
#[cfg(test)]
mod tests;

pub use encode::{EncodeOptions, FrameIn, encode};
pub use error::SegmentError;
pub use frame::{Frame, OwnedFrame};
pub use opened::Opened;
pub use parse::Segment;

/// First eight bytes of every segment.
pub const MAGIC: [u8; 8] = *b"QUEENSEG";
/// The format version this build writes, and the only one it reads.
pub const VERSION: u16 = 1;
/// Largest raw length of one segment, in bytes. A `bytea` ends at 1 GiB, so a stored (uncompressed)
/// segment could not be larger anyway.
pub const MAX_RAW: usize = 1 << 30;
/// Raw bytes at which a block is closed: large enough for zstd to find repetition between messages,
/// small enough that one message is read without unpacking a large segment.
pub const BLOCK_TARGET: usize = 64 * 1024;

const HEADER_LEN: usize = 56;
const CHECKSUM_AT: usize = 40;
const CODEC_STORED: u8 = 0;
const CODEC_ZSTD: u8 = 1;
const FLAG_CONSECUTIVE: u8 = 1;
const FLAG_HASHES: u8 = 2;
/// Shortest frame: a flags byte and one byte of payload.
const MIN_FRAME: usize = 2;

/// Hash of a transaction id as the hash table has it: xxh3-64, with 0 mapped to 1 because 0 means
/// "default transaction id".
pub fn transaction_hash(id: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(id.as_bytes()).max(1)
}

/// xxh3-128 of a segment without its checksum field: the bytes before it and the bytes after it.
fn checksum(before: &[u8], after: &[u8]) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
    hasher.update(before);
    hasher.update(after);
    hasher.digest128()
}
