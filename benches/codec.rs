//! The pure core alone: encoding and decoding segments, reading requests, making ids.
//!
//! `cargo bench -p queen-benches --bench codec`. Messages are varied JSON of about 256 bytes, the size
//! that the design's targets are stated for: 100 of them are encoded in 100 µs and read in 35 µs.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use queen_core::id::IdGenerator;
use queen_core::payload::{check_json, parse_push_items};
use queen_core::segment::{EncodeOptions, FrameIn, Segment, encode};
use std::hint::black_box;

const SIZES: [usize; 4] = [1, 10, 100, 1000];
const FIRST_ID: u128 = 0x0190_0000_0000_7000_8000_0000_0000_0000;

/// A small generator of pseudo-random numbers, so that runs are comparable.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.next() as usize % words.len()]
    }
}

/// `n` orders: the keys repeat as in real traffic, the values do not.
fn payloads(n: usize) -> Vec<String> {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    (0..n)
        .map(|i| {
            format!(
                concat!(
                    r#"{{"orderId":"ord-{:016x}","customer":{{"id":{},"tier":"{}","country":"{}"}},"#,
                    r#""lines":[{{"sku":"{:010X}","qty":{},"price":{}.{:02}}}],"currency":"{}","#,
                    r#""status":"{}","createdAt":"2026-03-{:02}T{:02}:{:02}:{:02}.{:03}Z","seq":{}}}"#
                ),
                noise.next(),
                noise.next() % 1_000_000,
                noise.pick(&["gold", "silver", "basic", "trial"]),
                noise.pick(&["IT", "DE", "FR", "US", "JP", "BR"]),
                noise.next() & 0xff_ffff_ffff,
                noise.next() % 9 + 1,
                noise.next() % 500,
                noise.next() % 100,
                noise.pick(&["EUR", "USD", "JPY"]),
                noise.pick(&["created", "paid", "shipped", "cancelled"]),
                noise.next() % 28 + 1,
                noise.next() % 24,
                noise.next() % 60,
                noise.next() % 60,
                noise.next() % 1000,
                i
            )
        })
        .collect()
}

fn frames(payloads: &[String]) -> Vec<FrameIn<'_>> {
    payloads
        .iter()
        .enumerate()
        .map(|(i, payload)| FrameIn { id: FIRST_ID + i as u128, payload: payload.as_bytes(), ..FrameIn::default() })
        .collect()
}

fn segments(c: &mut Criterion) {
    for level in [1, 3] {
        let options = EncodeOptions { level, ..EncodeOptions::default() };
        let mut group = c.benchmark_group(format!("encode/level{level}"));
        for n in SIZES {
            let payloads = payloads(n);
            let frames = frames(&payloads);
            group.throughput(Throughput::Elements(n as u64));
            group.bench_function(BenchmarkId::from_parameter(n), |b| {
                b.iter(|| encode(black_box(&frames), &options).expect("frames are sound"));
            });
            let raw: usize = payloads.iter().map(String::len).sum();
            let stored = encode(&frames, &options).expect("frames are sound").len();
            eprintln!("level {level}: {n} messages, {raw} bytes raw, {stored} stored");
        }
    }

    let mut group = c.benchmark_group("parse_and_open");
    for n in SIZES {
        let payloads = payloads(n);
        let bytes = encode(&frames(&payloads), &EncodeOptions::default()).expect("sound");
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            b.iter(|| {
                let opened = Segment::parse(black_box(&bytes)).and_then(|s| s.open());
                let opened = opened.expect("the segment is sound");
                opened.iter().map(|f| f.map_or(0, |f| f.payload.len())).sum::<usize>()
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("one_frame");
    for n in SIZES {
        let payloads = payloads(n);
        let bytes = encode(&frames(&payloads), &EncodeOptions::default()).expect("sound");
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            b.iter(|| Segment::parse(black_box(&bytes)).and_then(|s| s.open_frame(n / 2)));
        });
    }
    group.finish();
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse_push_items");
    for n in SIZES {
        let items: Vec<_> = payloads(n)
            .into_iter()
            .enumerate()
            .map(|(i, payload)| {
                format!(r#"{{"queue":"orders","partition":"eu-1","payload":{payload},"transactionId":"t-{i}"}}"#)
            })
            .collect();
        let json = format!("[{}]", items.join(","));
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            b.iter(|| parse_push_items(black_box(&json)).expect("the items are sound").len());
        });
    }
    group.finish();

    let payload = payloads(1).remove(0);
    c.bench_function("check_json/256", |b| b.iter(|| check_json(black_box(&payload), 1 << 20)));
    let mut generator = IdGenerator::new();
    let mut now = 1_760_000_000_000_000;
    c.bench_function("ids/reserve", |b| {
        b.iter(|| {
            now += 10;
            generator.reserve(black_box(now), 100)
        });
    });
}

criterion_group!(benches, segments, requests);
criterion_main!(benches);
