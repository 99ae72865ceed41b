//! One file is one command.

mod batch;
mod check;
mod checkpoint;
mod codec;
mod completions;
mod doctor;
mod explain;
mod export;
mod moved;
mod place;
mod plan;
mod policy;
mod replay;
mod report;
#[cfg(feature = "run")]
mod run;
mod shard;
mod simplify;
mod snapshot;
mod strategies;
mod sweep;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use memfit::{Budget, Goal, Options};

use crate::args::{Common, MeansArgs};
use crate::error::Error;
use crate::files;
use crate::output::Output;
use moved::moved;

/// Makes deep-learning training and inference fit in a memory budget, exactly and provably
#[derive(Debug, Parser)]
#[command(name = "memfit", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "exit codes: 0 fits · 1 does not fit · 2 usage · 3 bad input · 4 plan and graph differ · \
                        5 resources or time · 6 verification failed · 70 bug in memfit · 130 interrupted"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a plan that fits the budget, and verify it
    Plan(plan::PlanArgs),
    /// Verify a plan, independently of who made it
    Check(check::CheckArgs),
    /// Show what holds the memory at the peak of a graph or a CUDA memory snapshot, and what would help
    Explain(explain::ExplainArgs),
    /// Make one page to look at: memory over time, the address map, the timeline, before and after
    Report(report::ReportArgs),
    /// Choose offsets for a list of buffers
    Place(place::PlaceArgs),
    /// Show what every strategy makes of one budget
    Compare(sweep::CompareArgs),
    /// Show what each budget costs in time
    Sweep(sweep::SweepArgs),
    /// Share parameters, gradients and optimizer state among ranks (ZeRO, FSDP), and show what each then holds
    Shard(shard::ShardArgs),
    /// Remove dead ops, common subexpressions and identities from a graph; list ops that could be fused
    Simplify(simplify::SimplifyArgs),
    /// Run a recorded step under a budget, online, in virtual time
    Replay(replay::ReplayArgs),
    /// Train a real network within a budget, and show that it learns the same
    #[cfg(feature = "run")]
    Run(run::RunArgs),
    /// Pack checkpoints (safetensors) into fewer bytes, or into what differs from another one
    Checkpoint(checkpoint::CheckpointArgs),
    /// Write the offsets of a plan for firmware, runtimes and scripts, or traces of it for viewers
    Export(export::ExportArgs),
    /// Show what codecs make of the tensors of a file, and how fast they are here
    Codec(codec::CodecArgs),
    /// List what memfit can do, with sources
    Strategies,
    /// Check that memfit works here, and measure what moving values takes
    Doctor(doctor::DoctorArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// The first of `words` that names a command; options may stand before it.
pub(crate) fn named(words: impl Iterator<Item = std::ffi::OsString>) -> Option<String> {
    let known = <Args as clap::CommandFactory>::command();
    let mut names = words.filter_map(|word| Some(known.find_subcommand(word)?.get_name().to_owned()));
    names.next()
}

/// Runs the command that `args` name.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Error> {
    let seed = args.common.seed;
    match &args.command {
        Command::Plan(plan) => plan::run(plan, seed, output),
        Command::Check(check) => check::run(check, output),
        Command::Explain(explain) => explain::run(explain, seed, output),
        Command::Report(report) => report::run(report, seed, output),
        Command::Place(place) => place::run(place, seed, output),
        Command::Compare(compare) => sweep::run_compare(compare, seed, output),
        Command::Sweep(sweep) => sweep::run_sweep(sweep, seed, output),
        Command::Shard(sharding) => shard::run(sharding, output),
        Command::Simplify(args) => simplify::run(args, seed, output),
        Command::Replay(replay) => replay::run(replay, seed, output),
        #[cfg(feature = "run")]
        Command::Run(training) => run::run(training, seed, output),
        Command::Checkpoint(checkpoint) => checkpoint::run(checkpoint, output),
        Command::Export(export) => export::run(export, output),
        Command::Codec(codec) => codec::run(codec, output),
        Command::Strategies => strategies::run(output),
        Command::Doctor(doctor) => doctor::run(doctor, output),
        Command::Completions { shell } => completions::run(*shell, output),
    }
}

/// The device that is assumed where none is named.
const DEVICE: &str = "A100-80";

/// The goal that the options state.
fn goal(means: &MeansArgs, budget: Budget, seed: u64, output: &Output) -> Result<Goal, Error> {
    let device = files::device(means.device.as_deref().unwrap_or(DEVICE))?;
    Ok(Goal { budget, device, options: Options { seed, effort: output.effort(), ..means.options() } })
}
