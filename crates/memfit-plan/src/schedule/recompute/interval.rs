//! Retention intervals with a cap on their number: each value is made at most twice.
//!
//! Source: Bartan et al., "MOCCASIN" (ICML 2023, arXiv:2304.14463): intervals of retention, C = 2 copies a node,
//! and its two phases: first the least peak without a budget, then the least time within it. We differ: no
//! constraint solver; the local search of `search.rs` moves the intervals' starts, so there is no proof. Their
//! strength is wide graphs, where greedy runs pin too much. Time and determinism as `best`; rungs of the same
//! ladder, so a larger budget is never slower. Wrong choice at tight budgets, which need third copies.

use memfit_ir::{Bytes, Nanos};

use super::ladder::ladder;
use super::search::{Effort, HOT, Search};
use super::{Front, Infeasible, RunList, Scheduler, Task};
use crate::problem::{bytes, signed};
use crate::{Context, Info};

/// At most so many runs of an op.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Runs of each op, the first one included.
    pub copies: usize,
}

impl Interval {
    /// What the table holds.
    pub const DEFAULT: Interval = Interval { copies: 2 };
}

impl Scheduler for Interval {
    fn info(&self) -> Info {
        Info {
            name: "interval",
            summary: "moves retention intervals, two for each value, from the least peak up",
            source: "after Bartan et al., MOCCASIN, ICML 2023, arXiv:2304.14463",
            year: 2023,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let nodes = task.nodes();
        let changes = (6_000_000 / (nodes + 50)).min(6 * nodes * nodes) * context.effort.max(1) as usize;
        let mut front = Front::default();
        front.add_schedule(task, RunList::plain(task));
        let floor = signed(task.floor().0);
        // Phase 1: as low as it gets. Phase 2: each round rung, from what the rungs below have found.
        let targets = std::iter::once(floor).chain(ladder(task).into_iter().filter(|r| r.1).map(|r| r.0));
        for (rung, target) in targets.enumerate() {
            if target > signed(budget) || (context.stop)() {
                break;
            }
            let Some(start) = front.fastest(bytes(target)).or(front.points.last()) else {
                break;
            };
            let best = if signed(start.cost.peak) > target { u64::MAX } else { start.cost.time.0 };
            let start = start.schedule.clone();
            let seed = context.seed ^ rung as u64;
            let Some(search) = Search::new(task, &start, target - task.constant, seed) else { break };
            let mut search = search.with_copies(self.copies);
            let mut found = None;
            let effort = Effort { changes, heat: HOT, stop: context.stop };
            search.anneal(effort, best, |editor| found = Some(editor.runs.schedule()));
            // What came closest counts too: the next rung may start from it.
            front.add_schedule(task, found.unwrap_or_else(|| search.editor.runs.schedule()));
        }
        front.within(task, budget, Nanos::ZERO)
    }
}
