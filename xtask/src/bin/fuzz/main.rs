//! Spoilt files for every reader: none may panic, take more than a second, or more memory than its input is worth.
//!
//! Blind to coverage, but the changes know what files are made of. Every core has a process of its own, so that memory can
//! be counted, and a crash ends only that one. An input follows from the seed, the reader and its number alone.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of the developers")]

mod mutate;
mod readers;

use std::panic::catch_unwind;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use memfit_testkit::Rng;
use peak_alloc::PeakAlloc;

use mutate::mutant;
use readers::{READERS, Reader};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// No input takes longer.
const LONGEST: Duration = Duration::from_secs(1);

/// Bytes of memory for each byte of input, and beside them for tables of fixed size.
const MEMORY: (usize, usize) = (64, 4 << 20);

/// Inputs between two looks at the clock.
const BATCH: u64 = 256;

/// Findings that are shown; each is kept as a file.
const SHOWN: usize = 20;

#[derive(Debug, Parser)]
struct Args {
    /// How long
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Start of the random sequence
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this reader; may be given several times
    #[arg(long)]
    reader: Vec<String>,
    /// So many inputs to each reader, however long that takes
    #[arg(long)]
    inputs: Option<u64>,
    /// One process of several: which one
    #[arg(long)]
    part: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.part {
        Some(part) => work(&args, part),
        None => share(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a process for each core and adds up what they say.
fn share(args: &Args) -> Result<()> {
    let parts = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let program = std::env::current_exe()?;
    let started = |part: u64| {
        let mut command = Command::new(&program);
        command.args(["--minutes", &args.minutes.to_string(), "--seed", &args.seed.to_string()]);
        command.args(args.reader.iter().flat_map(|reader| ["--reader", reader]));
        let inputs = args.inputs.map(|inputs| inputs.div_ceil(parts).to_string());
        command.args(inputs.iter().flat_map(|inputs| ["--inputs", inputs]));
        command.args(["--part", &part.to_string()]).stdout(Stdio::piped()).spawn()
    };
    let children = (0..parts).map(started).collect::<Result<Vec<_>, _>>()?;
    let mut counts = [[0u64; 2]; READERS.len()];
    let mut findings = 0;
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let number =
                |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
            match READERS.iter().position(|reader| Some(&reader.name) == words.first()) {
                Some(at) => counts[at] = [counts[at][0] + number(1), counts[at][1] + number(2)],
                None => {
                    findings += 1;
                    println!("{line}");
                }
            }
        }
        if !output.status.success() && !text.contains("found") {
            findings += 1;
            println!("found: a process ended with {}; see the last line above it", output.status);
        }
    }
    println!(" reader                 inputs       read");
    for (reader, [inputs, read]) in READERS.iter().zip(counts) {
        println!(" {:<16} {inputs:>12} {read:>10}", reader.name);
    }
    println!(
        "{} inputs, {findings} findings, seed {}",
        counts.iter().map(|row| row[0]).sum::<u64>(),
        args.seed
    );
    if findings > 0 { bail!("readers don't do what SECURITY.md promises") } else { Ok(()) }
}

/// All readers in turn, until the time is over.
fn work(args: &Args, part: u64) -> Result<()> {
    let is_wanted =
        |reader: &&Reader| args.reader.is_empty() || args.reader.iter().any(|name| name == reader.name);
    let wanted: Vec<&Reader> = READERS.iter().filter(is_wanted).collect();
    if wanted.len() < args.reader.len() || wanted.is_empty() {
        let names: Vec<&str> = READERS.iter().map(|reader| reader.name).collect();
        bail!("there is no such reader; there are {}", names.join(", "));
    }
    std::panic::set_hook(Box::new(|_| ()));
    let end = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
    let mut states: Vec<(Vec<Vec<u8>>, [u64; 2])> =
        wanted.iter().map(|reader| ((reader.seeds)(), [0; 2])).collect();
    let mut found = Vec::new();
    let least = args.inputs.unwrap_or_default();
    let goes_on = |states: &[(Vec<Vec<u8>>, [u64; 2])]| match args.inputs {
        Some(_) => states.iter().any(|(_, [inputs, _])| *inputs < least),
        None => Instant::now() < end,
    };
    while goes_on(&states) && found.len() < SHOWN {
        for (reader, (seeds, [inputs, read])) in wanted.iter().zip(&mut states) {
            for _ in 0..BATCH {
                let bytes = mutant(seeds, &mut Rng::new(input(args.seed, part, *inputs)));
                *inputs += 1;
                match attempt(reader, &bytes) {
                    Ok(taken) => *read += u64::from(taken),
                    Err(what) => found.push(kept(reader, &bytes, &what)?),
                }
            }
        }
    }
    for (reader, (_, [inputs, read])) in wanted.iter().zip(&states) {
        println!("{}\t{inputs}\t{read}", reader.name);
    }
    found.iter().for_each(|finding| println!("{finding}"));
    Ok(())
}

/// A seed for one input.
fn input(seed: u64, part: u64, number: u64) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (part << 56) ^ number
}

/// Whether the bytes were taken, or what was wrong with that.
fn attempt(reader: &Reader, bytes: &[u8]) -> Result<bool, String> {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let started = Instant::now();
    let read = catch_unwind(|| (reader.read)(bytes)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("a panic: {}", text.unwrap_or("no text"))
    })?;
    let (took, memory) = (started.elapsed(), HEAP.peak_usage().saturating_sub(before));
    if took > LONGEST {
        return Err(format!("{:.1} s", took.as_secs_f64()));
    }
    if reader.is_linear && memory > MEMORY.0 * bytes.len() + MEMORY.1 {
        return Err(format!("{memory} bytes of memory for {} bytes", bytes.len()));
    }
    Ok(read)
}

/// Keeps an input as a file.
fn kept(reader: &Reader, bytes: &[u8], what: &str) -> Result<String> {
    let name =
        format!("memfit-fuzz-{}-{:016x}", reader.name, Rng::new(bytes.len() as u64).bits() ^ sum(bytes));
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).with_context(|| format!("can't write {}", path.display()))?;
    Ok(format!("found: {} takes {what}: {}", reader.name, path.display()))
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn no_reader_panics_on_spoilt_files() {
        for reader in &READERS {
            let seeds = (reader.seeds)();
            assert!(!seeds.is_empty(), "{}", reader.name);
            let (mut taken, inputs) = (0, 1500);
            for number in 0..inputs {
                let bytes = mutant(&seeds, &mut Rng::new(input(7, 0, number)));
                let read = catch_unwind(|| (reader.read)(&bytes));
                taken += u64::from(read.unwrap_or_else(|_| panic!("{} panics: input {number}", reader.name)));
            }
            // Some are still good, some are not: both sides are met.
            assert!(taken > 0 && taken < inputs, "{}: {taken} of {inputs}", reader.name);
        }
    }
}
