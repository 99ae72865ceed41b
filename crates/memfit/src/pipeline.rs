//! Goal → order → place → judge → [`Verified`].

use memfit_formats::plan_json::{PlanFile, PlanHeader};
use memfit_ir::{Bytes, Graph, InPlace, Limits, Nanos, OpId, Plan, Program, text};
use memfit_plan::Context;
use memfit_plan::liveness::Profile;
use memfit_plan::order::{self, ORDERS};
use memfit_plan::place::{PLACERS, Placement, Placer, Problem, Unplaced};
use memfit_verify::{Verified, verify};

use crate::failure::Infeasible;
use crate::{Failure, Floor, Goal};

/// What the face lends to a run: its clock, its stop button, its progress display.
pub struct Tools<'a> {
    /// Seconds since some fixed moment.
    pub now: &'a (dyn Fn() -> f64 + Sync),
    /// Whether the time limit is over or the user has interrupted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Told the name of each pass before it starts.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

impl Tools<'_> {
    /// No clock, no limit, no display.
    #[must_use]
    pub fn none() -> Tools<'static> {
        Tools { now: &|| 0.0, stop: &|| false, progress: &|_| {} }
    }
}

/// What one placer makes of the chosen program.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacerRow {
    /// Its name.
    pub name: &'static str,
    /// Bytes of arena, or why it has none.
    pub peak: Result<Bytes, String>,
    /// Seconds it took.
    pub seconds: f64,
}

/// What is told about a plan; see the design's list of JSON keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Names of the strategies that made it: `order:best+place:best`.
    pub strategy: String,
    /// Device bytes it may use.
    pub budget: Bytes,
    /// Device bytes it uses, fragmentation included.
    pub peak: Bytes,
    /// Largest sum of live bytes of the chosen program, each buffer rounded up to the alignment.
    pub live_peak: Bytes,
    /// No plan goes below: the floor.
    pub lower_bound: Bytes,
    /// What 100 % of the peak means: the step as given, every op once, each buffer freed after its last use.
    pub unconstrained_peak: Bytes,
    /// What the step takes without any reuse: one buffer for each value.
    pub naive: Bytes,
    /// Persistent bytes.
    pub persistent: Bytes,
    /// Predicted step time.
    pub time: Nanos,
    /// The same without memfit.
    pub base_time: Nanos,
    /// Seconds of planning, the judge included.
    pub planning_seconds: f64,
}

/// A verified plan with what was found on the way.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub verified: Verified,
    /// The limits it was verified against.
    pub limits: Limits,
    /// What to tell.
    pub summary: Summary,
    /// The program as it was placed.
    problem: Problem,
}

/// Sum of the run times of all ops.
fn step_time(graph: &Graph, goal: &Goal) -> Nanos {
    graph.op_ids().map(|op| goal.device.time(&graph.op(op))).sum()
}

/// The order strategy called `name`.
fn find_order(name: &str) -> Result<&'static dyn order::Order, Failure> {
    let known = ORDERS.iter().map(|order| order.info().name);
    let missing = || unknown("order", name, known);
    ORDERS.iter().copied().find(|order| order.info().name == name).ok_or_else(missing)
}

/// The placer called `name`.
pub(crate) fn find_placer(name: &str) -> Result<&'static dyn Placer, Failure> {
    let known = PLACERS.iter().map(|placer| placer.info().name);
    let missing = || unknown("placer", name, known);
    PLACERS.iter().copied().find(|placer| placer.info().name == name).ok_or_else(missing)
}

fn unknown<'a>(family: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    Failure::usage(format!("there is no {family} `{name}`"), format!("known: {}", known.join(", ")))
}

/// One way to run the step: an order, lowered to a program and placed.
struct Candidate {
    program: Program,
    problem: Problem,
    item_of: Vec<usize>,
    placement: Placement,
}

struct Planner<'a> {
    graph: &'a Graph,
    goal: &'a Goal,
    tools: &'a Tools<'a>,
    limits: Limits,
    placer: &'static dyn Placer,
}

impl Planner<'_> {
    fn context(&self, enough: Bytes) -> Context<'_> {
        let Goal { device, seed, effort, .. } = self.goal;
        Context { device, seed: *seed, stop: self.tools.stop, effort: *effort, enough }
    }

    fn candidate(&self, order: &[OpId]) -> Result<Candidate, Failure> {
        let in_place = if self.goal.in_place { InPlace::May } else { InPlace::Must };
        let program = Program::in_order(self.graph, order, in_place);
        let (problem, item_of) = Problem::of(self.graph, &program, &self.limits);
        (self.tools.progress)(self.placer.info().name);
        let placement = place_with(self.placer, &problem, &self.context(Bytes::ZERO))?;
        Ok(Candidate { program, problem, item_of, placement })
    }
}

/// Runs `placer`; what it can't do is the user's choice of placer.
pub(crate) fn place_with(
    placer: &dyn Placer,
    problem: &Problem,
    context: &Context<'_>,
) -> Result<Placement, Failure> {
    let name = placer.info().name;
    placer.place(problem, context).map_err(|unplaced| match unplaced {
        Unplaced::Unsupported(what) => {
            Failure::usage(format!("placer `{name}` does not do {what}"), "`--placer best` does")
        }
        Unplaced::TooSmall { needed, proved } => {
            let budget = problem.banks.first().map(|bank| bank.capacity).unwrap_or_default();
            let floor = if proved { needed } else { problem.lower_bound() };
            Failure::Infeasible(Box::new(Infeasible { budget, needed, floor, proved, witness: None }))
        }
    })
}

/// Makes a plan for `graph` that keeps to `goal`, and has the judge read it.
///
/// # Errors
///
/// [`Failure::Usage`] for unknown strategies, [`Failure::Infeasible`] where the budget is too small,
/// [`Failure::Bug`] where the judge refuses our own plan.
pub fn plan(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Planned, Failure> {
    let started = (tools.now)();
    let align = goal.device.align;
    let floor = Floor::of(graph, align);
    let order = find_order(&goal.order)?;
    let placer = find_placer(if goal.co_share { &goal.placer } else { "naive" })?;
    let mut limits = goal.device.limits();
    limits.banks[0].capacity = Bytes::MAX; // Until the peak, and so a relative budget, is known.

    let planner = Planner { graph, goal, tools, limits, placer };
    let given: Vec<OpId> = graph.op_ids().collect();
    let base = Profile::of(&Program::eager(graph), align).peak().0;
    (tools.progress)(order.info().name);
    let best = order.order(graph, &planner.context(Bytes::ZERO));
    let mut chosen = planner.candidate(&best)?;
    // An order with a smaller live peak may fragment more: the given one stays in the race.
    if chosen.placement.height > chosen.problem.lower_bound() && best != given && goal.order == "best" {
        let other = planner.candidate(&given)?;
        if other.placement.height < chosen.placement.height {
            chosen = other;
        }
    }
    let Candidate { program, problem, item_of, placement } = chosen;

    let unconstrained_peak = base.max(placement.height);
    let budget = goal.budget.resolve(&goal.device, floor.bytes, unconstrained_peak);
    if placement.height > budget {
        return Err(Failure::Infeasible(Box::new(Infeasible {
            budget,
            needed: placement.height,
            floor: floor.bytes,
            proved: budget < floor.bytes,
            witness: floor.witness(graph),
        })));
    }
    let mut limits = planner.limits;
    limits.banks[0].capacity = budget;
    let live_peak = Profile::of(&program, align).peak().0;
    let layout = Problem::layout(&placement.places, &item_of);
    let plan = Plan { graph: graph.digest(), program, layout };
    (tools.progress)("verify");
    let pass = format!("order:{}+place:{}", order.info().name, placer.info().name);
    let verified = verify(graph, &limits, plan.clone()).map_err(|rejected| Failure::Bug {
        pass: pass.clone(),
        rejected,
        replay: text::print(Some(&limits), Some(graph), Some(&plan)),
    })?;
    let time = step_time(graph, goal);
    let naive = Problem::of(graph, &Program::eager(graph), &limits).0.total();
    let summary = Summary {
        strategy: pass,
        budget,
        peak: placement.height,
        live_peak,
        lower_bound: floor.bytes,
        unconstrained_peak,
        naive,
        persistent: floor.persistent,
        time,
        base_time: time,
        planning_seconds: (tools.now)() - started,
    };
    Ok(Planned { verified, limits, summary, problem })
}

impl Planned {
    /// What every placer that is quick makes of the same program, in the order of the table.
    #[must_use]
    pub fn compare(&self, goal: &Goal, tools: &Tools<'_>) -> Vec<PlacerRow> {
        let Goal { device, seed, .. } = goal;
        let context = Context { device, seed: *seed, stop: tools.stop, effort: 1, enough: Bytes::ZERO };
        let quick = PLACERS.iter().filter(|placer| placer.is_quick());
        quick
            .map(|placer| {
                let started = (tools.now)();
                let peak = place_with(*placer, &self.problem, &context);
                let seconds = (tools.now)() - started;
                let peak = peak.map(|placed| placed.reserved).map_err(|failure| failure.to_string());
                PlacerRow { name: placer.info().name, peak, seconds }
            })
            .collect()
    }

    /// The plan as a file.
    #[must_use]
    pub fn file(&self, graph: &Graph, goal: &Goal) -> PlanFile {
        let Limits { banks, host, lossy, replays_random, lanes } = self.limits.clone();
        let header = PlanHeader {
            graph_name: graph.name().to_owned(),
            strategy: self.summary.strategy.clone(),
            device: goal.device.name.clone(),
            align: goal.device.align,
            budget: self.summary.budget,
            banks,
            host_budget: host,
            replays_random,
            lossy,
            lanes,
            peak: self.summary.peak,
            live_peak: self.summary.live_peak,
            time: self.summary.time,
            seed: goal.seed,
            generator: concat!("memfit ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        PlanFile { header, plan: self.verified.plan().clone() }
    }
}
