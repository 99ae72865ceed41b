//! How fast memory and disk are, measured: what a host's planner counts with, and a device file says of its links.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::scratch::Scratch;

/// What a link does, as a device file has it.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Bytes per second, out of the device and back.
    pub rates: [f64; 2],
    /// What the least transfer takes.
    pub latency: Duration,
}

/// A disk and what is free on it.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredDisk {
    /// The way there and back.
    pub link: Measured,
    /// Bytes that were written and read.
    pub size: u64,
    /// Bytes that are free; unknown where the system does not say.
    pub free: Option<u64>,
    /// Whether transfers go around the page cache, several at a time (`io_uring`, direct I/O).
    pub is_direct: bool,
}

/// Bytes written or read at a time.
const BLOCK: usize = 4 << 20;

/// Bytes of the least transfer.
const SMALL: usize = 4 << 10;

/// Times that a figure is taken; the best of copies, the middle one of latencies.
const ROUNDS: usize = 5;

/// Copies of `size` bytes, 4 KiB at least, from memory to memory, as hosts without an accelerator make them.
#[must_use]
pub fn memory(size: usize) -> Measured {
    let size = size.max(SMALL * (ROUNDS + 2));
    let mut here = vec![1u8; size];
    let mut there = vec![2u8; size];
    let mut best = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        let started = Instant::now();
        there.copy_from_slice(std::hint::black_box(&here));
        best[0] = best[0].min(started.elapsed().as_secs_f64());
        let started = Instant::now();
        here.copy_from_slice(std::hint::black_box(&there));
        best[1] = best[1].min(started.elapsed().as_secs_f64());
    }
    let small = |at: usize| {
        let from = (at * size / (ROUNDS + 1)).next_multiple_of(SMALL);
        let started = Instant::now();
        there[from..from + SMALL].copy_from_slice(std::hint::black_box(&here[from..from + SMALL]));
        Ok(started.elapsed())
    };
    let latency = middle(small).unwrap_or_default();
    Measured { rates: best.map(|seconds| size as f64 / seconds.max(1e-9)), latency }
}

/// Writes a file without a name in `dir`, of so many bytes, and reads it back from the disk.
///
/// # Errors
///
/// What the system says; also where four times the least of `sizes` is not free.
pub fn disk(dir: &Path, sizes: RangeInclusive<u64>) -> io::Result<MeasuredDisk> {
    let free = free(dir)?;
    // At most a quarter of what is free: others write, too.
    let (least, most) = (*sizes.start(), *sizes.end());
    let size = free.map_or(most, |free| (free / 4).min(most)) / BLOCK as u64 * BLOCK as u64;
    if size < least {
        let why = format!("{} B are free there, which is too little to measure", free.unwrap_or(0));
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    let scratch = Scratch::new(dir)?;
    // No zeros: some file systems keep none.
    let mut block: Vec<u8> = (0..BLOCK).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect();
    let blocks = size / BLOCK as u64;
    let started = Instant::now();
    for at in 0..blocks {
        scratch.write(&block, at * BLOCK as u64)?;
    }
    scratch.file().sync_data()?;
    let written = started.elapsed();
    forget(scratch.file());
    let started = Instant::now();
    for at in 0..blocks {
        scratch.read(&mut block, at * BLOCK as u64)?;
    }
    let read = started.elapsed();
    forget(scratch.file());
    let latency = middle(|at| {
        let offset = (at as u64 * size / (ROUNDS as u64 + 1)).next_multiple_of(SMALL as u64);
        let started = Instant::now();
        scratch.read(&mut block[..SMALL], offset)?;
        Ok(started.elapsed())
    })?;
    let rates = [written, read].map(|time| size as f64 / time.as_secs_f64().max(1e-9));
    Ok(MeasuredDisk { link: Measured { rates, latency }, size, free, is_direct: scratch.is_direct() })
}

/// The middle one of the times that `measure` takes, each elsewhere.
fn middle(mut measure: impl FnMut(usize) -> io::Result<Duration>) -> io::Result<Duration> {
    let mut times = (0..ROUNDS).map(&mut measure).collect::<io::Result<Vec<Duration>>>()?;
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

/// Bytes that a user may still write in `dir`.
#[cfg(unix)]
fn free(dir: &Path) -> io::Result<Option<u64>> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
}

#[cfg(not(unix))]
fn free(_: &Path) -> io::Result<Option<u64>> {
    Ok(None)
}

/// Has the system keep nothing of `file` in memory, so that it is read from the disk. Where it can't, reading is measured too
/// fast.
#[cfg(target_os = "linux")]
fn forget(file: &File) {
    // Advice that is refused costs a figure, no byte.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &File) {}

impl Measured {
    /// The inside of a link's table in a device file.
    #[must_use]
    pub fn toml(&self) -> String {
        let [out, back] = self.rates.map(|rate| rate / 1e9);
        let latency = self.latency.as_nanos().max(1);
        format!("out = \"{out:.3}GB/s\", in = \"{back:.3}GB/s\", latency = \"{latency}ns\"")
    }
}
