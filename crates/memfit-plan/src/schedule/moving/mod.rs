//! Values are moved and every op runs once: the fastest step within a budget and what other memory holds.
//!
//! Large tasks have one search, for the budgets at hand, beside what other schedulers find for them ([`within`]). What few gaps
//! have is searched through ([`exact`]), and small tasks are searched at a lattice of budgets that does not depend on those at
//! hand ([`lattice`]): in both, more memory of either kind is never slower.

mod exact;
mod lattice;

use memfit_ir::Bytes;

use super::moves::Choices;
use super::refine::{refine, tiers};
use super::transfers::{Chooser, Gap, Gaps, Leave, live_of, timed};
use super::{Algorithms, Front, Infeasible, Moved, Point, RunList, Scheduler, Task};
use crate::Context;
use lattice::Lattices;

/// Ops of a small task, at most.
const SMALL: usize = 32;

/// Schedulers whose plans are held against what is found.
pub(super) type Others = &'static [&'static dyn Scheduler];

/// The fastest that is found.
///
/// # Errors
///
/// [`Infeasible`] if nothing is found, or the device has no link.
pub(super) fn fastest(
    task: &Task<'_>,
    budget: Bytes,
    others: Others,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    small(task, budget, others, context).unwrap_or_else(|| within(task, budget, others, context))
}

/// The same, of small tasks alone. What is at home elsewhere leaves a lattice too little to say: it has one search.
pub(super) fn small(
    task: &Task<'_>,
    budget: Bytes,
    others: Others,
    context: &Context<'_>,
) -> Option<Result<Front, Infeasible>> {
    if task.nodes() > SMALL {
        return None;
    }
    if task.is_parked() {
        return Some(within(task, budget, others, context));
    }
    let runs = RunList::plain(task);
    let chooser = Chooser::of(task, &runs, budget, context).ok()?;
    let space = exact::Space::of(task, &runs, chooser.step(), context.device);
    drop(chooser);
    if let Some(space) = space {
        return Some(exactly(&space, budget, others, context));
    }
    let found = task.memo.with(|known: &mut Lattices| known.fitting(task, budget, others, context))?;
    Some(found.map(|fitting| Front::of_points(task, fitting.into_iter().map(|moved| moved.point(&runs)))))
}

/// What nothing in `space` is faster than.
fn exactly(
    space: &exact::Space<'_>,
    budget: Bytes,
    others: Others,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let (task, runs) = (space.task, space.runs);
    let found = within(task, budget, others, context);
    let start = found.as_ref().ok().and_then(|front| front.points.first()).cloned();
    match space.faster(start.as_ref().map(|start| start.cost.time), budget, context) {
        Some(moved) => Ok(moved.front(task, runs)),
        None => found,
    }
}

/// One search, for these budgets, and what `others` find that is faster.
pub(super) fn within(
    task: &Task<'_>,
    budget: Bytes,
    others: Others,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let mut found = searched(task, budget, context);
    for other in others {
        let is_best = |front: &Front| front.time().is_some_and(|time| time <= task.least_time());
        if found.as_ref().is_ok_and(is_best) || (context.stop)() {
            break;
        }
        if let Ok(front) = other.plan(task, budget, context) {
            let points = found.into_iter().flat_map(|found| found.points).chain(front.points);
            found = Ok(Front::of_points(task, points));
        }
    }
    found
}

/// One search, for these budgets.
fn searched(task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
    let runs = RunList::plain(task);
    let mut chooser = Chooser::of(task, &runs, budget, context)?;
    let Some((chosen, moved)) = chooser.fastest() else { return chooser.found(None) };
    let away = chooser.away(&chosen);
    let choices = Choices::default().and_waits(task, &tiers(context.device), context.device);
    Ok(refine(task, (&runs, &away), &choices, (moved, budget), context))
}
