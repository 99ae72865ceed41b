//! The passes between goal and plan: ways to run the step, placed, and what is the least that is enough.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use memfit_ir::{Bytes, Device, Graph, InPlace, Layout, Limits, Nanos, OpId, Place, Program};
use memfit_plan::families::{Named, default_of, placer};
use memfit_plan::place::lanes::{self, Keep};
use memfit_plan::place::spread::spread;
use memfit_plan::place::{Placement, Placer, Problem, Unplaced};
use memfit_plan::schedule::{self, Instead, Task, by_fastest_algorithms};
use memfit_plan::{Context, Means};
use memfit_sim::simulate;

use crate::choice::Choice;
use crate::failure::Infeasible;
use crate::pipeline::LaneSummary;
use crate::{Failure, Goal, LaneRule, Options, Tools};

/// Time of the step on `device` with every op once, in the graph's own order.
pub(crate) fn base_time(graph: &Graph, device: &Device) -> Nanos {
    simulate(graph, &Program::eager(graph), None, device).time
}

/// One way to run the step, placed.
pub(crate) struct Candidate {
    pub(crate) program: Program,
    pub(crate) problem: Problem,
    pub(crate) item_of: Vec<usize>,
    pub(crate) placement: Placement,
    /// What counts against the budget: the arena, or what is live in it.
    pub(crate) needs: Bytes,
    /// Predicted time of the program.
    pub(crate) time: Nanos,
    /// No recomputation in this order and within the budget takes less.
    pub(crate) time_bound: Nanos,
    /// What made it fit, if every op once, with nothing moved, did not.
    pub(crate) by: Option<Named>,
    /// Who made the schedule, and why, where the strategy that was asked did not.
    pub(crate) instead: Option<Instead>,
}

/// Why there is no candidate.
pub(crate) struct Missed {
    /// The least that anything needed.
    pub(crate) needed: Bytes,
    /// What stood in the way beside bytes.
    pub(crate) why: Option<String>,
}

/// The orders that a step may run in, the first of which is preferred.
#[derive(Clone, Copy)]
pub(crate) struct Orders<'a> {
    pub(crate) first: &'a [OpId],
    pub(crate) other: Option<&'a [OpId]>,
}

impl<'a> Orders<'a> {
    fn each(self) -> impl Iterator<Item = &'a [OpId]> {
        std::iter::once(self.first).chain(self.other)
    }
}

pub(crate) struct Planner<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) goal: &'a Goal,
    pub(crate) choice: &'a Choice,
    pub(crate) tools: &'a Tools<'a>,
    pub(crate) limits: Limits,
    pub(crate) placer: &'static dyn Placer,
    /// What schedules that recomputation proposes are tried with first: one of many must fit.
    pub(crate) quick: &'static dyn Placer,
    /// By order: what was found for one budget serves for others.
    tasks: Mutex<Vec<Known<'a>>>,
}

/// The task of one order, and what is known of it.
struct Known<'a> {
    order: Vec<OpId>,
    task: Arc<Task<'a>>,
    /// No schedule by these means takes less within this budget.
    least: Vec<((Bytes, Means), Nanos)>,
}

/// Schedules that are nearly within the budget for which the placer may search, for each order; and those of a scheduler that
/// moves values.
const SEARCHES: (u32, u32) = (3, 2);

/// Buffers of a program that moves values for which the placer may search from afar.
const MOST_SEARCHED: usize = 2500;

/// Placements with faster algorithms that are tried, each in less memory.
const FILLS: usize = 6;

/// How close to the least budget the one that is named comes: a part of it.
const NEAR: u64 = 40;

impl<'a> Planner<'a> {
    pub(crate) fn new(
        graph: &'a Graph,
        goal: &'a Goal,
        choice: &'a Choice,
        tools: &'a Tools<'a>,
    ) -> Result<Self, Failure> {
        let chosen = if goal.options.co_share { choice.placer } else { placer("naive")? };
        let mut limits = choice.device.limits();
        limits.banks[0].capacity = Bytes::MAX; // Until the peak, and so a relative budget, is known.
        limits.replays_random = goal.replays(graph);
        limits.lossy.clone_from(&goal.options.lossy);
        let quick = if chosen.info().name == default_of("place") { placer("dive")? } else { chosen };
        Ok(Planner { graph, goal, choice, tools, limits, placer: chosen, quick, tasks: Mutex::default() })
    }

    pub(crate) fn context(&self, enough: Bytes) -> Context<'_> {
        let Options { seed, effort, lossy, .. } = &self.goal.options;
        let (seed, effort) = (*seed, *effort);
        Context { device: &self.choice.device, seed, stop: self.tools.stop, effort, enough, lossy }
    }

    fn in_place(&self) -> InPlace {
        match (self.goal.options.in_place, self.goal.options.lanes > 1) {
            (false, _) => InPlace::Must,
            (true, true) => InPlace::SoleReader,
            (true, false) => InPlace::May,
        }
    }

    fn in_order(&self, order: &[OpId]) -> Program {
        Program::in_order(self.graph, order, self.in_place())
    }

    /// Every op once, in the first of `orders`; in the other where the first fragments and that is lower.
    pub(crate) fn keep_all(&self, orders: Orders<'_>) -> Result<Candidate, Failure> {
        let first = self.place(self.in_order(orders.first), Bytes::ZERO)?;
        // Fragmentation that another order is worth being tried for: half a percent.
        let bound = first.problem.lower_bound();
        let Some(other) = orders.other.filter(|_| first.needs > bound + Bytes(bound.0 / 200)) else {
            return Ok(first);
        };
        let other = self.place(self.in_order(other), Bytes::ZERO)?;
        Ok(if other.needs < first.needs { other } else { first })
    }

    /// Every op once, in whichever of `orders` is placed lowest without a search, and what no placement gets below.
    pub(crate) fn rough(&self, orders: Orders<'_>) -> Result<(Candidate, Bytes), Failure> {
        let first = self.place_by(self.quick, self.in_order(orders.first), Bytes::ZERO)?;
        let bound = first.problem.lower_bound();
        let Some(other) = orders.other else { return Ok((first, bound)) };
        let other = self.place_by(self.quick, self.in_order(other), Bytes::ZERO)?;
        let bound = bound.min(other.problem.lower_bound());
        Ok((if other.needs < first.needs { other } else { first }, bound))
    }

    fn place(&self, program: Program, enough: Bytes) -> Result<Candidate, Failure> {
        // Where only live bytes count, a search for a lower arena is in vain.
        self.place_by(if self.choice.live { self.quick } else { self.placer }, program, enough)
    }

    fn place_by(&self, placer: &dyn Placer, program: Program, enough: Bytes) -> Result<Candidate, Failure> {
        let (mut problem, item_of) = Problem::of(self.graph, &program, &self.limits);
        let Options { lanes: count, lane_rule, .. } = self.goal.options;
        if count > 1 {
            let keep = match lane_rule {
                LaneRule::Reachable => Some(Keep::Reachable),
                LaneRule::Colours => Some(Keep::Colours(count)),
                LaneRule::AllowSerialize => None,
            };
            if let Some(keep) = keep {
                lanes::restrict(&mut problem, self.graph, &program, &item_of, keep);
            }
        }
        (self.tools.progress)(placer.info().name);
        let placement = place_with(placer, &problem, &self.context(enough))?;
        let needs = if self.choice.live { problem.lower_bound() } else { placement.height };
        let time = simulate(self.graph, &program, None, &self.choice.device).time;
        let (by, instead) = (None, None);
        Ok(Candidate { program, problem, item_of, placement, needs, time, time_bound: time, by, instead })
    }

    /// `candidate` with the fastest algorithms that the budget has room for beside it, if nobody has named who plans: no scheduler of
    /// others is given what it would not take.
    pub(crate) fn filled(&self, candidate: Candidate, budget: Bytes) -> Candidate {
        if !self.fills() {
            return candidate;
        }
        let (graph, device) = (self.graph, &self.choice.device);
        let mut most = budget;
        for _ in 0..FILLS {
            let filled = by_fastest_algorithms(graph, &candidate.program, most, device);
            let Some(placed) = filled.and_then(|program| self.place_by(self.quick, program, budget).ok())
            else {
                break;
            };
            if placed.needs > budget {
                // Fragmentation took the rest.
                most = most.saturating_sub(placed.needs.saturating_sub(budget).max(Bytes(budget.0 / 100)));
                continue;
            }
            if placed.time < candidate.time || candidate.needs > budget {
                let Candidate { time_bound, by, instead, .. } = candidate;
                return Candidate { time_bound: time_bound.min(self.least_of_all()), by, instead, ..placed };
            }
            break;
        }
        candidate
    }

    /// Whether ops may go by faster algorithms than a scheduler has them go by.
    fn fills(&self) -> bool {
        let several = |op: OpId| !self.graph.op(op).algorithms.is_empty();
        self.choice.is_by_default() && self.goal.options.lanes <= 1 && self.graph.op_ids().any(several)
    }

    /// No program takes less than this, whatever runs and moves.
    pub(crate) fn least_of_all(&self) -> Nanos {
        let device = &self.choice.device;
        if !self.fills() {
            return base_time(self.graph, device);
        }
        self.graph.op_ids().map(|op| device.least_time(&self.graph.op(op))).sum()
    }

    /// The fastest program by one of `schedulers`, with first runs in one of `orders`, that can be placed within `budget`, or a
    /// budget that may be enough. Orders are tried side by side; ties go to the earlier one.
    pub(crate) fn fit(
        &self,
        schedulers: &[Named],
        orders: Orders<'_>,
        budget: Bytes,
    ) -> Result<Candidate, Missed> {
        let mut best: Result<Candidate, Missed> = Err(Missed { needed: Bytes::MAX, why: None });
        self.improve(schedulers, orders, budget, &mut best);
        best
    }

    /// What is faster than `best` by one of `schedulers`, if anything is, in its place.
    pub(crate) fn improve(
        &self,
        schedulers: &[Named],
        orders: Orders<'_>,
        budget: Bytes,
        best: &mut Result<Candidate, Missed>,
    ) {
        let least = self.least_of_all();
        // What faster algorithms may take off a step that is found without them.
        let saved = Nanos(base_time(self.graph, &self.choice.device).0.saturating_sub(least.0));
        for named in self.in_turn(schedulers, orders, budget) {
            // Nothing is faster, or there is no time to look for it.
            if best.as_ref().is_ok_and(|best| best.time <= least || (self.tools.stop)()) {
                break;
            }
            (self.tools.progress)(named.scheduler.info().name);
            let worth = best.as_ref().map_or(Nanos(u64::MAX), |best| best.time + saved);
            let found: Vec<Result<Candidate, Missed>> = std::thread::scope(|scope| {
                let run = |order| scope.spawn(move || self.fit_in(named, order, (budget, worth)));
                let running: Vec<_> = orders.each().map(run).collect();
                // A strategy that panics is a bug, and must look like one.
                running
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                    .collect()
            });
            for found in found {
                let better = match (&found, &*best) {
                    (Ok(new), Ok(old)) => new.time < old.time,
                    (Ok(_), Err(_)) => true,
                    (Err(new), Err(old)) => new.needed < old.needed,
                    (Err(_), Ok(_)) => false,
                };
                if better {
                    *best = found;
                }
            }
        }
    }

    /// `schedulers` as they are asked: who only moves values comes last where that can't be for nothing.
    fn in_turn(&self, schedulers: &[Named], orders: Orders<'_>, budget: Bytes) -> Vec<Named> {
        let context = self.context(Bytes::ZERO);
        let waits = |named: &Named| {
            let means = named.family.means;
            let is_slower =
                |order| self.least_time(order, budget, means) > self.task(order, &context).least_time();
            !means.recompute && orders.each().all(is_slower)
        };
        let (last, first): (Vec<Named>, Vec<Named>) = schedulers.iter().partition(|named| waits(named));
        first.into_iter().chain(last).collect()
    }

    /// The fastest program of `named` with first runs in `order` that can be placed within `budget`, if it takes less than `worth`.
    fn fit_in(
        &self,
        named: Named,
        order: &[OpId],
        (budget, worth): (Bytes, Nanos),
    ) -> Result<Candidate, Missed> {
        let context = self.context(Bytes::ZERO);
        let task = self.task(order, &context);
        let means = named.family.means;
        // Others may have done its work, and seen nothing that is faster.
        let is_slower = || {
            named.scheduler.seen_least(&task, budget, &context) >= worth
                || self.least_time(order, budget, means) >= worth
        };
        if worth < Nanos(u64::MAX) && is_slower() {
            return Err(Missed { needed: Bytes::MAX, why: None });
        }
        let mut searches = if means.moves() { SEARCHES.1 } else { SEARCHES.0 };
        // Who comes last has only to be placed where that is faster than all else.
        let movers = self.choice.schedulers.iter().filter(|one| one.family.means.moves()).count();
        let alone = means.moves() && !means.recompute && (movers == 1 || self.choice.is_other(named));
        let place = |program: &Program| {
            // What was seen to succeed: a hundredth above, or two where as much of the budget is not live. Values that come
            // and go leave holes: a quick placement wastes a tenth of the budget, a search a few hundredths, and what is
            // wasted has to be moved as well, which is dear where there are no other means.
            let part = if alone && program.buffers.len() <= MOST_SEARCHED { 8 } else { 100 };
            self.place_near(program, budget, part, &mut searches)
        };
        match schedule::fit_faster(named.scheduler, &task, (budget, worth), &context, place) {
            Ok(fit) => {
                // What others might do that are asked, too, counts.
                let means = self.choice.means();
                let bound = match means.moves() {
                    true => self.least_time(order, budget, means),
                    false => fit.bound,
                };
                let time_bound = bound.min(fit.placed.time);
                let found = Candidate { time_bound, instead: fit.instead, by: Some(named), ..fit.placed };
                Ok(self.filled(found, budget))
            }
            Err(missed) => {
                let why = missed.why.map(|why| format!("`{}` did not do its work: {why}", named.name()));
                Err(Missed { needed: missed.needed, why })
            }
        }
    }

    /// The task of running the graph in `order`; the same one each time.
    fn task(&self, order: &[OpId], context: &Context<'_>) -> Arc<Task<'a>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tasks.iter().find(|known| known.order == order) {
            return Arc::clone(&known.task);
        }
        let replays_random = self.limits.replays_random;
        let task = Arc::new(Task::new(self.graph, order, self.in_place(), replays_random, context));
        tasks.push(Known { order: order.to_vec(), task: Arc::clone(&task), least: Vec::new() });
        task
    }

    /// No schedule of the task of `order` takes less by `means` within `budget`; looked for once.
    fn least_time(&self, order: &[OpId], budget: Bytes, means: Means) -> Nanos {
        let context = self.context(Bytes::ZERO);
        let (task, asked) = (self.task(order, &context), (budget, means));
        let locked = || self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = locked().iter().find(|known| known.order == order).and_then(|known| {
            known.least.iter().find(|(answered, _)| *answered == asked).map(|(_, least)| *least)
        });
        known.unwrap_or_else(|| {
            let least = schedule::least_time(&task, budget, means, &context);
            if let Some(known) = locked().iter_mut().find(|known| known.order == order) {
                known.least.push((asked, least));
            }
            least
        })
    }

    /// `program` placed without a search; or with one of the `searches` that are left, where it is above `budget` by no more
    /// than one in `part` of it, or two where as much of it is not live.
    fn place_near(
        &self,
        program: &Program,
        budget: Bytes,
        part: u64,
        searches: &mut u32,
    ) -> Option<(Bytes, Candidate)> {
        let quick = self.place_by(self.quick, program.clone(), budget).ok()?;
        let part = Bytes(budget.0 / part);
        let spare = quick.problem.lower_bound() + part <= budget;
        let close = quick.needs <= budget + if spare { part + part } else { part };
        if quick.needs <= budget || !close || *searches == 0 {
            return Some((quick.needs, quick));
        }
        *searches -= 1;
        let placed = self.place(program.clone(), budget).ok()?;
        Some((placed.needs, placed))
    }

    /// `chosen` on the goal's lanes: the program with its waits, the dependencies that memory added, and the step
    /// time without them. `None` for a program that can't be spread.
    pub(crate) fn spread(&self, chosen: &Candidate, layout: &Layout) -> Option<(Program, LaneSummary)> {
        let Candidate { program, problem, item_of, placement, .. } = chosen;
        let (count, device) = (self.goal.options.lanes, &self.choice.device);
        let added = lanes::added(problem, self.graph, program, item_of, &placement.places);
        let time = |program: &Program| simulate(self.graph, program, None, device).time;
        let free = spread(self.graph, program, &apart(program), &[], count, device)?;
        let spread = spread(self.graph, program, layout, &added, count, device)?;
        // A list schedule may end earlier under more dependencies (Graham's anomalies): it is one without them, too.
        let unhindered = time(&free).min(time(&spread));
        Some((spread, LaneSummary { count, added_dependencies: added.len(), unhindered }))
    }

    /// The least budget that is known to be enough: `low` is not, `high` is what keeping everything needs. Every
    /// budget on the way is put to the test: a strategy's own idea of what it needs leaves out fragmentation, and
    /// what it finds for a larger budget it may miss for what that needs.
    pub(crate) fn least(&self, schedulers: &[Named], orders: Orders<'_>, low: Bytes, high: Bytes) -> Bytes {
        let (mut low, mut high, from) = (low, high, low);
        let enough = |budget: Bytes| self.fit(schedulers, orders, budget).ok().map(|found| found.needs);
        // Low budgets first: they take least time.
        for part in [32, 16, 8, 4, 2] {
            let budget = from + Bytes(high.0.saturating_sub(from.0) / part);
            if (self.tools.stop)() || budget <= low || budget >= high {
                continue;
            }
            if enough(budget).is_some() {
                high = budget;
                break;
            }
            low = budget;
        }
        while high.0 - low.0.min(high.0) > high.0 / NEAR && !(self.tools.stop)() {
            let budget = Bytes(low.0 + (high.0 - low.0) / 2);
            if enough(budget).is_some() {
                high = budget;
            } else {
                low = budget;
            }
        }
        high
    }
}

/// Every chain of buffers at a place of its own: nobody waits for bytes.
fn apart(program: &Program) -> Layout {
    let mut top = Bytes::ZERO;
    let mut places: Vec<Place> = Vec::with_capacity(program.buffers.len());
    for buffer in &program.buffers {
        let before = buffer.over.and_then(|before| places.get(before.index()).copied());
        places.push(before.unwrap_or_else(|| {
            let offset = top;
            top += buffer.size;
            Place { bank: 0, offset }
        }));
    }
    Layout { places }
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
            Failure::Infeasible(Box::new(Infeasible {
                proved,
                ..Infeasible::new(budget, needed, floor, "layout of these buffers")
            }))
        }
    })
}
