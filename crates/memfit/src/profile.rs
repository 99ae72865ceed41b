//! What a run has learnt, for the next: the profile of a step (a graph with measured times) and its plan.
//!
//! Both are files that the rest of memfit reads: the profile is a graph like any other (`memfit plan`, `memfit
//! explain`), and the judge checks the plan against it (`memfit check`). A loaded pair is judged before it guides
//! anything.

use memfit_engine::StepPlan;
use memfit_formats::graph_json;
use memfit_formats::plan_json::{self, PlanFile, PlanHeader};
use memfit_ir::{Bytes, Codec, Limits, Tier};
use memfit_plan::liveness::Profile;
use memfit_sim::simulate;

use crate::{Device, Failure, Infeasible, check, input};

/// A profile and a plan as files, not compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The recorded step as a `memfit-graph/1` file.
    pub profile: Vec<u8>,
    /// How it is to be run as a `memfit-plan/1` file.
    pub plan: Vec<u8>,
}

/// Writes `plan`, which may use `budget` with ranges that start at multiples of `align`, on `device`. `strategy` is what made
/// it, from `seed`.
#[must_use]
pub fn save(
    plan: &StepPlan,
    (budget, align): (Bytes, Bytes),
    device: &Device,
    (strategy, seed): (&str, u64),
) -> Saved {
    let (graph, verified) = (plan.graph(), plan.verified());
    let budget = budget.max(verified.peak().round_up(align));
    let (host, disk) = (verified.tier_peak(Tier::Host), verified.tier_peak(Tier::Disk));
    let lossy = plan.program().lossy();
    let limits = Limits { replays_random: true, host, disk, lossy, ..Limits::arena(budget, align) };
    let time = simulate(graph, plan.program(), Some(plan.layout()), device).time;
    let header = PlanHeader {
        graph_name: graph.name().to_owned(),
        strategy: strategy.to_owned(),
        device: device.name.clone(),
        align,
        budget,
        banks: limits.banks,
        host_budget: limits.host,
        disk_budget: limits.disk,
        replays_random: limits.replays_random,
        lossy: limits.lossy,
        lanes: limits.lanes,
        peak: verified.peak().round_up(align),
        live_peak: Profile::of(plan.program(), align).peak().0,
        time,
        seed,
        generator: concat!("memfit ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let plan = plan_json::write(&PlanFile { header, plan: verified.plan().clone() });
    Saved { profile: graph_json::write(graph), plan }
}

/// Reads what [`save`] wrote, plain or compressed, and has the verifier check it. Of lossy codecs the plan may use those of `lossy`,
/// whatever it says of itself.
///
/// # Errors
///
/// [`Failure::Input`] for damaged files, [`Failure::OtherGraph`] if the plan is not for this profile,
/// [`Failure::Infeasible`] if it was made for more than `budget`, [`Failure::Rejected`] if it is wrong.
pub fn load(
    profile: &[u8],
    plan: &[u8],
    budget: Option<Bytes>,
    lossy: &[Codec],
) -> Result<StepPlan, Failure> {
    let graph = input::graph(profile, &Default::default())?;
    let (_, verified) = check(plan, &graph, None, lossy)?;
    let peak = verified.peak();
    if let Some(budget) = budget.filter(|&budget| budget < peak) {
        let (needed, floor) = (peak, peak);
        let infeasible = Infeasible::new(budget, needed, floor, "layout of these buffers");
        return Err(Failure::Infeasible(Box::new(infeasible)));
    }
    let digest = graph.digest().to_string();
    let other = || Failure::OtherGraph { plan: digest.clone(), graph: digest.clone() };
    StepPlan::of(graph, verified).ok_or_else(other)
}
