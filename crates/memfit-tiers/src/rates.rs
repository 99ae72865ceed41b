//! How fast copying and codecs are here: what an engine's settings have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use memfit_codec::{Coder, by_name, zvc};
use memfit_ir::{Bytes, Codec, Link, Nanos, Store};

use crate::links::{self, Measured};
use crate::spill::SpillError;

/// Bytes that are copied to see how fast that is.
const TRIAL: usize = 8 << 20;

/// Seconds that a copy takes beside the time for its bytes: a thread is told, and tells.
pub(crate) const LATENCY: f64 = 20e-6;

/// The share of the words of four bytes in `bytes` that are not zero, for [`memfit_engine::Host::look`].
#[must_use]
pub fn density(bytes: &[u8]) -> f32 {
    zvc::filled_words(bytes) as f32 / bytes.len().div_ceil(4).max(1) as f32
}

/// The plain bytes per second at which a shelf packs and unpacks half of nothing by each of `codecs`: measured once in a process, by
/// `clock`. Each byte is read out of what the framework calls its memory, and goes to a place of its own.
#[must_use]
pub fn codecs(codecs: &[Codec], clock: &dyn Fn() -> Duration) -> Vec<(Codec, f64, f64)> {
    static RATES: Mutex<BTreeMap<Codec, (f64, f64)>> = Mutex::new(BTreeMap::new());
    let mut known = RATES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut plain = Vec::new();
    let mut rate = |codec: Codec, coder: &dyn Coder| {
        let &mut (encode, decode) = known.entry(codec).or_insert_with(|| {
            if plain.is_empty() {
                plain = half_of_nothing();
            }
            speed(coder, &plain, clock)
        });
        (codec, encode, decode)
    };
    codecs.iter().filter_map(|&codec| Some(rate(codec, by_name(codec.name())?))).collect()
}

/// Half of the words are zero, without a pattern that a processor could foresee. The others are from 2^-126 to 2^-1.
fn half_of_nothing() -> Vec<u8> {
    let words = (0..TRIAL as u64 / 4).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    let word = |[a, b, c, d, .., sign]: [u8; 8]| {
        let bits = u32::from_le_bytes([a, b, c, d & 0x3e]) | 0x80_0000;
        if sign & 1 == 1 { bits.to_ne_bytes() } else { [0; 4] }
    };
    words.flat_map(word).collect()
}

/// Plain bytes per second, packing and unpacking.
fn speed(coder: &dyn Coder, plain: &[u8], clock: &dyn Fn() -> Duration) -> (f64, f64) {
    let packed = coder.encode(plain, usize::MAX, 0).unwrap_or_default();
    let encode = fastest(clock, || coder.encode(&std::hint::black_box(plain.to_vec()), packed.len(), 0));
    let decode = fastest(clock, || coder.decode(&packed, plain.len()));
    (encode, decode)
}

/// Bytes per second of a call that deals with [`TRIAL`] of them: that which takes least of three.
fn fastest<T>(clock: &dyn Fn() -> Duration, mut run: impl FnMut() -> T) -> f64 {
    // The first one also takes what memory takes that is new to the process, as later ones may.
    let taken = (0..3).map(|_| {
        let started = clock();
        let made = std::hint::black_box(run());
        let taken = clock().saturating_sub(started);
        drop(made);
        taken
    });
    let taken = taken.min().unwrap_or_default().max(Duration::from_nanos(1));
    TRIAL as f64 / taken.as_secs_f64()
}

/// Host memory for copies, of `capacity` bytes, and the way there: what copying a few MiB takes, or `rate` bytes per second at most.
#[must_use]
pub fn host_memory(capacity: Bytes, rate: Option<f64>) -> Store {
    static MEASURED: OnceLock<Measured> = OnceLock::new();
    let Measured { rates, latency } = *MEASURED.get_or_init(|| links::memory(TRIAL));
    let most = rate.unwrap_or(f64::INFINITY);
    Store { capacity, link: link(rates.map(|rate| rate.min(most)), latency) }
}

/// A disk for copies, of `capacity` bytes in `directory`, and the way there: what writing a few MiB takes until they are on the
/// disk, and what reading them takes that are not in memory any more: measured once in a process for each directory.
///
/// # Errors
///
/// If no file can be written there.
pub fn disk(capacity: Bytes, directory: &Path) -> Result<Store, SpillError> {
    static MEASURED: Mutex<BTreeMap<PathBuf, Measured>> = Mutex::new(BTreeMap::new());
    let mut known = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let Measured { rates, latency } = match known.get(directory) {
        Some(&measured) => measured,
        None => {
            let measured = links::disk(directory, 0..=TRIAL as u64);
            let failed = |source| SpillError { directory: directory.to_owned(), source };
            let measured = measured.map_err(failed)?.link;
            known.insert(directory.to_owned(), measured);
            measured
        }
    };
    Ok(Store { capacity, link: link(rates, latency) })
}

/// Whoever copies is another thread; where there is one processor alone, ops wait for it all the same.
fn link([out, back]: [f64; 2], latency: Duration) -> Link {
    Link {
        out_bandwidth: out,
        in_bandwidth: back,
        duplex_cap: f64::INFINITY,
        latency: Nanos::from_secs_f64(LATENCY).max(latency.into()),
        asynchronous: std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1),
    }
}
