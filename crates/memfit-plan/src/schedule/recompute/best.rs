//! Segments of many sizes, many greedy runs, then local search, over a fixed ladder of targets.
//!
//! Source: memfit; the parts are those of `greedy.rs`, `rebuild.rs` and `search.rs`. The ladder and everything
//! found on it depend on the task alone, never on the budget, and are climbed from below up to the budget: so
//! a larger budget sees all that a smaller one saw, and is never slower. Never worse than the greedy runs.
//! Deterministic: work is counted in changes; the stop button only cuts. Time O(rungs × (evictions × pool +
//! changes × positions)). Ties go to what was found first. Wrong choice where a proof of optimality is wanted:
//! `checkmate.rs`.

use memfit_ir::Bytes;

use super::{Front, Infeasible, Point, RunList, Scheduler, Task, bound, climb};
use crate::{Context, Info};

/// The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Best;

impl Scheduler for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "greedy runs by many rules, then local search",
            source: "memfit",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let front = climb::all(task, budget, context);
        front.within(task, budget, bound::extra(task, budget))
    }
}

/// As [`Best`], onto `budget` alone, from what runs without a budget and from the starts of `task`: quick, other for each
/// seed, and good to go on from what there is. What comes back for a larger budget may be slower.
///
/// # Errors
///
/// [`Infeasible`] if it finds none.
pub fn straight(task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
    let mut front = Front::default();
    front.add_schedule(task, RunList::plain(task));
    for start in &task.starts {
        if let Some(start) = RunList::of_ops(task, start.iter().copied()) {
            front.add_schedule(task, start);
        }
    }
    climb::onto(task, budget, context, &mut front);
    front.within(task, budget, bound::extra(task, budget))
}

impl Front {
    /// Adds `schedule` unless something here is at least as good.
    pub(super) fn add_schedule(&mut self, task: &Task<'_>, schedule: RunList) {
        if let Some(cost) = schedule.cost(task) {
            self.add(Point { cost, schedule, moved: None });
        }
    }
}
