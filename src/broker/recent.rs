//! Segments that were delivered in part, decoded: the next pop of this backend goes on in them without fetching and
//! decompressing them again. Segments never change, so nothing here can be stale.

use crate::error::Result;
use crate::rows::segment::{Head, Stored};
use queen_core::segment::{Frame, OwnedFrame};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Payload bytes that a backend keeps at most.
const BYTES: usize = 4 << 20;

type Frames = Rc<Vec<OwnedFrame>>;

struct Kept {
    pid: i64,
    base: i64,
    created_at: i64,
    bytes: usize,
    frames: Frames,
}

thread_local! {
    static KEPT: RefCell<VecDeque<Kept>> = const { RefCell::new(VecDeque::new()) };
}

/// A segment as a pop holds it.
pub enum Content {
    Stored(Stored),
    Decoded(Frames),
}

/// A claimed part of the log: a segment, and where it is.
pub struct Piece {
    pub base: i64,
    pub end: i64,
    pub created_at: i64,
    pub content: Content,
}

impl Piece {
    /// Bytes of the frames, uncompressed; an error when the segment is not as it was written.
    pub fn check(&self) -> Result<usize> {
        match &self.content {
            Content::Stored(stored) => Ok(stored.parse()?.raw_len()),
            Content::Decoded(frames) => Ok(frames.iter().map(|f| f.payload.len()).sum()),
        }
    }

    /// Bytes of all its messages, or some more. `raw`: what [`Piece::check`] said.
    pub fn counted(&self, raw: usize) -> usize {
        match &self.content {
            Content::Stored(stored) => raw + stored.frames as usize * IDS,
            Content::Decoded(frames) => frames.iter().map(|frame| size(&frame.as_frame())).sum(),
        }
    }

    /// The last offset up to which the messages from `from` to `upto` fit into so many bytes, and the bytes of those. `one`:
    /// the first does in any case.
    pub fn fitting(&self, from: i64, upto: i64, limit: usize, one: bool) -> Result<(i64, usize)> {
        let first = self.base.max(from);
        let walk = |size_of: &dyn Fn(usize) -> Result<usize>| {
            let mut bytes = 0;
            for offset in first..=upto {
                let more = size_of((offset - self.base) as usize)?;
                if bytes + more > limit && !(one && offset == first) {
                    return Ok((offset - 1, bytes));
                }
                bytes += more;
            }
            Ok((upto, bytes))
        };
        match &self.content {
            Content::Stored(stored) => {
                let opened = stored.open()?;
                walk(&|i| Ok(size(&stored.frame_of(&opened, i)?)))
            }
            Content::Decoded(frames) => walk(&|i| Ok(frames.get(i).map_or(0, |frame| size(&frame.as_frame())))),
        }
    }
}

/// Bytes that the ids of a message count.
const IDS: usize = 64;

/// Bytes of a message as a pop counts them: its payload, its texts, and its ids.
pub fn size(frame: &Frame<'_>) -> usize {
    let texts = frame.transaction_id.map_or(0, str::len) + frame.producer.map_or(0, str::len);
    frame.payload.len() + frame.headers.map_or(0, <[u8]>::len) + texts + IDS
}

/// The segment, from memory if it is there, else loaded.
pub fn piece(pid: i64, head: Head, load: impl FnOnce() -> Stored) -> Piece {
    let known = KEPT.with_borrow(|kept| {
        kept.iter()
            .find(|k| k.pid == pid && k.base == head.base && k.created_at == head.created_at)
            .map(|k| k.frames.clone())
    });
    let content = known.map_or_else(|| Content::Stored(load()), Content::Decoded);
    Piece { base: head.base, end: head.end, created_at: head.created_at, content }
}

/// The message at `offset` of a segment that is in memory, and not if it has to be loaded.
pub fn remembered(pid: i64, base: i64, created_at: i64, offset: i64) -> Option<OwnedFrame> {
    KEPT.with_borrow(|kept| {
        let known = kept.iter().find(|k| k.pid == pid && k.base == base && k.created_at == created_at)?;
        known.frames.get(usize::try_from(offset - base).ok()?).cloned()
    })
}

/// Where the segment in memory begins that holds `offset`: a hint, which saves the look for it.
pub fn base_of(pid: i64, offset: i64) -> Option<i64> {
    KEPT.with_borrow(|kept| {
        kept.iter().find(|k| k.pid == pid && (k.base..k.base + k.frames.len() as i64).contains(&offset)).map(|k| k.base)
    })
}

/// One message of a segment, decoded without the others; an error when it is not as it was written.
pub fn single(stored: &Stored, offset: i64) -> Result<Piece> {
    let frames = Rc::new(vec![stored.frame(offset)?]);
    Ok(Piece { base: offset, end: offset, created_at: stored.created_at, content: Content::Decoded(frames) })
}

/// Calls `show` with each frame at offsets `[first, last]`; keeps the segment when some of it is still to come.
pub fn each_frame(
    pid: i64,
    piece: &Piece,
    first: i64,
    last: i64,
    mut show: impl FnMut(i64, &Frame<'_>) -> Result<()>,
) -> Result<()> {
    let offsets = piece.base.max(first)..=piece.end.min(last);
    match &piece.content {
        Content::Decoded(frames) => {
            for offset in offsets {
                if let Some(frame) = frames.get((offset - piece.base) as usize) {
                    show(offset, &frame.as_frame())?;
                }
            }
        }
        Content::Stored(stored) => {
            let opened = stored.open()?;
            let frame = |i: usize| stored.frame_of(&opened, i);
            for offset in offsets {
                show(offset, &frame((offset - piece.base) as usize)?)?;
            }
            if last < piece.end && stored.data.len() * 8 < BYTES {
                let mut frames = Vec::with_capacity(stored.frames as usize);
                for i in 0..stored.frames as usize {
                    frames.push(frame(i)?.to_owned_frame());
                }
                keep(pid, piece, frames);
            }
        }
    }
    Ok(())
}

fn keep(pid: i64, piece: &Piece, frames: Vec<OwnedFrame>) {
    let bytes = frames.iter().map(|f| f.payload.len() + 128).sum();
    if bytes > BYTES {
        return;
    }
    KEPT.with_borrow_mut(|kept| {
        let mut total: usize = kept.iter().map(|k| k.bytes).sum::<usize>() + bytes;
        while total > BYTES {
            match kept.pop_front() {
                Some(old) => total -= old.bytes,
                None => break,
            }
        }
        kept.push_back(Kept { pid, base: piece.base, created_at: piece.created_at, bytes, frames: Rc::new(frames) });
    });
}
