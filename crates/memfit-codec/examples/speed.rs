//! Speed of codecs by variant beside that of a copy, in one run: `cargo run --release -p memfit-codec --example speed [MIB] [NAME]...`.
//!
//! Plain GB/s, into memory that is there; medians of rounds in which each is measured once, and medians of their quotients with
//! the copy of the same round.

#![allow(clippy::print_stdout, reason = "prints a table")]

use std::hint::black_box;
use std::time::Instant;

use memfit_codec::{CODERS, Variant};

/// Bytes that are dealt with in a round, at least.
const ROUND: usize = 64 << 20;

const ROUNDS: usize = 15;

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    let sizes = match args.peek().and_then(|arg| arg.parse().ok()) {
        Some(mib) => vec![mib],
        None => vec![1, 16, 128],
    };
    let names: Vec<String> = args.skip_while(|arg| arg.parse::<usize>().is_ok()).collect();
    println!(
        "{:>4} {:>7} {:<16} {:<7} {:>6} {:>7} {:>7} {:>6} {:>6}",
        "MiB", "density", "codec", "variant", "copy", "encode", "decode", "e/copy", "d/copy"
    );
    for mib in sizes {
        for density in [10, 30, 60, 100] {
            let plain = plain(mib << 20, density);
            let mut there = vec![1; plain.len()];
            for coder in CODERS {
                if !names.is_empty() && !names.iter().any(|name| name == coder.name()) {
                    continue;
                }
                let mut packed = vec![1; coder.bound(plain.len())];
                for variant in Variant::ALL.into_iter().filter(|variant| variant.is_available()) {
                    let size = coder.encode_by(variant, &plain, &mut packed, 1).unwrap_or_default();
                    let encoded = packed[..size].to_vec();
                    let mut rounds: [Vec<f64>; 3] = Default::default();
                    for _ in 0..ROUNDS {
                        rounds[0].push(rate(plain.len(), || there.copy_from_slice(black_box(&plain))));
                        rounds[1].push(rate(plain.len(), || {
                            black_box(coder.encode_by(variant, black_box(&plain), &mut packed, 1));
                        }));
                        rounds[2].push(rate(plain.len(), || {
                            black_box(coder.decode_by(variant, black_box(&encoded), &mut there)).ok();
                        }));
                    }
                    let share = |of: usize| {
                        median(rounds[of].iter().zip(&rounds[0]).map(|(one, copy)| one / copy).collect())
                    };
                    let (by_encode, by_decode) = (share(1), share(2));
                    let [copy, encode, decode] = rounds.map(median);
                    println!(
                        "{mib:>4} {:>7.2} {:<16} {:<7} {copy:>6.1} {encode:>7.1} {decode:>7.1} {by_encode:>6.2} {by_decode:>6.2}",
                        density as f64 / 100.0,
                        coder.name(),
                        variant.name(),
                    );
                }
            }
        }
    }
}

/// Numbers of which `density` in a hundred are above zero, and the others zero.
fn plain(size: usize, density: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let words = (0..size / 4).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = ((state >> 8 & 0xff_ffff) as f32 + 1.0) / f32::from(1u16 << 12);
        (if (state >> 32) % 100 < density { value } else { 0.0 }).to_ne_bytes()
    });
    words.flatten().collect()
}

/// GB/s at which `run` deals with `size` bytes.
fn rate(size: usize, mut run: impl FnMut()) -> f64 {
    let times = ROUND.div_ceil(size).max(1);
    let started = Instant::now();
    (0..times).for_each(|_| run());
    (size * times) as f64 / started.elapsed().as_secs_f64() / 1e9
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
