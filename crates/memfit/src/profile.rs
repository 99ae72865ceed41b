//! What a run has learnt, for the next: the profile of a step (a graph with measured times) and its plan.
//!
//! Both are files that the rest of memfit reads: the profile is a graph like any other (`memfit plan`, `memfit
//! explain`), and the judge checks the plan against it (`memfit check`). A loaded pair is judged before it guides
//! anything.

use memfit_engine::replay::Trace;
use memfit_engine::{Recorded, Settings};
use memfit_formats::graph_json;
use memfit_formats::plan_json::{self, PlanFile, PlanHeader};
use memfit_ir::{Bytes, Graph, Limits, Plan, text};
use memfit_plan::Context;
use memfit_plan::liveness::Profile;
use memfit_plan::place::Problem;
use memfit_sim::simulate;
use memfit_verify::{Verified, verify};

use crate::planner::{find_placer, place_with};
use crate::{Device, Failure, Infeasible, check, input};

/// A profile and a plan as files, not compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The recorded step as a `memfit-graph/1` file.
    pub profile: Vec<u8>,
    /// How it is to be run as a `memfit-plan/1` file.
    pub plan: Vec<u8>,
}

/// Gives addresses to the program of `recorded`, which was made by counting bytes only, and has the judge read it.
/// Returns it with the bytes of arena it takes.
///
/// # Errors
///
/// [`Failure::Bug`] if the judge refuses it.
pub fn place(recorded: Recorded, align: Bytes) -> Result<(Recorded, Bytes), Failure> {
    let mut limits = Limits { replays_random: true, ..Limits::arena(Bytes::MAX, align) };
    let graph = &recorded.graph;
    let (problem, item_of) = Problem::of(graph, &recorded.program, &limits);
    let device = input::device("H100")?; // Costs don't matter: every op has a measured time.
    let context = Context::new(&device);
    let placement = place_with(find_placer("dive")?, &problem, &context)?;
    let layout = Problem::layout(&placement.places, &item_of);
    limits.banks[0].capacity = placement.height;
    let recorded = Recorded { layout: Some(layout), ..recorded };
    if let Some(plan) = recorded.plan() {
        judged(&recorded.graph, &limits, &plan)?;
    }
    Ok((recorded, placement.height))
}

/// The judge's word on a plan of ours.
fn judged(graph: &Graph, limits: &Limits, plan: &Plan) -> Result<Verified, Failure> {
    verify(graph, limits, plan.clone()).map_err(|rejected| Failure::Bug {
        pass: "evict:planned".to_owned(),
        rejected,
        replay: text::print(Some(limits), Some(graph), Some(plan)),
    })
}

/// Writes `recorded`, which was planned with `settings` for `device`.
///
/// # Errors
///
/// [`Failure::Usage`] if it has no addresses, since bytes were only counted; [`Failure::Bug`] if the judge refuses it.
pub fn save(recorded: &Recorded, settings: &Settings, device: &Device) -> Result<Saved, Failure> {
    let Some(plan) = recorded.plan() else {
        return Err(Failure::usage(
            format!("a plan has addresses, and the allocator `{}` gives none", settings.allocator),
            "use one that does: `--allocator best-fit`",
        ));
    };
    let graph = &recorded.graph;
    let limits = Limits { replays_random: true, ..Limits::arena(settings.budget, settings.align) };
    let verified = judged(graph, &limits, &plan)?;
    let time = simulate(graph, &plan.program, Some(&plan.layout), device).time;
    let header = PlanHeader {
        graph_name: graph.name().to_owned(),
        strategy: "evict:planned".to_owned(),
        device: device.name.clone(),
        align: settings.align,
        budget: settings.budget,
        banks: limits.banks,
        host_budget: limits.host,
        disk_budget: limits.disk,
        replays_random: limits.replays_random,
        lossy: limits.lossy,
        lanes: limits.lanes,
        peak: verified.peak().round_up(settings.align),
        live_peak: Profile::of(&plan.program, settings.align).peak().0,
        time,
        seed: settings.options.seed,
        generator: concat!("memfit ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let plan = plan_json::write(&PlanFile { header, plan });
    Ok(Saved { profile: graph_json::write(graph), plan })
}

/// Reads what [`save`] wrote, plain or compressed, and has the judge read it. Returns it with the bytes of arena it takes.
///
/// # Errors
///
/// [`Failure::Input`] for damaged files, [`Failure::OtherGraph`] if the plan is not for this profile,
/// [`Failure::Infeasible`] if it was made for more than `budget`, [`Failure::Rejected`] if it is wrong.
pub fn load(profile: &[u8], plan: &[u8], budget: Option<Bytes>) -> Result<(Recorded, Bytes), Failure> {
    let graph = input::graph(profile, &Default::default())?;
    let (file, verified) = check(plan, &graph, None)?;
    let peak = verified.peak();
    if let Some(budget) = budget.filter(|&budget| budget < peak) {
        let (needed, floor) = (peak, peak);
        let infeasible = Infeasible::new(budget, needed, floor, "layout of these buffers");
        return Err(Failure::Infeasible(Box::new(infeasible)));
    }
    let trace = Trace::of_graph(&graph, |op| graph.op(op).time.unwrap_or_default());
    Ok((Recorded { graph, program: file.plan.program, layout: Some(file.plan.layout), trace }, peak))
}
