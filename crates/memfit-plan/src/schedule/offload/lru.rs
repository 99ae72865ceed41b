//! On demand: where room is needed, what was used longest ago goes; it comes back when it is used.
//!
//! Source: the baseline of the field, as unified virtual memory does it (for one, "LRU-UVM" in Zhang et al., "G10", MICRO
//! 2023). We differ: whole values move, not pages, and what moves is known before the step runs. Time O(gaps × log gaps +
//! windows × runs). Ties go to the larger value. Wrong choice wherever there is time to move ahead: ops wait for most copies.

use std::cmp::Reverse;

use memfit_ir::Bytes;

use super::{Chooser, Front, Infeasible, RunList, Scheduler, Task, on_demand};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Lru;

impl Scheduler for Lru {
    fn info(&self) -> Info {
        Info {
            name: "lru",
            summary: "on demand: what was used longest ago goes, and comes back when it is used",
            source: "the baseline of G10, MICRO 2023",
            year: 2023,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let windows = on_demand(chooser.step(), chooser.limit(), |gap| Some((gap.from, Reverse(gap.size))));
        let moved = windows.and_then(|windows| chooser.run_at(&windows));
        chooser.found(moved)
    }
}
