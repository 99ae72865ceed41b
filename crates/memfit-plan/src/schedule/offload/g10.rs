//! What relieves most for its time on the link goes first.
//!
//! Source: Zhang, Zhou, Li, Yang, Ren and Huang, "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture
//! with Smart Tensor Migrations", MICRO 2023, §4. The benefit of a period in which a value is not used is the area of memory
//! above the capacity that its absence takes off, the cost its time on the link there and back; the highest quotient goes first,
//! and what is left is weighed anew. Copies come back at the latest time that hides them, earlier where there is room. We
//! differ: what an absence takes off is no more than its size times the time above the capacity, the period has to lie over the run that holds most, and there is no flash memory behind the host's. Time
//! O(chosen × (gaps + runs)). Ties go to the gap that begins first. Wrong choice where several transfers are due at once,
//! since the queue on the link is not weighed.

use memfit_ir::Bytes;

use super::{Chooser, Front, Gap, Infeasible, Pressure, RunList, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct G10;

impl Scheduler for G10 {
    fn info(&self) -> Info {
        Info {
            name: "g10",
            summary: "memory above the budget that a period takes off, for its time on the link",
            source: "Zhang et al., G10, MICRO 2023",
            year: 2023,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let rate = |_: usize, gap: &Gap, pressure: &Pressure| {
            let link = gap.out.saturating_add(gap.back).max(1) as f64;
            Some(pressure.relief(gap) / link)
        };
        let moved = chooser.greedy(rate).and_then(|chosen| chooser.run(&chosen));
        chooser.found(moved)
    }
}
