//! Properties of the segment codec.

use super::*;
use crate::error::ErrorKind;
use proptest::collection::vec;
use proptest::prelude::*;

/// A frame with bytes of its own, for generators.
fn any_frame() -> impl Strategy<Value = OwnedFrame> {
    let text = || proptest::option::of("[a-zé0-9:-]{1,40}");
    (
        any::<u128>(),
        text(),
        prop_oneof![4 => vec(any::<u8>(), 1..300), 1 => vec(97u8..100, 1..9000)],
        proptest::option::of(vec(any::<u8>(), 0..200)),
        any::<Option<u128>>(),
        text(),
        any::<Option<i64>>(),
        any::<bool>(),
    )
        .prop_map(|(id, transaction_id, payload, headers, trace_id, producer, at, encrypted)| OwnedFrame {
            id,
            transaction_id,
            payload,
            headers,
            trace_id,
            producer,
            enqueued_at: at,
            encrypted,
        })
}

fn input(frame: &OwnedFrame) -> FrameIn<'_> {
    let frame = frame.as_frame();
    FrameIn {
        id: frame.id,
        transaction_id: frame.transaction_id,
        payload: frame.payload,
        headers: frame.headers,
        trace_id: frame.trace_id,
        producer: frame.producer,
        enqueued_at: frame.enqueued_at,
        encrypted: frame.encrypted,
    }
}

fn encoded(frames: &[OwnedFrame], options: &EncodeOptions) -> Vec<u8> {
    let inputs: Vec<_> = frames.iter().map(input).collect();
    encode(&inputs, options).unwrap()
}

/// `n` messages that compress like JSON does.
fn plain(n: usize, first_id: u128) -> Vec<OwnedFrame> {
    (0..n)
        .map(|i| OwnedFrame {
            id: first_id + i as u128,
            transaction_id: None,
            payload: format!("{{\"n\":{i},\"text\":\"{}\"}}", "abc ".repeat(50)).into_bytes(),
            headers: None,
            trace_id: None,
            producer: None,
            enqueued_at: None,
            encrypted: false,
        })
        .collect()
}

/// Puts a fresh checksum on changed bytes, to reach the checks behind it.
fn reseal(bytes: &mut [u8]) {
    let sum = checksum(&bytes[..40], &bytes[56..]);
    bytes[40..56].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_goes_in_comes_out(
        frames in vec(any_frame(), 1..40),
        consecutive in any::<bool>(),
        level in 1..4i32,
    ) {
        let mut frames = frames;
        if consecutive {
            for i in 1..frames.len() {
                frames[i].id = frames[0].id.wrapping_add(i as u128);
            }
        }
        let bytes = encoded(&frames, &EncodeOptions { level, ..EncodeOptions::default() });
        let segment = Segment::parse(&bytes).unwrap();
        segment.verify().unwrap();
        let opened = segment.open().unwrap();
        prop_assert_eq!(segment.len(), frames.len());
        prop_assert_eq!(opened.len(), frames.len());
        prop_assert_eq!(segment.first_id(), frames[0].id);
        for (i, frame) in frames.iter().enumerate() {
            prop_assert_eq!(&opened.frame(i).unwrap(), &frame.as_frame());
            prop_assert_eq!(&segment.open_frame(i).unwrap(), frame);
            prop_assert_eq!(segment.id(i), Some(frame.id));
            let text = frame.as_frame().transaction_id_text().into_owned();
            prop_assert!(segment.find_candidates(&text).any(|found| found == i));
        }
        prop_assert!(opened.frame(frames.len()).is_err());
        prop_assert!(segment.open_frame(frames.len()).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), sealed in any::<bool>()) {
        let mut bytes = bytes;
        if sealed && bytes.len() >= 56 {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..10].copy_from_slice(&1u16.to_le_bytes());
            bytes[10] %= 3;
            bytes[11] %= 5;
            for at in [12, 16, 20] {
                bytes[at + 1..at + 4].fill(0);
            }
            reseal(&mut bytes);
        }
        if let Ok(segment) = Segment::parse(&bytes) {
            let _ = segment.verify();
            let _ = segment.open_frame(0);
        }
        let _ = frame::read(0, &bytes);
    }

    #[test]
    fn a_changed_byte_behind_a_good_checksum_never_panics(
        at in 8usize..2000, value in any::<u8>(), n in 1usize..60,
    ) {
        let mut bytes = encoded(&plain(n, 7), &EncodeOptions::default());
        let at = at % bytes.len();
        bytes[at] = value;
        reseal(&mut bytes);
        if let Ok(segment) = Segment::parse(&bytes) {
            let _ = segment.verify();
            for i in 0..segment.len() {
                let _ = segment.open_frame(i);
            }
        }
    }

    #[test]
    fn any_truncation_is_noticed(n in 1usize..20, cut in 1usize..500) {
        let bytes = encoded(&plain(n, 7), &EncodeOptions::default());
        let kept = bytes.len().saturating_sub(cut);
        prop_assert!(Segment::parse(&bytes[..kept]).is_err());
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert!(Segment::parse(&longer).is_err());
        reseal(&mut longer);
        let noticed = matches!(Segment::parse(&longer), Err(SegmentError::Length { .. }));
        prop_assert!(noticed);
    }
}

#[test]
fn any_single_flipped_bit_is_noticed() {
    for frames in [plain(1, 7), plain(40, 7)] {
        let mut bytes = encoded(&frames, &EncodeOptions::default());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert!(Segment::parse(&bytes).is_err(), "byte {at} bit {bit}");
                bytes[at] ^= 1 << bit;
            }
        }
        assert!(Segment::parse(&bytes).is_ok());
    }
}

#[test]
fn the_header_is_where_the_drawing_says() {
    let bytes = encoded(&plain(3, 0x0102), &EncodeOptions::default());
    assert_eq!(&bytes[..8], b"QUEENSEG");
    assert_eq!(bytes[8..12], [1, 0, 1, 1]);
    assert_eq!(bytes[12..20], [3, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[24..28], [2, 1, 0, 0]);
    let first_end = u32::from_le_bytes(bytes[56..60].try_into().unwrap());
    assert_eq!(first_end as usize, 1 + plain(1, 0)[0].payload.len());
}

#[test]
fn blocks_end_near_their_target_and_one_frame_needs_one_block() {
    let mut frames = plain(2000, 7);
    frames[1000].payload = vec![b'x'; 3 * BLOCK_TARGET];
    let bytes = encoded(&frames, &EncodeOptions::default());
    let segment = Segment::parse(&bytes).unwrap();
    let blocks = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
    assert!(blocks > segment.raw_len() / BLOCK_TARGET - 3 && blocks < 15, "{blocks}");
    for i in [0, 1, 313, 999, 1000, 1001, 1999] {
        assert_eq!(segment.open_frame(i).unwrap(), frames[i]);
        assert_eq!(segment.frame_payload(i).unwrap(), frames[i].payload);
    }
    // Break the last block: frames of the others can still be read.
    let mut broken = bytes.clone();
    let end = broken.len();
    broken[end - 30..].fill(0xff);
    reseal(&mut broken);
    let segment = Segment::parse(&broken).unwrap();
    assert_eq!(segment.open_frame(1000).unwrap(), frames[1000]);
    let error = segment.open_frame(1999).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptSegment);
    assert!(error.to_string().contains(&format!("block {}", blocks - 1)), "{error}");
}

#[test]
fn small_and_incompressible_segments_are_stored() {
    let small = encoded(&plain(1, 7), &EncodeOptions::default());
    assert_eq!(small[10], CODEC_STORED);
    let mut noise = plain(1, 7);
    let mut state = 1u64;
    noise[0].payload = (0..4000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect();
    let bytes = encoded(&noise, &EncodeOptions::default());
    assert_eq!(bytes[10], CODEC_STORED);
    assert_eq!(Segment::parse(&bytes).unwrap().open_frame(0).unwrap(), noise[0]);
    let large = encoded(&plain(10, 7), &EncodeOptions::default());
    assert_eq!(large[10], CODEC_ZSTD);
    assert!(large.len() < 600);
}

#[test]
fn the_default_transaction_id_takes_no_room() {
    let mut frames = plain(3, 0x0190_0000_0000_7000_8000_0000_0000_000a);
    let without = encoded(&frames, &EncodeOptions::default());
    frames[1].transaction_id = Some(crate::id::format(frames[1].id));
    assert_eq!(encoded(&frames, &EncodeOptions::default()), without);
    let segment = Segment::parse(&without).unwrap();
    let text = crate::id::format(frames[1].id);
    assert_eq!(segment.find_candidates(&text).collect::<Vec<_>>(), [1]);
    assert_eq!(segment.open_frame(1).unwrap().as_frame().transaction_id_text(), text);
    assert_eq!(segment.hash(1), Some(0));
    assert_eq!(segment.hash(3), None);
    assert_eq!(segment.find_candidates(&text.to_uppercase()).count(), 0);
}

#[test]
fn a_transaction_id_that_spells_another_message_is_kept_apart() {
    let mut frames = plain(2, 0x0190_0000_0000_7000_8000_0000_0000_0000);
    let text = crate::id::format(frames[1].id);
    frames[0].transaction_id = Some(text.clone());
    let bytes = encoded(&frames, &EncodeOptions::default());
    let segment = Segment::parse(&bytes).unwrap();
    assert_eq!(segment.find_candidates(&text).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn what_is_wrong_is_named() {
    let bytes = encoded(&plain(10, 7), &EncodeOptions::default());
    let broken = |change: fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        reseal(&mut bytes);
        Segment::parse(&bytes).and_then(|s| s.verify()).unwrap_err()
    };
    assert_eq!(broken(|b| b[0] = b'q'), SegmentError::Magic);
    assert_eq!(broken(|b| b[8] = 2), SegmentError::Version(2));
    assert_eq!(broken(|b| b[10] = 9), SegmentError::Codec(9));
    assert_eq!(broken(|b| b[11] |= 0x80), SegmentError::Flags(0x81));
    assert!(broken(|b| b[56] = 0).to_string().contains("frame table"));
    assert!(broken(|b| b[12..16].fill(0xff)).to_string().contains("header"));
    assert!(broken(|b| b[12..16].fill(0)).to_string().contains("header"));
    assert!(broken(|b| b[23] = 0x7f).to_string().contains("raw length"));
    assert_eq!(broken(|b| b[8] = 2).kind(), ErrorKind::UnsupportedSegment);
    assert!(matches!(Segment::parse(&bytes[..20]), Err(SegmentError::Length { .. })));
    assert_eq!(Segment::parse(b"").unwrap_err().kind(), ErrorKind::CorruptSegment);
}

#[test]
fn a_claimed_size_that_cannot_be_true_is_refused_before_it_is_allocated() {
    // One frame of a claimed gigabyte in a few stored bytes.
    let mut bytes = encoded(&plain(4, 7), &EncodeOptions::default());
    let gigabyte = (1u32 << 30).to_le_bytes();
    bytes[20..24].copy_from_slice(&gigabyte);
    bytes[56 + 12..56 + 16].copy_from_slice(&gigabyte);
    bytes[56 + 16..56 + 20].copy_from_slice(&gigabyte);
    reseal(&mut bytes);
    let error = Segment::parse(&bytes).unwrap_err();
    assert!(error.to_string().contains("so few bytes"), "{error}");
}

#[test]
fn nothing_and_empty_payloads_are_not_encoded() {
    let options = EncodeOptions::default();
    assert_eq!(encode(&[], &options), Err(SegmentError::NoFrames));
    let empty = FrameIn { id: 1, ..FrameIn::default() };
    assert_eq!(encode(&[empty], &options), Err(SegmentError::EmptyPayload { frame: 0 }));
}

#[test]
fn no_transaction_id_hashes_to_zero() {
    assert_ne!(transaction_hash(""), 0);
    assert_eq!(transaction_hash("a"), transaction_hash("a"));
    assert_ne!(transaction_hash("a"), transaction_hash("b"));
}
