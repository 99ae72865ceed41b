//! `memfit codec`: what each codec makes of the tensors of a file, and how fast each is here beside a copy.

mod speed;
mod tensors;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use memfit::codec::{CODERS, Coder, by_name};
use memfit::{Bytes, Failure};

use crate::error::Error;
use crate::output::Output;

/// The most bytes that speed is measured with.
const MOST: u64 = 4 << 30;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct CodecArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// A safetensors or `.npy` file: what each codec makes of each of its tensors
    #[arg(value_hint = ValueHint::FilePath, required = true)]
    file: Option<PathBuf>,
    /// Only this codec; may be given several times
    #[arg(long, value_name = "NAME", value_parser = codec)]
    codec: Vec<String>,
    /// Start of the noise of codecs that round at random
    #[arg(long, default_value_t = 0)]
    key: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure how fast each codec is here, beside a copy of as many bytes in the same rounds
    Bench(BenchArgs),
}

#[derive(Debug, ClapArgs)]
struct BenchArgs {
    /// Bytes to deal with; several with commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "16MiB", value_parser = size)]
    size: Vec<Bytes>,
    /// Share of words that are above zero, the others being zero; several with commas
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "0.5", value_parser = share)]
    density: Vec<f64>,
    /// Only this codec, one of a plan's or `bounded` or `bounded-lorenzo`; may be given several times
    #[arg(long, value_name = "NAME", value_parser = measured)]
    codec: Vec<String>,
}

/// The error-bounded codec without and with its predictor: for files and links, so its speed is measured, but plans have none of it.
const BOUNDED: [&str; 2] = ["bounded", "bounded-lorenzo"];

fn measured(name: &str) -> Result<String, String> {
    let bounded = BOUNDED.into_iter().find(|bounded| *bounded == name);
    bounded.map_or_else(
        || codec(name).map_err(|names| format!("{names}, {}", BOUNDED.join(", "))),
        |name| Ok(name.to_owned()),
    )
}

fn codec(name: &str) -> Result<String, String> {
    let names = || CODERS.map(Coder::name).join(", ");
    by_name(name).map(|coder| coder.name().to_owned()).ok_or_else(|| format!("there are {}", names()))
}

fn size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if (4..=MOST).contains(&size.0) { Ok(size) } else { Err(format!("from 4 B to {}", Bytes(MOST))) }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a number from 0 to 1".to_owned())
}

/// The codecs of these names, or all.
fn wanted(names: &[String]) -> impl Iterator<Item = &'static dyn Coder> {
    CODERS.into_iter().filter(|coder| names.is_empty() || names.iter().any(|name| name == coder.name()))
}

pub(super) fn run(args: &CodecArgs, output: &Output) -> Result<(), Error> {
    match (&args.command, &args.file) {
        (Some(Command::Bench(bench)), _) => speed::run(bench, output),
        (None, Some(file)) => tensors::run(file, args, output),
        (None, None) => Err(Failure::usage("no file", "memfit codec FILE").into()),
    }
}
