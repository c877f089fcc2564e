//! The bodies of the fuzz targets on pseudo-random input: a fixed sequence, so that a failure repeats.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../fuzz/bodies.rs"]
mod bodies;

use queen_core::segment::{EncodeOptions, FrameIn, encode};

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn bytes(&mut self, up_to: usize) -> Vec<u8> {
        (0..self.below(up_to)).map(|_| self.next() as u8).collect()
    }

    /// A sound input with a few bytes changed, removed or repeated.
    fn mutated(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 if !bytes.is_empty() => bytes[at] = self.next() as u8,
                1 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                _ => bytes.insert(at, self.next() as u8),
            }
        }
        bytes
    }
}

fn run(body: fn(&[u8]), seeds: &[Vec<u8>]) {
    let mut noise = Noise(0x2545_f491_4f6c_dd1d);
    for _ in 0..2_000 {
        body(&noise.bytes(200));
        for seed in seeds {
            body(&noise.mutated(seed));
        }
    }
}

#[test]
fn segment() {
    let seeds = [1, 5, 40].map(|n: u128| {
        let ids: Vec<String> = (0..n).map(|i| format!("order-{i}")).collect();
        let frames: Vec<_> = (0..n)
            .zip(&ids)
            .map(|(id, text)| FrameIn {
                id: if n == 5 { id * 3 } else { id },
                transaction_id: (n != 40).then_some(text),
                payload: br#"{"amount":100,"currency":"EUR"}"#,
                ..FrameIn::default()
            })
            .collect();
        encode(&frames, &EncodeOptions::default()).unwrap()
    });
    run(bodies::segment, &seeds);
}

#[test]
fn frame() {
    let mut full = vec![0x3f, 2, b't', b'x'];
    full.extend([7; 16]);
    full.extend([3, b'a', b'b', b'c']);
    full.extend([9; 8]);
    full.extend([2, b'{', b'}', b'1']);
    run(bodies::frame, &[full, vec![0, b'1'], vec![1, 0x81, 0, b'x', b'1']]);
}

#[test]
fn envelope() {
    let iv = "AAAAAAAAAAAAAAAAAAAAAA==";
    let sealed = format!(r#"{{"encrypted":"AAAA","iv":"{iv}","authTag":"{iv}"}}"#);
    let setting = format!("k1:{},k2:{}", "0a".repeat(32), "B1".repeat(32));
    run(bodies::envelope, &[sealed.into_bytes(), setting.into_bytes()]);
}

#[test]
fn names() {
    let seeds = [
        "billing.invoice.eu",
        "0190aaaa-0000-7000-8000-00000000000f",
        r#"[{"queue":"q","payload":{"a":[1,2.50,"\u0000"]},"transactionId":"t","headers":{}}]"#,
        r#"[{"transactionId":"t","status":"failed","error":"why\n"}]"#,
        r#"{"leaseTime":"60","deadLetterQueue":false,"minPopWaitTime":5.0}"#,
    ];
    run(bodies::names, &seeds.map(|seed| seed.as_bytes().to_vec()));
}
