//! Goal → order → recompute → place → judge → [`Verified`].

use std::panic::resume_unwind;

use memfit_formats::plan_json::{PlanFile, PlanHeader};
use memfit_ir::{Bytes, Device, Graph, InPlace, Layout, Limits, Nanos, OpId, Plan, Program, text};
use memfit_plan::Context;
use memfit_plan::liveness::Profile;
use memfit_plan::order::{self, ORDERS};
use memfit_plan::place::lanes::{self, Keep};
use memfit_plan::place::spread::spread;
use memfit_plan::place::{self, PLACERS, Placement, Placer, Problem, Unplaced};
use memfit_plan::schedule::recompute::{self, RECOMPUTES, Recompute};
use memfit_plan::schedule::{self, Task};
use memfit_verify::{Verified, verify};

use crate::failure::Infeasible;
use crate::{Failure, Floor, Goal, LaneRule};

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
    /// Device bytes it uses, fragmentation included. May exceed a budget for live bytes ([`Goal::live`]).
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
    /// Part of the step time in which ops run again.
    pub recompute: Nanos,
    /// No recomputation in this order and within the budget takes less than this.
    pub time_bound: Nanos,
    /// What running on several lanes gives, where it was asked for.
    pub lanes: Option<LaneSummary>,
    /// Seconds of planning, the judge included.
    pub planning_seconds: f64,
}

impl Summary {
    /// How much longer the step takes than without memfit: 0.1 for 10 % more.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        if self.base_time == Nanos::ZERO { 0.0 } else { self.time.0 as f64 / self.base_time.0 as f64 - 1.0 }
    }
}

/// A step on several lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSummary {
    /// Number of lanes.
    pub count: u16,
    /// Pairs of ops that wait for each other only because of memory.
    pub added_dependencies: usize,
    /// Predicted step time if memory added none.
    pub unhindered: Nanos,
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
pub(crate) fn step_time(graph: &Graph, device: &Device) -> Nanos {
    graph.op_ids().map(|op| device.time(&graph.op(op))).sum()
}

/// The order strategy called `name`.
fn find_order(name: &str) -> Result<&'static dyn order::Order, Failure> {
    let known = ORDERS.iter().map(|order| order.info().name);
    order::by_name(name).ok_or_else(|| unknown("order", name, known))
}

/// The recomputation called `name`.
fn find_recompute(name: &str) -> Result<&'static dyn Recompute, Failure> {
    let known = RECOMPUTES.iter().map(|strategy| strategy.info().name);
    recompute::by_name(name).ok_or_else(|| unknown("recomputation", name, known))
}

/// The placer called `name`.
pub(crate) fn find_placer(name: &str) -> Result<&'static dyn Placer, Failure> {
    let known = PLACERS.iter().map(|placer| placer.info().name);
    place::by_name(name).ok_or_else(|| unknown("placer", name, known))
}

/// A name that no strategy of its family has.
pub(crate) fn unknown<'a>(family: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    Failure::usage(format!("there is no {family} `{name}`"), format!("known: {}", known.join(", ")))
}

/// One way to run the step, placed.
struct Candidate {
    program: Program,
    problem: Problem,
    item_of: Vec<usize>,
    placement: Placement,
    /// What counts against the budget: the arena, or what is live in it.
    needs: Bytes,
    time: Nanos,
    time_bound: Nanos,
}

struct Planner<'a> {
    graph: &'a Graph,
    goal: &'a Goal,
    tools: &'a Tools<'a>,
    limits: Limits,
    placer: &'static dyn Placer,
    /// Sum of the run times of all ops.
    step_time: Nanos,
    /// What schedules that recomputation proposes are tried with first: one of many must fit.
    quick: &'static dyn Placer,
}

/// Schedules that are nearly within the budget for which the placer may search, for each order.
const SEARCHES: u32 = 3;

impl Planner<'_> {
    fn context(&self, enough: Bytes) -> Context<'_> {
        let Goal { device, seed, effort, .. } = self.goal;
        Context { device, seed: *seed, stop: self.tools.stop, effort: *effort, enough }
    }

    fn in_place(&self) -> InPlace {
        match (self.goal.in_place, self.goal.lanes > 1) {
            (false, _) => InPlace::Must,
            (true, true) => InPlace::SoleReader,
            (true, false) => InPlace::May,
        }
    }

    /// Every op once, in the first of `orders`; in a later one where the first fragments and that is lower.
    fn keep_all(&self, orders: &[&[OpId]]) -> Result<Candidate, Failure> {
        // Fragmentation that another order is worth being tried for: half a percent.
        let fragments = |candidate: &Candidate| {
            let bound = candidate.problem.lower_bound();
            candidate.needs > bound + Bytes(bound.0 / 200)
        };
        let mut best: Option<Candidate> = None;
        for order in orders {
            if best.as_ref().is_some_and(|best| !fragments(best)) {
                break;
            }
            let program = Program::in_order(self.graph, order, self.in_place());
            let candidate = self.place(program, Bytes::ZERO)?;
            if best.as_ref().is_none_or(|best| candidate.needs < best.needs) {
                best = Some(candidate);
            }
        }
        best.ok_or_else(|| Failure::usage("there is no order to plan for", "this is a bug in memfit"))
    }

    /// Every op once, in whichever of `orders` is placed lowest without a search, and what no placement gets below.
    fn rough(&self, orders: &[&[OpId]]) -> Result<(Candidate, Bytes), Failure> {
        let mut found: Option<(Candidate, Bytes)> = None;
        for order in orders {
            let program = Program::in_order(self.graph, order, self.in_place());
            let candidate = self.place_by(self.quick, program, Bytes::ZERO)?;
            let bound = candidate.problem.lower_bound();
            found = Some(match found {
                None => (candidate, bound),
                Some((best, least)) => {
                    let lower = candidate.needs < best.needs;
                    (if lower { candidate } else { best }, least.min(bound))
                }
            });
        }
        found.ok_or_else(|| Failure::usage("there is no order to plan for", "this is a bug in memfit"))
    }

    fn place(&self, program: Program, enough: Bytes) -> Result<Candidate, Failure> {
        // Where only live bytes count, a search for a lower arena is in vain.
        self.place_by(if self.goal.live { self.quick } else { self.placer }, program, enough)
    }

    fn place_by(&self, placer: &dyn Placer, program: Program, enough: Bytes) -> Result<Candidate, Failure> {
        let (mut problem, item_of) = Problem::of(self.graph, &program, &self.limits);
        if self.goal.lanes > 1 {
            let keep = match self.goal.lane_rule {
                LaneRule::Reachable => Some(Keep::Reachable),
                LaneRule::Colours => Some(Keep::Colours(self.goal.lanes)),
                LaneRule::AllowSerialize => None,
            };
            if let Some(keep) = keep {
                lanes::restrict(&mut problem, self.graph, &program, &item_of, keep);
            }
        }
        (self.tools.progress)(placer.info().name);
        let placement = place_with(placer, &problem, &self.context(enough))?;
        let needs = if self.goal.live { problem.lower_bound() } else { placement.height };
        let time = self.step_time;
        Ok(Candidate { program, problem, item_of, placement, needs, time, time_bound: time })
    }

    /// The fastest program with first runs in one of `orders` that can be placed within `budget`, or a budget
    /// that may be enough. Orders are tried side by side; ties go to the earlier one.
    fn recompute(
        &self,
        strategy: &dyn Recompute,
        orders: &[&[OpId]],
        budget: Bytes,
    ) -> Result<Candidate, Bytes> {
        (self.tools.progress)(strategy.info().name);
        let found: Vec<_> = std::thread::scope(|scope| {
            let run = |order| scope.spawn(move || self.recompute_in(strategy, order, budget));
            let running: Vec<_> = orders.iter().map(|order| run(*order)).collect();
            // A strategy that panics is a bug, and must look like one.
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut best: Result<Candidate, Bytes> = Err(Bytes::MAX);
        for found in found {
            let better = match (&found, &best) {
                (Ok(new), Ok(old)) => new.time < old.time,
                (Ok(_), Err(_)) => true,
                (Err(new), Err(old)) => new < old,
                (Err(_), Ok(_)) => false,
            };
            if better {
                best = found;
            }
        }
        best
    }

    /// The fastest program with first runs in `order` that can be placed within `budget`.
    fn recompute_in(
        &self,
        strategy: &dyn Recompute,
        order: &[OpId],
        budget: Bytes,
    ) -> Result<Candidate, Bytes> {
        let context = self.context(Bytes::ZERO);
        let task = Task::new(self.graph, order, self.in_place(), self.goal.replays_random, &context);
        let mut searches = SEARCHES;
        let place = |program: &Program| {
            let quick = self.place_by(self.quick, program.clone(), budget).ok()?;
            // What was seen to succeed: a hundredth above, or two where as much of the budget is not live.
            let spare = quick.problem.lower_bound() + Bytes(budget.0 / 100) <= budget;
            let close = quick.needs <= budget + Bytes(budget.0 / if spare { 50 } else { 100 });
            if quick.needs <= budget || !close || searches == 0 {
                return Some((quick.needs, quick));
            }
            searches -= 1;
            let placed = self.place(program.clone(), budget).ok()?;
            Some((placed.needs, placed))
        };
        match schedule::fit(strategy, &task, budget, &context, place) {
            Ok(fit) => Ok(Candidate { time: fit.cost.time, time_bound: fit.bound, ..fit.placed }),
            Err(infeasible) => Err(infeasible.needed),
        }
    }

    /// `chosen` on the goal's lanes: the program with its waits, the dependencies that memory added, and the step
    /// time with and without them.
    fn spread(&self, chosen: &Candidate, layout: &Layout) -> Result<(Program, LaneSummary, Nanos), Failure> {
        let Candidate { program, problem, item_of, placement, .. } = chosen;
        let count = self.goal.lanes;
        let added = lanes::added(problem, self.graph, program, item_of, &placement.places);
        let time = |added: &[_]| lanes::step_time(self.graph, program, added, count, &self.goal.device);
        let spread = spread(self.graph, program, layout, &added, count, &self.goal.device);
        let program = spread
            .ok_or_else(|| Failure::usage("lanes and this strategy do not go together", "use one lane"))?;
        let summary = LaneSummary { count, added_dependencies: added.len(), unhindered: time(&[]) };
        Ok((program, summary, time(&added)))
    }

    /// The least budget that is known to be enough: `low` may be, `high` is.
    fn least(&self, strategy: &dyn Recompute, orders: &[&[OpId]], low: Bytes, high: Bytes) -> Bytes {
        let (mut low, mut high, mut budget) = (low, high, low);
        for _ in 0..7 {
            if budget >= high || (self.tools.stop)() {
                break;
            }
            // A strategy's own idea of what it needs leaves out fragmentation, so it is put to the test.
            match self.recompute(strategy, orders, budget) {
                Ok(candidate) => high = candidate.needs,
                Err(_) => low = budget,
            }
            budget = Bytes(low.0 + high.0.saturating_sub(low.0) / 2);
        }
        high
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
    let recomputation = goal.recompute.as_deref().map(find_recompute).transpose()?;
    let recomputation = recomputation.filter(|_| goal.lanes <= 1); // Lanes run every op once.
    let placer = find_placer(if goal.co_share { &goal.placer } else { "naive" })?;
    let mut limits = goal.device.limits();
    limits.banks[0].capacity = Bytes::MAX; // Until the peak, and so a relative budget, is known.
    limits.replays_random = goal.replays_random;

    let quick = if placer.info().name == "best" { find_placer("dive")? } else { placer };
    let planner =
        Planner { graph, goal, tools, limits, placer, step_time: step_time(graph, &goal.device), quick };
    let given: Vec<OpId> = graph.op_ids().collect();
    let base = Profile::of(&Program::eager(graph), align).peak().0;
    (tools.progress)(order.info().name);
    let best = order.order(graph, &planner.context(Bytes::ZERO));
    let orders: &[&[OpId]] = if goal.order == "best" && best != given { &[&best, &given] } else { &[&best] };
    // A share of the peak means the same to every strategy; only the default's own arena may raise it, so that
    // all of the peak is always enough.
    let is_default = goal.order == "best" && placer.info().name == "best";
    let peak = |arena: Bytes| if is_default { base.max(arena) } else { base };
    let budget = |peak: Bytes| goal.budget.resolve(&goal.device, floor.bytes, peak);
    // A search for the lowest arena would be in vain where that is too high anyway, and says nothing of the peak.
    let rough = recomputation.is_some().then(|| planner.rough(orders)).transpose()?;
    let rough = rough.filter(|(candidate, bound)| {
        let height = candidate.needs;
        peak(height) == base && *bound > budget(base)
    });
    let mut chosen = match rough {
        Some((candidate, _)) => candidate,
        None => planner.keep_all(orders)?,
    };
    let unconstrained_peak = peak(chosen.needs);
    let budget = budget(unconstrained_peak);
    let mut pass = format!("order:{}", order.info().name);
    if chosen.needs > budget {
        let keep_all = chosen.needs;
        let found = match recomputation {
            None => Err(keep_all),
            Some(strategy) => {
                pass += &format!("+recompute:{}", strategy.info().name);
                let least = |low: Bytes| planner.least(strategy, orders, low.max(floor.bytes), keep_all);
                // Nothing fits below the floor; what is enough is found from there.
                match planner.recompute(strategy, orders, budget.max(floor.bytes)) {
                    Ok(candidate) if candidate.needs > budget => Err(candidate.needs),
                    found => found.map_err(least),
                }
            }
        };
        chosen = found.map_err(|needed| {
            let (floor, proved, witness) = (floor.bytes, budget < floor.bytes, floor.witness(graph));
            Failure::Infeasible(Box::new(Infeasible { budget, needed, floor, proved, witness }))
        })?;
    }
    pass += &format!("+place:{}{}", placer.info().name, if goal.live { "+budget:live" } else { "" });
    let live_peak = Profile::of(&chosen.program, align).peak().0;
    let layout = Problem::layout(&chosen.placement.places, &chosen.item_of);
    let mut base_time = planner.step_time;
    let mut on_lanes = None;
    if goal.lanes > 1 {
        let (program, summary, time) = planner.spread(&chosen, &layout)?;
        base_time = summary.unhindered;
        on_lanes = Some(summary);
        chosen = Candidate { program, time, time_bound: summary.unhindered, ..chosen };
    }
    let Candidate { program, problem, placement, time, time_bound, .. } = chosen;
    let mut limits = planner.limits;
    limits.banks[0].capacity = if goal.live { budget.max(placement.height) } else { budget };
    limits.lanes = goal.lanes.max(1);
    let plan = Plan { graph: graph.digest(), program, layout };
    (tools.progress)("verify");
    let verified = verify(graph, &limits, plan.clone()).map_err(|rejected| Failure::Bug {
        pass: pass.clone(),
        rejected,
        replay: text::print(Some(&limits), Some(graph), Some(&plan)),
    })?;
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
        base_time,
        recompute: if goal.lanes > 1 { Nanos::ZERO } else { Nanos(time.0.saturating_sub(base_time.0)) },
        time_bound,
        lanes: on_lanes,
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
        let Limits { banks, host, disk, lossy, replays_random, lanes } = self.limits.clone();
        let header = PlanHeader {
            graph_name: graph.name().to_owned(),
            strategy: self.summary.strategy.clone(),
            device: goal.device.name.clone(),
            align: goal.device.align,
            budget: self.summary.budget,
            banks,
            host_budget: host,
            disk_budget: disk,
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
