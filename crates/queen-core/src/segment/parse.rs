//! Reading a segment: everything is validated here, once.

use super::{
    CHECKSUM_AT, CODEC_STORED, CODEC_ZSTD, FLAG_CONSECUTIVE, FLAG_HASHES, HEADER_LEN, MAGIC, MAX_RAW, MIN_FRAME,
    Opened, OwnedFrame, SegmentError, VERSION, block, checksum, frame, transaction_hash,
};
use crate::id;
use std::borrow::Cow;

/// A segment whose header, tables and checksum are in order.
///
/// Invariants: every table has exactly its number of entries; frame and block ends rise strictly, end
/// at the raw length, and every block ends where a frame ends; the body has exactly the bytes that the
/// block table says.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub(super) compressed: bool,
    pub(super) raw_len: usize,
    first_id: u128,
    ends: &'a [[u8; 4]],
    blocks: &'a [[u8; 8]],
    hashes: Option<&'a [[u8; 8]]>,
    ids: Option<&'a [[u8; 16]]>,
    pub(super) body: &'a [u8],
}

/// One block: its raw range among all frames and its stored range in the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub index: usize,
    pub raw_start: usize,
    pub raw_end: usize,
    pub stored_start: usize,
    pub stored_end: usize,
}

impl<'a> Segment<'a> {
    /// Validates header, checksum and tables; decompresses nothing.
    ///
    /// # Errors
    /// Whatever differs from the layout, named.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SegmentError> {
        let short = |needed| SegmentError::Length { length: bytes.len(), needed };
        let mut rest = bytes;
        let magic: [u8; 8] = take(&mut rest).ok_or(short(HEADER_LEN))?;
        if magic != MAGIC {
            return Err(SegmentError::Magic);
        }
        let version = u16::from_le_bytes(take(&mut rest).ok_or(short(HEADER_LEN))?);
        // The version decides what all the rest means, so that nothing may be judged before it.
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        let [codec, flags] = take(&mut rest).ok_or(short(HEADER_LEN))?;
        let count = u32::from_le_bytes(take(&mut rest).ok_or(short(HEADER_LEN))?) as usize;
        let block_count = u32::from_le_bytes(take(&mut rest).ok_or(short(HEADER_LEN))?) as usize;
        let raw_len = u32::from_le_bytes(take(&mut rest).ok_or(short(HEADER_LEN))?) as usize;
        let first_id = u128::from_le_bytes(take(&mut rest).ok_or(short(HEADER_LEN))?);
        let sum = u128::from_le_bytes(take(&mut rest).ok_or(short(HEADER_LEN))?);
        let before = bytes.get(..CHECKSUM_AT).ok_or(short(HEADER_LEN))?;
        if checksum(before, rest) != sum {
            return Err(SegmentError::Checksum);
        }
        // From here on the bytes are what a writer wrote; a defective or hostile writer is still met
        // with an error.
        if codec != CODEC_STORED && codec != CODEC_ZSTD {
            return Err(SegmentError::Codec(codec));
        }
        if flags & !(FLAG_CONSECUTIVE | FLAG_HASHES) != 0 {
            return Err(SegmentError::Flags(flags));
        }
        let header = |problem| SegmentError::Table { table: "header", entry: 0, problem };
        if count == 0 || block_count == 0 || block_count > count {
            return Err(header("impossible frame and block counts"));
        }
        if raw_len > MAX_RAW || count > raw_len / MIN_FRAME {
            return Err(header("impossible raw length"));
        }
        let consecutive = flags & FLAG_CONSECUTIVE != 0;
        let has_hashes = flags & FLAG_HASHES != 0;
        let per_frame = 4 + if has_hashes { 8 } else { 0 } + if consecutive { 0 } else { 16 };
        // Cannot overflow: count and block_count are at most 2^29.
        let tables = HEADER_LEN as u64 + count as u64 * per_frame + block_count as u64 * 8;
        let needed = usize::try_from(tables).map_err(|_| header("impossible table lengths"))?;
        let ends = table::<4>(&mut rest, count).ok_or(short(needed))?;
        let blocks = table::<8>(&mut rest, block_count).ok_or(short(needed))?;
        let hashes = match has_hashes {
            true => Some(table::<8>(&mut rest, count).ok_or(short(needed))?),
            false => None,
        };
        let ids = match consecutive {
            true => None,
            false => Some(table::<16>(&mut rest, count).ok_or(short(needed))?),
        };
        let segment =
            Self { compressed: codec == CODEC_ZSTD, raw_len, first_id, ends, blocks, hashes, ids, body: rest };
        segment.check_ids()?;
        segment.check_ends()?;
        segment.check_blocks(needed)?;
        Ok(segment)
    }

    fn check_ids(&self) -> Result<(), SegmentError> {
        let wrong = |problem| SegmentError::Table { table: "id table", entry: 0, problem };
        match self.ids {
            Some(_) if self.id(0) != Some(self.first_id) => Err(wrong("it does not start with the first id")),
            None if self.first_id.checked_add(self.len() as u128 - 1).is_none() => Err(wrong("the ids overflow")),
            _ => Ok(()),
        }
    }

    fn check_ends(&self) -> Result<(), SegmentError> {
        let wrong = |entry, problem| SegmentError::Table { table: "frame table", entry, problem };
        let mut start = 0;
        for (i, end) in self.ends.iter().enumerate() {
            let end = u32::from_le_bytes(*end) as usize;
            if end < start + MIN_FRAME {
                return Err(wrong(i, "a frame is too short"));
            }
            start = end;
        }
        if start != self.raw_len {
            return Err(wrong(self.len() - 1, "it does not end at the raw length"));
        }
        Ok(())
    }

    fn check_blocks(&self, tables: usize) -> Result<(), SegmentError> {
        let wrong = |entry, problem| SegmentError::Table { table: "block table", entry, problem };
        let mut ends = self.ends.iter().map(|end| u32::from_le_bytes(*end) as usize);
        let (mut raw_start, mut stored_start) = (0, 0);
        for (i, entry) in self.blocks.iter().enumerate() {
            let (raw_end, stored_end) = block_ends(entry);
            if raw_end <= raw_start || stored_end <= stored_start {
                return Err(wrong(i, "a block is empty or ends before it starts"));
            }
            if !ends.by_ref().take_while(|end| *end <= raw_end).any(|end| end == raw_end) {
                return Err(wrong(i, "it does not end where a frame ends"));
            }
            let (raw, stored) = (raw_end - raw_start, stored_end - stored_start);
            if !self.compressed && raw != stored {
                return Err(wrong(i, "raw and stored length differ without compression"));
            }
            if raw as u64 > (stored as u64).saturating_mul(block::MAX_RATIO) {
                return Err(wrong(i, "the raw length cannot come from so few bytes"));
            }
            (raw_start, stored_start) = (raw_end, stored_end);
        }
        if raw_start != self.raw_len {
            return Err(wrong(self.blocks.len() - 1, "it does not end at the raw length"));
        }
        if stored_start != self.body.len() {
            return Err(SegmentError::Length {
                length: tables.saturating_add(self.body.len()),
                needed: tables.saturating_add(stored_start),
            });
        }
        Ok(())
    }

    /// Number of frames, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a segment has at least one frame")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Length of all frames before compression, in bytes.
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// Message id of frame 0.
    pub fn first_id(&self) -> u128 {
        self.first_id
    }

    /// Message id of frame `i`.
    pub fn id(&self, i: usize) -> Option<u128> {
        match self.ids {
            Some(ids) => ids.get(i).map(|id| u128::from_le_bytes(*id)),
            None if i < self.len() => self.first_id.checked_add(i as u128),
            None => None,
        }
    }

    /// Hash of the transaction id of frame `i`; 0 for the default one, the text of the message id.
    pub fn hash(&self, i: usize) -> Option<u64> {
        match self.hashes {
            Some(hashes) => hashes.get(i).map(|hash| u64::from_le_bytes(*hash)),
            None => (i < self.len()).then_some(0),
        }
    }

    /// The frames that may carry this transaction id, ascending. Two ids can share a hash, so the
    /// caller confirms a candidate with the frame itself.
    pub fn find_candidates(&self, transaction_id: &str) -> impl Iterator<Item = usize> + use<'a> {
        let segment = *self;
        let hash = transaction_hash(transaction_id);
        let id = id::parse_canonical(transaction_id);
        // Without either table the answer is arithmetic, and nothing is scanned.
        let direct = match (self.hashes, self.ids, id) {
            (None, None, Some(id)) => id.checked_sub(self.first_id),
            _ => None,
        };
        let direct = direct.and_then(|i| usize::try_from(i).ok()).filter(|i| *i < self.len());
        let scan = match (self.hashes, self.ids, id) {
            (None, None, _) | (None, Some(_), None) => 0..0,
            _ => 0..self.len(),
        };
        direct.into_iter().chain(scan.filter(move |i| match segment.hash(*i) {
            Some(0) => id.is_some() && segment.id(*i) == id,
            other => other == Some(hash),
        }))
    }

    /// Decompresses all blocks, once.
    ///
    /// # Errors
    /// [`SegmentError::Block`] when a block does not decompress to its declared length.
    pub fn open(&self) -> Result<Opened<'a>, SegmentError> {
        if !self.compressed {
            return Ok(Opened::new(*self, Cow::Borrowed(self.body)));
        }
        let mut raw = vec![0; self.raw_len];
        for block in self.blocks() {
            let out = raw.get_mut(block.raw_start..block.raw_end).unwrap_or_default();
            self.decompress(block, out)?;
        }
        Ok(Opened::new(*self, Cow::Owned(raw)))
    }

    /// Reads frame `i`, decompressing only the block it is in.
    ///
    /// # Errors
    /// No such frame; a broken block; a broken frame.
    pub fn open_frame(&self, i: usize) -> Result<OwnedFrame, SegmentError> {
        let (start, end) = self.range(i)?;
        let id = self.id(i).unwrap_or_default();
        let broken = |problem| SegmentError::Frame { frame: i, problem };
        let read = |raw| frame::read(id, raw).map(|f| f.to_owned_frame()).map_err(broken);
        if !self.compressed {
            return read(self.body.get(start..end).unwrap_or_default());
        }
        // The blocks cover the raw length without a gap, so that one of them has this frame.
        let n = self.blocks.partition_point(|entry| block_ends(entry).0 < end);
        let block = self.block(n).ok_or(broken("it is in no block"))?;
        let mut raw = vec![0; block.raw_end - block.raw_start];
        self.decompress(block, &mut raw)?;
        read(raw.get(start - block.raw_start..end - block.raw_start).unwrap_or_default())
    }

    /// The payload of frame `i`, decompressing only the block it is in.
    ///
    /// # Errors
    /// As [`Segment::open_frame`].
    pub fn frame_payload(&self, i: usize) -> Result<Vec<u8>, SegmentError> {
        Ok(self.open_frame(i)?.payload)
    }

    /// Checks what [`Segment::parse`] leaves unread: that every block decompresses, every frame can be
    /// read, and the hash table agrees with the transaction ids.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self) -> Result<(), SegmentError> {
        let opened = self.open()?;
        for i in 0..self.len() {
            let hash = opened.frame(i)?.transaction_id.map_or(0, transaction_hash);
            if self.hash(i) != Some(hash) {
                let problem = "it differs from the transaction id";
                return Err(SegmentError::Table { table: "hash table", entry: i, problem });
            }
        }
        Ok(())
    }

    /// Raw range of frame `i`, counted from the start of all frames.
    pub(super) fn range(&self, i: usize) -> Result<(usize, usize), SegmentError> {
        let missing = SegmentError::NoSuchFrame { frame: i, frames: self.len() };
        let end = u32::from_le_bytes(*self.ends.get(i).ok_or(missing)?) as usize;
        let start = match i.checked_sub(1).and_then(|before| self.ends.get(before)) {
            Some(start) => u32::from_le_bytes(*start) as usize,
            None => 0,
        };
        Ok((start, end))
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        (0..self.blocks.len()).filter_map(|n| self.block(n))
    }

    fn block(&self, index: usize) -> Option<Block> {
        let (raw_end, stored_end) = block_ends(self.blocks.get(index)?);
        let before = index.checked_sub(1).and_then(|n| self.blocks.get(n));
        let (raw_start, stored_start) = before.map_or((0, 0), block_ends);
        Some(Block { index, raw_start, raw_end, stored_start, stored_end })
    }

    fn decompress(&self, block: Block, out: &mut [u8]) -> Result<(), SegmentError> {
        let stored = self.body.get(block.stored_start..block.stored_end).unwrap_or_default();
        block::decompress(stored, out).map_err(|problem| SegmentError::Block { block: block.index, problem })
    }
}

/// Raw end and stored end of an entry of the block table.
fn block_ends(entry: &[u8; 8]) -> (usize, usize) {
    let [a, b, c, d, e, f, g, h] = *entry;
    let raw_end = u32::from_le_bytes([a, b, c, d]);
    (raw_end as usize, u32::from_le_bytes([e, f, g, h]) as usize)
}

/// Takes the next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Takes the next `count` entries of `N` bytes.
fn table<'a, const N: usize>(rest: &mut &'a [u8], count: usize) -> Option<&'a [[u8; N]]> {
    let (head, tail) = rest.split_at_checked(count.checked_mul(N)?)?;
    *rest = tail;
    Some(head.as_chunks::<N>().0)
}
