//! Chooses gaps until the live bytes fit, by several scores, and changes the best choice as long as the clock says it helps.
//!
//! Source: ours; the scores are those of the field (`transfers/choose.rs`). We differ in that each choice is lowered to a
//! program, with waits, and timed by the clock; the fastest is what counts, improved by local search over what is away and for
//! how long; what the quick schedulers of the field plan is held against it. Guarantee: live bytes and copies within their budgets, no op runs twice. Where there is little to choose, nothing
//! is faster (`moving/exact.rs`); on graphs of up to 32 ops a larger budget, for the device or for host memory, never gives a
//! slower plan (`moving/lattice.rs`), on larger ones it seldom does. Where nothing is found, parameters and state are at home in
//! other memory, as few of them as will do, all optimizer state, or all that may be: the fastest of the three; all state, or all
//! where there is none, also where that makes much room and is faster: for that, small tasks are planned for less memory as well (`schedule/less.rs`). Time O(gaps ×
//! (gaps + ops)) for a choice, and a run of the clock for each change. Ties go to what was found first. Wrong choice where ops
//! are cheaper to run again than their results to move.

use memfit_ir::Bytes;

use super::{Front, Infeasible, QUICK, Scheduler, Task, moving, or_less, or_parked};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Best;

impl Scheduler for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "moves what covers the peak for least time on the link, timed by the clock",
            source: "memfit; scores after G10, MICRO 2023, and AutoSwap, arXiv:1903.06631",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        or_less(task, budget, self.info(), context, |budget, context| {
            // Between its uses no value can leave that lasts; across the end of the step it can.
            or_parked(task, budget, context.device, |task| match task.is_parked() {
                true => moving::within(task, budget, &[], context),
                false => moving::fastest(task, budget, QUICK, context),
            })
        })
    }
}
