//! A step as one of N ranks runs it, beside data parallelism that shares nothing.

use memfit_ir::{Bytes, Graph, InPlace, Nanos, OpId, Program};
use memfit_plan::liveness::Profile;
use memfit_plan::shard::{Holdings, Refused, STAGES, Sharded, Sharding, Traffic, shard as share};

use crate::planner::base_time;
use crate::{Device, Failure, Floor};

/// What one rank does, and what it takes.
#[derive(Clone, Debug)]
pub struct Rank {
    /// Its step.
    pub graph: Graph,
    /// What it holds of parameters, gradients and state.
    pub holdings: Holdings,
    /// What it sends.
    pub traffic: Traffic,
    /// Largest sum of live bytes in the order of the graph, each buffer rounded up to the device's alignment.
    pub live_peak: Bytes,
    /// No plan that keeps persistent storages on the device goes below.
    pub floor: Bytes,
    /// Predicted time of the step, its collective ops one after another with the rest.
    pub time: Nanos,
}

/// A sharded step, and what it is compared with.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Every rank holds everything.
    pub before: Rank,
    /// Ranks share.
    pub after: Rank,
}

/// The step of one of the ranks that share as `sharding` says, and the one that shares nothing.
///
/// # Errors
///
/// [`Failure::Usage`] for what can't be asked for together, and for numbers of ranks that can't share it; [`Failure::Input`] for
/// graphs that don't say what their parameters, gradients and updates are.
pub fn shard(graph: &Graph, device: &Device, sharding: &Sharding<'_>) -> Result<Comparison, Failure> {
    // What is asked for comes first: it says more of what is in the way.
    let after = share(graph, sharding).map_err(failure)?;
    let alone = Sharding { stage: STAGES[0], units: &[], ..*sharding };
    let before = share(graph, &alone).map_err(failure)?;
    Ok(Comparison { before: rank(before, device), after: rank(after, device) })
}

fn rank(made: Sharded, device: &Device) -> Rank {
    let Sharded { graph, holdings, traffic } = made;
    let order: Vec<OpId> = graph.op_ids().collect();
    let live_peak = Profile::of(&Program::in_order(&graph, &order, InPlace::May), device.align).peak().0;
    let (floor, time) = (Floor::of(&graph, device.align).bytes, base_time(&graph, device));
    Rank { graph, holdings, traffic, live_peak, floor, time }
}

fn failure(refused: Refused) -> Failure {
    let Refused { message, hint, usage } = refused;
    if usage {
        Failure::usage(message, hint)
    } else {
        Failure::Input(memfit_formats::FormatError::new("", message).hint(hint))
    }
}
