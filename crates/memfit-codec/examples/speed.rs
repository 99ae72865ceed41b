//! Speed of zero-value compression beside that of a copy, in one run: `cargo run --release -p memfit-codec --example speed`.
//!
//! For each density and size: plain GB/s of a copy, and of encoding and decoding by each variant that this processor has. Medians of
//! paired rounds; every buffer is new in every round, as it is in a step.

#![allow(clippy::print_stdout, reason = "prints a table")]

use std::hint::black_box;
use std::time::Instant;

use memfit_codec::zvc::{Variant, decode_by, encode_by};

const ROUNDS: usize = 15;

fn main() {
    println!("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", "MiB", "density", "variant", "copy", "encode", "decode");
    for mib in [1, 16, 128] {
        for density in [10u64, 30, 60, 100] {
            let plain = plain(mib << 20, density);
            for variant in Variant::ALL.into_iter().filter(|variant| variant.is_available()) {
                let packed = encode_by(variant, &plain, usize::MAX).unwrap_or_default();
                let mut rates: [Vec<f64>; 3] = Default::default();
                for _ in 0..ROUNDS {
                    rates[0].push(rate(plain.len(), || black_box(&plain).clone()));
                    rates[1].push(rate(plain.len(), || encode_by(variant, black_box(&plain), packed.len())));
                    rates[2].push(rate(plain.len(), || decode_by(variant, black_box(&packed), plain.len())));
                }
                let [copy, encode, decode] = rates.map(median);
                let (share, name) = (density as f64 / 100.0, variant.name());
                println!("{mib:>8} {share:>8.2} {name:>8} {copy:>8.1} {encode:>8.1} {decode:>8.1}");
            }
        }
    }
}

/// Words of which `density` in a hundred are not zero.
fn plain(size: usize, density: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let words = (0..size / 4).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let [a, b, c, d, ..] = state.to_le_bytes();
        if (state >> 32) % 100 < density { [a, b, c, d | 1] } else { [0; 4] }
    });
    words.flatten().collect()
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
