//! How fast codecs are here.

use std::hint::black_box;
use std::time::Instant;

use memfit::codec::bounded::{self, Predictor};
use memfit::codec::{Coder, Variant};
use memfit::{Bytes, objects};
use serde_json::{Value, json};

use super::BenchArgs;
use crate::error::Error;
use crate::output::{Output, table};

/// Rounds in which everything is measured once.
const ROUNDS: usize = 21;

/// Bytes that are dealt with at least to measure something once.
const AT_LEAST: usize = 16 << 20;

/// The bound of the error-bounded codec, as a share of the root mean square of the words.
const BOUND: f32 = 1e-3;

/// What is measured.
enum Subject {
    Coder(&'static dyn Coder),
    /// The error-bounded codec, which is for files and links: no value of a plan waits in it.
    Bounded(Predictor),
}

impl Subject {
    /// Those of these names, or all.
    fn wanted(names: &[String]) -> Vec<Subject> {
        let coders = super::wanted(names).map(Subject::Coder);
        let bounded = [Predictor::None, Predictor::Lorenzo].map(Subject::Bounded).into_iter();
        let is_wanted =
            |subject: &Subject| names.is_empty() || names.iter().any(|name| name == subject.name());
        coders.chain(bounded.filter(is_wanted)).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Subject::Coder(coder) => coder.name(),
            Subject::Bounded(Predictor::None) => super::BOUNDED[0],
            Subject::Bounded(Predictor::Lorenzo) => super::BOUNDED[1],
        }
    }

    /// Encodes into `packed`, which is all there is room for: how many bytes that took.
    fn encode(&self, plain: &[u8], bound: f64, packed: &mut Vec<u8>) -> usize {
        match self {
            Subject::Coder(coder) => {
                packed.resize(coder.bound(plain.len()), 1);
                coder.encode_into(plain, packed, 0).unwrap_or_default()
            }
            Subject::Bounded(predictor) => {
                bounded::encode_into(plain, bound, *predictor, packed).map_or(0, |()| packed.len())
            }
        }
    }

    fn decode(&self, packed: &[u8], plain: &mut [u8]) -> bool {
        match self {
            Subject::Coder(coder) => coder.decode_into(packed, plain).is_ok(),
            Subject::Bounded(_) => bounded::decode_into(packed, plain).is_ok(),
        }
    }
}

/// What one codec did.
struct Row {
    name: &'static str,
    size: usize,
    density: f64,
    encoded: usize,
    /// Plain bytes per second: a copy, encoding, decoding.
    rates: [f64; 3],
    /// Encoding and decoding over the copy of the same round.
    shares: [f64; 2],
}

pub(super) fn run(args: &BenchArgs, output: &Output) -> Result<(), Error> {
    let mut rows = Vec::new();
    for size in &args.size {
        let size = usize::try_from(size.0).unwrap_or(usize::MAX);
        for &density in &args.density {
            let plain = plain(size, density);
            let mut there = vec![1; size];
            let subjects = Subject::wanted(&args.codec);
            rows.extend(subjects.iter().map(|subject| measured(subject, &plain, density, &mut there)));
        }
    }
    if output.json {
        return output.object(&object(&rows));
    }
    let cells = rows.iter().map(|row| {
        let [copy, encode, decode] = row.rates.map(|rate| format!("{:.1}", rate / 1e9));
        let [by_encode, by_decode] = row.shares.map(|share| format!("{share:.2}"));
        let ratio = format!("{:.2}", row.size as f64 / row.encoded.max(1) as f64);
        let (size, density) = (Bytes(row.size as u64).to_string(), format!("{:.2}", row.density));
        vec![row.name.to_owned(), size, density, ratio, copy, encode, decode, by_encode, by_decode]
    });
    let head =
        ["codec", "size", "density", "ratio", "copy GB/s", "encode", "decode", "encode/copy", "decode/copy"];
    let note = format!(
        "one thread, {}, into memory that is there; medians of {ROUNDS} rounds\n\n",
        Variant::fastest().name()
    );
    output.print(&(note + &table(&head, &[], cells.collect())))
}

fn object(rows: &[Row]) -> Value {
    let rows = rows.iter().map(|row| {
        let ([copy, encode, decode], [by_encode, by_decode]) = (row.rates, row.shares);
        json!({
            "codec": row.name,
            "bytes": row.size,
            "density": row.density,
            "encoded_bytes": row.encoded,
            "copy_bytes_per_second": copy,
            "encode_bytes_per_second": encode,
            "decode_bytes_per_second": decode,
            "encode_over_copy": by_encode,
            "decode_over_copy": by_decode,
        })
    });
    json!({
        "schema": objects::SCHEMA,
        "command": "codec bench",
        "status": "done",
        "variant": Variant::fastest().name(),
        "rounds": ROUNDS,
        "rows": rows.collect::<Vec<Value>>(),
    })
}

fn measured(subject: &Subject, plain: &[u8], density: f64, there: &mut [u8]) -> Row {
    let bound = f64::from(BOUND) * root_mean_square(plain);
    let mut packed = Vec::new();
    let encoded = subject.encode(plain, bound, &mut packed);
    let kept = packed[..encoded].to_vec();
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        rounds[0].push(rate(plain.len(), AT_LEAST, || there.copy_from_slice(black_box(plain))));
        rounds[1].push(rate(plain.len(), AT_LEAST, || {
            black_box(subject.encode(black_box(plain), bound, &mut packed));
        }));
        rounds[2].push(rate(plain.len(), AT_LEAST, || {
            black_box(subject.decode(black_box(&kept), there));
        }));
    }
    let share =
        |of: usize| median(rounds[of].iter().zip(&rounds[0]).map(|(rate, copy)| rate / copy).collect());
    let shares = [share(1), share(2)];
    Row { name: subject.name(), size: plain.len(), density, encoded, rates: rounds.map(median), shares }
}

/// Of the words of `plain`; one if all are zero.
fn root_mean_square(plain: &[u8]) -> f64 {
    let words = plain.as_chunks::<4>().0;
    let squares: f64 = words.iter().map(|word| f64::from(f32::from_ne_bytes(*word)).powi(2)).sum();
    let mean = (squares / words.len().max(1) as f64).sqrt();
    if mean > 0.0 { mean } else { 1.0 }
}

/// Numbers in (0, 4096] and zeros, without a pattern that a processor could foresee.
fn plain(size: usize, density: f64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let words = (0..size.div_ceil(4)).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let [a, b, c, d, e, f, g, _] = state.to_le_bytes();
        let value = (f32::from(u16::from_le_bytes([a, b])) * 256.0 + f32::from(c) + 1.0) / 4096.0;
        let draw = f64::from(u32::from_le_bytes([d, e, f, g])) / f64::from(u32::MAX);
        (if draw < density || density >= 1.0 { value } else { 0.0 }).to_ne_bytes()
    });
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(size);
    bytes
}

/// Bytes per second at which `run` deals with `size` bytes, again until it has dealt with `least`.
pub(super) fn rate(size: usize, least: usize, mut run: impl FnMut()) -> f64 {
    let times = least.div_ceil(size.max(1)).max(1);
    let started = Instant::now();
    (0..times).for_each(|_| run());
    (size * times) as f64 / started.elapsed().as_secs_f64().max(1e-9)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
