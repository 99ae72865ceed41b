//! Spoilt files for every reader: none may panic, take more than a second, or more memory than its input is worth.
//!
//! Blind to coverage, but the changes know what files are made of. Every core has a process of its own, so that memory can
//! be counted, and a crash ends only that one. An input follows from the seed, the reader and its number alone.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of the developers")]

use std::panic::catch_unwind;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use memfit::formats::is_packed;
use memfit_testkit::Rng;
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};

use memfit_fuzz::{READERS, Reader, mutant, sum};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// No input takes more time of processors: whoever else works on the machine does not count.
const LONGEST: Duration = Duration::from_secs(1);

/// Bytes of memory for each byte of input, and beside them for tables of fixed size.
const MEMORY: (usize, usize) = (64, 4 << 20);

/// The most inputs of a reader before it is the next one's turn, and the longest that such a turn takes but for its last input.
const TURN: (u64, Duration) = (256, Duration::from_millis(5));

/// Time between two signs of life.
const SILENCE: Duration = Duration::from_secs(60);

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

/// What became of the inputs of a reader.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    inputs: u64,
    /// Those that were taken.
    read: u64,
    /// The time of the slowest.
    longest: Duration,
    /// The most bytes of memory that one took.
    memory: u64,
}

impl Counts {
    /// For the process that started this one.
    fn line(&self) -> String {
        format!("{}\t{}\t{}\t{}", self.inputs, self.read, self.longest.as_nanos(), self.memory)
    }

    /// What [`Counts::line`] wrote; zero for what is missing.
    fn parse(words: &[&str]) -> Counts {
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or_default();
        Counts {
            inputs: number(0),
            read: number(1),
            longest: Duration::from_nanos(number(2)),
            memory: number(3),
        }
    }

    fn add(&mut self, other: &Counts) {
        self.inputs += other.inputs;
        self.read += other.read;
        self.longest = self.longest.max(other.longest);
        self.memory = self.memory.max(other.memory);
    }
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
    let mut counts = [Counts::default(); READERS.len()];
    let mut findings = 0;
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            match READERS.iter().position(|reader| Some(&reader.name) == words.first()) {
                Some(at) => counts[at].add(&Counts::parse(&words[1..])),
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
    let mut all = Counts::default();
    counts.iter().for_each(|row| all.add(row));
    println!("| reader           |       inputs |      taken | longest, us | most memory, B |");
    println!("|------------------|-------------:|-----------:|------------:|---------------:|");
    let row = |name: &str, Counts { inputs, read, longest, memory }: Counts| {
        let micros = longest.as_micros();
        println!("| {name:<16} | {inputs:>12} | {read:>10} | {micros:>11} | {memory:>14} |");
    };
    READERS.iter().zip(counts).filter(|(_, row)| row.inputs > 0).for_each(|(one, of)| row(one.name, of));
    row("all", all);
    println!("\n{} inputs, {findings} findings, seed {}", all.inputs, args.seed);
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
    let mut states: Vec<(Vec<Vec<u8>>, Counts)> =
        wanted.iter().map(|reader| ((reader.seeds)(), Counts::default())).collect();
    let mut found = Vec::new();
    let least = args.inputs.unwrap_or_default();
    let goes_on = |states: &[(Vec<Vec<u8>>, Counts)]| match args.inputs {
        Some(_) => states.iter().any(|(_, counts)| counts.inputs < least),
        None => Instant::now() < end,
    };
    let mut told = Instant::now();
    while goes_on(&states) && found.len() < SHOWN {
        if part == 0 && told.elapsed() > SILENCE {
            let inputs: u64 = states.iter().map(|(_, counts)| counts.inputs).sum();
            eprintln!("{inputs} inputs by the first process, {} findings", found.len());
            told = Instant::now();
        }
        for (reader, (seeds, counts)) in wanted.iter().zip(&mut states) {
            let started = Instant::now();
            for _ in 0..TURN.0 {
                if started.elapsed() > TURN.1 || args.inputs.is_some() && counts.inputs >= least {
                    break;
                }
                let bytes = mutant(seeds, &mut Rng::new(input(args.seed, part, counts.inputs)));
                counts.inputs += 1;
                match attempt(reader, &bytes, counts) {
                    Ok(taken) => counts.read += u64::from(taken),
                    Err(what) => found.push(kept(reader, &bytes, &what)?),
                }
            }
        }
    }
    wanted
        .iter()
        .zip(&states)
        .for_each(|(reader, (_, counts))| println!("{}\t{}", reader.name, counts.line()));
    found.iter().for_each(|finding| println!("{finding}"));
    Ok(())
}

/// A seed for one input.
fn input(seed: u64, part: u64, number: u64) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (part << 56) ^ number
}

/// What this process has taken of processors.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    Duration::from_secs(part(now.tv_sec)) + Duration::from_nanos(part(now.tv_nsec))
}

/// Whether the bytes were taken, or what was wrong with that.
fn attempt(reader: &Reader, bytes: &[u8], counts: &mut Counts) -> Result<bool, String> {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let started = spent();
    let read = catch_unwind(|| (reader.read)(bytes)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("a panic: {}", text.unwrap_or("no text"))
    })?;
    let (took, memory) = (spent().saturating_sub(started), HEAP.peak_usage().saturating_sub(before));
    (counts.longest, counts.memory) = (counts.longest.max(took), counts.memory.max(memory as u64));
    if took > LONGEST {
        return Err(format!("{:.1} s", took.as_secs_f64()));
    }
    // A packed file unpacks to as much as that allows, which has a limit of its own.
    let is_linear = reader.is_linear && !is_packed(bytes);
    if is_linear && memory > MEMORY.0 * bytes.len() + MEMORY.1 {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn no_reader_panics_on_spoilt_files() {
        for reader in &READERS {
            let seeds = (reader.seeds)();
            assert!(!seeds.is_empty(), "{}", reader.name);
            // A plan takes a thousand times as long as a refusal.
            let (mut taken, inputs) = (0, if reader.name == "strategies" { 100 } else { 1500 });
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
