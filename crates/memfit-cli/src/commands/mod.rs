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
use memfit::{Budget, Goal, LaneRule};
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
    let mut goal = Goal::new(files::device(means.device.as_deref().unwrap_or(DEVICE))?, budget);
    for strategy in &means.strategy {
        goal = goal.with_strategy(strategy)?;
    }
    goal.order = means.order.clone().unwrap_or(goal.order);
    goal.placer = means.placer.clone().unwrap_or(goal.placer);
    if means.no_recompute {
        goal = goal.without_recomputation();
    }
    if let Some(bytes) = means.host_budget {
        goal = goal.with_host_memory(bytes);
    }
    if let Some(bytes) = means.disk_budget {
        goal = goal.with_disk(bytes)?;
    }
    if means.no_offload {
        goal = goal.with_host_memory(memfit::ir::Bytes::ZERO);
    }
    goal.replays_random = match (means.replay_random, means.no_replay_random) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    };
    goal.lanes = means.lanes;
    goal.lane_rule = match (means.allow_serialize, means.colour_lanes) {
        (true, _) => LaneRule::AllowSerialize,
        (false, true) => LaneRule::Colours,
        (false, false) => LaneRule::Reachable,
    };
    goal.in_place = !means.no_in_place;
    goal.co_share = !means.no_co_share;
    goal.seed = seed;
    goal.effort = output.effort();
    Ok(goal)
}
