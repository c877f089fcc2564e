//! What can be wrong with a segment.

use crate::error::{ErrorKind, into_error};

/// A segment that cannot be written or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Encoding: no frames.
    #[error("a segment needs at least one frame")]
    NoFrames,
    /// Encoding: more frames than the format counts, or more raw bytes than [`super::MAX_RAW`].
    #[error("a segment of {frames} frames and {raw} bytes is too large: the limit is 1073741824 bytes")]
    TooLarge {
        /// Number of frames.
        frames: usize,
        /// Raw length in bytes, as far as it was counted.
        raw: usize,
    },
    /// Encoding: a frame without payload.
    #[error("frame {frame} has an empty payload, which is not JSON")]
    EmptyPayload {
        /// Which frame, from 0.
        frame: usize,
    },
    /// Encoding: the compressor failed.
    #[error("block {block} cannot be compressed: {problem}")]
    Compress {
        /// Which block, from 0.
        block: usize,
        /// The library's words.
        problem: &'static str,
    },
    /// Shorter than its own tables say, or longer.
    #[error("segment has {length} bytes, {needed} expected")]
    Length {
        /// What there is.
        length: usize,
        /// What header and tables ask for.
        needed: usize,
    },
    /// Does not start with the magic.
    #[error("not a segment: it does not start with QUEENSEG")]
    Magic,
    /// Written by a later version of the format.
    #[error("segment version {0} is not known, this build reads version 1")]
    Version(u16),
    /// A codec this build does not have.
    #[error("segment codec {0} is not known, this build reads 0 (stored) and 1 (zstd)")]
    Codec(u8),
    /// Header flags this build does not know.
    #[error("segment flags {0:#04x} are not known")]
    Flags(u8),
    /// Some byte changed since it was written.
    #[error("segment checksum does not match: the stored bytes are damaged")]
    Checksum,
    /// A table contradicts the header or itself.
    #[error("segment {table} is broken at entry {entry}: {problem}")]
    Table {
        /// Which table.
        table: &'static str,
        /// Which entry, from 0.
        entry: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A block does not decompress to its declared length.
    #[error("segment block {block} is broken: {problem}")]
    Block {
        /// Which block, from 0.
        block: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A frame cannot be read.
    #[error("segment frame {frame} is broken: {problem}")]
    Frame {
        /// Which frame, from 0.
        frame: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A frame was asked for that the segment does not have.
    #[error("segment has {frames} frames, there is no frame {frame}")]
    NoSuchFrame {
        /// Which frame, from 0.
        frame: usize,
        /// How many there are.
        frames: usize,
    },
}

impl SegmentError {
    /// Which row of the error table this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. } => ErrorKind::LimitExceeded,
            Self::EmptyPayload { .. } => ErrorKind::InvalidPayload,
            Self::NoFrames | Self::NoSuchFrame { .. } => ErrorKind::InvalidArgument,
            Self::Compress { .. } => ErrorKind::Internal,
            Self::Version(_) | Self::Codec(_) | Self::Flags(_) => ErrorKind::UnsupportedSegment,
            Self::Length { .. }
            | Self::Magic
            | Self::Checksum
            | Self::Table { .. }
            | Self::Block { .. }
            | Self::Frame { .. } => ErrorKind::CorruptSegment,
        }
    }
}

into_error!(SegmentError);
