//! Speed and ratio of the codecs for files beside a copy, in one run: `cargo run --release -p memfit-codec --example files`.
//!
//! Plain GB/s of a copy, of encoding and of decoding, medians of rounds; on numbers that are normally distributed, as weights are, and on
//! smooth ones. The bound is a thousandth of their root mean square.

#![allow(clippy::print_stdout, reason = "prints a table")]

use std::hint::black_box;
use std::time::Instant;

use memfit_codec::bounded::{self, Predictor};
use memfit_codec::delta::{self, Number};
use memfit_codec::split::{self, Float};
use memfit_codec::{Damaged, shuffle};

const ROUNDS: usize = 9;
const MIB: usize = 16;

type Encode<'a> = Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>;
type Decode<'a> = Box<dyn Fn(&[u8]) -> Result<Vec<u8>, Damaged> + 'a>;

fn main() {
    let half: Vec<u8> =
        normal(MIB << 19).as_chunks::<4>().0.iter().flat_map(|&[_, _, c, d]| [c, d]).collect();
    let (weights, smooth) = (normal(MIB << 18), sine(MIB << 18));
    let base: Vec<u8> = changed(&weights);
    let size = weights.len();
    let bound = |predictor| -> (Encode<'_>, Decode<'_>) {
        let encode = move |data: &[u8]| bounded::encode(data, 1e-3, predictor).unwrap_or_default();
        (Box::new(encode), Box::new(move |packed: &[u8]| bounded::decode(packed, size)))
    };
    let rows: Vec<(&str, &[u8], (Encode<'_>, Decode<'_>))> = vec![
        ("bounded", &weights, bound(Predictor::None)),
        ("bounded, Lorenzo, smooth", &smooth, bound(Predictor::Lorenzo)),
        (
            "exponent split, bf16",
            &half,
            (
                Box::new(|data| split::encode(data, Float::Bf16).unwrap_or_default()),
                Box::new(|packed| split::decode(packed, size, Float::Bf16)),
            ),
        ),
        (
            "exponent split, f32",
            &weights,
            (
                Box::new(|data| split::encode(data, Float::F32).unwrap_or_default()),
                Box::new(|packed| split::decode(packed, size, Float::F32)),
            ),
        ),
        (
            "shuffle and zstd",
            &weights,
            (Box::new(|data| shuffle::encode(data, 4)), Box::new(|packed| shuffle::decode(packed, size, 4))),
        ),
        (
            "difference (not packed)",
            &weights,
            (
                Box::new(|data| delta::encode(data, &base, Number::Float32).unwrap_or_default()),
                Box::new(|packed| delta::decode(packed, &base, Number::Float32)),
            ),
        ),
    ];
    println!(
        "{MIB} MiB of `f32` or `bf16`\n{:<26} {:>8} {:>8} {:>8} {:>8}",
        "", "copy", "encode", "decode", "ratio"
    );
    for (name, data, (encode, decode)) in rows {
        let packed = encode(data);
        let mut rates: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            rates[0].push(rate(size, || black_box(data).to_vec()));
            rates[1].push(rate(size, || encode(black_box(data))));
            rates[2].push(rate(size, || decode(black_box(&packed))));
        }
        let [copy, encode, decode] = rates.map(median);
        let ratio = size as f64 / packed.len() as f64;
        println!("{name:<26} {copy:>8.1} {encode:>8.1} {decode:>8.1} {ratio:>8.2}");
    }
}

/// Normally distributed, by the sum of twelve draws.
fn normal(count: usize) -> Vec<u8> {
    let mut state = 3u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..count).flat_map(|_| (0..12).map(|_| draw()).sum::<f32>().to_le_bytes()).collect()
}

fn sine(count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| (at as f32 * 1e-3).sin().to_le_bytes()).collect()
}

/// Each number moved a little.
fn changed(data: &[u8]) -> Vec<u8> {
    data.as_chunks::<4>().0.iter().flat_map(|word| (f32::from_le_bytes(*word) + 1e-4).to_le_bytes()).collect()
}

/// GB/s at which `run` deals with `size` bytes.
fn rate<T>(size: usize, run: impl FnOnce() -> T) -> f64 {
    let started = Instant::now();
    let made = black_box(run());
    let taken = started.elapsed();
    drop(made);
    size as f64 / taken.as_secs_f64() / 1e9
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
