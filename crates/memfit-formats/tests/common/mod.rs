//! What the tests of the readers share: graphs, damage, and a source of random numbers.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "these are helpers of tests")]

use std::time::{Duration, Instant};

use memfit_formats::FormatError;
use memfit_ir::{
    Algorithm, Bytes, Dtype, Effect, Graph, GraphBuilder, Nanos, OpSpec, Phase, Pin, Price, Reuse, Role,
    ValueId, ValueSpec,
};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Every byte changed in several ways, and every prefix: `read` may refuse, but not panic.
pub(crate) fn survives_every_flip_and_cut<T>(good: &[u8], read: impl Fn(&[u8]) -> Result<T, FormatError>) {
    assert!(read(good).is_ok());
    let mut bytes = good.to_vec();
    for at in 0..good.len() {
        for flip in [0x01, 0x20, 0x80, 0xff] {
            bytes[at] = good[at] ^ flip;
            check(read(&bytes));
        }
        for put in [b'0', b'9', b'-', b'"', b'[', b'}', b',', b'\n', 0] {
            bytes[at] = put;
            check(read(&bytes));
        }
        bytes[at] = good[at];
        check(read(&good[..at]));
    }
}

/// A second of random damage: bytes changed, pieces cut out, doubled, swapped in from elsewhere.
pub(crate) fn survives_random_damage<T>(
    good: &[u8],
    seed: u64,
    read: impl Fn(&[u8]) -> Result<T, FormatError>,
) {
    const WORDS: [&str; 12] = [
        "18446744073709551615",
        "-1",
        "1e400",
        "4294967295",
        "null",
        "[[[[",
        "{\"a\":",
        "\"\\u0000\"",
        "true",
        "0.5",
        "nan",
        "\u{feff}",
    ];
    let mut random = Random(seed);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let mut bytes = good.to_vec();
        for _ in 0..=random.below(4) {
            let (a, b) = (random.below(bytes.len()), random.below(bytes.len()));
            let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 40));
            match random.below(5) {
                0 if !bytes.is_empty() => bytes[a] = (random.next() & 0xff) as u8,
                1 => drop(bytes.drain(from..to)),
                2 => {
                    let piece = bytes[from..to].to_vec();
                    let at = random.below(bytes.len() + 1);
                    bytes.splice(at..at, piece);
                }
                3 => {
                    let word = WORDS[random.below(WORDS.len())];
                    bytes.splice(from..to, word.bytes());
                }
                _ => {
                    // A number for another number keeps the file well-formed.
                    if let Some(start) = bytes[a.min(bytes.len())..].iter().position(u8::is_ascii_digit) {
                        let start = a + start;
                        let len = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                        let number = (random.next() >> random.below(64)).to_string();
                        bytes.splice(start..start + len, number.bytes());
                    }
                }
            }
        }
        check(read(&bytes));
    }
}

fn check<T>(result: Result<T, FormatError>) {
    if let Err(error) = result {
        let text = error.to_string();
        assert!(!error.message.is_empty() && text.len() < 4000, "{} bytes: {text:.1000}", text.len());
    }
}

/// Two layers and an update, with something under every key of the schema.
pub(crate) fn small_graph() -> Graph {
    let mut b = GraphBuilder::new("two \"layers\"\n");
    let mut value = |name: &str, size: u64, role: Role| {
        let spec = ValueSpec { name: name.into(), size: Bytes(size), role, ..ValueSpec::default() };
        b.value(spec).unwrap()
    };
    let x = value("x", 4096, Role::Input);
    let w = value("w", 65536, Role::Parameter);
    let h = value("h", 4096, Role::Activation);
    let g = value("grad w", 65536, Role::Gradient);
    let w2 = value("", 65536, Role::Parameter);
    let spare = ValueSpec {
        name: "größe/0".into(),
        size: Bytes(0),
        dtype: Dtype::Bf16,
        shape: vec![0, 128],
        role: Role::Constant,
        density: Some(0.1),
        sensitivity: Some(2.5),
        pin: Some(Pin { bank: 1, offset: Some(Bytes(512)) }),
    };
    b.value(spare).unwrap();
    let any =
        ValueSpec { pin: Some(Pin { bank: 0, offset: None }), role: Role::Output, ..ValueSpec::default() };
    let y = b.value(ValueSpec { size: Bytes(4096), ..any }).unwrap();
    let op = |name: &str, kind: &str, reads: &[ValueId], writes: &[ValueId]| OpSpec {
        name: name.into(),
        kind: kind.into(),
        reads: reads.into(),
        writes: writes.into(),
        ..OpSpec::default()
    };
    let pair = |input, output, must| Reuse { input, output, must };
    b.op(OpSpec {
        module: "net.0".into(),
        flops: 262_144.3,
        moved: Bytes(4096 + 65536 + 4096),
        algorithms: vec![
            Algorithm { workspace: Bytes(1 << 20), price: Price::Time(Nanos(7)) },
            Algorithm { workspace: Bytes(3), price: Price::Work { flops: 12, moved: Bytes(96) } },
        ],
        ..op("mm", "aten.mm.default", &[x, w], &[h])
    })
    .unwrap();
    b.op(OpSpec {
        phase: Phase::Backward,
        moved: Bytes(1),
        effect: Effect::Seeded,
        workspace: Bytes(99),
        time: Some(Nanos(1234)),
        dtype: Dtype::F16,
        reuses: vec![pair(h, y, false)],
        ..op("", "aten.dropout", &[h, h], &[g, y])
    })
    .unwrap();
    b.op(OpSpec {
        phase: Phase::Update,
        reuses: vec![pair(w, w2, true)],
        ..op("sgd", "aten.add_", &[w, g], &[w2])
    })
    .unwrap();
    b.result(y).unwrap();
    b.finish().unwrap()
}
