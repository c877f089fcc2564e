//! One message inside a segment.
//!
//! ```text
//! u8      flags: bit 0 transaction id, 1 trace id, 2 producer, 3 enqueue time, 4 headers,
//!         5 payload is encrypted; bits 6 and 7 are 0
//! [varint length + bytes  transaction id, UTF-8]     absent = the text of the message id
//! [16     trace id]
//! [varint length + bytes  producer, UTF-8]
//! [8      enqueue time, i64 microseconds since the Unix epoch]
//! [varint length + bytes  headers]
//! rest    payload, at least one byte
//! ```
//!
//! A varint is LEB128 of a u32: seven bits a byte, low bits first. The message id is not in the frame,
//! it is in the segment's header or id table.

use super::FrameIn;
use crate::id;
use std::borrow::Cow;

const TRANSACTION_ID: u8 = 1;
const TRACE_ID: u8 = 1 << 1;
const PRODUCER: u8 = 1 << 2;
const ENQUEUED_AT: u8 = 1 << 3;
const HEADERS: u8 = 1 << 4;
const ENCRYPTED: u8 = 1 << 5;
const KNOWN: u8 = (1 << 6) - 1;

/// One message, borrowed from the segment it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Message id.
    pub id: u128,
    /// Transaction id; `None` = the canonical text of the message id.
    pub transaction_id: Option<&'a str>,
    /// Payload, byte for byte as pushed (or its envelope).
    pub payload: &'a [u8],
    /// Headers, byte for byte as pushed.
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

impl<'a> Frame<'a> {
    /// The transaction id, the default one spelled out.
    pub fn transaction_id_text(&self) -> Cow<'a, str> {
        match self.transaction_id {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(id::format(self.id)),
        }
    }

    /// The frame with bytes of its own.
    pub fn to_owned_frame(&self) -> OwnedFrame {
        OwnedFrame {
            id: self.id,
            transaction_id: self.transaction_id.map(str::to_owned),
            payload: self.payload.to_vec(),
            headers: self.headers.map(<[u8]>::to_vec),
            trace_id: self.trace_id,
            producer: self.producer.map(str::to_owned),
            enqueued_at: self.enqueued_at,
            encrypted: self.encrypted,
        }
    }
}

/// One message with bytes of its own; fields as in [`Frame`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFrame {
    /// See [`Frame::id`].
    pub id: u128,
    /// See [`Frame::transaction_id`].
    pub transaction_id: Option<String>,
    /// See [`Frame::payload`].
    pub payload: Vec<u8>,
    /// See [`Frame::headers`].
    pub headers: Option<Vec<u8>>,
    /// See [`Frame::trace_id`].
    pub trace_id: Option<u128>,
    /// See [`Frame::producer`].
    pub producer: Option<String>,
    /// See [`Frame::enqueued_at`].
    pub enqueued_at: Option<i64>,
    /// See [`Frame::encrypted`].
    pub encrypted: bool,
}

impl OwnedFrame {
    /// The same frame, borrowed.
    pub fn as_frame(&self) -> Frame<'_> {
        Frame {
            id: self.id,
            transaction_id: self.transaction_id.as_deref(),
            payload: &self.payload,
            headers: self.headers.as_deref(),
            trace_id: self.trace_id,
            producer: self.producer.as_deref(),
            enqueued_at: self.enqueued_at,
            encrypted: self.encrypted,
        }
    }
}

/// Upper bound of the encoded length, in bytes; saturates instead of overflowing.
pub(super) fn encoded_bound(frame: &FrameIn<'_>) -> usize {
    // Flags, three varints of at most five bytes, trace id, enqueue time.
    const FIXED: usize = 1 + 3 * 5 + 16 + 8;
    FIXED
        .saturating_add(frame.payload.len())
        .saturating_add(frame.transaction_id.map_or(0, str::len))
        .saturating_add(frame.producer.map_or(0, str::len))
        .saturating_add(frame.headers.map_or(0, <[u8]>::len))
}

/// Appends the encoded frame. `transaction_id` is the one to store: `None` for the default one.
/// The caller has checked that every length fits a u32.
pub(super) fn write(frame: &FrameIn<'_>, transaction_id: Option<&str>, out: &mut Vec<u8>) {
    let bit = |present: bool, flag: u8| if present { flag } else { 0 };
    out.push(
        bit(transaction_id.is_some(), TRANSACTION_ID)
            | bit(frame.trace_id.is_some(), TRACE_ID)
            | bit(frame.producer.is_some(), PRODUCER)
            | bit(frame.enqueued_at.is_some(), ENQUEUED_AT)
            | bit(frame.headers.is_some(), HEADERS)
            | bit(frame.encrypted, ENCRYPTED),
    );
    if let Some(text) = transaction_id {
        write_bytes(text.as_bytes(), out);
    }
    if let Some(trace_id) = frame.trace_id {
        out.extend_from_slice(&trace_id.to_le_bytes());
    }
    if let Some(text) = frame.producer {
        write_bytes(text.as_bytes(), out);
    }
    if let Some(micros) = frame.enqueued_at {
        out.extend_from_slice(&micros.to_le_bytes());
    }
    if let Some(headers) = frame.headers {
        write_bytes(headers, out);
    }
    out.extend_from_slice(frame.payload);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes.len();
    while rest >= 0x80 {
        out.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(bytes);
}

/// Reads one frame from exactly its raw bytes.
///
/// # Errors
/// What is wrong with it, for [`super::SegmentError::Frame`].
pub fn read(id: u128, raw: &[u8]) -> Result<Frame<'_>, &'static str> {
    let mut rest = Rest(raw);
    let [flags] = rest.array::<1>()?;
    if flags & !KNOWN != 0 {
        return Err("unknown flags");
    }
    let has = |flag: u8| flags & flag != 0;
    let transaction_id = has(TRANSACTION_ID).then(|| rest.text()).transpose()?;
    let trace_id = has(TRACE_ID).then(|| rest.array()).transpose()?;
    let producer = has(PRODUCER).then(|| rest.text()).transpose()?;
    let enqueued_at = has(ENQUEUED_AT).then(|| rest.array()).transpose()?;
    let headers = has(HEADERS).then(|| rest.bytes()).transpose()?;
    if rest.0.is_empty() {
        return Err("no payload");
    }
    Ok(Frame {
        id,
        transaction_id,
        payload: rest.0,
        headers,
        trace_id: trace_id.map(u128::from_le_bytes),
        producer,
        enqueued_at: enqueued_at.map(i64::from_le_bytes),
        encrypted: has(ENCRYPTED),
    })
}

/// The bytes of a frame that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or("it ends too early")?;
        self.0 = tail;
        Ok(*head)
    }

    fn bytes(&mut self) -> Result<&'a [u8], &'static str> {
        let mut length = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array::<1>()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let length = usize::try_from(length).map_err(|_| "a length is too large")?;
                let (head, tail) = self.0.split_at_checked(length).ok_or("a field is longer than the frame")?;
                self.0 = tail;
                return Ok(head);
            }
        }
        Err("a length is too large")
    }

    fn text(&mut self) -> Result<&'a str, &'static str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8")
    }
}
