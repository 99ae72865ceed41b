//! One file is one command.

mod check;
mod completions;
mod doctor;
mod explain;
mod export;
mod place;
mod plan;
mod replay;
#[cfg(feature = "run")]
mod run;
mod snapshot;
mod strategies;
mod sweep;

pub(crate) use export::Form;
use memfit::{Budget, Goal, Options};
#[cfg(feature = "run")]
pub(crate) use run::RunArgs;

use crate::args::{Args, Command, MeansArgs};
use crate::error::Error;
use crate::files;
use crate::output::Output;

/// Runs the command that `args` name.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<(), Error> {
    let seed = args.common.seed;
    match &args.command {
        Command::Plan(plan) => plan::run(plan, seed, output),
        Command::Check(check) => check::run(check, output),
        Command::Explain(explain) => explain::run(explain, seed, output),
        Command::Place(place) => place::run(place, seed, output),
        Command::Compare(compare) => sweep::run_compare(compare, seed, output),
        Command::Sweep(sweep) => sweep::run_sweep(sweep, seed, output),
        Command::Replay(replay) => replay::run(replay, seed, output),
        #[cfg(feature = "run")]
        Command::Run(training) => run::run(training, seed, output),
        Command::Export(export) => export::run(export, output),
        Command::Strategies => strategies::run(output),
        Command::Doctor => doctor::run(output),
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
