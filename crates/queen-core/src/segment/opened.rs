//! A segment with its frames at hand.

use super::{Frame, Segment, SegmentError, frame};
use std::borrow::Cow;

/// A segment whose blocks are decompressed.
#[derive(Clone, Debug)]
pub struct Opened<'a> {
    segment: Segment<'a>,
    /// All frames, one after the other; the segment's own bytes when it is stored uncompressed.
    raw: Cow<'a, [u8]>,
}

impl<'a> Opened<'a> {
    pub(super) fn new(segment: Segment<'a>, raw: Cow<'a, [u8]>) -> Self {
        Self { segment, raw }
    }

    /// Number of frames, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a segment has at least one frame")]
    pub fn len(&self) -> usize {
        self.segment.len()
    }

    /// The segment itself.
    pub fn segment(&self) -> &Segment<'a> {
        &self.segment
    }

    /// Frame `i`.
    ///
    /// # Errors
    /// No such frame; a broken frame.
    pub fn frame(&self, i: usize) -> Result<Frame<'_>, SegmentError> {
        let (start, end) = self.segment.range(i)?;
        let id = self.segment.id(i).unwrap_or_default();
        frame::read(id, self.raw.get(start..end).unwrap_or_default())
            .map_err(|problem| SegmentError::Frame { frame: i, problem })
    }

    /// All frames, in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Frame<'_>, SegmentError>> {
        (0..self.len()).map(|i| self.frame(i))
    }
}
