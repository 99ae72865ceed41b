//! Greedy runs by many rules, then local search, towards one target or one after another of a ladder.

use memfit_ir::{Bytes, Nanos};

use super::editor::Away;
use super::greedy::{self, Purse, SCORES, Score};
use super::ladder::{between, ladder};
use super::rebuild::by_bytes;
use super::search::{Effort, HOT, MILD, Search, WARM, usual_changes};
use super::{Front, Point, RunList, Task, bound};
use crate::Context;
use crate::problem::{bytes, signed};

/// How much work a rung gets.
struct Work {
    scores: usize,
    changes: usize,
}

impl Work {
    fn new(task: &Task<'_>, effort: u32) -> Work {
        let nodes = task.nodes();
        let changes = usual_changes(task) * effort.max(1) as usize;
        Work { scores: if nodes > 1500 { 3 } else { SCORES.len() }, changes }
    }

    /// Most of the work goes where people's budgets are.
    fn changes(&self, round: bool) -> usize {
        if round { self.changes } else { self.changes / 12 }
    }
}

/// Adds what is found towards `budget` itself.
pub(super) fn onto(task: &Task<'_>, budget: Bytes, context: &Context<'_>, front: &mut Front) {
    Climb::new(task, context).rung((signed(budget), true), context.seed, front);
}

/// What climbs have found for a task, which is asked again for other budgets. Work is counted, never timed, so who asks anew
/// would find the same.
#[derive(Debug, Default)]
struct Climbed {
    /// Seed and effort.
    by: (u64, u32),
    /// All targets up to this one have been climbed to.
    up_to: Option<i64>,
    /// In the order in which they were found: at which target, whether by stretching what was there, and what.
    found: Vec<(i64, bool, Point)>,
    purse: Option<Purse>,
}

impl Climbed {
    /// What had been found once `target` had been climbed to: by climbing, and by stretching that.
    fn fronts(&self, target: i64) -> (Front, Front) {
        let (mut front, mut stretched) = (Front::default(), Front::default());
        for (_, by_stretching, point) in self.found.iter().filter(|(at, ..)| *at <= target) {
            let front = if *by_stretching { &mut stretched } else { &mut front };
            front.add(point.clone());
        }
        (front, stretched)
    }

    /// Notes what is new in `front`, at `target`.
    fn note(&mut self, target: i64, by_stretching: bool, front: &Front) {
        for point in &front.points {
            let is_this =
                |(_, by, other): &(i64, bool, Point)| *by == by_stretching && other.cost == point.cost;
            if !self.found.iter().any(is_this) {
                self.found.push((target, by_stretching, point.clone()));
            }
        }
    }
}

/// What is found on the ladder up to `budget`. A larger budget sees all that a smaller one saw.
pub(in super::super) fn all(task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Front {
    task.memo.with(|climbed: &mut Climbed| {
        let by = (context.seed, context.effort);
        if climbed.by != by {
            *climbed = Climbed { by, ..Climbed::default() };
        }
        let budget = signed(budget);
        if climbed.up_to.is_none_or(|up_to| up_to < budget) {
            climb_on(task, budget, context, climbed);
        }
        let (mut front, stretched) = climbed.fronts(budget);
        for point in stretched.points {
            front.add(point);
        }
        if (context.stop)() {
            // It was cut off somewhere.
            *climbed = Climbed::default();
        }
        front
    })
}

/// Time of the fastest that has been found within `budget`, if all that greedy runs by `score` find on the ladder is among it.
pub(super) fn fastest_of(
    task: &Task<'_>,
    score: Score,
    budget: Bytes,
    context: &Context<'_>,
) -> Option<Nanos> {
    let is_tried = SCORES[..Work::new(task, context.effort).scores].contains(&score);
    task.memo.with(|climbed: &mut Climbed| {
        let is_far_enough = climbed.up_to.is_some_and(|up_to| up_to >= signed(budget));
        let was_cut = climbed.purse.as_ref().is_none_or(Purse::is_empty);
        let (front, _) = (is_tried && is_far_enough && !was_cut).then(|| climbed.fronts(signed(budget)))?;
        front.fastest(budget).map(|point| point.cost.time)
    })
}

/// Climbs on, from where `climbed` is, up to `budget`.
fn climb_on(task: &Task<'_>, budget: i64, context: &Context<'_>, climbed: &mut Climbed) {
    if climbed.up_to.is_none() {
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        for start in &task.starts {
            if let Some(start) = RunList::of_ops(task, start.iter().copied()) {
                front.add_schedule(task, start);
            }
        }
        for schedule in by_bytes(task, context.stop) {
            front.add_schedule(task, schedule);
        }
        climbed.note(i64::MIN, false, &front);
    }
    let above = climbed.up_to.unwrap_or(i64::MIN);
    // Apart, so that rungs find what they find without what is stretched.
    let (mut front, mut stretched) = climbed.fronts(above);
    let mut climb = Climb::new(task, context);
    climb.purse = climbed.purse.take().unwrap_or(climb.purse);
    let ladder = ladder(task);
    let mut between = between(task, &ladder).into_iter().peekable();
    let is_over = |target: i64| target > budget || (context.stop)();
    for (rung, &(target, round)) in ladder.iter().enumerate() {
        if is_over(target) {
            break;
        }
        let seed = context.seed ^ rung as u64;
        if target > above {
            climb.rung((target, round), seed, &mut front);
            climbed.note(target, false, &front);
        }
        while let Some((_, target)) = between.next_if(|&(after, _)| after == rung) {
            if is_over(target) {
                break;
            }
            if target > above {
                let changes = climb.work.changes / 48;
                stretch(task, target, changes, seed, context, (&front, &mut stretched));
                climbed.note(target, true, &stretched);
            }
        }
    }
    climbed.purse = Some(climb.purse);
    climbed.up_to = Some(budget);
}

/// Adds to the second of `fronts` what the best of both within `target` becomes when it may use all of it.
fn stretch(
    task: &Task<'_>,
    target: i64,
    changes: usize,
    seed: u64,
    context: &Context<'_>,
    (front, stretched): (&Front, &mut Front),
) {
    let fastest = [front.fastest(bytes(target)), stretched.fastest(bytes(target))];
    let Some(start) = fastest.into_iter().flatten().min_by_key(|point| point.cost.time) else { return };
    let best = start.cost.time;
    if best <= task.base_time() + bound::extra(task, bytes(target)) {
        return;
    }
    let limit = target - task.constant;
    let Some(mut search) = Search::new(task, &start.schedule, limit, seed) else { return };
    search.prune(context.stop);
    search.polish(changes / 4, context.stop);
    let mut found = search.editor.runs.schedule();
    let effort = Effort { changes, heat: WARM, stop: context.stop };
    let best = search.editor.cost();
    let mut better = None;
    search.anneal(effort, best, |editor| better = Some(editor.runs.schedule()));
    if let Some(mut search) = better.and_then(|schedule| Search::new(task, &schedule, limit, seed)) {
        search.prune(context.stop);
        search.polish(changes / 4, context.stop);
        found = search.editor.runs.schedule();
    }
    stretched.add_schedule(task, found);
}

/// What `start` becomes within `limit`, the constant not counted, where the values of `away` wait elsewhere: with fewer runs,
/// and others. It may still be above where `start` is.
pub(in super::super) fn again(
    task: &Task<'_>,
    start: &RunList,
    limit: i64,
    away: &[Away],
    context: &Context<'_>,
) -> Option<RunList> {
    let changes = Work::new(task, context.effort).changes / 4;
    let mut search = Search::around(task, start, limit, context.seed, away)?;
    search.prune(context.stop);
    search.polish(changes / 4, context.stop);
    let mut found = search.editor.runs.schedule();
    let best = if search.editor.over() == 0 { search.editor.cost() } else { u64::MAX };
    let mut better = None;
    let effort = Effort { changes, heat: WARM, stop: context.stop };
    search.anneal(effort, best, |editor| better = Some(editor.runs.schedule()));
    if let Some(better) = better {
        let mut search = Search::around(task, &better, limit, context.seed, away)?;
        search.prune(context.stop);
        search.polish(changes / 4, context.stop);
        found = search.editor.runs.schedule();
    }
    Some(found)
}

/// A climb from rung to rung.
struct Climb<'c, 'g> {
    task: &'c Task<'g>,
    context: &'c Context<'c>,
    work: Work,
    purse: Purse,
}

impl<'c, 'g> Climb<'c, 'g> {
    fn new(task: &'c Task<'g>, context: &'c Context<'c>) -> Self {
        Climb { task, context, work: Work::new(task, context.effort), purse: Purse::of(task) }
    }

    /// Adds to `front` what greedy runs and local search find within `target`, with more work where that is `round`.
    fn rung(&mut self, (target, round): (i64, bool), seed: u64, front: &mut Front) {
        let Climb { task, context, .. } = *self;
        let (limit, changes) = (target - task.constant, self.work.changes(round));
        for &score in &SCORES[..self.work.scores] {
            if let Some(schedule) = greedy::run(task, limit, score, 4, &mut self.purse, context.stop) {
                front.add_schedule(task, schedule);
            }
        }
        let least = task.base_time() + bound::extra(task, bytes(target));
        // Three rounds: from scratch, to be free of what greedy runs have in common; then twice from the best.
        for (round, (heat, part)) in [(HOT, 0.5), (MILD, 0.3), (WARM, 0.2)].into_iter().enumerate() {
            let seed = seed.wrapping_add(1000 * round as u64);
            if (context.stop)() {
                break;
            }
            let Some(start) = front.fastest(bytes(target)).or(front.points.last()) else { return };
            let mut best = start.cost.time;
            let mut share = 1.0;
            if start.cost.peak > bytes(target) {
                best = Nanos(u64::MAX);
            } else if best <= least {
                return; // Nothing is faster.
            } else {
                // Work goes where there is something to gain: all of it for half a percent.
                let gap = best.as_secs_f64() / least.as_secs_f64() - 1.0;
                share = (gap / 0.005).clamp(0.25, 3.0);
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
            let changes = (changes as f64 * share * part) as usize;
            let start = if round == 0 { RunList::plain(task) } else { start.schedule.clone() };
            let Some(mut search) = Search::new(task, &start, limit, seed) else { return };
            let mut found = None;
            let effort = Effort { changes, heat, stop: context.stop };
            search.anneal(effort, best.0, |editor| found = Some(editor.runs.schedule()));
            match found {
                Some(schedule) => {
                    if let Some(mut search) = Search::new(task, &schedule, limit, seed) {
                        search.prune(context.stop);
                        search.polish(changes / 4, context.stop);
                        front.add_schedule(task, search.editor.runs.schedule());
                    }
                }
                // What came closest is where the next one starts from.
                None => front.add_schedule(task, search.editor.runs.schedule()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::{InPlace, OpId};
    use memfit_testkit::{Layered, device, layered};

    use super::*;

    /// In whatever order budgets are asked for.
    #[test]
    fn what_is_kept_is_what_is_found_anew() {
        let (device, shape) =
            (device(), Layered { ops: 34, edges: 60, layers: 12, skips: 20, unit: 64, sparse: 0 });
        let context = Context::new(&device);
        let mut larger = 0;
        for seed in 0..2 {
            let graph = layered(shape, seed);
            let order: Vec<OpId> = graph.op_ids().collect();
            let task = || Task::new(&graph, &order, InPlace::May, false, &context);
            let asked = task();
            let peak = asked.reference().0;
            let found = [60, 95, 75, 100].map(|share| {
                let budget = Bytes(peak / 100 * share);
                let (kept, anew) = (all(&asked, budget, &context), all(&task(), budget, &context));
                let told = |front: &Front| -> Vec<_> {
                    front.points.iter().map(|point| (point.cost, point.schedule.clone())).collect()
                };
                assert_eq!(told(&kept), told(&anew), "seed {seed}, {share} %");
                kept.points.len()
            });
            larger += usize::from(found[1] > 1);
            // Another seed finds for itself.
            let other = Context { seed: 7, ..Context::new(&device) };
            let (kept, anew) = (all(&asked, Bytes(peak), &other), all(&task(), Bytes(peak), &other));
            assert_eq!(kept.points.len(), anew.points.len());
        }
        assert!(larger > 0, "{larger}: nothing to choose from");
    }
}
