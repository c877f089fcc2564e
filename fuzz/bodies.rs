//! What the fuzz targets do with their input. Shared with the crate's own smoke test
//! (`crates/queen-core/tests/fuzz_smoke.rs`), so that CI runs all of it without a fuzzer.
//!
//! A body panics when a property is broken; for every other input it just returns.

use queen_core::deliveries::Deliveries;
use queen_core::envelope::{KeyRing, looks_sealed};
use queen_core::options::{Mode, QueueOptions};
use queen_core::segment::{EncodeOptions, FrameIn, Segment, encode, frame};
use queen_core::{id, names, payload};

/// Any bytes: never a panic, and whatever parses reads the same in both ways. The second time the magic,
/// the version and the checksum are made right, so that the checks behind them are reached.
pub fn segment(data: &[u8]) {
    read_segment(data);
    let mut sealed = data.to_vec();
    if let Some(header) = sealed.get_mut(..10) {
        header.copy_from_slice(b"QUEENSEG\x01\x00");
    }
    if sealed.len() >= 56 {
        let mut covered = sealed[..40].to_vec();
        covered.extend_from_slice(&sealed[56..]);
        let sum = xxhash_rust::xxh3::xxh3_128(&covered);
        sealed[40..56].copy_from_slice(&sum.to_le_bytes());
    }
    read_segment(&sealed);
}

fn read_segment(data: &[u8]) {
    let Ok(segment) = Segment::parse(data) else {
        return;
    };
    let _ = segment.verify();
    let opened = segment.open();
    for i in 0..segment.len().min(64) {
        let one = segment.open_frame(i);
        if let Ok(opened) = &opened {
            assert_eq!(opened.frame(i).map(|f| f.to_owned_frame()), one);
        }
        if let Ok(frame) = one {
            let text = frame.as_frame().transaction_id_text().into_owned();
            let _ = segment.find_candidates(&text).count();
        }
    }
}

/// Any bytes as a frame: never a panic, and what is read is what encoding it again gives.
pub fn frame(data: &[u8]) {
    let Ok(read) = frame::read(7, data) else {
        return;
    };
    let input = FrameIn {
        id: read.id,
        transaction_id: read.transaction_id,
        payload: read.payload,
        headers: read.headers,
        trace_id: read.trace_id,
        producer: read.producer,
        enqueued_at: read.enqueued_at,
        encrypted: read.encrypted,
    };
    let bytes = encode(&[input], &EncodeOptions::default()).expect("a frame that was read");
    let segment = Segment::parse(&bytes).expect("a segment that was written");
    segment.verify().expect("a segment that was written");
    let again = segment.open_frame(0).expect("a segment that was written");
    assert_eq!(again.as_frame().transaction_id_text(), read.transaction_id_text());
    assert_eq!(again.payload, read.payload);
    assert_eq!(again.headers.as_deref(), read.headers);
    assert_eq!((again.trace_id, again.enqueued_at), (read.trace_id, read.enqueued_at));
    assert_eq!(again.producer.as_deref(), read.producer);
    assert_eq!(again.encrypted, read.encrypted);
}

/// Any bytes as payload, any text as envelope and as key setting.
pub fn envelope(data: &[u8]) {
    let setting = format!("a:{}", "5c".repeat(32));
    let ring = KeyRing::parse(&setting).expect("a sound setting");
    let sealed = ring.seal(data).expect("a key is there");
    assert!(looks_sealed(&sealed));
    assert_eq!(ring.open(&sealed).as_deref(), Some(data));
    let text = String::from_utf8_lossy(data);
    assert!(!looks_sealed(&text) || serde_json_accepts(&text));
    let _ = ring.open(&text);
    if let Err(error) = KeyRing::parse(&text) {
        assert!(error.to_string().len() < 200);
    }
}

fn serde_json_accepts(text: &str) -> bool {
    payload::check_json(text, usize::MAX).is_ok()
}

/// Any text as name, transaction id, error text, id, JSON, items, options and stored counts.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for check in [names::check_queue, names::check_partition, names::check_group] {
        if let Err(error) = check(&text) {
            assert!(error.to_string().len() < 1000 && !has_control(&error.to_string()));
        }
    }
    if let Err(error) = names::check_transaction_id(&text) {
        assert!(!has_control(&error.to_string()));
    }
    assert!(names::clean_error_text(&text).len() <= names::MAX_ERROR_TEXT_BYTES);
    assert!(!has_control(&names::cut(&text, 64)));
    let (namespace, task) = names::namespace_task(&text);
    assert!(namespace.len() + task.len() <= text.len());
    if let Some(id) = id::parse_canonical(&text) {
        assert_eq!(id::format(id), text);
    }
    let _ = payload::check_json(&text, 1 << 20);
    let _ = payload::parse_acks(&text);
    if let Ok(items) = payload::parse_push_items(&text) {
        for item in items {
            payload::check_json(item.payload, usize::MAX).expect("a payload of sound items");
        }
    }
    if let Ok(options) = QueueOptions::configured_default().merge(&text, Mode::Merge) {
        let again = QueueOptions::configured_default().merge(&options.to_json(), Mode::Merge);
        assert_eq!(again, Ok(options));
    }
    let mut deliveries = Deliveries::from_bytes(data);
    deliveries.deliver(3, 9);
    assert_eq!(Deliveries::from_bytes(&deliveries.to_bytes()), deliveries);
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}
