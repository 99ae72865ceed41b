//! Goal → order → recompute → place → verifier → [`Verified`].

use memfit_formats::plan_json::{PlanFile, PlanHeader};
use memfit_ir::{Bytes, Codec, Content, Graph, Limits, Nanos, OpId, Plan, Program, Step, Tier, text};
use memfit_plan::Context;
use memfit_plan::families::{Named, default_of};
use memfit_plan::liveness::Profile;
use memfit_plan::place::{PLACERS, Problem};
use memfit_plan::schedule::Instead;
use memfit_sim::{Timeline, simulate};
use memfit_verify::{Rejected, Verified, verify};

use crate::choice::{Choice, LIVE};
use crate::failure::Infeasible;
use crate::held::{held_by, label_of};
use crate::planner::{Candidate, Missed, Orders, Planner, base_time, place_with};
use crate::{Failure, Floor, Goal};

/// What the face lends to a run: its clock, its stop button, its progress display.
pub struct Tools<'a> {
    /// Seconds since some fixed moment.
    pub now: &'a (dyn Fn() -> f64 + Sync),
    /// Whether the time limit is over or the user has interrupted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Told the name of each pass before it starts.
    pub progress: &'a (dyn Fn(&str) + Sync),
    /// The moment, on the clock of `now`, at which the time is over; `None` without a time limit. `stop` says so
    /// too: this is for those who share out what is left.
    pub until: Option<f64>,
}

impl Tools<'_> {
    /// No clock, no limit, no display.
    #[must_use]
    pub fn none() -> Tools<'static> {
        Tools { now: &|| 0.0, stop: &|| false, progress: &|_| {}, until: None }
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
    /// Device bytes it uses, fragmentation included. May exceed a budget for live bytes (`budget:live`).
    pub peak: Bytes,
    /// Largest sum of live bytes of the chosen program, each buffer rounded up to the alignment.
    pub live_peak: Bytes,
    /// No plan with the means that were allowed goes below: the floor, or less where parameters and state may be at home
    /// elsewhere.
    pub lower_bound: Bytes,
    /// Persistent bytes plus the largest single-op working set.
    pub floor: Bytes,
    /// Bytes of parameters, state and constants that are at home in other memory than the device's.
    pub parked: Bytes,
    /// What 100 % of the peak means: the step as given, every op once, each buffer freed after its last use.
    pub unconstrained_peak: Bytes,
    /// What the step takes without any reuse: one buffer for each value.
    pub naive: Bytes,
    /// Persistent bytes.
    pub persistent: Bytes,
    /// The strategy that was asked and did not do its work, if there is one: [`Summary::strategy`] names who did.
    pub instead: Option<NotDone>,
    /// Predicted step time: what the clock says of the program itself.
    pub time: Nanos,
    /// What the clock says of the step without memfit.
    pub base_time: Nanos,
    /// Part of the step time in which ops run again.
    pub recompute: Nanos,
    /// No recomputation in this order and within the budget takes less than this.
    pub time_bound: Nanos,
    /// Bytes that are carried to other tiers, each time they are.
    pub offloaded: Bytes,
    /// The most bytes of copies in host memory.
    pub host_peak: Bytes,
    /// The most bytes of copies on the disk.
    pub disk_peak: Bytes,
    /// By [`Tier::index`], the time in which the link to that tier carries something out of the device, and back.
    pub links: [[Nanos; 2]; Tier::ALL.len()],
    /// Part of the step time in which the device waits for transfers.
    pub stall: Nanos,
    /// The op that runs at the live peak while nothing is live that could be elsewhere, if there is one: moving more lowers
    /// that peak no further.
    pub held_by: Option<String>,
    /// Bytes of values that wait encoded, as many as they are before, each time they are. What ops overwrite and run again on
    /// does not count.
    pub encoded: Bytes,
    /// Part of the step time in which codecs encode and decode.
    pub codec: Nanos,
    /// Lossy codecs that it uses, by their order in [`Codec::ALL`].
    pub lossy: Vec<Codec>,
    /// What running on several lanes gives, where it was asked for.
    pub lanes: Option<LaneSummary>,
    /// Seconds of planning, the verifier included.
    pub planning_seconds: f64,
}

impl Summary {
    /// Part of the step time in which the link to `tier` carries something out of the device, and back: from 0 to 1.
    #[must_use]
    pub fn busy(&self, tier: Tier) -> [f64; 2] {
        self.links[tier.index()].map(|busy| busy.0 as f64 / self.time.0.max(1) as f64)
    }

    /// How much longer the step takes than without memfit: 0.1 for 10 % more.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        if self.base_time == Nanos::ZERO { 0.0 } else { self.time.0 as f64 / self.base_time.0 as f64 - 1.0 }
    }
}

/// A strategy that did not do its own work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDone {
    /// Its name, `recompute:checkmate`.
    pub strategy: String,
    /// Why not.
    pub why: String,
    /// What was used instead, as a name of a strategy.
    pub used: String,
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
    /// What the clock says of the program: every time in the summary comes from it.
    pub timeline: Timeline,
    /// The program as it was placed.
    problem: Problem,
}

/// Makes a plan for `graph` that keeps to `goal`, and has the verifier check it.
///
/// Under a time limit (an effort without end) in rounds, each with twice the work of the one before: whatever the
/// limit cuts short, what earlier rounds found is there. Ties go to the earlier round.
///
/// # Errors
///
/// [`Failure::Usage`] for unknown strategies and means that exclude each other, [`Failure::Infeasible`] where the
/// budget is too small, [`Failure::Timeout`] where the time was over before a plan was found, [`Failure::Bug`] where
/// the verifier refuses our own plan.
pub fn plan(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Planned, Failure> {
    planned((graph, true), goal, tools)
}

/// As [`plan`]; where nothing fits nobody looks for what is enough.
pub(crate) fn fits(graph: &Graph, goal: &Goal, tools: &Tools<'_>) -> Result<Planned, Failure> {
    planned((graph, false), goal, tools)
}

/// `tells`: whether what is enough is to be found where nothing fits.
fn planned((graph, tells): (&Graph, bool), goal: &Goal, tools: &Tools<'_>) -> Result<Planned, Failure> {
    let started = (tools.now)();
    let find = |goal: &Goal| match goal.options.effort {
        u32::MAX => deepen((graph, tells), goal, tools),
        _ => round((graph, tells), goal, tools),
    };
    let may_lose = !goal.options.lossy.is_empty() && Choice::of(goal)?.is_by_default();
    // Nothing is lost where a plan fits that loses nothing, unless whoever names a scheduler knows better.
    let mut found = find(&if may_lose { goal.lossless() } else { goal.clone() });
    if may_lose && matches!(found, Err(Failure::Infeasible(_))) && !(tools.stop)() {
        found = find(goal);
    }
    if let Ok(planned) = &mut found {
        planned.summary.planning_seconds = (tools.now)() - started;
    }
    found
}

/// Rounds of growing effort until the time is over or nothing better is possible.
fn deepen(what: (&Graph, bool), goal: &Goal, tools: &Tools<'_>) -> Result<Planned, Failure> {
    let mut best = round(what, &goal.with_effort(1), tools);
    for effort in (1..16).map(|round| 1 << round) {
        let optimal =
            |summary: &Summary| summary.time <= summary.time_bound && summary.peak <= summary.live_peak;
        match &best {
            Ok(planned) if optimal(&planned.summary) => break,
            Err(Failure::Infeasible(why)) if why.proved => break,
            Ok(_) | Err(Failure::Infeasible(_)) => {}
            Err(_) => break,
        }
        if (tools.stop)() {
            break;
        }
        let key = |planned: &Planned| (planned.summary.time, planned.summary.peak);
        best = match (best, round(what, &goal.with_effort(effort), tools)) {
            (Ok(old), Ok(new)) if key(&new) < key(&old) => Ok(new),
            (Ok(old), Ok(_) | Err(_)) => Ok(old),
            (Err(_), new) => new,
        };
    }
    best
}

/// One plan, with the effort of the goal.
fn round((graph, tells): (&Graph, bool), goal: &Goal, tools: &Tools<'_>) -> Result<Planned, Failure> {
    let floor = Floor::of(graph, goal.device.align);
    let choice = Choice::of(goal)?;
    choice.check(goal)?;
    let choice = &choice.for_graph(graph, goal);
    let planner = Planner::new(graph, goal, choice, tools)?;
    let order = choice.order;
    let given: Vec<OpId> = graph.op_ids().collect();
    (tools.progress)(order.info().name);
    let best = order.order(graph, &planner.context(Bytes::ZERO));
    let other = (order.info().name == default_of("order") && best != given).then_some(&given[..]);
    let orders = Orders { first: &best, other };
    let away = choice.elsewhere() + choice.quantised(graph, goal);
    let bound = Floor::below(graph, goal.device.align, away);
    let Chosen { candidate, budget, unconstrained_peak } = choose(&planner, orders, (&floor, &bound), tells)?;
    let mut names = vec![format!("order:{}", order.info().name)];
    let mut instead = None;
    if let Some(named) = candidate.by {
        let name = named.name();
        let used = candidate
            .instead
            .as_ref()
            .map_or(name.clone(), |instead| format!("{}:{}", named.family.name, instead.used));
        if let Some(Instead { why, .. }) = &candidate.instead {
            instead = Some(NotDone { strategy: name, why: why.clone(), used: used.clone() });
        }
        names.push(used);
    }
    names.push(format!("place:{}", planner.placer.info().name));
    if choice.live {
        names.push(LIVE.to_owned());
    }
    let summary = Summary {
        strategy: names.join("+"),
        budget,
        peak: candidate.placement.height,
        live_peak: Profile::of(&candidate.program, goal.device.align).peak().0,
        lower_bound: bound.bytes,
        floor: floor.bytes,
        parked: parked(&candidate.program),
        unconstrained_peak,
        naive: Problem::of(graph, &Program::eager(graph), &planner.limits).0.total(),
        persistent: floor.persistent,
        instead,
        time: candidate.time,
        base_time: base_time(graph, &choice.device),
        recompute: Nanos::ZERO,
        time_bound: candidate.time_bound,
        offloaded: Bytes::ZERO,
        host_peak: Bytes::ZERO,
        disk_peak: Bytes::ZERO,
        links: Default::default(),
        stall: Nanos::ZERO,
        held_by: None,
        encoded: Bytes::ZERO,
        codec: Nanos::ZERO,
        lossy: Vec::new(),
        lanes: None,
        planning_seconds: 0.0,
    };
    judged(&planner, candidate, summary)
}

/// A candidate within the budget, and what was found on the way.
struct Chosen {
    candidate: Candidate,
    budget: Bytes,
    unconstrained_peak: Bytes,
}

/// Every op once where that fits, else the fastest that one of the schedulers finds within the budget.
/// Budgets count from `floor`, and nothing fits below `bound`. `tells`: whether what is enough is looked for where nothing fits.
fn choose(
    planner: &Planner<'_>,
    orders: Orders<'_>,
    (floor, bound): (&Floor, &Floor),
    tells: bool,
) -> Result<Chosen, Failure> {
    let Planner { graph, goal, choice, placer, .. } = *planner;
    let schedulers: &[Named] = &choice.schedulers;
    let base = Profile::of(&Program::eager(graph), goal.device.align).peak().0;
    // A share of the peak means the same to every strategy; only the default's own arena may raise it, so that
    // all of the peak is always enough.
    let is_default =
        choice.order.info().name == default_of("order") && placer.info().name == default_of("place");
    let peak = |arena: Bytes| if is_default { base.max(arena) } else { base };
    let budget = |peak: Bytes| goal.budget.resolve(&goal.device, floor.bytes, peak);
    // A search for the lowest arena would be in vain where that is too high anyway, and says nothing of the peak.
    let rough = (!schedulers.is_empty()).then(|| planner.rough(orders)).transpose()?;
    let rough = rough.filter(|(candidate, bound)| peak(candidate.needs) == base && *bound > budget(base));
    let keep_all = match rough {
        Some((candidate, _)) => candidate,
        None => planner.keep_all(orders)?,
    };
    let unconstrained_peak = peak(keep_all.needs);
    let budget = budget(unconstrained_peak);
    let (mut needed, mut why, high) = (keep_all.needs, None, keep_all.needs);
    let mut found = Err(Missed { needed: Bytes::MAX, why: None });
    let candidate = planner.filled(keep_all, budget);
    if candidate.needs <= budget {
        if schedulers.is_empty() || candidate.time <= planner.least_of_all() {
            return Ok(Chosen { candidate, budget, unconstrained_peak });
        }
        // Others may make room for faster algorithms.
        found = Ok(candidate);
    }
    if goal.options.lanes > 1 {
        why = Some(
            "on several lanes every op runs once and nothing is moved: less does without `--lanes`"
                .to_owned(),
        );
    }
    if !schedulers.is_empty() {
        // Nothing fits below the bound; what is enough is found from there.
        let low = budget.max(bound.bytes);
        planner.improve(schedulers, orders, low, &mut found);
        planner.improve(&choice.others, orders, low, &mut found);
        match found {
            Ok(candidate) if candidate.needs <= budget => {
                return Ok(Chosen { candidate, budget, unconstrained_peak });
            }
            Ok(_) => needed = low,
            Err(missed) => {
                why = missed.why;
                if tells {
                    needed = planner.least(schedulers, orders, low, high);
                }
            }
        }
    }
    let of = match choice.elsewhere() {
        Bytes::ZERO => "plan that keeps parameters and state on the device",
        _ => "plan that has only so much other memory",
    };
    let infeasible = Box::new(Infeasible {
        proved: budget < bound.bytes,
        floor: floor.bytes,
        witness: bound.witness(graph),
        why,
        moves: choice.moves() && goal.options.means.offload,
        ..Infeasible::new(budget, needed, bound.bytes, of)
    });
    let cut = !infeasible.proved && (planner.tools.stop)();
    Err(if cut { Failure::Timeout(Some(infeasible)) } else { Failure::Infeasible(infeasible) })
}

/// Spreads `candidate` over the goal's lanes, has the verifier check it, and asks the clock what it takes.
fn judged(planner: &Planner<'_>, mut candidate: Candidate, summary: Summary) -> Result<Planned, Failure> {
    let Planner { graph, goal, choice, tools, .. } = *planner;
    let count = goal.options.lanes;
    let Summary { mut base_time, mut time_bound, budget, .. } = summary;
    let bug = |rejected: Rejected, replay: String| Failure::Bug {
        pass: summary.strategy.clone(),
        rejected,
        replay,
    };
    let layout = Problem::layout(&candidate.placement.places, &candidate.item_of);
    let mut on_lanes = None;
    if count > 1 {
        let Some((program, lanes)) = planner.spread(&candidate, &layout) else {
            let replay = text::print(None, Some(graph), None);
            return Err(bug(Rejected { violations: Vec::new() }, replay));
        };
        (base_time, time_bound) = (lanes.unhindered, lanes.unhindered);
        on_lanes = Some(lanes);
        candidate.program = program;
    }
    let mut limits = planner.limits.clone();
    limits.banks[0].capacity = if choice.live { budget.max(candidate.placement.height) } else { budget };
    limits.lanes = count.max(1);
    let plan = Plan { graph: graph.digest(), program: candidate.program, layout };
    (tools.progress)("verify");
    let timeline = simulate(graph, &plan.program, Some(&plan.layout), &choice.device);
    let verified = verify(graph, &limits, plan.clone())
        .map_err(|rejected| bug(rejected, text::print(Some(&limits), Some(graph), Some(&plan))))?;
    let (time, recompute) = (timeline.time, timeline.recompute_time);
    let busy = timeline.busy.lanes.first().copied().unwrap_or_default();
    let (encoded, codec) = codecs(graph, &plan.program, &timeline);
    let summary = Summary {
        time,
        base_time,
        recompute,
        time_bound,
        offloaded: timeline.offloaded,
        host_peak: timeline.host_peak(),
        disk_peak: timeline.tier_peaks[Tier::Disk.index()],
        links: timeline.busy.links,
        stall: Nanos(if count > 1 { 0 } else { time.0.saturating_sub(busy.0) }),
        held_by: held_by(graph, &plan.program, goal.device.align).map(|op| label_of(graph, op)),
        encoded,
        codec,
        lossy: plan.program.lossy(),
        lanes: on_lanes,
        ..summary
    };
    Ok(Planned { verified, limits, summary, timeline, problem: candidate.problem })
}

/// Bytes of what is in other memory before the first step.
fn parked(program: &Program) -> Bytes {
    program.parked.iter().map(|copy| program.copies[copy.index()].size).sum()
}

/// Bytes that `program` encodes, without snapshots of what lasts, and the time that all its codecs take.
fn codecs(graph: &Graph, program: &Program, timeline: &Timeline) -> (Bytes, Nanos) {
    let lasting = graph.lasting();
    let (mut encoded, mut codec) = (Bytes::ZERO, Nanos::ZERO);
    for (step, span) in program.steps.iter().zip(&timeline.steps) {
        if let Step::Encode { .. } | Step::Decode { .. } = step {
            codec = codec + Nanos(span.end.0.saturating_sub(span.start.0));
        }
        if let Step::Encode { from, .. } = step
            && let Content::Value(value) = program.buffers[from.index()].content
            && !lasting[value.index()]
        {
            encoded += graph.value(value).size;
        }
    }
    (encoded, codec)
}

impl Planned {
    /// What every placer that is quick makes of the same program, in the order of the table.
    #[must_use]
    pub fn compare(&self, goal: &Goal, tools: &Tools<'_>) -> Vec<PlacerRow> {
        let Goal { device, options, .. } = goal;
        let context = Context { seed: options.seed, stop: tools.stop, ..Context::new(device) };
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
            // With a budget for live bytes, the arena that the plan was judged in.
            budget: banks[0].capacity,
            banks,
            host_budget: host,
            disk_budget: disk,
            replays_random,
            lossy,
            lanes,
            peak: self.summary.peak,
            live_peak: self.summary.live_peak,
            time: self.summary.time,
            seed: goal.options.seed,
            generator: concat!("memfit ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        PlanFile { header, plan: self.verified.plan().clone() }
    }
}
