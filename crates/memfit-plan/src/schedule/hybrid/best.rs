//! Runs again what brings the peak down part of the way, moves the rest of the way, and improves on each beside the other.
//!
//! Source: ours; that both are needed, and that transfers which cost nothing come first, is Capuchin's (Peng et al.,
//! "Capuchin", ASPLOS 2020). Every schedule that recomputation finds for any budget, also for larger ones, is a start: what
//! is still too much in it is moved, as offloading alone would. The fastest are improved in turns: with what is away held,
//! runs come and go by local search; with the runs held, what is away is chosen anew. The runs of all other hybrids are starts
//! as well, and nothing slower than their steps comes back. The fastest of all is improved by local
//! search over both at once, in which also its form may change. The clock says what counts. Never slower than either alone
//! within the same live budget. Where nothing fits, parameters and state are at home in other memory: as few of them as will do, all
//! optimizer state, or all that may be, whichever is fastest; all optimizer state, or all where there is none, also where that makes much room. Small tasks are planned for smaller budgets and less host memory
//! as well (`schedule/less.rs`), so that more of either is seldom slower. Time that of recomputation on its whole ladder, and a local search for each round. Ties go to what was found first.

use memfit_ir::Bytes;
use rayon::prelude::*;

use super::{
    Algorithms, Away, Choices, Chooser, Front, Infeasible, MOVING, Moved, Point, QUICK, RunList, Scheduler,
    Task, Waits, again, climb, encoding, forms, link, moving, once, or_less, or_parked, refine, signed,
    timed,
};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Best;

/// Schedules from which transfers start, at most.
const STARTS: usize = 24;

/// Those that are improved, the fastest.
const KEPT: usize = 3;

/// Parts of what lies between floor and budget that values are moved for beyond what has to be.
const MORE: [u64; 2] = [32, 8];

/// Rounds of improvement, at most.
const ROUNDS: usize = 4;

impl Scheduler for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "runs again and moves, whichever is cheaper for each value, timed by the clock",
            source: "memfit; after Capuchin, ASPLOS 2020",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        or_less(task, budget, self.info(), context, |budget, context| {
            or_parked(task, budget, context.device, |task| fastest(task, budget, context))
        })
    }
}

/// The fastest that is found for `task` as it is.
fn fastest(task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
    // What waits does so behind a link, or encoded: whichever is faster in the end.
    let behind = link(context.device).map(Waits::Behind);
    let plain = RunList::plain(task);
    let encoded = Waits::Encoded(encoding(context));
    let encoded = Chooser::waiting(task, &plain, encoded, budget, context).is_ok().then_some(encoded);
    if behind.is_none() && encoded.is_none() {
        return Err(Infeasible::because(task, budget, "the device has no link to host memory"));
    }
    let (mut best, mut lowest): (Option<Improved>, Option<Bytes>) = (None, None);
    let mut named: Option<Vec<Front>> = None;
    for waits in [behind, encoded].into_iter().flatten() {
        let mut search = Search { task, waits, budget, context, lowest: None };
        let found = search.fastest(&mut named);
        lowest = [lowest, search.lowest].into_iter().flatten().min();
        best = [best, found].into_iter().flatten().min_by_key(|found| found.moved.time);
        if best.as_ref().is_some_and(|best| best.moved.time <= task.base_time()) {
            break;
        }
    }
    // On small graphs moving alone is searched for more thoroughly than beside runs.
    let alone = moving::small(task, budget, MOVING, context).and_then(Result::ok);
    let named = named.into_iter().flatten().min_by_key(Front::time);
    let front = best.map(|Improved { runs, away, moved }| {
        let choices = Choices::runs(task).and_waits(task, &forms(context), context.device);
        refine(task, (&runs, &away), &choices, (moved, budget), context)
    });
    let found = [front, alone, named].into_iter().flatten().min_by_key(Front::time);
    found.ok_or_else(|| Infeasible::new(task, budget, lowest))
}

impl Search<'_> {
    /// The fastest step in which values wait as they may. What other hybrids find is found once, if it is needed.
    fn fastest(&mut self, named: &mut Option<Vec<Front>>) -> Option<Improved> {
        let (task, budget, context) = (self.task, self.budget, self.context);
        // Where the link keeps up, nothing has to run again.
        let plain = self.plain();
        let mut found: Vec<Found> = plain.into_iter().collect();
        if !self.is_best(&found) {
            let front = climb(task, Bytes::MAX, context);
            for point in starts(&front, budget) {
                if self.is_best(&found) || (context.stop)() && !found.is_empty() {
                    break;
                }
                found.extend(self.start(point));
            }
        }
        // They know nothing of what is at home elsewhere.
        if !self.is_best(&found) && !task.is_parked() {
            let ask = |one: &&dyn Scheduler| {
                once(task, (one.info(), budget), context, || one.plan(task, budget, context)).ok()
            };
            let all = || QUICK.par_iter().filter_map(ask).collect();
            for front in named.get_or_insert_with(all).iter().take_while(|_| !(context.stop)()) {
                // With the same runs others may be away, or the same for other times.
                found.extend(front.points.first().and_then(|point| self.moved(&point.schedule)));
            }
        }
        found.sort_by_key(|found| found.moved.time);
        found.truncate(KEPT);
        let improve = |found| Search { lowest: None, ..*self }.improve(found);
        let improved: Vec<Found> = found.into_par_iter().map(improve).collect();
        let best = improved.into_iter().min_by_key(|found| found.moved.time);
        let Found { runs, chosen, moved } = best?;
        let away = self.chooser(&runs)?.away(&chosen);
        Some(Improved { runs, away, moved })
    }
}

/// What `front` has that is too large for `budget`, fastest first, not more than [`STARTS`] of them; and the fastest that
/// fits.
fn starts(front: &Front, budget: Bytes) -> impl Iterator<Item = &Point> {
    let fits = front.points.partition_point(|point| point.cost.peak > budget);
    let count = fits.min(STARTS);
    let large = (0..count).map(move |at| &front.points[at * fits / count]);
    large.chain(front.points.get(fits))
}

/// A step that fits.
struct Found {
    runs: RunList,
    /// Of the gaps of `runs`, those in which values are away.
    chosen: Vec<usize>,
    moved: Moved,
}

/// The fastest that was found, and when its values are away.
struct Improved {
    runs: RunList,
    away: Vec<Away>,
    moved: Moved,
}

struct Search<'a> {
    task: &'a Task<'a>,
    waits: Waits,
    budget: Bytes,
    context: &'a Context<'a>,
    /// The least live bytes of what was too large.
    lowest: Option<Bytes>,
}

impl<'a> Search<'a> {
    /// Whether nothing can be faster than one of `found`.
    fn is_best(&self, found: &[Found]) -> bool {
        found.iter().any(|found| found.moved.time <= self.task.base_time())
    }

    fn chooser<'r>(&self, runs: &'r RunList) -> Option<Chooser<'r>>
    where
        'a: 'r,
    {
        Chooser::new(self.task, runs, self.waits, self.budget, self.context)
    }

    /// Every op once, with values moved until they fit.
    fn plain(&mut self) -> Option<Found> {
        let runs = RunList::plain(self.task);
        let mut chooser = self.chooser(&runs)?;
        let found = chooser.settled(Chooser::fastest);
        self.lowest = chooser.lowest();
        drop(chooser);
        found.map(|(chosen, moved)| Found { runs, chosen, moved })
    }

    /// `runs` with values moved until they fit.
    fn moved(&mut self, runs: &RunList) -> Option<Found> {
        let mut chooser = self.chooser(runs)?;
        let found = chooser.settled(Chooser::best);
        let found = found.map(|(chosen, moved)| Found { runs: runs.clone(), chosen, moved });
        let lowest = chooser.lowest();
        self.lowest = [self.lowest, lowest].into_iter().flatten().min();
        found
    }

    /// `runs` with the values of `away` moved as it says, or others, whichever is faster.
    fn held(&mut self, runs: &RunList, away: &[Away]) -> Option<Found> {
        let mut chooser = self.chooser(runs)?;
        let held = chooser.gaps_of(away);
        let held = chooser.run(&held).map(|moved| (held, moved));
        let best =
            [held, chooser.settled(Chooser::best)].into_iter().flatten().min_by_key(|(_, moved)| moved.time);
        best.map(|(chosen, moved)| Found { runs: runs.clone(), chosen, moved })
    }

    fn start(&mut self, point: &Point) -> Option<Found> {
        if point.cost.peak > self.budget {
            return self.moved(&point.schedule);
        }
        // What is at home elsewhere has transfers that the point's own cost leaves out.
        let moved = timed(
            self.task,
            (&point.schedule, &[], &Algorithms::default()),
            self.budget,
            self.context.device,
        )?
        .ok()?;
        Some(Found { runs: point.schedule.clone(), chosen: Vec::new(), moved })
    }

    /// Changes runs and what is away, in turns.
    fn improve(&mut self, mut found: Found) -> Found {
        let limit = signed(self.budget) - self.task.constant;
        for _ in 0..ROUNDS {
            if found.moved.time <= self.task.base_time() || (self.context.stop)() {
                break;
            }
            let Some(better) = self.turn(&found, limit) else { break };
            found = better;
        }
        self.climb(found)
    }

    /// Changes what is away as long as the clock says that it helps.
    fn climb(&self, found: Found) -> Found {
        let Some(mut chooser) = self.chooser(&found.runs) else { return found };
        let (chosen, moved) = chooser.climb(found.chosen, found.moved);
        drop(chooser);
        Found { chosen, moved, runs: found.runs }
    }

    /// What is faster than `found`, if anything was found: where more is away than has to be, fewer ops run again.
    fn turn(&mut self, found: &Found, limit: i64) -> Option<Found> {
        let mut better: Option<Found> = None;
        let held = self.chooser(&found.runs)?.away(&found.chosen);
        let more = MORE.iter().filter_map(|part| {
            let budget = Bytes(self.budget.0 - self.budget.0.saturating_sub(self.task.floor().0.0) / part);
            let mut chooser = Chooser::new(self.task, &found.runs, self.waits, budget, self.context)?;
            let (chosen, _) = chooser.settled(Chooser::best)?;
            Some(chooser.away(&chosen))
        });
        for away in std::iter::once(held).chain(more.collect::<Vec<_>>()) {
            let Some(runs) = again(self.task, &found.runs, limit, &away, self.context) else { continue };
            let time = better.as_ref().unwrap_or(found).moved.time;
            better = self.held(&runs, &away).filter(|new| new.moved.time < time).or(better);
        }
        better
    }
}
