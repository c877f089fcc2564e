//! Writing a segment.

use super::{
    BLOCK_TARGET, CHECKSUM_AT, CODEC_STORED, CODEC_ZSTD, FLAG_CONSECUTIVE, FLAG_HASHES, HEADER_LEN, MAGIC, MAX_RAW,
    SegmentError, VERSION, block, checksum, frame, transaction_hash,
};
use crate::id;

/// One message to be stored; fields as in [`super::Frame`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameIn<'a> {
    /// Message id.
    pub id: u128,
    /// Transaction id; `None`, or the canonical text of `id`, is the default one and takes no room.
    pub transaction_id: Option<&'a str>,
    /// Payload, at least one byte; kept byte for byte.
    pub payload: &'a [u8],
    /// Headers; kept byte for byte.
    pub headers: Option<&'a [u8]>,
    /// Trace id.
    pub trace_id: Option<u128>,
    /// Who pushed it.
    pub producer: Option<&'a str>,
    /// Microseconds since the Unix epoch, where it differs from the id's time.
    pub enqueued_at: Option<i64>,
    /// The payload is an envelope that the broker sealed.
    pub encrypted: bool,
}

/// How to encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeOptions {
    /// zstd level. The default is 1: on batches of 10 to 1000 JSON messages of 230 bytes it takes three
    /// quarters of the time of level 3, and the result is no larger (5.3 kB for 100 messages either way).
    /// Data that lives long in large messages may want more.
    pub level: i32,
    /// Raw length in bytes below which a segment is stored uncompressed: one small message has little
    /// to compress, and the call costs more than the bytes.
    pub min_compress: usize,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self { level: 1, min_compress: 512 }
    }
}

/// Encodes frames, in their order, as one segment.
///
/// The body is compressed when it is at least `min_compress` bytes long and compression saves a tenth
/// or more.
///
/// # Errors
/// No frames; a frame without payload; more than [`MAX_RAW`] raw bytes; a zstd failure.
pub fn encode(frames: &[FrameIn<'_>], options: &EncodeOptions) -> Result<Vec<u8>, SegmentError> {
    let first = frames.first().ok_or(SegmentError::NoFrames)?;
    let bound = frames.iter().fold(0usize, |n, f| n.saturating_add(frame::encoded_bound(f)));
    let too_large = |raw| SegmentError::TooLarge { frames: frames.len(), raw };
    // No single length can then exceed a u32, nor can their sum.
    if bound > MAX_RAW + frames.len().saturating_mul(64) {
        return Err(too_large(bound));
    }

    let mut raw = Vec::with_capacity(bound);
    let mut ends = Vec::with_capacity(frames.len());
    let mut hashes = Vec::with_capacity(frames.len());
    let mut blocks = Blocks::default();
    let mut consecutive = true;
    let mut expected_id = Some(first.id);
    for (i, input) in frames.iter().enumerate() {
        if input.payload.is_empty() {
            return Err(SegmentError::EmptyPayload { frame: i });
        }
        consecutive &= expected_id == Some(input.id);
        expected_id = input.id.checked_add(1);
        let transaction_id = input.transaction_id.filter(|text| !is_default(text, input.id));
        hashes.push(transaction_id.map_or(0, transaction_hash));
        let start = raw.len();
        frame::write(input, transaction_id, &mut raw);
        if raw.len() > MAX_RAW {
            return Err(too_large(raw.len()));
        }
        blocks.frame(start, raw.len());
        ends.push(raw.len() as u32);
    }
    let block_ends = blocks.finish(raw.len());

    let has_hashes = hashes.iter().any(|hash| *hash != 0);
    let flags = if consecutive { FLAG_CONSECUTIVE } else { 0 } | if has_hashes { FLAG_HASHES } else { 0 };
    let count = u32::try_from(frames.len()).map_err(|_| too_large(raw.len()))?;

    let (codec, stored_ends, body) = pack(&raw, &block_ends, options)?;
    let body = body.as_deref().unwrap_or(&raw);

    let mut tail = Vec::with_capacity(frames.len() * 28 + block_ends.len() * 8 + body.len());
    tail.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
    for (raw_end, stored_end) in block_ends.iter().zip(&stored_ends) {
        tail.extend_from_slice(&raw_end.to_le_bytes());
        tail.extend_from_slice(&stored_end.to_le_bytes());
    }
    if has_hashes {
        tail.extend(hashes.iter().flat_map(|hash| hash.to_le_bytes()));
    }
    if !consecutive {
        tail.extend(frames.iter().flat_map(|f| f.id.to_le_bytes()));
    }
    tail.extend_from_slice(body);

    let mut out = Vec::with_capacity(HEADER_LEN + tail.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(codec);
    out.push(flags);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(block_ends.len() as u32).to_le_bytes());
    out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    out.extend_from_slice(&first.id.to_le_bytes());
    debug_assert_eq!(out.len(), CHECKSUM_AT);
    let sum = checksum(&out, &tail);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&tail);
    Ok(out)
}

fn is_default(text: &str, id: u128) -> bool {
    // The length first: almost every transaction id is settled by it.
    text.len() == 36 && id::parse_canonical(text) == Some(id)
}

/// Where blocks end, decided while frames are written.
#[derive(Default)]
struct Blocks {
    ends: Vec<u32>,
    start: usize,
}

impl Blocks {
    /// Notes the frame at `[start, end)`; closes the block before it when the two together would pass
    /// the target.
    fn frame(&mut self, start: usize, end: usize) {
        if start > self.start && end - self.start > BLOCK_TARGET {
            self.ends.push(start as u32);
            self.start = start;
        }
    }

    fn finish(mut self, end: usize) -> Vec<u32> {
        self.ends.push(end as u32);
        self.ends
    }
}

/// Codec, stored end of every block, and the body where it is not `raw` itself.
type Packed = (u8, Vec<u32>, Option<Vec<u8>>);

fn pack(raw: &[u8], block_ends: &[u32], options: &EncodeOptions) -> Result<Packed, SegmentError> {
    if raw.len() >= options.min_compress {
        let mut body = Vec::with_capacity(raw.len() / 2);
        let mut stored_ends = Vec::with_capacity(block_ends.len());
        let mut start = 0;
        for (n, end) in block_ends.iter().enumerate() {
            let chunk = raw.get(start..*end as usize).unwrap_or_default();
            start = *end as usize;
            block::compress(chunk, options.level, &mut body)
                .map_err(|problem| SegmentError::Compress { block: n, problem })?;
            // Incompressible blocks can grow a little; past u32 it would be stored anyway.
            stored_ends.push(u32::try_from(body.len()).unwrap_or(u32::MAX));
        }
        if body.len() <= raw.len() - raw.len() / 10 {
            return Ok((CODEC_ZSTD, stored_ends, Some(body)));
        }
    }
    Ok((CODEC_STORED, block_ends.to_vec(), None))
}
