//! What planners find for a recorded step is tried: verified, then followed by the engine in virtual time.
//!
//! A schedule's own price is that of its model; what counts is what the engine does when it follows it. So a front is tried
//! from its fastest point on, as long as its points are told to be cheaper than the cheapest that was followed.

use memfit_engine::replay::followed;
use memfit_engine::{Fault, Recorded, Settings, StepPlan, alloc};
use memfit_ir::{Bytes, Device, Limits, Nanos, OpId, Program, Step, Tier};
use memfit_plan::Context;
use memfit_plan::families::placer;
use memfit_plan::place::Problem;
use memfit_plan::schedule::recompute::straight;
use memfit_plan::schedule::{Front, Scheduler, Task};

use crate::planner::place_with;
use crate::{Failure, input};

/// Logs that there is memory for: the best one, the one at hand, and what either takes while it grows or becomes a graph.
const IN_HAND: u64 = 4;

/// Times that of the step that a plan's repetitions may take.
const MOST_REPEATED: u64 = 16;

/// Programs that are tried at most: each is verified and run once in virtual time.
const TRIES: u32 = 40;

/// How often a front is asked for less, where what it has can't be followed within the budget.
const ROUNDS: u32 = 4;

/// Rounds of search from the cheapest so far, after the schedulers.
const MORE: u32 = 5;

/// Rounds without a gain after which there are no more.
const IDLE: u32 = 2;

/// What has been found so far.
pub(crate) struct Best {
    pub(crate) recorded: Recorded,
    pub(crate) ns: u64,
}

impl Best {
    /// Its ops in the order in which they run: without its copies it may be no schedule that fits, and is none the search
    /// keeps.
    pub(crate) fn runs(&self) -> Vec<OpId> {
        let op = |step: &Step| match step {
            Step::Compute(compute) => Some(compute.op),
            _ => None,
        };
        self.recorded.program.steps.iter().filter_map(op).collect()
    }
}

/// Ns that `best` costs.
pub(crate) fn least(best: Option<&Best>) -> u64 {
    best.map_or(u64::MAX, |best| best.ns)
}

/// A recorded step, and how schedules of it are tried.
pub(crate) struct Trial<'a> {
    recorded: &'a Recorded,
    settings: &'a Settings,
    context: &'a Context<'a>,
    base: Nanos,
    /// Programs that may still be tried.
    left: u32,
    /// Whether ops may run again.
    again: bool,
}

impl<'a> Trial<'a> {
    /// Schedules of `task`, which is what `recorded` does.
    pub(crate) fn new(
        recorded: &'a Recorded,
        settings: &'a Settings,
        context: &'a Context<'a>,
        task: &Task<'_>,
    ) -> Trial<'a> {
        Trial { recorded, settings, context, base: task.base_time(), left: TRIES, again: true }
    }

    /// The same, where ops may only run `again` if that is wanted.
    pub(crate) fn repeating(self, again: bool) -> Trial<'a> {
        Trial { again, ..self }
    }

    /// The cheapest of `front`, as followed, of what is told to be cheaper than `least` ns and is. The engine may do with
    /// less than it's told, or need more: so the first that can be followed need not be the best one.
    pub(crate) fn cheapest(
        &mut self,
        task: &Task<'_>,
        front: &Front,
        mut least: u64,
    ) -> Result<Option<Best>, Fault> {
        let mut best = None;
        for point in &front.points {
            // What is waited for is known when it has been followed.
            let is_dear = point.moved.is_none() && point.cost.time.0.saturating_sub(self.base.0) >= least;
            if is_dear || self.left == 0 {
                break;
            }
            let Some(program) = point.program(task) else { continue };
            self.left -= 1;
            let tried = tried_out(&program, self.recorded, self.settings, least)?;
            let tried = tried.filter(|(recorded, _)| self.again || !repeats(recorded));
            let could = tried.is_some();
            if let Some((recorded, ns)) = tried.filter(|&(_, ns)| ns < least) {
                least = ns;
                best = Some(Best { recorded, ns });
            }
            // With more moved it is no cheaper.
            if (could && point.moved.is_some()) || (self.context.stop)() {
                break;
            }
        }
        Ok(best)
    }

    /// What `scheduler` finds and the engine can follow, if that is cheaper than `least` ns.
    pub(crate) fn by_scheduler(
        &mut self,
        scheduler: &dyn Scheduler,
        task: &Task<'_>,
        least: u64,
    ) -> Result<Option<Best>, Fault> {
        let mut target = self.settings.budget;
        self.left = TRIES;
        for _ in 0..ROUNDS {
            let Ok(front) = scheduler.plan(task, target, self.context) else { break };
            let Some(lowest) = front.points.last().map(|point| point.cost.peak) else { break };
            let found = self.cheapest(task, &front, least)?;
            let fastest = front.points.first().filter(|point| point.moved.is_none());
            let is_dear = fastest.is_some_and(|point| point.cost.time.0.saturating_sub(self.base.0) >= least);
            if found.is_some() || is_dear || self.left == 0 || (self.context.stop)() {
                return Ok(found);
            }
            target = Bytes(lowest.0.min(target.0 - target.0 / 50));
            if target < task.least() {
                break;
            }
        }
        Ok(None)
    }

    /// As [`Trial::by_scheduler`], by climbing straight onto the budget from `best`: in round 0 once and quickly, before any
    /// ladder is climbed, so that what matters is there when the time is over; else again and again, as long as that gains.
    pub(crate) fn straight<'g>(
        &mut self,
        task: Task<'g>,
        first: bool,
        best: Option<Best>,
    ) -> Result<(Task<'g>, Option<Best>), Fault> {
        let (mut task, mut best, mut idle) = (task, best, 0);
        let rounds = if first { 0..1 } else { 1..MORE + 1 };
        for round in rounds {
            if idle == IDLE || least(best.as_ref()) == 0 || (self.context.stop)() {
                break;
            }
            task = task.with_starts(best.iter().map(Best::runs).collect());
            let seed = self.context.seed.wrapping_add(u64::from(round));
            let effort = self.context.effort * if first { 1 } else { 2 };
            let context = Context { seed, effort, ..*self.context };
            self.left = TRIES;
            let found = match straight(&task, self.settings.budget, &context) {
                Ok(front) => self.cheapest(&task, &front, least(best.as_ref()))?,
                Err(_) => None,
            };
            idle = if found.is_some() { 0 } else { idle + 1 };
            best = found.or(best);
        }
        Ok((task, best))
    }
}

/// Whether an op runs more than once.
fn repeats(recorded: &Recorded) -> bool {
    let runs = recorded.program.steps.iter().filter(|step| matches!(step, Step::Compute(_)));
    runs.count() > recorded.graph.op_count()
}

fn bad(failure: &Failure) -> Fault {
    Fault::BadCall(failure.to_string())
}

/// A device for planning: every op of a recorded step has a measured time, so the alignment counts and the links to other tiers.
pub(crate) fn device(settings: &Settings) -> Result<Device, Fault> {
    let device = input::device("H100").map_err(|failure| bad(&failure))?;
    let host = settings.tiers[Tier::Host.index()];
    let (link, host_memory) = (host.map(|host| host.link), host.map_or(Bytes::ZERO, |host| host.capacity));
    let (codecs, disk) = (settings.codecs.clone(), settings.tiers[Tier::Disk.index()]);
    Ok(Device { align: settings.align, link, host_memory, disk, codecs, ..device })
}

/// Where the buffers of `program` lie, and how high.
pub(crate) fn placed(
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

/// What the engine does when it follows `program`, and its ns in repetitions and in waiting for copies; `None` if it can't
/// to the end, or repeats for more than `most` ns. What was found when the time for planning is over is still tried.
pub(crate) fn tried_out(
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
    let most = most.min(bearable.max(recorded.cost_ns().saturating_mul(2)));
    let patience = settings.patience.min(Nanos(most));
    let allowance = settings.allowance.share(IN_HAND).untimed();
    let settings = Settings { allowance, patience, ..settings.clone() };
    let Some((ran, _)) = followed(&recorded.trace, settings.clone(), plan)? else { return Ok(None) };
    // Where the engine had to evict beyond the plan, what it did is another plan, which must do as well.
    let plan = ran.judged(&settings)?;
    let ran = followed(&recorded.trace, settings, plan)?;
    Ok(ran.map(|(recorded, stats)| (recorded, stats.recompute_ns.saturating_add(stats.stall_ns))))
}

#[cfg(test)]
mod tests {
    use memfit_engine::replay::{Trace, recorded};
    use memfit_plan::schedule::recompute::Best as ByBest;

    use super::*;

    /// A front whose points are told to be cheaper than they are, the dearer the more so.
    #[test]
    fn the_cheapest_as_followed_is_taken() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/graphs/vgg16-train-b256.json.zst");
        let graph = input::graph(&std::fs::read(path).unwrap(), &Default::default()).unwrap();
        let device = input::device("H100").unwrap();
        let recorded = recorded(&Trace::of_graph(&graph, |op| device.time(&graph.op(op)))).unwrap();
        let peak = recorded.trace.base().peak;
        let settings = Settings {
            align: Bytes(1),
            allocator: "ideal".to_owned(),
            ..Settings::new(Bytes(peak.0 / 10 * 9))
        };
        let context = Context::new(&device);
        let task = Task::issued(&recorded.graph, true, &context).holding(recorded.held_to_the_end());
        let mut front = ByBest.plan(&task, settings.budget, &context).unwrap();
        front.points.truncate(3);
        assert_eq!(front.points.len(), 3);
        let mut trial = Trial::new(&recorded, &settings, &context, &task);
        let honest = trial.cheapest(&task, &front, u64::MAX).unwrap().unwrap();
        front.points.reverse();
        for (point, ns) in front.points.iter_mut().zip(1..) {
            point.cost.time = task.base_time() + Nanos(ns);
        }
        let mut trial = Trial::new(&recorded, &settings, &context, &task);
        let found = trial.cheapest(&task, &front, u64::MAX).unwrap().unwrap();
        assert_eq!(found.ns, honest.ns);
        assert_eq!(trial.left, TRIES - 3);
        // What is no cheaper is not taken.
        let mut trial = Trial::new(&recorded, &settings, &context, &task);
        assert!(trial.cheapest(&task, &front, honest.ns).unwrap().is_none());
    }
}
