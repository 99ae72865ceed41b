//! The planner behind every host: what the engine's virtual runs find and what the schedulers find, on a recorded step.
//!
//! A host issues its ops in program order, so first runs keep the recorded order. The engine's portfolio comes first, then
//! what the recorded step did itself; the cheaper of both is one more schedule that the search begins with. Each schedule
//! that is cheaper than what there is is tried: the judge reads its program, and the engine follows that in a virtual run of
//! the recorded step. So what is handed out is known to be followed to its end within the budget, costs what is said, and is
//! never dearer than what the portfolio alone finds. What all this may take of memory and time is
//! [`Settings::allowance`], or an allowance of the planner's own.

use std::sync::LazyLock;

use memfit_engine::offline::{self, Effort};
use memfit_engine::replay::followed;
use memfit_engine::stepping::AS_IT_RAN;
use memfit_engine::{Allowance, Fault, Found, Planner, Recorded, Refusal, Settings, StepPlan, Tried, alloc};
use memfit_ir::{Bytes, Device, Limits, Nanos, OpId, Program, Step, Tier};
use memfit_plan::families::{Named, Unknown, placer};
use memfit_plan::place::Problem;
use memfit_plan::schedule::{Scheduler, Task};
use memfit_plan::{Context, Means};

use crate::planner::place_with;
use crate::{Failure, input};

impl From<Refusal> for Failure {
    fn from(Refusal { rejected, replay }: Refusal) -> Failure {
        Failure::Bug { pass: "step planner".to_owned(), rejected, replay }
    }
}

/// Which way a step is planned.
#[derive(Clone, Copy)]
enum Way {
    /// The cheapest of all.
    Auto,
    /// The engine's portfolio alone.
    Portfolio,
    /// One scheduler alone.
    Scheduler(Named),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Auto => AUTO.to_owned(),
            Way::Portfolio => PORTFOLIO.to_owned(),
            Way::Scheduler(named) => named.name(),
        }
    }

    /// The schedulers that it asks, in this order, as long as what was found has a price: those that do with `means`.
    fn schedulers(self, means: Means) -> Vec<Named> {
        match self {
            Way::Portfolio => Vec::new(),
            Way::Scheduler(named) => vec![named],
            Way::Auto => {
                let defaults = Named::defaults().filter(|one| one.family.means.are_served_by(means));
                let mut all: Vec<Named> = defaults.collect();
                all.sort_by_key(|one| one.turn());
                all
            }
        }
    }
}

/// The name of the cheapest of all ways, which hosts take unless another is named.
pub const AUTO: &str = "auto";

/// The name of the engine's portfolio of virtual runs.
pub const PORTFOLIO: &str = "evict:planned";

/// See [`StepPlanner::strategies`].
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let scheduler = |one: Named| match one.family.means.moves() {
        true => one.name(),
        false => one.scheduler.info().name.to_owned(),
    };
    [AUTO, PORTFOLIO].map(str::to_owned).into_iter().chain(Named::each().map(scheduler)).collect()
});

/// See the head of this module.
pub struct StepPlanner {
    way: Way,
    effort: Effort,
    /// Where it is not that of the settings.
    allowance: Option<Allowance>,
}

/// Seconds that hosts give schedulers for a step by default.
pub const PLANNING_SECONDS: f64 = 30.0;

/// How often a front is asked for less, where what it has can't be followed within the budget.
const ROUNDS: u32 = 4;

/// Programs that are tried at most: each is judged and run once in virtual time.
const TRIES: u32 = 40;

/// Times that of the step that a plan's repetitions may take.
const MOST_REPEATED: u64 = 16;

/// Logs that there is memory for: the best one, the one at hand, and what either takes while it grows or becomes a graph.
const IN_HAND: u64 = 4;

impl StepPlanner {
    /// The engine's portfolio, from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> StepPlanner {
        let effort = Effort { seed, ..Effort::default() };
        StepPlanner { way: Way::Portfolio, effort, allowance: None }
    }

    /// Only by the strategy called `name`: `auto` for the cheapest of all, `evict:planned` for the engine's portfolio, or a
    /// scheduler, with or without `recompute:` before its name.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if there is none of that name.
    pub fn by(self, name: &str) -> Result<StepPlanner, Failure> {
        let way = match name {
            AUTO => Way::Auto,
            PORTFOLIO => Way::Portfolio,
            _ => {
                let named = Named::called(name).or_else(|| Named::called(&format!("recompute:{name}")));
                let known = StepPlanner::strategies();
                let unknown = || Unknown::new("strategy for recorded steps", name, known);
                named.map(Way::Scheduler).ok_or_else(unknown)?
            }
        };
        Ok(StepPlanner { way, ..self })
    }

    /// The name of what plans.
    #[must_use]
    pub fn name(&self) -> String {
        self.way.name()
    }

    /// Names of the strategies that [`StepPlanner::by`] knows: those that only run ops again stand without their family.
    #[must_use]
    pub fn strategies() -> Vec<&'static str> {
        NAMES.iter().map(String::as_str).collect()
    }

    /// Keeps to `allowance`, whatever the settings say: for planners that plan once.
    #[must_use]
    pub fn within(self, allowance: Allowance) -> StepPlanner {
        StepPlanner { allowance: Some(allowance), ..self }
    }

    /// As often as `most` times the step's own time may go into repetitions.
    #[must_use]
    pub fn recomputing(self, most: u64) -> StepPlanner {
        StepPlanner { effort: Effort { most_recompute: most, ..self.effort }, ..self }
    }

    /// The portfolio's plan as it ran, if there is one.
    fn portfolio(&self, recorded: &Recorded, settings: &Settings) -> Result<offline::Planned, Fault> {
        let as_it_ran = recorded.repeated_ns() / recorded.trace.base().time.0.max(1) + 1;
        let most_recompute = self.effort.most_recompute.max(as_it_ran);
        offline::plan(&recorded.trace, settings, &Effort { most_recompute, ..self.effort })
    }
}

/// What has been found so far.
struct Best {
    recorded: Recorded,
    ns: u64,
}

impl Planner for StepPlanner {
    fn plan(&mut self, recorded: &Recorded, settings: &Settings) -> Result<Found, Fault> {
        let allowance = self.allowance.clone().unwrap_or_else(|| settings.allowance.clone());
        let settings = &Settings { allowance, ..settings.clone() };
        let (mut best, mut tried, mut fault) = (None, Vec::new(), None);
        if matches!(self.way, Way::Auto | Way::Portfolio) {
            match self.portfolio(recorded, settings) {
                Ok(planned) => {
                    let ns = planned.stats.recompute_ns;
                    tried.push(Tried { name: PORTFOLIO.to_owned(), recompute_ns: Some(ns) });
                    best = Some(Best { recorded: planned.recorded, ns });
                }
                Err(error @ (Fault::NoRoom(_) | Fault::TooSlow(_) | Fault::OverAllowance)) => {
                    tried.push(Tried { name: PORTFOLIO.to_owned(), recompute_ns: None });
                    fault = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if matches!(self.way, Way::Auto) && recorded.repeated_ns() > 0 {
            let least = best.as_ref().map_or(u64::MAX, |best| best.ns);
            let found = tried_out(&recorded.program, recorded, settings, least)?;
            let found = found.map(|(recorded, ns)| Best { recorded, ns });
            let found = found.filter(|found| best.as_ref().is_none_or(|best: &Best| best.ns > found.ns));
            if let Some(found) = found {
                tried.push(Tried { name: AS_IT_RAN.to_owned(), recompute_ns: Some(found.ns) });
                best = Some(found);
            }
        }
        let is_dear = |best: &Option<Best>| best.as_ref().is_none_or(|best| best.ns > 0);
        let means = Means {
            recompute: true,
            offload: settings.tiers[Tier::Host.index()].is_some(),
            compress: !settings.codecs.is_empty() && recorded.graph.is_sparse(),
        };
        let schedulers = self.way.schedulers(means);
        if is_dear(&best) && !schedulers.is_empty() {
            let device = device(settings)?;
            let stop = || settings.allowance.is_over();
            let context = Context { seed: self.effort.seed, stop: &stop, ..Context::new(&device) };
            let mut task = Task::issued(&recorded.graph, true, &context).holding(recorded.held_to_the_end());
            for named in schedulers {
                if !is_dear(&best) {
                    break;
                }
                if !named.family.means.moves() {
                    // A schedule's runs alone: without its copies it may be no schedule that fits, and is none the
                    // search keeps.
                    let start = best.as_ref().map(|best| runs(&best.recorded.program).collect());
                    task = task.with_starts(start.into_iter().collect());
                }
                let found =
                    by_scheduler(named.scheduler, &task, recorded, settings, &context, best.as_ref())?;
                let recompute_ns = found.as_ref().map(|found| found.ns);
                tried.push(Tried { name: named.name(), recompute_ns });
                best = found.or(best);
            }
        }
        match best {
            Some(best) => Ok(Found { plan: self.adopt(&best.recorded, settings)?, ns: best.ns, tried }),
            None => {
                let names: Vec<&str> = tried.iter().map(|tried| tried.name.as_str()).collect();
                Err(fault.unwrap_or_else(|| Fault::NoPlan(names.join(", "))))
            }
        }
    }

    fn adopt(&mut self, recorded: &Recorded, settings: &Settings) -> Result<StepPlan, Fault> {
        if recorded.layout.is_some() {
            return Ok(recorded.judged(settings)?);
        }
        let (layout, height) = placed(recorded, &recorded.program, settings)?;
        Ok(StepPlan::judge(
            recorded.graph.clone(),
            &settings.limits(height),
            recorded.program.clone(),
            layout,
        )?)
    }
}

/// Ops in the order in which they run.
fn runs(program: &Program) -> impl Iterator<Item = OpId> + '_ {
    program.steps.iter().filter_map(|step| match step {
        Step::Compute(compute) => Some(compute.op),
        _ => None,
    })
}

fn bad(failure: &Failure) -> Fault {
    Fault::BadCall(failure.to_string())
}

/// A device for planning: every op of a recorded step has a measured time, so the alignment counts and the link to the host.
fn device(settings: &Settings) -> Result<Device, Fault> {
    let device = input::device("H100").map_err(|failure| bad(&failure))?;
    let host = settings.tiers[Tier::Host.index()];
    let (link, host_memory) = (host.map(|host| host.link), host.map_or(Bytes::ZERO, |host| host.capacity));
    let codecs = settings.codecs.clone();
    Ok(Device { align: settings.align, link, host_memory, codecs, ..device })
}

/// Where the buffers of `program` lie, and how high.
fn placed(
    recorded: &Recorded,
    program: &Program,
    settings: &Settings,
) -> Result<(memfit_ir::Layout, Bytes), Fault> {
    let limits = Limits::arena(Bytes::MAX, settings.align);
    let (problem, item_of) = Problem::of(&recorded.graph, program, &limits);
    let device = device(settings)?;
    let placer = placer("dive").map_err(|unknown| bad(&unknown.into()))?;
    let placement = place_with(placer, &problem, &Context::new(&device)).map_err(|failure| bad(&failure))?;
    Ok((Problem::layout(&placement.places, &item_of), placement.height))
}

/// The cheapest that `scheduler` finds and that the engine can follow, if it's cheaper than `best`.
fn by_scheduler(
    scheduler: &dyn Scheduler,
    task: &Task<'_>,
    recorded: &Recorded,
    settings: &Settings,
    context: &Context<'_>,
    best: Option<&Best>,
) -> Result<Option<Best>, Fault> {
    let mut target = settings.budget;
    let least = best.map_or(u64::MAX, |best| best.ns);
    let mut tries = 0;
    for _ in 0..ROUNDS {
        let Ok(front) = scheduler.plan(task, target, context) else { break };
        let Some(lowest) = front.points.last().map(|point| point.cost.peak) else { break };
        for point in &front.points {
            // What is waited for is known when it has been followed.
            let is_dear =
                point.moved.is_none() && point.cost.time.0.saturating_sub(task.base_time().0) >= least;
            if is_dear || tries >= TRIES {
                return Ok(None);
            }
            let Some(program) = point.program(task) else { continue };
            tries += 1;
            match tried_out(&program, recorded, settings, least)? {
                Some((recorded, ns)) if ns < least => return Ok(Some(Best { recorded, ns })),
                // With more moved it is no cheaper.
                Some(_) if point.moved.is_some() => return Ok(None),
                _ if (context.stop)() => return Ok(None),
                _ => {}
            }
        }
        target = Bytes(lowest.0.min(target.0 - target.0 / 50));
        if target < task.floor().0 {
            break;
        }
    }
    Ok(None)
}

/// What the engine does when it follows `program`, and its ns in repetitions and in waiting for copies; `None` if it can't
/// to the end, or repeats for more than `most` ns. What was found when the time for planning is over is still tried.
fn tried_out(
    program: &Program,
    recorded: &Recorded,
    settings: &Settings,
    most: u64,
) -> Result<Option<(Recorded, u64)>, Fault> {
    let graph = recorded.graph.clone();
    let addressed = alloc::by_name(&settings.allocator)
        .is_some_and(|entry| (entry.make)(settings.budget, settings.align).addresses().is_some());
    let plan = if addressed {
        let (layout, height) = placed(recorded, program, settings)?;
        if height > settings.budget {
            return Ok(None);
        }
        StepPlan::judge(graph, &settings.limits(settings.budget), program.clone(), layout)?
    } else {
        StepPlan::judge_unplaced(graph, settings, program.clone())?
    };
    let bearable = recorded.trace.base().time.0.saturating_mul(MOST_REPEATED);
    let most = most.min(bearable.max(recorded.repeated_ns().saturating_mul(2)));
    let patience = settings.patience.min(Nanos(most));
    let allowance = settings.allowance.share(IN_HAND).untimed();
    let settings = Settings { allowance, patience, ..settings.clone() };
    let Some((ran, _)) = followed(&recorded.trace, settings.clone(), plan)? else { return Ok(None) };
    // Where the engine had to evict beyond the plan, what it did is another plan, which must do as well.
    let plan = ran.judged(&settings)?;
    let ran = followed(&recorded.trace, settings, plan)?;
    Ok(ran.map(|(recorded, stats)| (recorded, stats.recompute_ns.saturating_add(stats.stall_ns))))
}
