//! The stored blob: frames of one partition, indexed, checksummed and compressed.
use crate::error::{ErrorKind, into_error};
use std::borrow::Cow;

/// What is wrong with a segment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentError {
    /// Wrong magic.
    #[error("not a segment: it does not start with QUEENSEG")]
    Magic,
}
impl SegmentError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::CorruptSegment
    }
}
into_error!(SegmentError);

/// One message to encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameIn<'a> {
    pub id: u128,
    pub transaction_id: Option<&'a str>,
    pub payload: &'a [u8],
    pub headers: Option<&'a [u8]>,
    pub trace_id: Option<u128>,
    pub producer: Option<&'a str>,
    pub enqueued_at: Option<i64>,
    pub encrypted: bool,
}

/// One message read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub id: u128,
    pub transaction_id: Option<&'a str>,
    pub payload: &'a [u8],
    pub headers: Option<&'a [u8]>,
    pub trace_id: Option<u128>,
    pub producer: Option<&'a str>,
    pub enqueued_at: Option<i64>,
    pub encrypted: bool,
}
impl<'a> Frame<'a> {
    /// The transaction id, the default one spelled out.
    pub fn transaction_id_text(&self) -> Cow<'a, str> {
        todo!()
    }
}

/// One message read on its own, with the bytes it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFrame {
    pub id: u128,
    pub transaction_id: Option<String>,
    pub payload: Vec<u8>,
    pub headers: Option<Vec<u8>>,
    pub trace_id: Option<u128>,
    pub producer: Option<String>,
    pub enqueued_at: Option<i64>,
    pub encrypted: bool,
}
impl OwnedFrame {
    /// The same frame, borrowed.
    pub fn as_frame(&self) -> Frame<'_> {
        todo!()
    }
}

/// How to encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeOptions {
    /// zstd level.
    pub level: i32,
    /// Raw length in bytes below which nothing is compressed.
    pub min_compress: usize,
}
impl Default for EncodeOptions {
    fn default() -> Self {
        Self {
            level: 1,
            min_compress: 512,
        }
    }
}

/// Encodes frames.
pub fn encode(frames: &[FrameIn<'_>], options: &EncodeOptions) -> Result<Vec<u8>, SegmentError> {
    let _ = (frames, options);
    todo!()
}

/// Hash of a transaction id, never 0.
pub fn transaction_hash(id: &str) -> u64 {
    let _ = id;
    todo!()
}

/// A validated segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    bytes: &'a [u8],
}
impl<'a> Segment<'a> {
    /// Validates.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SegmentError> {
        Ok(Self { bytes })
    }
    /// Number of frames, at least 1.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Id of frame 0.
    pub fn first_id(&self) -> u128 {
        todo!()
    }
    /// Id of frame `i`.
    pub fn id(&self, i: usize) -> Option<u128> {
        let _ = i;
        todo!()
    }
    /// Transaction-id hash of frame `i`; 0 = default transaction id.
    pub fn hash(&self, i: usize) -> Option<u64> {
        let _ = i;
        todo!()
    }
    /// Frames that may carry this transaction id, ascending.
    pub fn find_candidates(&self, transaction_id: &str) -> impl Iterator<Item = usize> + use<'a> {
        let _ = (transaction_id, self.bytes);
        std::iter::empty()
    }
    /// Decompresses everything once.
    pub fn open(&self) -> Result<Opened<'a>, SegmentError> {
        todo!()
    }
    /// Reads one frame, decompressing only its block.
    pub fn open_frame(&self, i: usize) -> Result<OwnedFrame, SegmentError> {
        let _ = i;
        todo!()
    }
    /// The payload of one frame, decompressing only its block.
    pub fn frame_payload(&self, i: usize) -> Result<Vec<u8>, SegmentError> {
        let _ = i;
        todo!()
    }
}

/// A segment with its blocks decompressed.
#[derive(Clone, Debug)]
pub struct Opened<'a> {
    segment: Segment<'a>,
}
impl Opened<'_> {
    /// Number of frames, at least 1.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.segment.len()
    }
    /// Frame `i`.
    pub fn frame(&self, i: usize) -> Result<Frame<'_>, SegmentError> {
        let _ = i;
        todo!()
    }
}
